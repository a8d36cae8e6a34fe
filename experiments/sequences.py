"""Columns with an order: when not to use CP (paper, appendix A and future work).

The paper expects Tensor Trains to be the better choice for sequences, and says that CP does not
depend on the order of columns. Two tables on which this can be seen:

*Automaton*: 16 binary symbols are read one after the other, and each turns a hidden state of three
numbers by its own rotation. The target is one entry of the last state, plus noise. Rotations do not
commute, so that the order matters. A train of rank three is exact.

*Digits*: the 8 x 8 pixels of scikit-learn's handwritten digits, row by row, in snake order (every
other row from right to left, so that neighbours in the list are neighbours in the picture), and
permuted.

All formats have about the same number of parameters, the same solver and the same number of epochs.
Epoch and learning rate are chosen on validation rows. A seed draws everything anew: rotations,
rows, permutation, and the start of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.linalg import expm
from sklearn.base import clone
from sklearn.datasets import load_digits

from experiments import models, report
from experiments.cells import Cell, Found, Scale
from experiments.report import Claim, Section, Table
from experiments.statistics import paired_difference, smaller
from polyadic import TNClassifier, TNRegressor
from polyadic.datasets import Split
from polyadic.maps import Polynomial

NAME = "sequences"
N_SYMBOLS, N_STATES = 16, 3
ANGLE = 0.6  # of a rotation, in radians: larger ones are learnt by no format, smaller ones by all
NOISE = 0.1  # standard deviation, relative to that of the target
AUTOMATON_ROWS, DIGIT_ROWS = (2000, 1000), (1000, 297)  # to train and to validate; the rest: test
N_ROWS = 6000
AUTOMATON_RANKS = {"tt": 4, "tr": 4, "ht": 3, "cp": 16}  # 504 to 528 parameters
DIGIT_RANKS = {"tt": 6, "tr": 6, "ht": 4, "cp": 34}  # 4,584 to 4,968 parameters
LARGER = {"cp, 8 times": 128}  # CP with more parameters than the train
AUTOMATON_EPOCHS, AUTOMATON_RATES, AUTOMATON_BATCH = 20, (0.005, 0.02), 100
DIGIT_EPOCHS, DIGIT_RATES, DIGIT_BATCH = 15, (0.002, 0.005), 64
AUTOMATON_ORDERS, DIGIT_ORDERS = ("in order", "permuted"), ("by rows", "snake", "permuted")
SAME = 1e-2  # difference of two MSEs of CP that rounding may make over a fit; chosen by hand
NAMES = {"tt": "TT", "tr": "TR", "ht": "HT", "cp": "CP"}
NAMES |= {name: name.replace("cp", "CP") + " the parameters" for name in LARGER}


# ---- tables -------------------------------------------------------------------------------------


@cache
def automaton(seed: int, order: str) -> Split:
    """Return sequences of -1 and +1, and an entry of the product of their rotations."""
    rng = np.random.default_rng(seed)
    turns = np.array([rotation(rng) for _ in range(2)])
    symbols = rng.integers(0, 2, (N_ROWS, N_SYMBOLS))
    state = np.tile(np.eye(N_STATES)[0], (N_ROWS, 1))
    for n in range(N_SYMBOLS):
        state = np.einsum("ri,rij->rj", state, turns[symbols[:, n]])
    y = (state[:, 0] - state[:, 0].mean()) / state[:, 0].std()
    y = y + NOISE * rng.normal(size=N_ROWS)
    return split_rows(2.0 * symbols[:, places(order, N_SYMBOLS, seed)] - 1.0, y, AUTOMATON_ROWS)


def rotation(rng: np.random.Generator) -> np.ndarray:
    """Return a rotation by ANGLE about a random axis."""
    turn = rng.normal(size=(N_STATES, N_STATES))
    turn = turn - turn.T
    return expm(np.sqrt(2.0) * ANGLE * turn / np.linalg.norm(turn))


@cache
def digits(seed: int, order: str) -> Split:
    """Return the pixels of handwritten digits, rows shuffled."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))
    return split_rows(X[rows][:, places(order, X.shape[1], seed)], y[rows], DIGIT_ROWS)


def places(order: str, n_columns: int, seed: int) -> np.ndarray:
    """Return which column comes first, second and so on."""
    if order == "permuted":
        return np.random.default_rng((seed, 1)).permutation(n_columns)
    own = np.arange(n_columns)
    if order == "snake":
        picture = own.reshape(8, 8)
        picture[1::2] = picture[1::2, ::-1].copy()
    return own


def split_rows(X: np.ndarray, y: np.ndarray, sizes: tuple[int, int]) -> Split:
    """Return the first rows to train, the next to validate, and the rest to test."""
    ends = np.cumsum(sizes)
    parts = zip(np.split(X, ends), np.split(y, ends))
    return Split(*(part for pair in parts for part in pair))


# ---- cells --------------------------------------------------------------------------------------


