"""Support vector machines with a polynomial kernel (paper, appendix A).

The paper lists what CP has over them: at least quadratic time in the rows, overfitting for large
degrees, and interactions of categories that they do not learn. None has a number there. The kernel
is (<x, z> + 1)^i, beside CP with d = i + 1.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, SVR

from experiments import california, figures, models, movielens, report, statistics, synthetic
from experiments.cells import Cell, Found, Scale
from experiments.report import Claim, Picture, Section, Table

NAME = "kernels"
DEGREES = (2, 3, 4, 5)
C = 1.0
MOST_STEPS = 500_000  # of the solver: large degrees do not converge
ROWS = (250, 500, 1000, 2000, 4000)  # of California, to see how time grows
SPARSE_ROWS = 4000  # of MovieLens: all 21,200 would take minutes
GAMMA = 1 / 8  # of California: outlying rows make a kernel without it slow to converge
QUADRATIC = 1.7  # exponent of time over rows from which it counts as quadratic; chosen by hand


def svm(seed: int, degree: int) -> dict[str, Any]:
    """Polynomial kernel on the synthetic table."""
    split = synthetic.data()
    model = SVR(kernel="poly", degree=degree, gamma=1.0, coef0=1.0, C=C, max_iter=MOST_STEPS)
    found = models.fit_on_train(model, split)
    return found | {"train": models.error(split.y_train, model.predict(split.X_train))}


def cp(seed: int, degree: int, epochs: int) -> dict[str, Any]:
    """CP from the linear init on the same table, with powers up to the same degree."""
    split = synthetic.data()
    model = synthetic.cp_from(seed, "linear init", degree + 1, synthetic.RANK, epochs)
    found = models.fit_on_split(model, split)
    train = models.error(split.y_train, model.predict(split.X_train))
    return {k: found[k] for k in ("val", "test", "seconds")} | {"train": train}


def svm_time(seed: int, rows: int) -> dict[str, Any]:
    """Seconds of a kernel of degree three on some rows of California."""
    split = california.data()
    start = perf_counter()
    SVR(kernel="poly", degree=3, gamma=GAMMA, coef0=1.0, C=C).fit(
        split.X_train[:rows], split.y_train[:rows]
    )
    return {"seconds": perf_counter() - start}


def cp_time(seed: int, rows: int, epochs: int) -> dict[str, Any]:
    """Seconds of CP on the same rows, for a fixed number of epochs."""
    split = california.data()
    model = models.cp_regressor(seed, d=4, rank=california.RANK, epochs=epochs, normalize=True)
    start = perf_counter()
    model.fit(split.X_train[:rows], split.y_train[:rows])
    return {"seconds": perf_counter() - start}


def svm_on_categories(seed: int, degree: int, rows: int) -> dict[str, Any]:
    """Test AUC on MovieLens, one-hot columns."""
    split = movielens.data()
    chosen = np.random.default_rng(0).permutation(len(split.y_train))[:rows]
    columns = OneHotEncoder(handle_unknown="ignore").fit(split.X_train)
    start = perf_counter()
    model = SVC(kernel="poly", degree=degree, gamma=1.0, coef0=1.0, C=C, cache_size=1000)
    model.fit(columns.transform(split.X_train.iloc[chosen]), split.y_train[chosen])
    seconds = perf_counter() - start
    some = np.random.default_rng(1).permutation(len(split.y_test))[:SPARSE_ROWS]
    score = model.decision_function(columns.transform(split.X_test.iloc[some]))
    return {"auc": roc_auc_score(split.y_test[some], score), "seconds": seconds}


def cp_on_categories(seed: int, rows: int, epochs: int) -> dict[str, Any]:
    """Test AUC of CP of Table II on the same rows, after a fixed number of epochs."""
    split = movielens.data()
    chosen = np.random.default_rng(0).permutation(len(split.y_train))[:rows]
    some = np.random.default_rng(1).permutation(len(split.y_test))[:SPARSE_ROWS]
    start = perf_counter()
    X, y = split.X_train.iloc[chosen], split.y_train[chosen]
    watched = [(split.X_test.iloc[some], split.y_test[some])]
    (curve,) = movielens.follow(movielens.cp_classifier(seed, epochs), X, y, watched)
    return {"auc": curve[-1], "seconds": perf_counter() - start}


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment."""
    out: list[Cell] = []
    for degree in DEGREES[:2] if scale.quick else DEGREES:
        out.append(Cell(NAME, f"svm, degree {degree}", 0, svm, {"degree": degree}))
        settings = {"degree": degree, "epochs": scale.epochs(synthetic.EPOCHS)}
        name = f"cp, degree {degree}"
        out += [Cell(NAME, name, seed, cp, settings) for seed in scale.fits(NAME, name)]
    for rows in ROWS[:2] if scale.quick else ROWS:
        for seed in range(1 if scale.quick else 3):
            out.append(Cell(NAME, f"svm, {rows} rows", seed, svm_time, {"rows": rows}, alone=True))
            settings = {"rows": rows, "epochs": scale.epochs(10)}
            out.append(Cell(NAME, f"cp, {rows} rows", seed, cp_time, settings, alone=True))
    if not scale.quick:
        for degree in (1, 2, 3):
            settings = {"degree": degree, "rows": SPARSE_ROWS}
            out.append(
                Cell(NAME, f"svm, categories, degree {degree}", 0, svm_on_categories, settings)
            )
        settings = {"rows": SPARSE_ROWS, "epochs": 100}
        for seed in scale.fits(NAME, "cp, categories"):
            out.append(Cell(NAME, "cp, categories", seed, cp_on_categories, settings))
    return out


