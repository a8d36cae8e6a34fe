"""A LightGBM model, read exactly: what it has learnt, where ours differs, and both joined.

    python examples/trees.py --out pictures

About half a minute on two cores. Needs pandas, LightGBM, and the extras `cli` and `plot`.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from gallery import run, save
from lightgbm import LGBMRegressor
from sklearn.model_selection import train_test_split

import polyadic
from polyadic import CPRegressor, explain, plots, trees
from polyadic.datasets import fetch_california_housing


def main(out: Path, quick: bool = False) -> None:
    """Read, compare and join; write the pictures and the page. `quick`: few rows."""
    houses = fetch_california_housing()
    X, X_test, y, y_test = train_test_split(houses.data, houses.target, random_state=0)
    if quick:
        X, y, X_test, y_test = X[:400], y[:400], X_test[:400], y_test[:400]
    X, X_held_out, y, y_held_out = train_test_split(X, y, test_size=0.15, random_state=0)

    # 1. The model that is there already. Nothing is trained again, and nothing is approximated.
    grown = LGBMRegressor(random_state=0, verbose=-1).fit(X, y)
    read = trees.from_model(grown, X)
    gap = abs(read.predict(X_test) - grown.predict(X_test)).max()
    print(f"Largest difference to LightGBM on {len(y_test):,} test rows: {gap:.1e}\n")

    # 2. What the trees have learnt: how much is beyond single columns, and a row in words.
    found = explain.sobol(read)
    print(found, "\n")
    axes = plt.subplots(1, 2, figsize=(11.0, 3.2), layout="constrained")[1]
    plots.importance(found, ax=axes[0])
    plots.orders(found, ax=axes[1])
    save(axes[0], out / "trees_orders.png", dpi=75)
    print(explain.describe(read, X_test[:1]), "\n")

    # 3. Where a smooth model differs from it. Without trees=False it would grow trees of its own.
    tiny = {"n_members": 1, "rank": 4, "max_iter": 3} if quick else {}
    own = CPRegressor(trees=False, random_state=0, **tiny).fit(X, y)
    compared = explain.compare(own, read, background=X)
    print(compared, "\n")
    save(plots.compare(compared).flat[0], out / "trees_compare.png", dpi=75)

    # 4. Both joined, with the share that rows of neither training choose.
    both = trees.join(own, read, X_held_out, y_held_out, background=X)
    print(both.plan_, "\n")
    for name, model in {"ours": own, "LightGBM": read, "joined": both}.items():
        print(f"R2 of {name} on {len(y_test):,} test rows: {model.score(X_test, y_test):.4f}")

    # 5. The joined model as a live page.
    page = out / "trees.html"
    polyadic.report(both, X_test, y_test, page, title="Houses, by trees and smooth terms")
    print(f"Wrote {page}")


if __name__ == "__main__":
    run(main, __doc__)
