"""Check that the package can be released: build it, look into it, and try it in empty environments.

    python .ci/release.py               # all extras; some minutes, and gigabytes to download
    python .ci/release.py cli plot      # the package alone, then with these extras

What is built is the last commit, in a folder of its own: files that are not committed cannot get
into it. Each environment is removed before the next is made. One line per step says what was tried.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]

# Run in every environment: the smallest table, and a model of it.
START = """
import numpy as np, polyadic
from polyadic import CPRegressor
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (200, 3))
y = X[:, 0] * X[:, 1] + X[:, 2]
few = {"n_members": 1, "rank": 4, "max_iter": 30, "trees": False, "random_state": 0}
model = CPRegressor(**few).fit(X, y)
assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9
"""
# One call that uses each extra. Paths are relative to an empty folder.
CALLS = {
    "": """
import importlib.util
for name in ("torch", "pandas", "matplotlib", "typer", "ray", "onnx"):
    assert importlib.util.find_spec(name) is None, name
model.save("model.safetensors")
assert np.array_equal(polyadic.load("model.safetensors").predict(X), model.predict(X))
polyadic.report(model, X, y, "page.html")
""",
    "torch": """
from polyadic import TNRegressor
assert TNRegressor("tt", rank=2, max_iter=2).fit(X, y).predict(X).shape == (200,)
""",
    "plot": """
from polyadic import plots
plots.effects(model)[0, 0].figure.savefig("effects.png")
""",
    "cli": """
import subprocess, sys
np.savetxt("t.csv", np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
fit = "fit t.csv --target y --preset fast --max-time 20 -o m.safetensors"
for line in (fit, "predict m.safetensors t.csv -o p.csv"):
    subprocess.run([sys.executable, "-m", "polyadic", *line.split()], check=True)
assert len(open("p.csv").readlines()) == 201
""",
    "tables": """
import pandas, polars, pyarrow
columns = {name: X[:, n] for n, name in enumerate("abc")}
for table in (pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table(columns)):
    assert CPRegressor(**few).fit(table, y).feature_names_in_.tolist() == ["a", "b", "c"]
""",
    "shap": """
from polyadic import explain
assert explain.shapley(model, X[:5]).to_shap().shape == (5, 3)
""",
    "ray": """
import ray
from polyadic.scale import ray as on_ray
rows = ray.data.from_items([{"a": float(a), "y": float(a * a)} for a in X[:, 0]])
fitted = on_ray.fit(CPRegressor(**few), rows, "y", storage="storage", num_workers=1)
assert fitted.n_features_in_ == 1
""",
    "onnx": """
import onnx
polyadic.to_onnx(model, "model.onnx")
onnx.checker.check_model("model.onnx")
""",
    "bench": """
from lightgbm import LGBMRegressor
import catboost, interpret, xgboost
grown = LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y)
assert np.allclose(polyadic.trees.from_model(grown, X).predict(X), grown.predict(X), atol=1e-5)
""",
    "docs": """
import subprocess, sys
from pathlib import Path
Path("pages").mkdir()
Path("pages/index.md").write_text("# A page\\n\\nWith $x^2$.\\n")
names = ["myst_parser", "numpydoc", "sphinx.ext.mathjax", "sphinx-mathjax-offline"]
names += ["sphinx_copybutton", "sphinx_design"]
Path("pages/conf.py").write_text(
    f"extensions = {names}\\nhtml_theme = 'pydata_sphinx_theme'\\n"
    "myst_enable_extensions = ['dollarmath']\\n"
)
subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "pages", "site"], check=True)
assert Path("site/index.html").exists()
""",
    "torture": """
import imblearn
assert imblearn.__version__
""",
    "dev": """
