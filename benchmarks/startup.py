"""What it costs to begin: imports, and a first fit without and with compiled kernels at hand.

Everything runs in fresh processes; medians of several, except for the compilation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from common import machine, print_table, verdict

REPEATS = 5
IMPORT_REQUIRED = 1.0  # seconds
UNWANTED = ("torch", "matplotlib", "pandas")

# Each child times one statement and says which of the unwanted modules it dragged in.
_CHILD = """
import json, sys, time
{before}
start = time.perf_counter()
{timed}
seconds = time.perf_counter() - start
print(json.dumps([seconds, [m for m in {unwanted!r} if m in sys.modules]]))
"""
_TABLE = """
import numpy as np
from polyadic import CPRegressor
X = np.random.default_rng(0).random((2000, 8))
y = X[:, 0] * X[:, 1]
"""
_FIT = "CPRegressor(random_state=0, n_members=1, max_epochs=2).fit(X, y)"


def child(timed: str, before: str = "", **environment: str) -> tuple[float, list[str]]:
    """Return the seconds a statement takes in a fresh process, and the unwanted modules in it."""
    code = _CHILD.format(before=before, timed=timed, unwanted=UNWANTED)
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, unwanted = json.loads(run.stdout)
    return seconds, unwanted


def typical(timed: str, before: str = "", **environment: str) -> tuple[float, list[str]]:
    """Return the median seconds, and the unwanted modules."""
    runs = [child(timed, before, **environment) for _ in range(REPEATS)]
    return median(seconds for seconds, _ in runs), runs[0][1]


def main() -> None:
    """Measure and print."""
    print(machine())
    package, unwanted = typical("import polyadic")
    names = {
        "import polyadic": package,
        "import numpy (for comparison)": typical("import numpy")[0],
    }
    names["from polyadic import CPRegressor"], late = typical("from polyadic import CPRegressor")
    with tempfile.TemporaryDirectory() as cache:
        names["first fit, kernels compiled"] = child(_FIT, _TABLE, NUMBA_CACHE_DIR=cache)[0]
        names["first fit, kernels from the cache"] = typical(_FIT, _TABLE, NUMBA_CACHE_DIR=cache)[0]
    names["second fit in the same process"] = typical(_FIT, _TABLE + _FIT)[0]
    print_table(["", "seconds"], [[name, f"{value:.3f}"] for name, value in names.items()])
    print(f"import below {IMPORT_REQUIRED:g} s: {verdict(package < IMPORT_REQUIRED)}")
    print(f"import polyadic loads none of {', '.join(UNWANTED)}: {verdict(not unwanted)}")
    print(f"from polyadic import CPRegressor loads of these: {', '.join(late) or 'none'}")


if __name__ == "__main__":
    main()
