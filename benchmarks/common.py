"""What the benchmarks share: timing, tables, verdicts, and a description of the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from statistics import median
from time import perf_counter
from typing import Any


def machine() -> str:
    """Describe the machine in words.

    Versions come from the installed metadata: no package is imported only to read its version.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GB memory, "
        f"Python {platform.python_version()}, {packages}"
    )


def paper_recipe(seed: int, epochs: int = 100) -> Any:
    """Return the model of the paper, section VII, on the fused engine."""
    # Imported here: `startup.py` measures what an import costs.
    from polyadic import CPRegressor
    from polyadic.inits import Gaussian
    from polyadic.maps import Polynomial

    return CPRegressor(
        maps=Polynomial(75, normalize=True),
        rank=20,
        l2=3e-7,
        smoothness=0,
        init=Gaussian(0.2),
        n_members=1,
        schedule="constant",
        ema_decay=0.0,
        learning_rate=1e-3,
        batch_size=32,
        max_iter=epochs,
        n_iter_no_change=epochs,  # to the end, as published
        random_state=seed,
    )


def seconds(work: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start


def medians(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each work.

    The works take turns, so that whatever slows the machine for a while slows all of them. Each is
    called once before the clock starts.
    """
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: median(values) for name, values in times.items()}


def verdict(holds: bool) -> str:
    """Return the word for a requirement that holds, or does not."""
    return "PASS" if holds else "FAIL"


def print_title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'-' * len(text)}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    for line in lines:
        first, *others = (
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(line, widths))
        )
        print("  ".join([first, *others]).rstrip(), flush=True)