import subprocess, sys
from pathlib import Path
Path("test_own.py").write_text("def test_own():\\n    assert True\\n")
subprocess.run([sys.executable, "-m", "pytest", "-q", "test_own.py"], check=True)
subprocess.run([sys.executable, "-m", "ruff", "check", "test_own.py"], check=True)
""",
}


# ---- what the files say --------------------------------------------------------------------------


def version_of_changes(text: str) -> str:
    """Return the version of the first entry of the change log.

    >>> version_of_changes("# Changes\\n\\n## 0.2.0 (not yet released)\\n\\n## 0.1.0\\n")
    '0.2.0'
    """
    found = re.search(r"^## +(\S+)", text, flags=re.MULTILINE)
    if found is None:
        raise ValueError("CHANGES.md has no entry '## VERSION'.")
    return found[1]


def version_of_package(text: str) -> str:
    """Return the version that version.py states.

    >>> version_of_package('__version__ = "0.2.0"')
    '0.2.0'
    """
    return re.findall(r'__version__ = "(.+)"', text)[0]


def check_wheel(names: list[str], source: Path) -> list[str]:
    """Return what is wrong with the files of a wheel, given the package's source.

    Everything of the package must be in it (code, the page's scripts and styles, py.typed), and
    nothing else.
    """
    wanted = {
        f"polyadic/{path.relative_to(source).as_posix()}"
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in names if not re.match(r"polyadic-[^/]+\.dist-info/", name)}
    return [f"lacks {name}" for name in sorted(wanted - held)] + [
        f"holds {name}" for name in sorted(held - wanted)
    ]


# ---- steps ---------------------------------------------------------------------------------------


def run(command: list[str | Path], **settings) -> str:
    """Run a command and return its output; where it fails, raise an error that shows it."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **settings,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} failed:\n{done.stdout[-4000:]}")
    return done.stdout


@contextmanager
def step(text: str, failed: list[str]):
    """Print a line about a step: whether it passed, and its seconds."""
    start = perf_counter()
    try:
        yield
    except Exception as error:  # the next steps are tried too
        failed.append(text)
        print(f"FAILED  {text}\n{error}", flush=True)
    else:
        print(f"ok      {text} ({perf_counter() - start:.0f} s)", flush=True)


def copy_of_commit(folder: Path) -> Path:
    """Write the files of the last commit to a folder."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def environment(folder: Path, *packages: str, constraints: Path) -> Path:
    """Make an empty environment, install packages into it, and return its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    # Most installed modules are never imported: compiling all of them takes most of the time.
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints]
    if packages:
        run([*pip, *packages])
    return python


def build(source: Path, work: Path) -> list[Path]:
    """Build sdist and wheel, the wheel from the sdist, and let twine check both."""
    tools = environment(
        work / "tools", "build>=1.2", "twine>=6", constraints=source / "constraints.txt"
    )
    run([tools, "-m", "build", "--outdir", work / "dist", source])
    built = sorted((work / "dist").iterdir())
    run([tools, "-m", "twine", "check", "--strict", *built])
    return built


def try_extra(extra: str, wheel: Path, source: Path, work: Path) -> None:
    """Install the wheel with an extra into an empty environment, and use it."""
    folder, empty = work / "environment", work / "folder"
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    try:
        python = environment(folder, what, constraints=source / "constraints.txt")
        empty.mkdir()
        # Compiled kernels are kept between the environments: they hold the same code.
        kernels = {"NUMBA_CACHE_DIR": str(work / "kernels"), "MPLBACKEND": "Agg"}
        settings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        run([python, "-c", START + CALLS[extra]], cwd=empty, env={**settings, **kernels})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(empty, ignore_errors=True)


def main(chosen: list[str]) -> int:
    """Take all steps, and return how many failed."""
    failed: list[str] = []
    start = perf_counter()
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        work = Path(name)
        source = copy_of_commit(work / "source")
        settings = tomllib.loads((source / "pyproject.toml").read_text())
        extras = chosen or sorted(settings["project"]["optional-dependencies"])
        version = version_of_package((source / "src/polyadic/version.py").read_text())
        with step(f"version {version} is that of the change log", failed):
            stated = version_of_changes((source / "CHANGES.md").read_text())
            if stated != version:
                raise RuntimeError(f"CHANGES.md begins with {stated}.")
        wheel: Path | None = None
        with step("wheel and sdist are built, and pass twine check --strict", failed):
            built = build(source, work)
            wheel = next(path for path in built if path.suffix == ".whl")
            sizes = ", ".join(f"{p.name} {p.stat().st_size / 1e6:.2f} MB" for p in built)
        if wheel is None:
            return len(failed)
        with step(f"the wheel holds the package and nothing else: {sizes}", failed):
            wrong = check_wheel(zipfile.ZipFile(wheel).namelist(), source / "src" / "polyadic")
            if wrong:
                raise RuntimeError("The wheel " + ", ".join(wrong))
        for extra in ["", *extras]:
            what = f"the extra {extra}" if extra else "the package alone"
            with step(f"{what}: installed into an empty environment, and used", failed):
                try_extra(extra, wheel, source, work)
    minutes = (perf_counter() - start) / 60
    print(f"{len(failed)} steps failed" if failed else "All steps passed", f"({minutes:.1f} min)")
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