# ---- what the report says -----------------------------------------------------------------------


def section(found: Found, folder: Path) -> Section:
    """Return the errors by degree, the times by rows, and the claims."""
    figure, panels = figures.new_figure(2)
    for panel, key, what in zip(panels, ("train", "test"), ("training", "test")):
        lines = {m: by_degree(found, m, key) for m in ("svm", "cp")}
        figures.draw_sweep(panel, lines, ("degree", f"{what} MSE"), log_y=True)
    figures.save(figure, folder / "figure_kernels.png")
    return Section(
        "Support vector machines with a polynomial kernel",
        "Appendix A; the paper gives no numbers. The kernel is (<x, z> + 1)^i with C = 1, on the "
        f"synthetic table, at most {MOST_STEPS:,} steps of its solver; CP has d = i + 1, a rank of "
        "10 and the linear init, and is taken at the epoch that is best on the validation rows, so "
        "that test errors are compared. Times are of a kernel of degree 3, (<x, z> / 8 + 1)^3, on "
        "some rows of California, and of ten epochs of CP; a power of "
        f"{QUADRATIC} counts as quadratic. Categories: "
        f"{SPARSE_ROWS:,} training and {SPARSE_ROWS:,} test rows of MovieLens; CP of Table II "
        "after 100 epochs.",
        [degree_table(found), time_table(found), category_table(found)],
        [Picture("figure_kernels.png", "MSE against the degree, synthetic table.")],
        claims(found),
    )


def by_degree(found: Found, model: str, key: str) -> dict[int, list[float]]:
    """Return an error at every degree, over seeds."""
    points = {k: found.values(key, f"{model}, degree {k}") for k in DEGREES}
    return {k: values for k, values in points.items() if values}


def by_rows(found: Found, model: str) -> dict[int, list[float]]:
    """Return the seconds at every number of rows."""
    points = {n: found.values("seconds", f"{model}, {n} rows") for n in ROWS}
    return {n: values for n, values in points.items() if values}


def degree_table(found: Found) -> Table:
    """Return training and validation errors against the degree."""
    lines = [by_degree(found, m, key) for m in ("svm", "cp") for key in ("train", "test")]
    rows = [[str(k), *(report.number(report.mean(line[k])) for line in lines)] for k in lines[0]]
    header = ["degree", "SVM, train MSE", "SVM, test MSE", "CP, train MSE", "CP, test MSE"]
    return Table("kernels_degree", "Errors against the degree", header, rows)


def time_table(found: Found) -> Table:
    """Return seconds against rows."""
    lines = [by_rows(found, m) for m in ("svm", "cp")]
    rows = [[f"{n:,}", *(f"{report.mean(line[n]):.3f}" for line in lines)] for n in lines[0]]
    return Table("kernels_time", "Seconds against rows", ["rows", "SVM", "CP"], rows)


def category_table(found: Found) -> Table:
    """Return the AUC on categories."""
    rows = []
    for model in (*(f"svm, categories, degree {k}" for k in (1, 2, 3)), "cp, categories"):
        values = found.values("auc", model)
        if values:
            seconds = report.mean(found.values("seconds", model))
            rows.append([model, *report.spread(values), f"{seconds:.1f}"])
    header = ["model", "test AUC", "sd", "range", "fits", "fit s"]
    return Table("kernels_categories", "Interactions of categories", header, rows)


def exponent(line: dict[int, list[float]]) -> float:
    """Return the exponent of time over rows."""
    rows, seconds = np.log(list(line)), np.log([report.mean(v) for v in line.values()])
    return float(np.polyfit(rows, seconds, 1)[0])


def claims(found: Found) -> list[Claim]:
    """Return what the appendix lists against these machines, and CP beside each."""
    times = {m: by_rows(found, m) for m in ("svm", "cp")}
    errors = {m: by_degree(found, m, "test") for m in ("svm", "cp")}
    out = []
    if all(len(line) > 2 for line in times.values()):
        power = {m: exponent(line) for m, line in times.items()}
        evidence = f"time grows with the {power['svm']:.2f}th power of the rows, CP's with the "
        evidence += f"{power['cp']:.2f}th"
        text = "Polynomial SVM: at least quadratic time in the rows"
        out.append(Claim(text, evidence, power["svm"] >= QUADRATIC))
    if all(len(line) > 2 for line in errors.values()):
        least = {m: min(map(report.mean, line.values())) for m, line in errors.items()}
        last = {m: list(line.values())[-1] for m, line in errors.items()}
        evidence = "test MSE, " + ", ".join(
            f"{m}: {least[m]:.4f} at best, {report.mean(last[m]):.4f} at degree {DEGREES[-1]}"
            for m in errors
        )
        rise = {m: [v / least[m] for v in last[m]] for m in errors}
        text = "Polynomial SVM: overfits for large degrees, CP does not as much"
        out.append(Claim(text, evidence, statistics.smaller(rise["cp"], rise["svm"])))
    linear = found.values("auc", "svm, categories, degree 1")
    bent = [v for k in (2, 3) for v in found.values("auc", f"svm, categories, degree {k}")]
    own = found.values("auc", "cp, categories")
    if linear and bent and own:
        evidence = f"AUC {max(bent):.4f}, of a linear kernel {linear[0]:.4f}, of CP "
        evidence += f"{report.mean(own):.4f}"
        text = "Polynomial SVM: does not effectively capture interactions of categories, CP does"
        learnt = statistics.smaller(linear, own)  # the AUC of CP is above that of a linear kernel
        out.append(Claim(text, evidence, statistics.all_of([max(bent) <= linear[0], learnt])))
    return out
