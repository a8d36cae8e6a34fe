"""California housing: what makes a house expensive, from a model of eight numeric columns.

    python examples/california.py --out pictures

About ten seconds on two cores, and 15 more for compilation the first time. Needs pandas, and the
extras `cli` and `plot`.
"""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gallery import run, save
from sklearn.model_selection import train_test_split

from polyadic import CPRegressor, explain, plots
from polyadic.datasets import fetch_california_housing


def main(out: Path, quick: bool = False) -> None:
    """Fit the table and write the pictures; `quick` checks that everything works."""
    # Each row is a block of houses in 1990; the target is their median value in 100,000 dollars.
    houses = fetch_california_housing()
    X, X_test, y, y_test = train_test_split(houses.data, houses.target, random_state=0)
    if quick:
        X, y = X[:400], y[:400]
    tiny = {"n_members": 1, "rank": 4, "max_iter": 3} if quick else {}
    model = CPRegressor(verbose=1, random_state=0, **tiny).fit(X, y)
    print(f"R2 on {len(y_test):,} test rows: {model.score(X_test, y_test):.3f}\n")

    # 1. What each column does by itself. Location matters most, then income.
    print(explain.effects(model), "\n")
    save(plots.effects(model)[0, 0], out / "california_effects.png")

    # 2. How much of the variance is beyond single columns, and which columns have a part in it.
    found = explain.sobol(model)
    print(found, "\n")
    axes = plt.subplots(1, 2, figsize=(11.0, 3.2), layout="constrained")[1]
    plots.importance(found, ax=axes[0])
    plots.orders(found, ax=axes[1])
    save(axes[0], out / "california_shares.png")

    # 3. The strongest interaction is a map: which places are more or less expensive than the
    # effects of their latitude and longitude add up to. Where there are no houses the map is white.
    print(explain.interactions(model, top=8), "\n")
    columns = ["Longitude", "Latitude"]
    grid = [np.linspace(-124.4, -114.3, 80), np.linspace(32.5, 42.0, 80)]
    nearest = [abs(X[c].to_numpy()[:, None] - g).argmin(axis=1) for c, g in zip(columns, grid)]
    lived_in = np.zeros((80, 80, 1), dtype=bool)
    lived_in[tuple(nearest)] = True
    axes = plt.subplots(1, 2, figsize=(9.5, 4.4), layout="constrained")[1]
    for ax, pure in zip(axes, (False, True)):
        found = explain.partial_dependence(model, columns, grid, pure=pure)
        shown = replace(found, values=np.where(lived_in, found.values, np.nan))
        plots.interaction(shown, ax=ax).set_aspect(1.25)
    axes[0].set_title("What a place is worth", loc="left", fontsize=11)
    axes[1].set_title("... beyond its longitude and latitude", loc="left", fontsize=11)
    save(axes[0], out / "california_place.png")

    # 4. One prediction, in words and as a waterfall. The numbers are exact Shapley values.
    highest = int(model.predict(X_test).argmax())
    print(explain.describe(model, X_test[highest : highest + 1]), "\n")
    save(plots.waterfall(model, X_test[highest : highest + 1]), out / "california_waterfall.png")

    # 5. Many predictions at once: one point per row, coloured by the value of the column.
    save(plots.beeswarm(model, X_test[:1500]), out / "california_beeswarm.png")


if __name__ == "__main__":
    run(main, __doc__)
