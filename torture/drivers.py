"""Fits on a Ray cluster, in a process that is disturbed: for `clusters.py`.

The driver is told by a pipe what to fit, and tells what became of it. It can look at what a fit has
left in the cluster. The cluster itself is kept by another process, which nobody disturbs.
"""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streams  # of tests/
from steps import FEATURES, rows_on_disk

from polyadic import CPRegressor
from polyadic.scale import ray as on_ray

SOON = 30.0  # seconds until Ray has ended what belonged to a fit; chosen by hand
MARK = "POLYADIC_TORTURE_CLUSTER"  # in the environment of all processes of the cluster
ENVIRONMENT = {  # of the cluster and of drivers
    MARK: str(os.getpid()),
    # By default Ray protects a new cluster by a token from the home folder, but tells only the
    # process that has started it. This one has a token of its own, which drivers know.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # until Ray Train sees that a worker has died
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one process less to start
}
os.environ.update(ENVIRONMENT)

import ray  # noqa: E402 - it reads the environment when it is imported
import ray.data  # noqa: E402

QUIET = {"log_to_driver": False, "logging_level": "error"}


@dataclass(frozen=True)
class Shape:
    """A fit: what is divided by how many workers; whether the table comes in one part."""

    how: str
    n_members: int
    num_workers: int
    one_part: bool
    exact: bool  # whether docs/scale.md promises the bits of one machine

    def fit(self, storage) -> np.ndarray:
        """Fit the table on Ray; return predictions."""
        table = streams.make_rows(1500).select([*FEATURES, "y"])
        given = ray.data.from_arrow(table) if self.one_part else str(rows_on_disk())
        own = {"how": self.how, "num_workers": self.num_workers, "storage": storage}
        with streams.small_limits():
            return on_ray.fit(self.model(), given, "y", **own).predict(table.select(FEATURES))

    def fit_alone(self) -> np.ndarray:
        """Fit the table without Ray; return predictions."""
        table = streams.make_rows(1500).select([*FEATURES, "y"])
        with streams.small_limits():
            return self.model().fit(table.to_batches, "y").predict(table.select(FEATURES))

    def model(self) -> CPRegressor:
        options = {"max_iter": 10, "batch_size": 50, "trees": False, "random_state": 0}
        return CPRegressor(n_members=self.n_members, memory=streams.TINY, **options)


SHAPES = {
    "rows, one worker": Shape("rows", 1, 1, one_part=True, exact=True),
    "rows, two workers": Shape("rows", 1, 2, one_part=False, exact=False),
    "members": Shape("members", 3, 2, one_part=True, exact=True),
    "shards": Shape("shards", 3, 2, one_part=False, exact=False),
}


def keep_cluster(pipe) -> None:
    """Start the cluster, tell its address, and end it with the parent."""
    parent = os.getppid()
    context = ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2e8, **QUIET)
    pipe.send(context.address_info["address"])
    try:
        while os.getppid() == parent:
            time.sleep(0.2)
    finally:
        ray.shutdown()


def serve(pipe, address: str) -> None:
    """Fit what the pipe asks for, and tell what became of it, as long as the parent lives."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ray.init(address=address, **QUIET)
    ray.data.DataContext.get_current().enable_progress_bars = False
    while os.getppid() == parent:
        if pipe.poll(1.0):
            asked = pipe.recv()
            pipe.send(look() if asked is None else attempt(pipe, *asked))


def attempt(pipe, name: str, storage, temporary) -> tuple:
    """Fit once; return what happened, and the predictions or the error."""
    tempfile.tempdir = str(temporary)
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            pipe.send("started")
            return "done", SHAPES[name].fit(storage)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        return "stopped", None
    except BaseException:  # also SystemExit, which would tell a shell that all is well
        return "failed", traceback.format_exc()


def look() -> list[str]:
    """Wait until nothing of a fit is left in the cluster and in the driver; return what stays."""
    end = time.monotonic() + SOON
    while (left := leftovers()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def leftovers() -> list[str]:
    groups = ray.util.placement_group_table().values()
    out = [f"reserved, {one['state']}" for one in groups if one["state"] != "REMOVED"]
    free = ray.available_resources().get("CPU", 0.0)
    out += [] if free == 2.0 else [f"{free} of 2 CPUs are free"]
    names = [thread.name for thread in threading.enumerate()]
    out += [name for name in names if name.startswith("StreamingExecutor")]
    return out + [name for name in processes().values() if works_for_fit(name)]


def processes() -> dict[int, str]:
    """Return the names of the cluster's processes, other than Ray's servers."""
    found, own = {}, f"{MARK}={os.environ[MARK]}\0".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                is_own = own in (folder / "environ").read_bytes()
            except OSError:  # it has ended, or is not ours
                continue
            if is_own and name.startswith("ray::"):
                found[int(folder.name)] = name
    return found


def works_for_fit(name: str) -> bool:
    """Tell whether a process trains, or does a task; others wait, or serve Ray itself."""
    return any(word in name for word in ("RayTrainWorker", "TrainController", "_call", "Read"))
