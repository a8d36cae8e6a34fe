"""Size of a model file: the default model of California housing, on the paper's split.

Beside it, what its arrays take unpacked, with factors on the knots of all members, as files up to
format 3 had them. With --exact, by how much the rounding to single precision at the end of a fit
changes the predictions of test rows: a second fit leaves it out.

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from common import machine, medians, print_table, print_title, verdict

from polyadic import CPRegressor, load
from polyadic.datasets import fetch_california_housing
from polyadic.estimators.saving import describe
from polyadic.networks import blocks, trees

MOST_BYTES, MOST_CHANGE = 800_000, 1e-6


def fit(seed: int) -> tuple[CPRegressor, np.ndarray]:
    """Return the default model, and the test rows."""
    split = fetch_california_housing(split="paper")
    return CPRegressor(random_state=seed).fit(split.X_train, split.y_train), split.X_test


def unpacked_bytes(model: CPRegressor) -> int:
    """Return the bytes of all arrays of the model, with factors on all knots."""
    plain = CPRegressor()
    plain.__dict__.update(model.__dict__)
    plain.tensor_ = replace(model.tensor_, blocks=None)
    return sum(array.nbytes for array in describe(plain)[1].values())


def main() -> None:
    """Fit, save, load and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exact", action="store_true", help="fit once more without rounding")
    options = parser.parse_args()
    print(machine())
    model, X = fit(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        times = medians({"save": lambda: model.save(path), "load": lambda: load(path)}, 3)
        size = path.stat().st_size
        same = load(path).raw(X).tobytes() == model.raw(X).tobytes()
    print_title("The file of the default model")
    rows = [
        ["bytes", f"{size:,}", f"at most {MOST_BYTES:,}", verdict(size <= MOST_BYTES)],
        ["bytes, unpacked and on all knots", f"{unpacked_bytes(model):,}", "", ""],
        ["seconds to save", f"{times['save']:.2f}", "", ""],
        ["seconds to load", f"{times['load']:.2f}", "", ""],
        ["predictions of the loaded model", "same bits" if same else "other", "", verdict(same)],
    ]
    if options.exact:
        with (
            patch.object(blocks, "to_single", np.asarray),
            patch.object(trees, "to_single", np.asarray),
        ):
            exact = fit(options.seed)[0].raw(X)
        change = float(np.abs(model.raw(X) - exact).max() / np.ptp(exact))
        wanted = f"below {MOST_CHANGE:g} of the scale"
        rows.append(["change by rounding", f"{change:.1e}", wanted, verdict(change < MOST_CHANGE)])
    print_table(["", "value", "wanted", ""], rows)


if __name__ == "__main__":
    main()
