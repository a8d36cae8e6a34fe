"""Adult: who earned above 50,000 dollars in 1994, from numbers, categories and missing values.

    python examples/adult.py --out pictures

About 15 seconds on two cores, and as many more for compilation the first time. Needs pandas, and
the extras `cli` and `plot`.
"""

from pathlib import Path

import numpy as np
from gallery import run, save
from sklearn.metrics import log_loss, roc_auc_score

from polyadic import CPClassifier, explain, plots
from polyadic.datasets import fetch_adult


def main(out: Path, quick: bool = False) -> None:
    """Fit the table and write the pictures; `quick` checks that everything works."""
    # Six columns are numbers, eight are categories, and some people did not say where they work.
    people = fetch_adult(split="publisher")
    X, y = people.X_train, people.y_train
    if quick:
        X, y = X[:400], y[:400]
    tiny = {"n_members": 1, "rank": 4, "max_iter": 3} if quick else {}
    model = CPClassifier(verbose=1, random_state=0, **tiny).fit(X, y)
    probability = model.predict_proba(people.X_test)
    auc = roc_auc_score(people.y_test, probability[:, 1])
    loss = log_loss(people.y_test, probability, labels=model.classes_)
    print(f"On {len(people.y_test):,} test rows: AUC {auc:.4f}, log-loss {loss:.4f}\n")

    # 1. What each column does by itself, as a probability: the mean over the other columns, with
    # this one fixed; the grey line is the mean over all. Hollow bars are for people who did not
    # state the value.
    print(explain.effects(model), "\n")
    shown = explain.effects(model, scale="probability")
    save(plots.effects(shown)[0, 0], out / "adult_effects.png")

    # 2. Shares of the variance are of the score, before the link, where terms add up. Capital gains
    # are rare and have a large effect, so they are first here and not in the beeswarm below.
    found = explain.sobol(model)
    print(found, "\n")
    save(plots.importance(found), out / "adult_importance.png")

    # 3. The strongest interaction. It is pure: zero is where the two columns simply add up. A gain
    # between 5,000 and 8,000 dollars raises the score of a husband more than that of the unmarried.
    print(explain.interactions(model, max_order=2, top=12), "\n")
    grid = [sorted(set(X["relationship"])), np.linspace(0, 15_000, 61)]
    columns = ["relationship", "capital-gain"]
    both = explain.partial_dependence(model, columns, grid, pure=True)
    save(plots.interaction(both), out / "adult_interaction.png")

    # 4. One person, in words and as a waterfall, on the scale of the score.
    rows = explain.shapley(model, people.X_test[:1500])
    unsure = int(abs(probability[:1500, 1] - 0.5).argmin())
    print(explain.describe(model, people.X_test[unsure : unsure + 1]), "\n")
    save(plots.waterfall(rows, row=unsure), out / "adult_waterfall.png")

    # 5. Many people. Categories have no order, so their points have one colour.
    save(plots.beeswarm(rows), out / "adult_beeswarm.png")


if __name__ == "__main__":
    run(main, __doc__)
