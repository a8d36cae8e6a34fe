"""Start-up time: imports, and first fits without and with compiled kernels in the cache.

Everything runs in fresh processes. Wall seconds are what a person waits; CPU seconds add up all
processes that compile. Compilations are counted in the main process only, not in its helpers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from common import machine, print_table, print_title, verdict

REPEATS = 5
IMPORT_REQUIRED = 1.0  # seconds; chosen by hand
UNWANTED = ("torch", "matplotlib", "pandas")

# Each child times one statement, and prints the unwanted modules it loaded and its compilations.
_CHILD = """
import json, os, sys, time
{before}
compiled = []
if "numba" in sys.modules:
    from numba.core import event

    class Count(event.Listener):
        def on_start(self, event): compiled.append(event)
        def on_end(self, event): pass

    event.register("numba:compile", Count())
start, begin = time.perf_counter(), os.times()
{timed}
end = os.times()
cpu = sum(end[:4]) - sum(begin[:4])
unwanted = [m for m in {unwanted!r} if m in sys.modules]
print(json.dumps([time.perf_counter() - start, cpu, len(compiled), unwanted]))
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

    Returns wall and CPU seconds, the number of compilations, and the unwanted modules.
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


def typical(timed: str, before: str = "", **environment: str) -> tuple[float, list[str]]:
    """Return the median seconds, and the unwanted modules."""
    runs = [child(timed, before, **environment) for _ in range(REPEATS)]
    return median(run[0] for run in runs), runs[0][3]


def print_cold() -> None:
    """Print first calls with an empty cache, and the same again with a full one."""
    rows = []
    for name, (before, timed) in _COLD.items():
        with tempfile.TemporaryDirectory() as cache:
            setup = _TABLE + before
            wall, cpu, count, _ = child(timed, setup, NUMBA_CACHE_DIR=cache)
            warm = typical(timed, setup, NUMBA_CACHE_DIR=cache)[0]
        rows.append([name, f"{wall:.2f}", f"{cpu:.2f}", count, f"{warm:.3f}"])
    print_title("First call with an empty cache of kernels")
    print_table(["", "wall s", "CPU s", "compilations", "from the cache s"], rows)


def main() -> None:
    """Measure and print."""
    print(machine())
    package, unwanted = typical("import polyadic")
    names = {
        "import polyadic": package,
        "import numpy (for comparison)": typical("import numpy")[0],
    }
    names["from polyadic import CPRegressor"], late = typical("from polyadic import CPRegressor")
    names["second fit in the same process"] = typical(_FIT, _TABLE + _FIT)[0]
    print_table(["", "seconds"], [[name, f"{value:.3f}"] for name, value in names.items()])
    print(f"import below {IMPORT_REQUIRED:g} s: {verdict(package < IMPORT_REQUIRED)}")
    print(f"import polyadic loads none of {', '.join(UNWANTED)}: {verdict(not unwanted)}")
    print(f"from polyadic import CPRegressor loads of these: {', '.join(late) or 'none'}")
    print_cold()
    with tempfile.TemporaryDirectory() as cache:
        wall, cpu, _, _ = child("import polyadic; polyadic.warmup()", NUMBA_CACHE_DIR=cache)
        print(f"polyadic.warmup(), every kernel in every form: {wall:.1f} s, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main()
