"""Checks of what a user passes, before anything is allocated or changed."""

from __future__ import annotations

import datetime
import numbers
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.utils.validation import check_array, column_or_1d

from polyadic.data.tables import is_missing
from polyadic.kernels.simd import padded
from polyadic.scale.memory import parse_memory, shown, to_float
from polyadic.solvers import inits
from polyadic.solvers.loop import SCHEDULES

_COPIES = 6  # parameters, gradient, two moments, running average, best so far
# Targets beyond these are refused: squares and scales would not be finite. All chosen by hand.
_LARGEST_TARGET, _SMALLEST_SPREAD = 1e300, 1e-290
# For a loss that is not scaled, such as Poisson's: squares of slopes must stay in single precision.
_LARGEST_UNSCALED = 1e15
# Names of devices that torch may have, here or elsewhere: a file may come from another machine.
_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|mtia|npu|xla|privateuseone)(:\d{1,4})?")
_NEGLIGIBLE = 1e-100  # a weight, as a share of the largest, that counts as zero; chosen by hand
_MEMORY_SHARE = 0.8  # share of the machine's memory that a fit may take; chosen by hand

# The allowed values of each numeric parameter: lowest, highest, whether whole, other values.
_RANGES: dict[str, tuple[float, float, bool, tuple]] = {
    "rank": (1, np.inf, True, ("auto",)),
    "order": (1, np.inf, True, ()),
    "l2": (0, np.inf, False, ("auto",)),
    "smoothness": (0, np.inf, False, ("auto",)),
    "order_alpha": (0, np.inf, False, ()),
    "order_beta": (0, np.inf, False, ()),
    "n_members": (1, np.inf, True, ("auto",)),
    "max_iter": (0, np.inf, True, ("auto",)),
    "max_time": (0, np.inf, False, (None,)),
    "batch_size": (1, np.inf, True, ("auto",)),
    "learning_rate": (1e-30, np.inf, False, ("auto",)),
    "ema_decay": (0, 1 - 1e-6, False, ()),
    "validation_fraction": (1e-6, 0.5, False, ()),
    "n_iter_no_change": (1, np.inf, True, (None,)),
    "tol": (0, np.inf, False, ()),
    "quantile": (0, 1, False, (None,)),
}
_WIDE = (nw.Int128, nw.UInt128)
_TIMES = (datetime.date, datetime.time, datetime.timedelta)
ENGINES = ("fused", "torch")


def check_to_fit(estimator: Any) -> None:
    """Raise an error where parameters are wrong, or the folder of checkpoints cannot be one.

    A loaded model may name a folder of another machine, so that only a fit looks at it.
    """
    check(estimator)
    kept = getattr(estimator, "checkpoint", None)
    if kept is None:
        return
    place = f"checkpoint must be the path of a folder, or None, and {str(kept)!r:.80}"
    try:
        found = os.stat(kept)
    except FileNotFoundError:
        if not os.path.islink(kept):
            return
        raise ValueError(f"{place} is a link to nothing. Name another path.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{place} cannot be one: {why}. Name another path.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(
            f"{place} is there and is no folder. Name another path: the folder is made."
        )


