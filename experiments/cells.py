"""Cells: single fits, kept on disk as soon as they are finished, and never run twice.

A kept cell is run again when the code that it depends on has changed: see `code.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from experiments import code
from polyadic.datasets import DatasetUnavailable

UNKNOWN_SECONDS = 5.0  # assumed for a cell that was never timed; chosen by hand
EXPECTED = Path(__file__).with_name("expected.json")  # seconds of every cell in a full run
# Fits of a model, by the seconds that one takes at most: intervals over seeds cost what they may.
FITS = ((0.5, 50), (3.0, 20), (math.inf, 5))


@dataclass(frozen=True)
class Scale:
    """How much of the paper to run.

    Parameters
    ----------
    quick : bool
        A few seeds, epochs and points, to see that everything works; numbers do not compare with
        the paper's.
    seeds : int or None
        Fits of every stochastic model; None: 50, 20 or 5, by the seconds that one takes.
    most_epochs : int or None
        No fit is longer than this; None is as long as published.
    """

    quick: bool = False
    seeds: int | None = None
    most_epochs: int | None = None

    def epochs(self, published: int) -> int:
        """Return the epochs to train, from the published number of epochs."""
        return published if self.most_epochs is None else min(published, self.most_epochs)

    def some(self, points: Sequence[Any], few: int = 2) -> list[Any]:
        """Return the points of a sweep; quick: `few` of them, evenly spaced, both ends included."""
        if not self.quick or len(points) <= few:
            return list(points)
        return [points[round(i)] for i in np.linspace(0, len(points) - 1, few)]

    def fits(self, experiment: str, model: str, at_least: int = 1) -> range:
        """Return the seeds of a model."""
        if self.seeds is not None:
            return range(self.seeds)
        seconds = expected_table().get(f"{experiment}/{model}", UNKNOWN_SECONDS)
        return range(max(at_least, next(n for limit, n in FITS if seconds < limit)))

    @property
    def name(self) -> str:
        """The folder of the cells: quick ones and full ones never mix."""
        return "quick" if self.quick else "full"


@dataclass(frozen=True)
class Cell:
    """One fit: `work(seed, **settings)` returns numbers that JSON can hold."""

    experiment: str
    model: str
    seed: int
    work: Callable[..., dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    alone: bool = False  # its seconds are compared with others': nothing may run beside it

    @property
    def key(self) -> str:
        """The name of the file that keeps the result; other settings make another name."""
        text = json.dumps([self.model, self.seed, self.settings], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        model = self.model.replace(" ", "_").replace("/", "_")
        return f"{self.experiment}/{model}-{self.seed}-{digest}.json"

    @property
    def code(self) -> str:
        """What the result depends on besides the settings: the code of the experiment and ours."""
        return code.fingerprint(self.work, tuple(self.settings.values()))

    def run(self) -> dict[str, Any]:
        """Do the work."""
        return plain(self.work(self.seed, **self.settings))


@dataclass(frozen=True)
class Record:
    """A cell and its result."""

    experiment: str
    model: str
    seed: int
    settings: dict[str, Any]
    result: dict[str, Any]


class Found(list[Record]):
    """The records of one experiment, or of all."""

    def records(self, model: str, **settings: Any) -> list[Record]:
        """Return the records of a model with these settings."""
        return [
            r
            for r in self
            if r.model == model and all(r.settings.get(k) == v for k, v in settings.items())
        ]

    def of(self, model: str, **settings: Any) -> list[dict[str, Any]]:
        """Return the results of a model with these settings, skipped fits left out."""
        found = [r.result for r in self.records(model, **settings)]
        return [result for result in found if "skipped" not in result]

    def values(self, name: str, model: str, **settings: Any) -> list[float]:
        """Return one number of every result; infinity where it was not finite."""
        results = self.of(model, **settings)
        return [math.inf if r[name] is None else r[name] for r in results]

    def skipped(self, model: str, **settings: Any) -> str:
        """Return why a model was not fitted, or nothing."""
        reasons = [r.result.get("skipped", "") for r in self.records(model, **settings)]
        return reasons[0] if reasons else ""


class Kept:
    """Finished cells in a folder, one file each.

    Parameters
    ----------
    folder : Path
    any_library : bool
        Take results of another state of the library, if the code of the experiment is the same.
    """

    def __init__(self, folder: Path, any_library: bool = False):
        self.folder, self.any_library = folder, any_library

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return the kept result of a cell, or None if there is none or the code has changed."""
        path = self.folder / cell.key
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        return found["result"] if self.fits(found.get("code", ""), cell.code) else None

    def fits(self, kept: str, now: str) -> bool:
        """Tell whether a result of the first code counts as one of the second."""
        if self.any_library:
            return kept.split("/")[0] == now.split("/")[0]
        return kept == now

    def put(self, cell: Cell, result: dict[str, Any]) -> None:
        """Keep a result: write a draft and rename it, so that no partial file is left."""
        path = self.folder / cell.key
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        text = {**asdict(_record(cell, result)), "code": cell.code}
        draft.write_text(json.dumps(text, indent=1, allow_nan=False))
        os.replace(draft, path)