def fit_automaton(seed: int, format: str, rank: int, order: str, epochs: int) -> dict[str, Any]:
    """Fit a network on the sequences; the error is the mean squared error on the test rows."""
    split = automaton(seed, order)
    common = {"rank": rank, "max_iter": epochs, "batch_size": AUTOMATON_BATCH}
    network = TNRegressor(format, maps=Polynomial(2), random_state=seed, **common)
    model, found = fit_best_rate(network, split, AUTOMATON_RATES)
    predicted = models.predict_or_nan(model.predict, split.X_test)
    return found | {"test": models.error(split.y_test, predicted)}


def fit_digits(seed: int, format: str, rank: int, order: str, epochs: int) -> dict[str, Any]:
    """Fit a network on the pixels; the error is the share of wrong digits on the test rows."""
    split = digits(seed, order)
    common = {"rank": rank, "max_iter": epochs, "batch_size": DIGIT_BATCH}
    network = TNClassifier(format, maps=Polynomial(2), random_state=seed, **common)
    model, found = fit_best_rate(network, split, DIGIT_RATES)
    predicted = models.predict_or_nan(model.predict, split.X_test)
    return found | {"test": float(np.mean(predicted != split.y_test))}


def fit_best_rate(model: Any, split: Split, rates: Sequence[float]) -> tuple[Any, dict[str, Any]]:
    """Fit at each rate, and return the model with the lowest loss on the validation rows."""
    start, fits = perf_counter(), []
    for rate in rates:
        own = clone(model).set_params(learning_rate=rate)
        own.fit(split.X_train, split.y_train, X_val=split.X_val, y_val=split.y_val)
        fits.append((min(own.history_[0]["validation_loss"]), rate, own))
    loss, rate, best = min(fits, key=lambda fit: fit[0])
    size = sum(array.size for array in (*best.cores_, *best.extras_))
    seconds = perf_counter() - start
    return best, {"val": loss, "rate": rate, "parameters": size, "seconds": seconds}


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment; a quick run has TT and CP alone."""
    out = []
    larger = {} if scale.quick else LARGER
    for name in [*scale.some(list(AUTOMATON_RANKS)), *larger]:
        # CP does not depend on the order: once is enough to see that.
        for order in AUTOMATON_ORDERS[: 1 if name in LARGER else None]:
            rank = (AUTOMATON_RANKS | LARGER)[name]
            settings = {"format": name.split(",")[0], "rank": rank, "order": order}
            settings["epochs"] = scale.epochs(AUTOMATON_EPOCHS)
            out += repeated(scale, f"automaton, {name}, {order}", fit_automaton, settings)
    for name in scale.some(list(DIGIT_RANKS)):
        for order in scale.some(DIGIT_ORDERS if name == "tt" else DIGIT_ORDERS[::2]):
            settings = {"format": name, "rank": DIGIT_RANKS[name], "order": order}
            settings["epochs"] = scale.epochs(DIGIT_EPOCHS)
            out += repeated(scale, f"digits, {name}, {order}", fit_digits, settings)
    return out


def repeated(
    scale: Scale, model: str, work: Callable[..., dict[str, Any]], settings: dict[str, Any]
) -> list[Cell]:
    """Return the cells of one model, one for each seed."""
    return [Cell(NAME, model, seed, work, settings) for seed in scale.fits(NAME, model)]


# ---- what the report says -----------------------------------------------------------------------


def section(found: Found, folder: Path) -> Section:
    """Return both tables and the claims."""
    return Section(
        "Columns with an order: when not to use CP",
        "Not in the paper, which leaves sequences to future work and expects that trains suit "
        f"them. *Automaton*: {N_SYMBOLS} binary symbols, each of which turns a hidden state of "
        f"{N_STATES} numbers by {ANGLE} radians about an axis of its own; the target is an entry "
        f"of the last state, with noise of {NOISE} standard deviations, so that no model can have "
        f"an MSE below {NOISE**2:g}. A train of rank {N_STATES} is exact. *Digits*: 8 x 8 pixels "
        "of scikit-learn's handwritten digits by rows, in snake order and permuted. All formats "
        "have about the same number of parameters, the same epochs and the same rates; epoch and "
        "one of two rates are chosen on validation rows. The last column but one is the mean over "
        "seeds of the error in order minus the error permuted, with the 95 % interval of a paired "
        "bootstrap; CP has the same error in every order. A train is the right choice where a "
        "target is built up step by step along the columns, as by a machine that reads them one "
        "after the other: CP does not catch up with several times the parameters. Whether columns "
        "that merely have neighbours, as pixels do, are such a case is what the second table "
        "asks. Five recipes (rates, epochs, batches) were tried on the digits with five seeds, and "
        "their test errors were seen: in one of them TT by rows was surely better than CP and than "
        "TT permuted, in the other four neither could be told. The recipe here is that of the "
        "automaton, and was fixed before its test errors were seen.",
        [automaton_table(found), digits_table(found)],
        [],
        [*automaton_claims(found), *digits_claims(found)],
    )


def errors(found: Found, table: str, name: str, order: str) -> list[float]:
    """Return the errors on the test rows."""
    return found.values("test", f"{table}, {name}, {order}")


def lines(found: Found, table: str, ranks: dict[str, int], orders: Sequence[str]) -> list[Any]:
    """Return the lines of a table: errors by order, and what the first order gains on the last."""
    out = []
    for name, rank in ranks.items():
        first = found.of(f"{table}, {name}, {orders[0]}")
        if first:  # a quick run leaves formats out
            runs = [errors(found, table, name, order) for order in orders]
            cells = [cell for values in runs for cell in report.spread(values)[:2]]
            gain = str(paired_difference(runs[0], runs[-1])) if runs[-1] else ""
            seconds = report.number(report.mean([r["seconds"] for r in first]), 1)
            size = f"{first[0]['parameters']:,}"
            out.append([NAMES[name], str(rank), size, *cells, gain, seconds])
    return out


def header(orders: Sequence[str], what: str) -> list[str]:
    """Return the header of a table."""
    own = [h for order in orders for h in (f"{what}, {order}", "sd")]
    return ["format", "rank", "parameters", *own, f"{orders[0]} minus permuted", "fit s"]


def automaton_table(found: Found) -> Table:
    """Return errors on the sequences."""
    ranks = AUTOMATON_RANKS | LARGER
    rows = lines(found, "automaton", ranks, AUTOMATON_ORDERS)
    caption = "Automaton: test MSE with symbols in order and permuted"
    return Table("sequences_automaton", caption, header(AUTOMATON_ORDERS, "MSE"), rows)


def digits_table(found: Found) -> Table:
    """Return errors on the pixels."""
    rows = lines(found, "digits", DIGIT_RANKS, DIGIT_ORDERS)
    caption = "Digits: share of wrong test rows with pixels by rows, in snake order and permuted"
    return Table("sequences_digits", caption, header(DIGIT_ORDERS, "wrong"), rows)


def compare(text: str, names: tuple[str, str], first: list[float], second: list[float]) -> Claim:
    """Return the claim that the first error is smaller, with the interval of the difference."""
    if not first or not second:
        return Claim(text, "left out of a quick run", None)
    shown = [
        f"{name} {report.number(report.mean(values))}"
        for name, values in zip(names, (first, second))
    ]
    evidence = f"{', '.join(shown)}; difference {paired_difference(first, second)}"
    return Claim(text, evidence, smaller(first, second))


def automaton_claims(found: Found) -> list[Claim]:
    """Return what the paper expects of sequences, and what order does to each format."""
    ordered = {n: errors(found, "automaton", n, "in order") for n in AUTOMATON_RANKS | LARGER}
    permuted = {n: errors(found, "automaton", n, "permuted") for n in ("tt", "cp")}
    largest = list(LARGER)[-1]
    return [
        compare(
            "TT-based predictors may be more suitable for sequential data: automaton, at equal "
            "parameters",
            ("TT", "CP"),
            ordered["tt"],
            ordered["cp"],
        ),
        compare(
            f"Automaton: TT is better than {NAMES[largest]}" + report.OWN,
            ("TT", "CP"),
            ordered["tt"],
            ordered[largest],
        ),
        compare(
            "Automaton: TT needs the order, and is worse on permuted symbols" + report.OWN,
            ("in order", "permuted"),
            ordered["tt"],
            permuted["tt"],
        ),
        Claim(
            "CP does not depend on the order of columns: automaton",
            f"largest difference of a seed's test MSE: {difference(ordered, permuted):.2g}",
            difference(ordered, permuted) < SAME if permuted["cp"] else None,
        ),
    ]


def difference(ordered: dict[str, list[float]], permuted: dict[str, list[float]]) -> float:
    """Return the largest difference of CP in order and permuted."""
    pairs = zip(ordered["cp"], permuted["cp"])
    return max((abs(a - b) for a, b in pairs), default=np.nan)


def digits_claims(found: Found) -> list[Claim]:
    """Return the same questions about pixels."""
    runs = {(n, o): errors(found, "digits", n, o) for n in ("tt", "cp") for o in DIGIT_ORDERS}
    return [
        compare(
            "TT-based predictors may be more suitable for sequential data: pixels by rows, at "
            "equal parameters",
            ("TT", "CP"),
            runs["tt", "by rows"],
            runs["cp", "by rows"],
        ),
        compare(
            "Digits: TT is worse on permuted pixels" + report.OWN,
            ("by rows", "permuted"),
            runs["tt", "by rows"],
            runs["tt", "permuted"],
        ),
        compare(
            "Digits: snake order, which keeps neighbours together, helps TT" + report.OWN,
            ("snake", "by rows"),
            runs["tt", "snake"],
            runs["tt", "by rows"],
        ),
    ]
