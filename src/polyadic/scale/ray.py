"""Fits and predictions on Ray: more rows than one machine can hold or train on.

Ray Data reads the table, in parts; Ray tasks gather statistics of the parts and code their rows;
Ray Train runs the workers that train. This module starts them, and starts them again when they die.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from polyadic.io.folders import start_folder
from polyadic.scale.predicting import model_columns, predicted
from polyadic.scale.sources import Source, find_files
from polyadic.solvers.workers import Exchange, Torch

_INSTALL = "pip install 'polyadic[ray]'"
_AHEAD = 2  # parts of the table that are worked on at a time, per CPU of the cluster
_CANCEL_SECONDS = 10.0  # to wait for tasks that are cancelled; chosen by hand
_RETRIES = 3  # of a task or of the training, where nothing else is said


def _ray() -> Any:
    """Import Ray, or say what to install."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(f"This needs Ray, which is not installed: {_INSTALL}.") from error
    return ray


def fit(
    estimator: Any,
    dataset: Any,
    y: str | Sequence[str],
    *,
    storage: str | os.PathLike | None = None,
    num_workers: int = 2,
    sample_weight: str | None = None,
    how: str = "rows",
    max_failures: int = _RETRIES,
    resources_per_worker: dict[str, float] | None = None,
) -> Any:
    """Fit an estimator to a table, by the processes of a Ray cluster.

    The steps are those of a fit of a table larger than memory (docs/scale.md), and so is the model,
    up to rounding, for any number of workers. A worker that dies is replaced, and training goes on
    from the last state that was kept. When the driver dies, the same call goes on in the same way.

    Parameters
    ----------
    estimator : CPRegressor or CPClassifier
        It is fitted and returned. `random_state` must be a whole number. Its `memory` limits what
        each process takes.
    dataset : path, list of paths, or ray.data.Dataset
        Parquet files, a folder or a glob pattern of them, or any dataset of Ray.
    y : str or list of str
        The column of the target, or the columns of several.
    storage : path or None
        A folder that all processes can reach; with several machines, on a file system that they
        share. One fit at a time may use it. It holds coded rows and states until the fit is done.
        None: a temporary folder, for a cluster of one machine; a fit whose driver died starts anew.
    num_workers : int
        Processes that train.
    sample_weight : str or None
        The column of the weights.
    how : {"rows", "members", "shards"}
        "rows": the workers divide the rows of every batch, and add up their gradients. "members":
        each trains whole members, on all rows. "shards": each trains whole members, on a part of
        the rows; the members are merged into one model.
    max_failures : int
        How often dead workers are replaced, before the fit fails.
    resources_per_worker : dict, optional
        What Ray reserves for a worker; by default one CPU.

    Returns
    -------
    estimator
        An ordinary fitted estimator: it predicts and is saved without Ray.
    """
    if not hasattr(estimator, "_fit_on"):
        raise TypeError(
            f"{type(estimator).__name__} cannot be fitted on Ray. Use CPRegressor or CPClassifier."
        )
    if not isinstance(num_workers, (int, np.integer)) or num_workers < 1:
        raise ValueError(f"num_workers must be a whole number of at least 1, got {num_workers!r}.")
    opened = open_dataset(dataset)
    with _folder(storage) as folder:
        workers = (int(num_workers), max_failures, resources_per_worker)
        return estimator._fit_on(RayCluster(opened, folder, *workers), y, sample_weight, how)


@contextmanager
def _folder(storage: str | os.PathLike | None) -> Iterator[str | os.PathLike]:
    """Give the folder that was named, or a temporary one."""
    if storage is not None:
        yield storage
        return
    n_machines = sum(node["Alive"] for node in _ray().nodes())
    if n_machines > 1:
        raise ValueError(
            f"The cluster has {n_machines} machines: storage must be a folder on a file system "
            "that they share."
        )
    held, folder = start_folder("polyadic-ray-")
    try:
        yield folder
    finally:
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


def predict(model: Any, dataset: Any, *, method: str = "predict", keep: Sequence[str] = ()) -> Any:
    """Predict a table by the processes of a Ray cluster.

    Parameters
    ----------
    model : fitted estimator
        Any estimator of this library that was fitted to a table with column names.
    dataset : path, list of paths, or ray.data.Dataset
    method : {"predict", "predict_proba", "decision_function"}
        See `polyadic.scale.predict`.
    keep : sequence of str
        Columns to copy, such as an identifier.

    Returns
    -------
    ray.data.Dataset
        Predictions, in columns named as by `polyadic.scale.predict`; computed when they are read.
    """
    wanted = model_columns(model, method)
    shared = _ray().put(model)
    work = partial(_predict_part, shared, method, wanted, list(keep))
    return open_dataset(dataset).map_batches(work, batch_format="pyarrow", zero_copy_batch=True)


