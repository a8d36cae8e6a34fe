"""Run the paper's experiments and write the report: `python -m experiments`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from experiments import (
    california,
    coefficients,
    dimensions,
    kernels,
    mnist,
    models,
    movielens,
    sequences,
    synthetic,
)
from experiments.cells import (
    Cell,
    Found,
    Kept,
    Scale,
    expected_seconds,
    measured_seconds,
    run_cells,
)
from experiments.report import Section, write_report

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        synthetic,
        movielens,
        california,
        dimensions,
        mnist,
        coefficients,
        kernels,
        sequences,
    )
}
QUICK = Scale(quick=True, seeds=2, most_epochs=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit code."""
    options = parse(arguments)
    scale = choose_scale(options)
    try:
        reproduce(options.results, scale, options.only, say, options.any_library, options.jobs)
    except KeyboardInterrupt:
        say("Interrupted. Finished cells are kept: the same command continues from here.")
        return 130
    if options.docs:
        copy_to_docs(options.results, ROOT / "docs")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a trial run of some minutes")
    parser.add_argument("--only", help=f"some of: {','.join(EXPERIMENTS)}")
    parser.add_argument(
        "--seeds", type=int, help="fits of every stochastic model; by default 50, 20 or 5, by time"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="fits side by side; all cores"
    )
    parser.add_argument(
        "--any-library",
        action="store_true",
        help="take kept fits of other states of the library; the report says so",
    )
    parser.add_argument("--epochs", type=int, help="no fit is longer than this")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where to write")
    parser.add_argument("--docs", action="store_true", help="write docs/results.md from a full run")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else list(EXPERIMENTS)
    unknown = [name for name in options.only if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"unknown experiment {unknown[0]!r}. Choose from: {', '.join(EXPERIMENTS)}.")
    if options.docs and (options.quick or options.seeds or options.epochs):
        parser.error("--docs is for the full run: leave out --quick, --seeds and --epochs.")
    if options.docs and set(options.only) != set(EXPERIMENTS):
        parser.error("--docs is for the full run: leave out --only.")
    return options


def choose_scale(options: argparse.Namespace) -> Scale:
    """Return how much to run."""
    usual = QUICK if options.quick else Scale()
    return Scale(options.quick, options.seeds or usual.seeds, options.epochs or usual.most_epochs)


def say(text: str) -> None:
    """Print a line and flush."""
    print(text, flush=True)


def reproduce(
    folder: Path,
    scale: Scale,
    names: Sequence[str],
    say: Callable[[str], None],
    any_library: bool = False,
    jobs: int = 1,
) -> Path:
    """Run the experiments of these names, write everything, and return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(folder / "cells" / scale.name, any_library)
    cells = [cell for name in names for cell in EXPERIMENTS[name].cells(scale)]
    if any(kept.get(cell) is None for cell in cells):
        say("Compiling kernels, where that has not been done before.")
        models.warm_up()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn about feature names and divergence
        found = run_cells(
            cells, kept, quick_seconds if scale.quick else expected_seconds, say, jobs
        )
    lines = ",\n".join(json.dumps(asdict(record), allow_nan=False) for record in found)
    (folder / "raw.json").write_text(f"[\n{lines}\n]\n")
    (folder / "seconds.json").write_text(json.dumps(measured_seconds(found), indent=1) + "\n")
    sections = [part(name, found, folder) for name in names]
    path = write_report(folder, scale, found, sections, any_library)
    say(f"Written: {path}")
    return path


def quick_seconds(cell: Cell) -> float:
    """Return the seconds to expect of a quick cell: one or so."""
    return 1.0


def part(name: str, found: Found, folder: Path) -> Section:
    """Return the section of an experiment."""
    own = Found(record for record in found if record.experiment == name)
    reasons = {r.result["skipped"] for r in own if "skipped" in r.result}
    if own and all("skipped" in r.result for r in own):
        return Section(name, f"Skipped: {'; '.join(sorted(reasons))}")
    return EXPERIMENTS[name].section(own, folder)


def copy_to_docs(folder: Path, docs: Path) -> None:
    """Write docs/results.md from the report, with its pictures in docs/figures/."""
    pictures = docs / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("figure_*.png"):  # other pictures there are not of the paper
        old.unlink()
    text = (folder / "REPORT.md").read_text()
    for picture in sorted(folder.glob("figure_*.png")):
        shutil.copy(picture, pictures / picture.name)
        text = text.replace(f"]({picture.name})", f"](figures/{picture.name})")
    (docs / "results.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
