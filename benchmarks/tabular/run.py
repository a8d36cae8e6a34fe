"""Every model on every table: errors, times, two pictures and the verdicts, in results/tabular."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).resolve().parents[1]))

from cache import fingerprint
from common import machine
from report import draw, tables
from scores import Cell, measure, summarise
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from tasks import THREADS, Data, load
from threadpoolctl import threadpool_limits
from verdicts import verdicts

HERE = Path(__file__).resolve().parent
SMALL = ["airfoil", "breast_cancer", "concrete", "diabetes", "digits", "energy"]  # for --quick
CELL = ("set", "split", "model", "seed")  # what a fit is called by
RESULTS = HERE.parents[1] / "results" / "tabular"


def available(folder: str) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.stem for path in (HERE / folder).glob("*.py"))


def modules(folder: str, names: list[str]) -> dict[str, ModuleType]:
    """Import the files of these names, and print which cannot be imported."""
    found = {}
    for name in names:
        try:
            found[name] = import_module(f"{folder}.{name}")
        except ImportError as error:
            log(f"{name} is skipped: {error}")
    return found


def log(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def warm_up(module: ModuleType, data: Data) -> None:
    """Fit on few rows before the clock starts, to compile kernels and start threads."""
    strata = None if data.task == "regression" else data.y_train
    few = min(300, len(data.y_train) // 2)
    X, _, y, _ = train_test_split(
        data.X_train, data.y_train, train_size=few, random_state=0, stratify=strata
    )
    module.build(data, 0).fit(X, y).predict(X)


def pairs(
    data: Data, models: dict[str, ModuleType], repeats: int, every: bool
) -> Iterator[tuple[int, str]]:
    """Yield seed and model of each fit, the models taking turns."""
    for seed in range(repeats):
        for name, module in models.items():
            large = len(data.y_train) > getattr(module, "MOST_ROWS", len(data.y_train))
            if seed < getattr(module, "REPEATS", repeats) and (every or not large):
                yield seed, name


def run(args: argparse.Namespace, file: Path) -> list[Cell]:
    """Fit every model on every split of every set, or take the cell of an earlier run.

    A cell is taken over if the code and the settings that it depends on are the same.
    """
    if args.known:
        latest = {tuple(c[n] for n in CELL): c for c in read_cells(file).values()}
        return [c for c in latest.values() if c["set"] in args.sets and c["model"] in args.models]
    models, cells = modules("models", args.models), []
    known = {} if args.fresh else read_cells(file)
    warm: set[tuple] = set()
    for module, data, split in splits(args):
        for seed, model in pairs(data, models, args.repeats, args.ebm_all):
            key = {"set": data.name, "split": split, "model": model, "seed": seed}
            key["code"] = fingerprint(models[model], module)
            cell = known.get(tuple(key.values()))
            if cell is None:
                kind = (model, data.task, bool(data.categorical))
                cell = fit_or_skip(models[model], data, key, cold=kind not in warm)
                warm.add(kind)
                if cell is not None:
                    with file.open("a") as lines:
                        lines.write(json.dumps(cell) + "\n")
            if cell is not None:
                cells.append(cell)
    return cells


def read_cells(file: Path) -> dict[tuple, Cell]:
    """Return the cells of earlier runs, by what they depend on."""
    lines = file.read_text().splitlines() if file.exists() else []
    cells = [json.loads(line) for line in lines]
    return {tuple(cell[name] for name in (*CELL, "code")): cell for cell in cells}


def splits(args: argparse.Namespace) -> Iterator[tuple[ModuleType, Data, int]]:
    """Yield each split of each set, and print which sets are missing."""
    for name, module in modules("data", args.sets).items():
        for split in range(args.splits):
            try:
                data = load(module, split, args.inner)
            except OSError as error:
                log(f"{name} is left out: {error}")
                break
            yield module, data, split


def fit_or_skip(module: ModuleType, data: Data, key: dict, cold: bool) -> Cell | None:
    """Fit and measure once; a model that fails is left out, and the run continues."""
    where = "{set}, split {split}, seed {seed}, {model}".format(**key)
    try:
        # A model with MOST_ROWS is slow: what it does once is a small part of its time.
        if cold and not hasattr(module, "MOST_ROWS"):
            warm_up(module, data)
        scores = measure(module.build(data, key["seed"]), data)
    except Exception as error:
        log(f"{where}: failed with {type(error).__name__}: {error}")
        return None
    log(f"{where}: error {scores['error']:.4f}, fit {scores['fit_s']:.2f} s")
    n_rows, n_columns = data.X_train.shape
    sizes = {"n_rows": n_rows, "n_columns": n_columns}
    return {**key, "task": data.task, **sizes, **scores}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one split, small sets")
    for kind, folder in (("sets", "data"), ("models", "models")):
        choice = available(folder)
        parser.add_argument(
            f"--{kind}",
            type=lambda text, choice=choice: names(text, choice),
            help=", ".join(choice),
        )
    parser.add_argument("--splits", type=int, help="outer splits of each set; default 3")
    parser.add_argument("--repeats", type=int, default=1, help="seeds 0, 1, ... of each fit")
    parser.add_argument("--inner", action="store_true", help="test on held-out training rows")
    parser.add_argument("--ebm-all", action="store_true", help="ebm on large sets too")
    parser.add_argument("--known", action="store_true", help="fit nothing: print earlier fits")
    parser.add_argument("--fresh", action="store_true", help="run all fits, also known ones")
    args = parser.parse_args()
    args.sets = args.sets or (SMALL if args.quick else available("data"))
    args.models = args.models or available("models")
    args.splits = args.splits or (1 if args.quick else 3)
    return args


def names(text: str, choice: list[str]) -> list[str]:
    """Split a list of names at commas, refusing names without a file."""
    chosen = text.split(",")
    wrong = sorted(set(chosen) - set(choice))
    if wrong:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {', '.join(choice)}")
    return chosen


def main() -> None:
    """Run, print, write and draw."""
    args = arguments()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    # Some versions of LightGBM warn of it but do not have the replacement.
    warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
    folder = RESULTS / "inner" if args.inner else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(THREADS):
        found = summarise(run(args, folder / "cells.jsonl"))
        rows = "held-out training rows" if args.inner else "test rows"
        head = f"{machine()}; errors on {rows}; medians over {args.splits} splits"
        text = "\n\n".join([head, tables(found), "## Verdicts\n\n" + verdicts(found, args.inner)])
    print(text)
    (folder / "table.md").write_text(text + "\n")
    draw(found, folder)
    log(f"written: {folder}")


if __name__ == "__main__":
    main()
