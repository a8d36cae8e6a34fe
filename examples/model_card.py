"""Write a model card with skops: what a model is for, how it was made, and what it has learnt."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from skops import card

from polyadic import CPRegressor, explain


def main(folder: Path, n_rows: int = 1000) -> Path:
    """Fit a small model, and write its card; return the file."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2 * n_rows, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    settings = {"rank": 8, "n_members": 1, "max_iter": 20, "solver": "adam", "trees": False}
    model = CPRegressor(**settings, random_state=0).fit(X[:n_rows], y[:n_rows])
    model.save(folder / "model.safetensors")  # no pickle: safe to load from anywhere
    shares = explain.terms(model, top=5).table()
    sheet = card.Card(model, model_diagram=False)
    sheet.add(
        **{
            "Model description": "A sum of products of one function per column.",
            "Model description/How it was fitted": f"```\n{model.plan_}\n```",
            "How to load it": '```python\nmodel = polyadic.load("model.safetensors")\n```',
        }
    )
    sheet.add_metrics(r2=round(model.score(X[n_rows:], y[n_rows:]), 4), section="Accuracy")
    sheet.add_table(**{"What it has learnt": shares})
    path = folder / "README.md"
    sheet.save(path)
    print(f"wrote {path}")
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