def _predict_part(shared: Any, method: str, wanted: list[str], keep: list[str], part: Any) -> Any:
    model = _ray().get(shared)
    return predicted(model, method, part, wanted, keep, None)


def open_dataset(dataset: Any) -> Any:
    """Return a dataset of Ray: the given one, or that of Parquet files."""
    ray = _ray()
    if isinstance(dataset, ray.data.Dataset):
        return dataset
    paths = [dataset] if isinstance(dataset, (str, os.PathLike)) else list(dataset)
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise TypeError(
            "dataset must be a path, a list of paths or a ray.data.Dataset, got "
            f"{type(dataset).__name__}."
        )
    texts = [os.fspath(path) for path in paths]
    local = [text for text in texts if "://" not in text]  # others Ray finds by itself
    files = [file for text in local for file in find_files(text)]
    remote = [text for text in texts if "://" in text]
    with _listed_in_turn(ray):
        return ray.data.read_parquet([*(os.path.abspath(file) for file in files), *remote])


@contextmanager
def _listed_in_turn(ray: Any) -> Iterator[None]:
    """Let Ray look at files one after the other.

    The threads that do it in Ray 2.60 fail at times where aiohttp is not installed: one of them
    sees a module that another has imported by half.
    """
    context = ray.data.DataContext.get_current()
    usual = context.use_datasource_v2
    context.use_datasource_v2 = False
    try:
        yield
    finally:
        context.use_datasource_v2 = usual


