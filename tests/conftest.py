"""Settings for every test: data, a cache of compiled kernels, and the shift of seeds."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
# A folder for each target: `training.compiling` takes a kernel for cached if it has any file there.
_BUILT_FOR = "".join(
    f"-{name.lower()}={os.environ[name]}"
    for name in ("NUMBA_CPU_NAME", "POLYADIC_SIMD")
    if os.environ.get(name)
)
os.environ.setdefault("NUMBA_CACHE_DIR", str(_ROOT / ".cache" / f"kernels{_BUILT_FOR}"))

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("POLYADIC_DATA", str(_DATA))

# Tests run side by side: threads of BLAS, torch and boosted trees would only wait for each other.
# Set before any of them is imported, which is why nothing here imports NumPy at the top.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# These files test vector types, and threads that share an epoch, which need vector types.
collect_ignore = ["test_simd.py", "test_split.py"] if os.environ.get("POLYADIC_SIMD") == "0" else []

# ---- examples of hypothesis ----------------------------------------------------------------------

try:
    from hypothesis import settings
except ImportError:  # tests that need it say so
    pass
else:  # a law that says nothing about it is tried on this many examples
    settings.register_profile("usual", max_examples=50)
    settings.load_profile("usual")

# ---- other seeds ---------------------------------------------------------------------------------

_SHIFT = int(os.environ.get("POLYADIC_TEST_SEED") or 0)


def _shift_seeds():
    """Give every estimator another seed where POLYADIC_TEST_SEED is set."""
    if _SHIFT == 0:
        return
    import numpy as np

    from polyadic.estimators.base import TableEstimator

    original = TableEstimator._seed

    def shifted(self):
        return int(np.random.SeedSequence([original(self), _SHIFT]).generate_state(1)[0] >> 1)

    TableEstimator._seed = shifted


def pytest_sessionstart(session):
    """Shift the seeds; compile kernels once, before workers start that would each do it.

    Nothing is compiled for tests elsewhere that only use these settings, as in `test_needs.py`.
    """
    _shift_seeds()
    own = session.config.rootpath == _ROOT
    if own and getattr(session.config.option, "numprocesses", None):  # a worker has none
        import polyadic

        polyadic.warmup()


# ---- pictures ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_open_figures():
    """Close all figures after a test: pyplot warns of many, whichever test opened them."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


# ---- skipped tests -------------------------------------------------------------------------------


def _reason(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _refuse_a_skip(report):
    """Turn a skipped test into a failed one under CI, where nothing may be missing."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"CI must run this test: {_reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _refuse_a_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse_a_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Print in the last lines how many tests were skipped, why, and how to get what is missing."""
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:  # the workers of a run in parallel have none
        reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
        for reason, count in sorted(reasons.items()):
            reporter.write_line(f"{count} skipped: {reason}")
    return result
