"""Coded rows in a folder that several processes share, on one machine or on several.

Processes that read a table write pieces of it, each with the rows of its part, block by block. The
sections of a block in all pieces are then joined into one file. A process that trains reads its
part of each block. Files are whole or not there, so that work that is done again does no harm.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.rows import CodedRows
from polyadic.io.atomic import drafted
from polyadic.scale.store import RowStore, checksum


class SharedStore(RowStore):
    """Blocks of rows in a folder that is known to all processes; it can be sent to them.

    Parameters
    ----------
    folder : path
        What is there is removed, now and at the end.
    columns, n_targets, n_blocks, single
        As for `RowStore`.
    """

    def __init__(
        self,
        folder: Any,
        columns: Sequence[Column],
        n_targets: int,
        n_blocks: int,
        single: Sequence[bool],
    ):
        self._lay_out(columns, n_targets, n_blocks, single)
        self.folder = Path(folder)
        self.rank, self.size = 0, 1
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "pieces").mkdir(parents=True)

    def write_piece(self, piece: int, rows: CodedRows, block_of: np.ndarray) -> np.ndarray:
        """Write the rows of a part of the table; return how many of them each block gets."""
        records, counts = self.to_records(rows, block_of)
        with drafted(self._piece(piece)) as draft:
            records.tofile(draft)
        return counts

    def join_pieces(self, block: int, counts: np.ndarray) -> int:
        """Write a block, with its rows of all pieces, counts : (pieces, blocks).

        Returns a checksum of the rows.
        """
        found = 0
        with drafted(self.folder / f"{block}.rows") as draft, open(draft, "wb") as file:
            for piece, own in enumerate(counts):
                before = int(own[:block].sum()) * self.record.itemsize
                path, count = self._piece(piece), int(own[block])
                if count:
                    records = np.fromfile(path, self.record, count, offset=before)
                    records.tofile(file)
                    found = checksum(records, found)
        return found

    def finish_blocks(self, counts: np.ndarray) -> None:
        """Remove the pieces, after all blocks are written."""
        shutil.rmtree(self.folder / "pieces")
        self.sizes = counts.sum(axis=0)

    def _piece(self, piece: int) -> Path:
        return self.folder / "pieces" / f"{piece}.rows"

    def part(self, rank: int, size: int) -> SharedStore:
        """Return the same store, of which only a part of each block is read."""
        own = object.__new__(SharedStore)
        own.__dict__.update(self.__dict__ | {"rank": rank, "size": size})
        return own

    def some(self, blocks: np.ndarray) -> SomeBlocks:
        """Return some of the blocks, as if there were no others."""
        return SomeBlocks(self, blocks)

    def read(self, block: int) -> CodedRows:
        """Return the rows of a block, or the part of them that belongs to this worker."""
        n_rows = int(self.sizes[block])
        begin, end = (k * n_rows // self.size for k in (self.rank, self.rank + 1))
        path, offset = self.folder / f"{block}.rows", begin * self.record.itemsize
        records = np.fromfile(path, self.record, end - begin, offset=offset)
        if len(records) != end - begin:
            raise OSError(f"{str(path)!r} is shorter than it was written.")
        return self.from_records(records)


class SomeBlocks:
    """Some blocks of a store."""

    def __init__(self, store: SharedStore, which: np.ndarray):
        self.store, self.which, self.sizes = store, which, store.sizes[which]

    def blocks(self, order: Sequence[int] | np.ndarray) -> Any:
        """Yield blocks in this order."""
        return self.store.blocks(self.which[np.asarray(order, dtype=np.intp)])