class RayCluster:
    """The processes of Ray, as `polyadic.estimators.distributed` uses them.

    Parameters are those of `fit`.
    """

    def __init__(
        self,
        dataset: Any,
        storage: str | os.PathLike,
        num_workers: int,
        max_failures: int,
        resources: dict[str, float] | None,
    ):
        self.ray, self.dataset = _ray(), open_dataset(dataset)
        # Rows belong to blocks by their places in the table.
        self.dataset.context.execution_options.preserve_order = True
        self.storage = Path(storage).absolute()
        self.storage.mkdir(parents=True, exist_ok=True)
        self.num_workers, self.max_failures, self.resources = num_workers, max_failures, resources

    @cached_property
    def source(self) -> Source:
        """Names and types of the table's columns."""
        schema = self.dataset.schema()
        if schema is None:
            raise ValueError("The dataset has no rows.")
        types = {name: str(kind) for name, kind in zip(schema.names, schema.types)}
        return Source(lambda *_: (), list(schema.names), None, "The dataset", types)

    def _remote(self, work: Callable[..., Any], call: Callable[..., Any]) -> Any:
        """Return a function of Ray that does this work; a process that dies is replaced."""
        remote = self.ray.remote(max_retries=self.max_failures)(call)
        shared = self.ray.put(work)  # sent once to each machine, not with every task
        return lambda *task: remote.remote(shared, *task)

    def map_tables(self, work: Callable[[Any, int, int], Any]) -> Iterator[Any]:
        """Yield work(table, number, first) of every part of the table, in order."""
        start, number, first = self._remote(work, _call_on_table), 0, 0
        most = max(2, int(_AHEAD * self.ray.cluster_resources().get("CPU", 1)))
        with self._cancelled() as waiting, closing(self._parts()) as parts:
            for block, n_rows in parts:
                waiting.append(start(block, number, first))
                number, first = number + 1, first + n_rows
                if len(waiting) >= most:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)

    def _parts(self) -> Generator[tuple[Any, int], None, None]:
        """Yield a reference to each part of the table, which stays where it is, and its rows."""
        try:
            for bundle in self.dataset.iter_internal_ref_bundles():
                for entry in bundle.blocks:
                    yield entry.ref, entry.metadata.num_rows
        except self.ray.exceptions.RayError as error:
            raise self._lost_file(error) or error from error

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list:
        """Return work(task) of every task, in order."""
        start = self._remote(work, _call)
        with self._cancelled() as waiting:
            for task in tasks:
                waiting.append(start(task))
            return [self._next(waiting) for _ in tasks]

    @contextmanager
    def _cancelled(self) -> Iterator[deque]:
        """Give a queue for tasks; those in it are cancelled where an error or Ctrl-C ends the wait.

        Ray would finish them otherwise: they would hold CPUs, and write to the folder of the next
        fit.
        """
        waiting: deque = deque()
        try:
            yield waiting
        except BaseException:
            left = list(waiting)
            for task in left:
                self.ray.cancel(task)
            if left:
                self.ray.wait(left, num_returns=len(left), timeout=_CANCEL_SECONDS)
            raise

    def _next(self, waiting: deque) -> Any:
        """Return the result of the first task, which leaves the queue when it is done."""
        found = self._get(waiting[0])
        waiting.popleft()
        return found

    def _get(self, reference: Any) -> Any:
        """Return the result of a task; an error in it as if it had been raised here."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise self._lost_file(error) or error.cause or error from error

    def _lost_file(self, error: BaseException) -> FileNotFoundError | None:
        """Return an error that names the file that was lost, if that is the cause."""
        cause: BaseException | None = error
        while cause is not None:
            inner = getattr(cause, "cause", None)
            for told in (inner, cause):
                if isinstance(told, FileNotFoundError):
                    return self._told_of(told)
            cause = cause.__cause__
        return None

    def _told_of(self, lost: FileNotFoundError) -> FileNotFoundError:
        name = str(lost.filename or "")
        if name.startswith(f"{self.storage}{os.sep}"):
            return FileNotFoundError(
                f"{name!r} was not found: storage must be a folder that all processes share."
            )
        return FileNotFoundError(f"A file of the table was lost while it was read: {lost}")

    def train(self, work: Callable[[Exchange], None]) -> None:
        """Let all workers do this work together; they begin again where one of them dies."""
        from ray.train import ControllerError

        died = self.ray.exceptions.RayActorError
        shared, failures = self.ray.put(work), 0
        while True:
            before = self._reserved()
            try:
                with _restored_interrupt():
                    self._trainer(shared, self.max_failures - failures).fit()
                return
            except BaseException as error:
                # Ray Train itself begins again after most deaths, but not where a worker dies
                # while it is being called, nor where its own process, the controller, dies. What it
                # had reserved for the workers, Ray then keeps until the driver ends.
                self._free(self._reserved() - before)
                failures += 1
                cause = error.controller_failure if isinstance(error, ControllerError) else error
                if failures > self.max_failures or not isinstance(cause, died):
                    raise
            finally:
                shutil.rmtree(self._own_files, ignore_errors=True)

    @property
    def _own_files(self) -> Path:
        """The folder of what Ray Train writes for itself; our states are elsewhere."""
        return self.storage / "ray"

    def _reserved(self) -> set[str]:
        """Return the placement groups of this driver: what it has reserved, by their numbers.

        Those of a training that another thread of the driver starts at the same time are among
        them: it would lose its workers, and begin again.
        """
        from ray.util import placement_group_table

        own = self.ray.get_runtime_context().get_job_id()  # the end of the number of a group
        found = placement_group_table().items()
        return {name for name, one in found if name.endswith(own) and one["state"] != "REMOVED"}

    def _free(self, groups: set[str]) -> None:
        """Give back what was reserved."""
        from ray.util.placement_group import PlacementGroup, remove_placement_group

        for name in groups:
            number = self.ray.PlacementGroupID(bytes.fromhex(name))
            remove_placement_group(PlacementGroup(number))

    def _trainer(self, shared: Any, max_failures: int) -> Any:
        """Return what runs the shared work in all workers."""
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        shutil.rmtree(self._own_files, ignore_errors=True)
        self._own_files.mkdir(parents=True)
        return TorchTrainer(
            partial(_train, shared),
            train_loop_config={},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(
                num_workers=self.num_workers, resources_per_worker=self.resources
            ),
            run_config=RunConfig(
                name="training",
                storage_path=str(self._own_files),
                failure_config=FailureConfig(
                    max_failures=max_failures,
                    controller_failure_limit=max_failures,  # type: ignore[call-arg]
                ),
            ),
        )


@contextmanager
def _restored_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the training as KeyboardInterrupt, and restore what it does.

    The handler of Ray Train ends the training, and then the driver, with status 0: nobody would see
    that there is no model. It also stays behind, and holds the process that controlled the
    training, which would go on for ever, with the CPUs that it has reserved.
    """
    if threading.current_thread() is not threading.main_thread():  # it cannot have handlers
        yield
        return
    usual = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGINT, usual)


def _call(work: Callable[..., Any], *task: Any) -> Any:
    return work(*task)


def _call_on_table(work: Callable[..., Any], block: Any, *task: Any) -> Any:
    """Do work on a part of a dataset, which may be a table of pandas."""
    from ray.data.block import BlockAccessor

    return work(BlockAccessor.for_block(block).to_arrow(), *task)


def _train(shared: Any, config: dict) -> None:
    """Be one worker of Ray Train, which has joined the workers by torch.distributed."""
    _ray().get(shared)(Torch())
