"""How far the errors of the default model depend on the CPU that it is compiled for.

Rounding differs between CPUs, and training amplifies it as it amplifies another seed. The same fits
run in processes that compile for this CPU, for haswell and for a generic one; CatBoost is
fitted once: the README gives errors relative to its error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from common import machine, print_table
from run import available, modules, names
from scores import geometric, measure
from tasks import THREADS, load
from threadpoolctl import threadpool_limits

TARGETS = {
    "this CPU": {},
    "haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""},
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}
MODELS = ("cp", "cp_one")


def fit_here(sets: list[str], models: list[str]) -> dict[str, dict[str, float]]:
    """Return error (and AUC) of each model on each set, with seed 0."""
    found = {}
    with threadpool_limits(THREADS):
        for name, module in modules("data", sets).items():
            try:
                data = load(module, 0, inner=False)
            except OSError as error:
                print(f"{name} is skipped: {error}", file=sys.stderr)
                continue
            for model, kind in modules("models", models).items():
                scores = measure(kind.build(data, 0), data)
                own = {"task": data.task, **{k: scores[k] for k in ("error", "auc") if k in scores}}
                found[f"{name} {model}"] = own
    return found


def fit_in_process(sets: list[str], models: list[str], environment: dict[str, str]) -> dict:
    """Do the same in a new process with these environment variables."""
    command = [sys.executable, __file__, "--child", "--sets", ",".join(sets), "--models"]
    run = subprocess.run(
        [*command, ",".join(models)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    """Fit on every target and print errors, their range, and means relative to CatBoost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=lambda text: names(text, available("data")))
    parser.add_argument("--models", type=lambda text: names(text, available("models")))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sets, models = args.sets or available("data"), args.models or list(MODELS)
    if args.child:
        print(json.dumps(fit_here(sets, models)))
        return
    print(machine())
    found = {target: fit_in_process(sets, models, own) for target, own in TARGETS.items()}
    rows = []
    for key, first in found["this CPU"].items():
        for score in ("error", "auc"):
            if score in first:
                values = [cells[key][score] for cells in found.values()]
                low, high = min(values), max(values)
                rows.append([f"{key} {score}", *(f"{v:.5f}" for v in values), high / low - 1])
    rows = [[*row[:-1], f"{row[-1]:.1%}"] for row in rows]
    print_table(["set, model, score", *TARGETS, "range"], rows)
    rival = fit_in_process(sets, ["catboost"], {})
    for target, cells in found.items():
        ratios = [
            cells[f"{name.split()[0]} cp"]["error"] / own["error"]
            for name, own in rival.items()
            if own["task"] == "regression" and f"{name.split()[0]} cp" in cells
        ]
        below = sum(ratio < 1 for ratio in ratios)
        mean = geometric(ratios)
        print(f"{target}: {mean:.3f} of CatBoost's error, below it on {below} of {len(ratios)}")


if __name__ == "__main__":
    main()
