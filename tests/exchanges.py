"""Workers that are threads, and how they add up what they have."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import numpy as np


class Failed(Exception):
    """What a worker raises that is to fail."""


class ThreadExchange:
    """The exchange of workers that are threads; all fail after so many messages, where given."""

    def __init__(self, rank, barrier, board, fails_after=None):
        self.rank, self.size, self.barrier, self.board = rank, len(board), barrier, board
        self.left = fails_after

    def gather(self, array):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Failed
        self.board[self.rank] = array
        self.barrier.wait()
        out = [one.copy() for one in self.board]
        self.barrier.wait()
        return out

    def sum(self, array):
        array[:] = np.sum(self.gather(array), axis=0)


def together(work, n_workers=2, fails_after=None):
    """Let this many threads work as workers, each with an exchange; return what they return."""
    barrier, board = Barrier(n_workers), [None] * n_workers

    def run(rank):
        try:
            return work(ThreadExchange(rank, barrier, board, fails_after))
        except BrokenBarrierError:  # another one has failed
            raise Failed from None
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(n_workers) as pool:
        waiting = [pool.submit(run, rank) for rank in range(n_workers)]
        return [one.result() for one in waiting]