def check(estimator: Any) -> None:
    """Raise ValueError for the first parameter with a value that is not allowed."""
    given = estimator.get_params(deep=False)
    for name, (low, high, whole, others) in _RANGES.items():
        if name not in given:
            continue
        value = getattr(estimator, name)
        if any(value is o or (isinstance(value, str) and value == o) for o in others):
            continue
        kind = numbers.Integral if whole else numbers.Real
        number = isinstance(value, kind) and not isinstance(value, bool)
        if not number or not low <= to_float(value) <= high or np.isinf(to_float(value)):
            wording = _wording(low, high, whole, others)
            raise ValueError(f"{name} must be {wording}, got {shown(value)}.")
    for name in ("early_stopping", "warm_start", "separate_outputs"):
        value = given.get(name, False)
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, got {value!r}.")
    trees = given.get("trees", False)
    if not isinstance(trees, (bool, np.bool_)) and not (isinstance(trees, str) and trees == "auto"):
        raise ValueError(f"trees must be True, False or 'auto', got {trees!r}.")
    n_jobs = given.get("n_jobs")
    whole_number = isinstance(n_jobs, numbers.Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and not (whole_number and n_jobs != 0):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None, got {n_jobs!r}.")
    if "memory" in given:
        parse_memory(estimator.memory, available_memory())
        kept = estimator.checkpoint
        if isinstance(kept, os.PathLike):
            kept = os.fspath(kept)
        if kept is not None and not isinstance(kept, str):
            raise ValueError(f"checkpoint must be the path of a folder, or None, got {kept!r}.")
        if kept is not None and not isinstance(estimator.random_state, (int, np.integer)):
            raise ValueError(
                "checkpoint needs random_state to be a whole number, so that a fit that starts "
                f"again draws the same random numbers; got {estimator.random_state!r}."
            )
    if not isinstance(estimator.device, str):
        raise ValueError(f"device must be text, such as 'cpu', got {estimator.device!r:.40}.")
    if not _DEVICE.fullmatch(estimator.device):
        raise ValueError(
            f"device={estimator.device!r:.40} cannot be used: it is no name of a device. Choose "
            "'cpu', or a name of PyTorch's, such as 'cuda' or 'cuda:1'."
        )
    check_choice("schedule", estimator.schedule, SCHEDULES)
    check_choice("solver", estimator.solver, estimator._solvers())
    if hasattr(estimator, "engine"):
        check_choice("engine", estimator.engine, ENGINES)
        if estimator.engine == "fused" and estimator.device.split(":")[0] != "cpu":
            raise ValueError(
                f"engine='fused' runs on device='cpu' only, got {estimator.device!r}. "
                "Other devices need engine='torch'."
            )
    inits.resolve(estimator.init)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ValueError for a value that is not among the choices."""
    if value not in choices:
        raise ValueError(f"Unknown {name} {value!r}. Choose from: {', '.join(sorted(choices))}.")


def _wording(low: float, high: float, whole: bool, others: tuple) -> str:
    text = "a whole number" if whole else "a number"
    text += f" of at least {low:g}" if high == np.inf else f" from {low:g} to {high:g}"
    return text + "".join(f", or {o!r}" for o in others)


def check_length(y: np.ndarray, n_rows: int) -> None:
    """Refuse a target whose length differs from the table's."""
    if len(y) != n_rows:
        raise ValueError(
            f"X has {n_rows} rows and y has {len(y)}: "
            "found input variables with inconsistent numbers of samples."
        )


def check_regression_target(y: Any, n_rows: int, name: str) -> np.ndarray:
    """Return y as float64 (n, L); refuse text, missing or infinite numbers and another length.

    `name` is the estimator's, for errors.
    """
    _refuse_masked(y, "y")
    y = _without_wide_integers(y)
    _refuse_dates(y, "y", f"{name} needs numbers")
    text = _find_text(y)
    if text is not None:
        raise ValueError(
            f"y holds text, such as {text!r:.60}, and {name} predicts numbers. For classes, "
            f"use {name.replace('Regressor', 'Classifier')}; for numbers stored as text, convert y."
        )
    try:
        target = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    except OverflowError as error:
        raise ValueError(
            f"y holds a whole number that no float can hold, beyond 1.8e308, and {name} computes "
            "with floats. Divide y first, or take its logarithm."
        ) from error
    except TypeError as error:
        if "float() argument" not in str(error):
            raise
        raise ValueError(f"y holds an object that is no number: {error}. Convert y.") from error
    if target.ndim > 2:
        raise ValueError(f"y must be (n,) or (n, L), got an array of {target.ndim} dimensions.")
    target = target.reshape(len(target), -1)
    check_length(target, n_rows)
    largest = np.abs(target).max(initial=0.0)
    if largest > _LARGEST_TARGET:
        raise ValueError(
            f"y holds {largest:.3g}, beyond {_LARGEST_TARGET:g}: its sums and differences would "
            "not be finite. Divide y by a large number first."
        )
    return target


def check_spread(scale: np.ndarray) -> None:
    """Refuse a target that varies by less than can be divided by; scale : (L,)."""
    if np.any(scale < _SMALLEST_SPREAD):
        raise ValueError(
            f"y varies by about {scale.min():.3g} only, less than {_SMALLEST_SPREAD:g}: floats "
            "have too few digits there. Multiply y by a large number first."
        )


def check_unscaled_target(target: np.ndarray, loss: Any) -> None:
    """Refuse numbers that are too large for a loss that cannot scale them; target : (n, L)."""
    largest = np.abs(target).max(initial=0.0)
    if not loss.location_scale and largest > _LARGEST_UNSCALED:
        raise ValueError(
            f"y holds {largest:.3g}, beyond {_LARGEST_UNSCALED:g}, and {loss!r} is computed in "
            "single precision on y as it is. Divide y by a large number first."
        )


def _refuse_dates(given: Any, argument: str, needed: str) -> None:
    """Refuse dates and durations, which NumPy would turn into numbers of an arbitrary unit."""
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    objects = array.ravel() if array.dtype.kind == "O" else ()
    if array.dtype.kind in "mM" or any(isinstance(value, _TIMES) for value in objects):
        raise ValueError(
            f"{argument} holds dates, times or durations, and {needed}. Convert {argument} to "
            "numbers, such as days since a first date, or to text for classes."
        )


def _refuse_masked(given: Any, name: str) -> None:
    """Refuse masked entries of a NumPy array, whose data would be read as if they were not."""
    if np.ma.is_masked(given):
        raise ValueError(
            f"{name} has {np.ma.count_masked(given)} masked entries, and all of its entries must "
            "be known. Drop those rows."
        )


def _find_text(given: Any) -> str | None:
    """Return the first text of an array of texts or objects; None: there is none."""
    array = np.ravel(given if isinstance(given, np.ndarray) else np.asarray(given))
    if array.dtype.kind not in "OSTU":
        return None
    return next((str(v) for v in array if isinstance(v, (str, bytes))), None)


def _without_wide_integers(y: Any) -> Any:
    """Return y with floats for columns of 128-bit integers, which NumPy does not have."""
    found: Any = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(found, nw.Series) and isinstance(found.dtype, _WIDE):
        return found.cast(nw.Float64).to_numpy()
    if isinstance(found, nw.DataFrame) and any(isinstance(t, _WIDE) for t in found.schema.values()):
        wide = [name for name, dtype in found.schema.items() if isinstance(dtype, _WIDE)]
        return found.with_columns(nw.col(*wide).cast(nw.Float64)).to_numpy()
    return y


def read_labels(y: Any, name: str) -> np.ndarray:
    """Return labels as an array, (n,); refuse dates and objects that are no labels."""
    _refuse_masked(y, "y")
    series: Any = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(series, nw.DataFrame) and len(series.columns) == 1:
        series = series[series.columns[0]]
    if isinstance(series, nw.Series) and isinstance(series.dtype, _WIDE):
        y = np.array(series.to_list(), dtype=object)
        small = all(value is not None and abs(value) < 2**63 for value in y)
        y = y.astype(np.int64) if small else y
    whole = isinstance(series, nw.Series) and (
        series.dtype.is_integer() or series.dtype == nw.Boolean
    )
    if whole and not series.null_count():  # as floats, large numbers would be one class
        array = np.asarray(y)
        y = array if array.dtype.kind in "biu" else np.array(series.to_list())
    _refuse_dates(y, "y", f"{name} needs classes")
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "O":
        wide = next((v for v in labels if type(v) is int and not -(2**63) <= v < 2**64), None)
        if wide is not None:
            raise ValueError(
                f"y holds a whole number of {wide.bit_length()} bits as a class, and 64 are the "
                "most. Convert classes to text."
            )
    return labels


def check_missing_labels(y: np.ndarray, name: str = "y") -> None:
    """Refuse NaN and None among the labels; `name` is that of the argument, for errors."""
    if y.dtype.kind == "f":
        check_array(y, ensure_2d=False, dtype=None, input_name=name)
    elif y.dtype.kind == "O" and any(map(is_missing, y)):
        raise ValueError(f"Input {name} contains missing labels (None or NaN). Drop them.")


def check_classes(classes: np.ndarray, name: str) -> None:
    """Refuse a target of one class."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least two classes in y, but found one class only: {classes[0]!r}."
        )


def _weight_array(sample_weight: Any) -> np.ndarray:
    """Return weights as float64."""
    _refuse_masked(sample_weight, "sample_weight")
    _refuse_dates(sample_weight, "sample_weight", "weights are numbers")
    text = _find_text(sample_weight)
    if text is not None:
        raise ValueError(
            f"sample_weight must hold numbers, but holds text, such as {text!r:.60}. Convert it."
        )
    try:
        return check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
        )
    except OverflowError as error:
        raise ValueError(
            "sample_weight holds a whole number that no float can hold, beyond 1.8e308. Divide all "
            "weights by the same number."
        ) from error


def check_weights(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Return weights as float64 (n,); refuse negative ones and those that are all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, numbers.Real):
        weight = np.full(n_rows, to_float(sample_weight))
        if not np.isfinite(weight).all():
            raise ValueError(f"sample_weight must be finite, got {shown(sample_weight)}.")
    else:
        weight = _weight_array(sample_weight)
    if weight.ndim != 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weight.ndim} dimensions."
        )
    if len(weight) != n_rows:
        raise ValueError(f"sample_weight has {len(weight)} entries, but X has {n_rows} rows.")
    if np.any(weight < 0):
        raise ValueError(
            f"sample_weight must not be negative, but its smallest entry is {weight.min():.6g}. "
            "Negative values have no meaning as weights; set them to zero to leave rows out."
        )
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero for every row: nothing is left to learn from.")
    return to_usual_size(weight)


def to_usual_size(weight: np.ndarray) -> np.ndarray:
    """Return weights, divided by the largest where single precision may not hold their products.

    Those that are nothing beside the largest are zero: their squares and ratios may not be finite.
    """
    top = weight.max()
    weight = weight if 1e-30 < top < 1e30 else weight / top
    return np.where(weight < _NEGLIGIBLE * weight.max(), 0.0, weight)


def check_class_weight(class_weight: dict[Any, Any]) -> None:
    """Refuse weights of classes that are no finite numbers, or negative."""
    for label, weight in class_weight.items():
        number = isinstance(weight, numbers.Real) and np.isfinite(to_float(weight))
        if not number or weight < 0:
            raise ValueError(
                f"class_weight must give each class a finite number of at least 0, but gives the "
                f"class {label!r} the weight {shown(weight)}."
            )


def check_memory(
    maps: Sequence[Any],
    rank: int,
    order_alpha: float,
    n_rows: int = 0,
    n_members: int = 1,
    n_jobs: int = 1,
    n_extra: int = 0,
) -> None:
    """Refuse, before allocating, a model that would not fit into memory.

    A member in training takes memory for slots and parameters, a trained one for its cores;
    n_extra parameters belong to no column.
    """
    width = padded(rank)
    elements = sum(m.dim for m in maps)
    at_once = min(n_members, n_jobs)
    needed = at_once * 4.0 * _COPIES * elements * width + 8.0 * n_members * elements * rank
    slots = sum(m.dim if m.all_slots else min(m.dim, 4) for m in maps)
    needed += at_once * (8.0 * n_rows * slots + 4.0 * _COPIES * n_extra)
    if order_alpha > 0:
        needed += 4.0 * (2 * len(maps) + 2) * width**2
    available = available_memory()
    if needed > _MEMORY_SHARE * available:
        raise MemoryError(
            f"{rank} numbers for each of {elements:,} basis elements and {n_rows:,} rows would "
            "need about "
            f"{needed / 1e9:,.1f} GB to train; this process may use "
            f"{available / 1e9:,.1f} GB. "
            "Lower rank, give maps fewer knots, or fold rare categories with OneHot(min_count=...)."
        )


def physical_memory() -> float:
    """Return the bytes of memory of this machine, or 8 GB where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 8e9


def available_memory() -> float:
    """Return the bytes of memory that this process may use: the machine's, or less by a limit.

    Limits are those of the process (`ulimit -v`, `ulimit -d`) and those of its control group, as of
    a container.
    """
    return min([physical_memory(), *_process_limits(), *_group_limits()])


def _process_limits() -> Iterator[float]:
    """Return the limits of the memory of this process."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield float(limit)


def _group_limits(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Iterator[float]:
    """Return the limits of memory of the control groups that this process is in."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, kind, path = line.split(":", 2)
        if kind not in ("", "memory"):
            continue
        top, name = (root, "memory.max") if kind == "" else (root / kind, "memory.limit_in_bytes")
        # In a container the path may be the one outside of it: then only the top is there.
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such file, or "max"
                yield float((folder / name).read_text())
            if folder == top:
                break