def run_cells(
    cells: Sequence[Cell],
    kept: Kept,
    expected: Callable[[Cell], float],
    say: Callable[[str], None],
    jobs: int = 1,
) -> Found:
    """Run the cells that are not kept yet, report progress, and return all records.

    With several jobs, cells run side by side in processes of one thread each, but for those whose
    seconds are to be compared: they run alone.
    """
    for cell in cells:
        cell.code  # noqa: B018 - read before the first fit: files may change while it runs
    results = {cell.key: kept.get(cell) for cell in cells}
    waiting = [cell for cell in cells if results[cell.key] is None]
    together = [cell for cell in waiting if jobs > 1 and not cell.alone]
    alone = [cell for cell in waiting if jobs == 1 or cell.alone]
    left = sum(map(expected, together)) / jobs + sum(map(expected, alone))
    say(
        f"{len(cells)} cells, {len(cells) - len(waiting)} of them kept from before. "
        f"Expected time for the others on two cores: {in_words(left)}."
    )
    finished = chain(_side_by_side(together, jobs), ((c, measure(c)) for c in alone))
    for done, (cell, result) in enumerate(finished, 1):
        left -= expected(cell) / (1 if cell.alone else jobs)
        place = f"[{done}/{len(waiting)}, {in_words(max(left, 0.0))} left]"
        if "skipped" in result:  # not kept: the next run may find what was missing
            say(f"{place} {cell.experiment}, {cell.model}: skipped, {result['skipped']}")
        else:
            kept.put(cell, result)
            what = f"{cell.experiment}, {cell.model}, seed {cell.seed}"
            say(f"{place} {what}: {result['cell_seconds']:.1f} s")
        results[cell.key] = result
    return Found(_record(cell, results[cell.key] or {}) for cell in cells)


def measure(cell: Cell) -> dict[str, Any]:
    """Run a cell; return its result with its seconds, or why it cannot be run here."""
    start = perf_counter()
    try:
        result = cell.run()
    except (ModuleNotFoundError, DatasetUnavailable) as error:
        return {"skipped": str(error).splitlines()[0]}
    return {**result, "cell_seconds": round(perf_counter() - start, 3)}


def _side_by_side(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield cells and their results as they are finished, from several processes."""
    if not cells:
        return
    context = get_context("spawn")  # threads of the parent do not survive a fork
    pool = ProcessPoolExecutor(jobs, context, initializer=_prepare_worker)
    try:
        running = {pool.submit(measure, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare_worker() -> None:
    """Use one thread; be silent; end at once when the run is interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, which is imported by the first fit with it


def _record(cell: Cell, result: dict[str, Any]) -> Record:
    return Record(cell.experiment, cell.model, cell.seed, cell.settings, result)


@cache
def expected_table() -> dict[str, float]:
    """Return the seconds that the cells of each model took when the full run was last timed."""
    return json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}


def expected_seconds(cell: Cell) -> float:
    """Return the seconds that a cell of a full run may take."""
    return expected_table().get(f"{cell.experiment}/{cell.model}", UNKNOWN_SECONDS)


def measured_seconds(found: Found) -> dict[str, float]:
    """Return the mean seconds of the cells of each model: what expected.json holds."""
    times: dict[str, list[float]] = {}
    for record in found:
        if "cell_seconds" in record.result:
            name = f"{record.experiment}/{record.model}"
            times.setdefault(name, []).append(record.result["cell_seconds"])
    return {name: round(sum(t) / len(t), 2) for name, t in sorted(times.items())}


def in_words(seconds: float) -> str:
    """Return a time as text, in seconds or minutes.

    >>> in_words(42), in_words(600)
    ('42 s', '10 min')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def plain(value: Any) -> Any:
    """Return the value in types of JSON; numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
