"""Start-up time: imports, and first fits without and with compiled kernels in the cache.

Everything runs in fresh processes. Wall seconds are what a person waits; CPU seconds, by
`resource.getrusage`, add up all processes that compile, and mean the same on a busy machine. A
kernel is counted once per form: as compiled where it was written to the cache, by whatever process,
and as called where a process that finds it in the cache loads it. The rest was for nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import machine, print_table, print_title, verdict

REPEATS = 5
IMPORT_REQUIRED = 1.0  # seconds; chosen by hand
UNWANTED = ("torch", "matplotlib", "pandas")

# Each child times one statement, and prints what it took, how many kernels it loaded or compiled
# itself, and the unwanted modules.
_CHILD = """
import json, resource, sys, time
{before}

def cpu():
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in own)

def ready():
    if "numba" not in sys.modules:
        return 0
    from numba.core.registry import CPUDispatcher
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("polyadic.kernels.")]
    found = {{id(v): v for m in modules for v in vars(m).values() if type(v) is CPUDispatcher}}
    return sum(len(kernel.signatures) for kernel in found.values())

first, start, begin = ready(), time.perf_counter(), cpu()
{timed}
taken = [time.perf_counter() - start, cpu() - begin, ready() - first]
print(json.dumps([*taken, [m for m in {unwanted!r} if m in sys.modules]]))
"""
_TABLE = """
import numpy as np
from polyadic import CPClassifier, CPRegressor, explain
X = np.random.default_rng(0).random((2000, 8))
y = X[:, 0] * X[:, 1]
"""
_FIT = "CPRegressor(random_state=0, n_members=1, max_iter=2).fit(X, y)"
# What runs before, and what is timed; each line has an empty cache of its own.
_COLD = {
    "regression, one member": ("", _FIT),
    "regression, defaults": ("", "CPRegressor(random_state=0).fit(X, y)"),
    "two classes": ("", "CPClassifier(random_state=0).fit(X, y > 0.25)"),
    "many classes": ("", "CPClassifier(random_state=0, max_iter=2).fit(X, (5 * y).astype(int))"),
    "predict, after a fit": ("model = " + _FIT, "model.predict(X)"),
    "explain, after a fit": ("model = " + _FIT, "explain.shapley(model, X[:100])"),
    "two classes, after regression": (_FIT, "CPClassifier(random_state=0).fit(X, y > 0.25)"),
}


def child(timed: str, before: str = "", **environment: str) -> tuple[float, float, int, list[str]]:
    """Run a statement in a fresh process.

    Returns wall and CPU seconds, the kernels that the process loaded or compiled itself, and the
    unwanted modules.
    """
    code = _CHILD.format(before=before, timed=timed, unwanted=UNWANTED)
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(json.loads(run.stdout))


def typical(timed: str, before: str = "", **environment: str) -> tuple[float, float, list[str]]:
    """Return the median wall and CPU seconds, and the unwanted modules."""
    runs = [child(timed, before, **environment) for _ in range(REPEATS)]
    return median(run[0] for run in runs), median(run[1] for run in runs), runs[0][3]


def in_cache(cache: str) -> int:
    """Return how many kernels a cache holds, each form counted."""
    return sum(1 for _ in Path(cache).rglob("*.nbc"))


def cold(name: str) -> list:
    """Return a row: the first call with an empty cache, and the same again with a full one."""
    before, timed = _COLD[name]
    with tempfile.TemporaryDirectory() as cache:
        setup, known = _TABLE + before, 0
        if before:  # what it compiles is not counted
            child("pass", setup, NUMBA_CACHE_DIR=cache)
            known = in_cache(cache)
        wall, cpu, _, _ = child(timed, setup, NUMBA_CACHE_DIR=cache)
        compiled = in_cache(cache) - known
        warm, warm_cpu, called, _ = child(timed, setup, NUMBA_CACHE_DIR=cache)
    row = [name, f"{wall:.2f}", f"{cpu:.2f}", compiled, called, compiled - called]
    return [*row, f"{warm:.3f}", f"{warm_cpu:.3f}"]


def print_cold(names: list[str]) -> None:
    """Print first calls with an empty cache, and the same again with a full one."""
    print_title("First call with an empty cache of kernels")
    columns = ["", "wall s", "CPU s", "compiled", "called", "for nothing"]
    columns += ["from the cache: wall s", "CPU s"]
    print_table(columns, [cold(name) for name in names])


def main() -> None:
    """Measure and print."""
    print(machine())
    if len(sys.argv) > 1:  # only these rows, such as "two classes"
        print_cold(sys.argv[1:])
        return
    *times, unwanted = typical("import polyadic")
    names = {"import polyadic": times}
    names["import numpy (for comparison)"] = typical("import numpy")[:2]
    *late_times, late = typical("from polyadic import CPRegressor")
    names["from polyadic import CPRegressor"] = late_times
    names["second fit in the same process"] = typical(_FIT, _TABLE + _FIT)[:2]
    rows = [[name, f"{wall:.3f}", f"{cpu:.3f}"] for name, (wall, cpu) in names.items()]
    print_table(["", "wall s", "CPU s"], rows)
    package = times[0]
    print(f"import below {IMPORT_REQUIRED:g} s: {verdict(package < IMPORT_REQUIRED)}")
    print(f"import polyadic loads none of {', '.join(UNWANTED)}: {verdict(not unwanted)}")
    print(f"from polyadic import CPRegressor loads of these: {', '.join(late) or 'none'}")
    print_cold(list(_COLD))
    with tempfile.TemporaryDirectory() as cache:
        wall, cpu, _, _ = child("import polyadic; polyadic.warmup()", NUMBA_CACHE_DIR=cache)
        print(f"polyadic.warmup(), every kernel in every form: {wall:.1f} s, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main()
