"""MovieLens 100K: who gives five stars to which film, from categorical columns only.

    python examples/movielens.py --out pictures

About 15 seconds on two cores, and as many more for compilation the first time. Needs pandas, and
the extras `cli` and `plot`.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from gallery import run, save
from sklearn.metrics import roc_auc_score

from polyadic import CPClassifier, explain, plots
from polyadic.datasets import fetch_movielens100k


def main(out: Path, quick: bool = False) -> None:
    """Fit the table and write the pictures; `quick` checks that everything works."""
    # 26 categorical columns: 943 users, 1,682 films, facts about both, 19 genre flags.
    ratings = fetch_movielens100k(split="paper")
    X, y = ratings.X_train, ratings.y_train
    if quick:  # the rows with a rating of five come first
        X, y = X[::50], y[::50]
    tiny = {"n_members": 1, "rank": 4, "max_iter": 3} if quick else {}
    model = CPClassifier(verbose=1, random_state=0, **tiny).fit(X, y)
    auc = roc_auc_score(ratings.y_test, model.predict_proba(ratings.X_test)[:, 1])
    print(f"AUC on {len(ratings.y_test):,} test rows: {auc:.4f}\n")

    # 1. The user matters most, then the film, then its decade.
    found = explain.effects(model)
    print(found, "\n")
    save(plots.effects(found, top=4)[0, 0], out / "movielens_effects.png")

    # 2. Genres: the score of a film with the flag, less that of one without. As elsewhere, columns
    # are taken one at a time, so a genre is what is left when the film itself is averaged out.
    genres = {}
    for name, grid, values in zip(found.columns[7:], found.grid[7:], found.values[7:]):
        if len(grid) == 2:
            genres[name] = values[1, 0] - values[0, 0]
    genres = dict(sorted(genres.items(), key=lambda item: item[1]))
    ax = plt.subplots(figsize=(6.4, 4.6), layout="constrained")[1]
    ax.barh(list(genres), list(genres.values()), color="#1f5fa8")
    ax.set_xlabel("score of a five: with the genre, less without (raw scale)")
    ax.spines[["top", "right"]].set_visible(False)
    save(ax, out / "movielens_genres.png")

    # 3. Nearly all is additive here: single columns explain all but a hundredth of the variance.
    shares = explain.sobol(model)
    axes = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained")[1]
    plots.importance(shares, top=12, ax=axes[0])
    plots.orders(shares, ax=axes[1])
    save(axes[0], out / "movielens_shares.png")

    # 4. The strongest pair: some users prefer old films, some new ones, relative to their average
    # rating. Here are the twenty users with most ratings.
    print(explain.interactions(model, max_order=2, top=12), "\n")
    busiest = X["user"].value_counts().index[:20].tolist()
    decades = sorted(set(X["decade"]))
    both = explain.partial_dependence(model, ["user", "decade"], [busiest, decades], pure=True)
    save(plots.interaction(both), out / "movielens_interaction.png")

    # 5. One rating, in words.
    print("\n" + explain.describe(model, ratings.X_test[:1]))


if __name__ == "__main__":
    run(main, __doc__)
