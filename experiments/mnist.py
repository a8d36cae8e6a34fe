"""Large number of features: 784 pixels (paper, section IX-E).

2,000 of the 5,000 digits of `fetch_mnist5k` to train on, 1,000 to test. The paper says that random
init becomes sensitive to its width with many columns, and that the linear init is not; it gives no
numbers. Every format that can run is fitted on the pixels in their order, and permuted.
"""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from experiments import figures, models, report
from experiments.cells import Cell, Found, Scale
from experiments.report import Claim, Picture, Section, Table
from polyadic import CPClassifier, TNClassifier
from polyadic.datasets import fetch_mnist5k
from polyadic.inits import Gaussian, Linear, NearOne
from polyadic.maps import Polynomial

NAME = "mnist"
N_TRAIN, N_TEST = 2000, 1000
EPOCHS, LINEAR_EPOCHS = 5, 1
RATE, LINEAR_RATE = 5e-4, 1e-4  # a linear model is a good start: larger steps would destroy it
# Standard deviations of the random inits: about zero, as published, and about one.
WIDTHS = {"random init": (0.3, 0.5, 1.0, 1.5, 2.0), "near-one init": (0.001, 0.01, 0.1, 0.3, 1.0)}
NOISES = (0.001, 0.01, 0.1)  # on the linear init, swept at the rate and epochs of random inits
RANKS = {"cp": 30, "tt": 6, "tr": 6, "ht": 6, "fm": 6, "pn": 6}
LINEAR_RANKS = {"cp": 30, "tt": 11, "tr": 11, "ht": 11}  # ten classes need a rank of eleven
SWEPT = ("cp", "tt", "tr", "ht")
SIZES = (4, 7, 14, 28)  # pixels along a side, for CP: 16 to 784 columns
SIZE_WIDTHS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
VANISHED = 1e-6  # spread of predictions below which they are the same for all rows
ORDERS = ("in order", "permuted")
MOST_SEEDS = 3  # whether a fit has learnt differs little between seeds
LEARNT = 0.5  # accuracy from which a fit counts as one that has learnt; chosen by hand
AGREE = 0.005  # difference in accuracy allowed for rounding: 5 of 1,000 rows; chosen by hand


@cache
def data(order: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels from 0 to 1, in their order or permuted, and digits; rows are shuffled."""
    X, y = fetch_mnist5k(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    pixels = np.arange(X.shape[1])
    if order == "permuted":
        pixels = np.random.default_rng(1).permutation(pixels)
    return X[rows][:, pixels] / 255.0, y[rows]


@cache
def small(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures with fewer pixels, each the mean of a square."""
    X, y = data("in order")
    step = 28 // side
    squares = X.reshape(len(X), side, step, side, step)
    return squares.mean(axis=(2, 4)).reshape(len(X), side * side), y


def classifier(format: str, rank: int, init: Any, rate: float, epochs: int, seed: int) -> Any:
    """Return a model on the pixels themselves, d=2; CP on the fused engine, others on torch."""
    settings = {
        "rank": rank,
        "init": init,
        "learning_rate": rate,
        "max_iter": epochs,
        "early_stopping": False,
        "random_state": seed,
    }
    if format == "cp":
        return CPClassifier(maps=Polynomial(2), n_members=1, **settings)
    maps = "auto" if format in ("fm", "pn") else Polynomial(2)
    return TNClassifier(format, maps=maps, **settings)


def fit(model: Any, table: tuple[np.ndarray, np.ndarray], rows: int) -> dict[str, Any]:
    """Train on the first rows and measure on the last thousand."""
    X, y = table
    classes = np.unique(y[:rows])
    raw = np.full((N_TEST, len(classes)), np.nan)
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of divergence, which is what is measured here
        try:
            model.fit(X[:rows], y[:rows])
            seconds = perf_counter() - start
            raw = models.predict_or_nan(model.raw, X[-N_TEST:], len(classes))
        except ValueError as refused:  # not even the training rows can be predicted
            if not models.has_diverged(refused):
                raise
            seconds = perf_counter() - start
    digits = classes[np.argmax(np.nan_to_num(raw), axis=1)]
    accuracy = float(np.mean(digits == y[-N_TEST:]))
    finite = bool(np.all(np.isfinite(raw)))
    return {
        "accuracy": accuracy,
        "finite": finite,
        "spread": float(np.std(raw, axis=0).max()) if finite else None,
        "digits": "".join(map(str, digits)),
        "seconds": seconds,
    }


def swept(
    seed: int, format: str, start: str, width: float, epochs: int, rows: int = N_TRAIN
) -> dict[str, Any]:
    """Start from Gaussian noise of this standard deviation, about zero or about one."""
    init = Gaussian(width) if start == "random init" else NearOne(width)
    return fit(classifier(format, RANKS[format], init, RATE, epochs, seed), data("in order"), rows)


def swept_linear(
    seed: int, format: str, width: float, epochs: int, rows: int = N_TRAIN
) -> dict[str, Any]:
    """Start from logistic regression with noise of this standard deviation."""
    init = Linear(width)
    return fit(
        classifier(format, LINEAR_RANKS[format], init, RATE, epochs, seed), data("in order"), rows
    )


def sized(seed: int, side: int, width: float, epochs: int, rows: int = N_TRAIN) -> dict[str, Any]:
    """CP on smaller pictures, from Gaussian noise of this standard deviation."""
    model = classifier("cp", RANKS["cp"], Gaussian(width), RATE, epochs, seed)
    return fit(model, small(side), rows)


def near_one(
    seed: int, format: str, order: str, epochs: int, rows: int = N_TRAIN
) -> dict[str, Any]:
    """Start with every factor near the constant one, this library's own init."""
    return fit(classifier(format, RANKS[format], NearOne(), RATE, epochs, seed), data(order), rows)


def linear_init(
    seed: int, format: str, order: str, epochs: int, rows: int = N_TRAIN
) -> dict[str, Any]:
    """Start from logistic regression."""
    rank = LINEAR_RANKS[format]
    return fit(classifier(format, rank, Linear(), LINEAR_RATE, epochs, seed), data(order), rows)


def tucker(seed: int) -> dict[str, Any]:
    """Try Tucker, whose core tensor would have 784 modes."""
    X, y = data("in order")
    try:
        TNClassifier("tucker", maps=Polynomial(2), rank=2, max_iter=1).fit(X[:100], y[:100])
    except MemoryError as refusal:
        return {"refused": str(refusal)}
    return {"refused": ""}


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment."""
    out = [Cell(NAME, "tucker", 0, tucker)]
    few = {"rows": 400} if scale.quick else {}
    many = {"epochs": scale.epochs(EPOCHS), **few}
    short = {"epochs": scale.epochs(LINEAR_EPOCHS), **few}

    def add(model: str, work: Any, **settings: Any) -> None:
        for seed in scale.fits(NAME, model)[:MOST_SEEDS]:
            out.append(Cell(NAME, model, seed, work, settings))

    for format in SWEPT[:1] if scale.quick else SWEPT:
        for start, widths in WIDTHS.items():
            for width in scale.some(widths, 3) if format == "cp" else widths[::2]:
                name = f"{format}, {start}, width"
                add(name, swept, format=format, start=start, width=width, **many)
    for format in list(LINEAR_RANKS)[:1] if scale.quick else LINEAR_RANKS:
        for width in NOISES[:1] if scale.quick else NOISES:
            name = f"{format}, linear init, width"
            add(name, swept_linear, format=format, width=width, **many)
    for side in SIZES[:1] if scale.quick else SIZES:
        for width in scale.some(SIZE_WIDTHS, 2):
            add("cp, size", sized, side=side, width=width, **many)
    for order in ORDERS:
        for format in list(RANKS)[:2] if scale.quick else RANKS:
            add(f"{format}, near-one init", near_one, format=format, order=order, **many)
        for format in list(LINEAR_RANKS)[:1] if scale.quick else LINEAR_RANKS:
            add(f"{format}, linear init", linear_init, format=format, order=order, **short)
    return out


# ---- what the report says -----------------------------------------------------------------------


def section(found: Found, folder: Path) -> Section:
    """Return the sweep of widths, the two orders of the pixels, and the claims."""
    figure, panels = figures.new_figure(2)
    for panel, start in zip(panels, WIDTHS):
        lines = {format: sweep(found, format, start) for format in SWEPT}
        labels = (f"width of the {start}", "test accuracy")
        figures.draw_sweep(panel, lines, labels, log_x=True)
        for format in LINEAR_RANKS:
            values = found.values("accuracy", f"{format}, linear init", order="in order")
            if values:
                panel.axhline(report.mean(values), linestyle=":", color="gray", linewidth=1)
        panel.set_ylim(0, 1)
    figures.save(figure, folder / "figure_mnist_width.png")
    caption = "Test accuracy against the width of the random inits; dotted: linear inits."
    return Section(
        "Large number of features: 784 pixels",
        f"Section IX-E; the paper gives no numbers. {N_TRAIN:,} digits, d=2; {EPOCHS} epochs from "
        "random init (Gaussian about zero, as published) and near-one init (about one, this "
        f"library's own) at a rate of {RATE:g}, with ranks of {RANKS['cp']} for CP and "
        f"{RANKS['tt']} for the others. There is no linear init for FM and PN; it has ranks of "
        f"{LINEAR_RANKS['cp']} for CP and {LINEAR_RANKS['tt']} for the others. Its "
        "noise is swept at the same rate and epochs; in the table of pixel orders it has "
        f"{LINEAR_EPOCHS} epoch at {LINEAR_RATE:g}, "
        "which leaves it near the logistic regression it starts from. Widths, rows and epochs were "
        "settled after a look at test accuracies. A fit has *learnt* where half of the test digits "
        "are right. Sweeps are on pixels in order. The sweep over sizes is CP from random init on "
        "pictures of fewer pixels, each the mean of a square. Tucker: "
        + " ".join(r["refused"] for r in found.of("tucker")),
        [
            *(width_table(found, start) for start in (*WIDTHS, "linear init")),
            size_table(found),
            order_table(found),
        ],
        [Picture("figure_mnist_width.png", caption)],
        claims(found),
    )


def sweep(found: Found, format: str, start: str) -> dict[float, list[float]]:
    """Return the accuracies at every width, over seeds."""
    model = f"{format}, {start}, width"
    widths = NOISES if start == "linear init" else WIDTHS[start]
    points = {w: found.values("accuracy", model, width=w) for w in widths}
    return {w: values for w, values in points.items() if values}


def width_table(found: Found, start: str) -> Table:
    """Return accuracies by format and width."""
    lines = {format: sweep(found, format, start) for format in SWEPT}
    widths = sorted({w for line in lines.values() for w in line})
    rows = [
        [format, *(mean_and_range(line[w]) if w in line else "" for w in widths)]
        for format, line in lines.items()
        if line
    ]
    header = ["format", *(f"{w:g}" for w in widths)]
    caption = f"Test accuracy by the width of the {start}: mean (range)"
    return Table(f"mnist_width_{start.replace(' ', '_')}", caption, header, rows)


def size_sweep(found: Found, side: int) -> dict[float, list[float]]:
    """Return the accuracies of CP at every width of random init, for one size of the pictures."""
    points = {w: found.values("accuracy", "cp, size", side=side, width=w) for w in SIZE_WIDTHS}
    return {w: values for w, values in points.items() if values}


def size_table(found: Found) -> Table:
    """Return accuracies of CP by the number of columns and the width of random init."""
    lines = {side: size_sweep(found, side) for side in SIZES}
    widths = sorted({w for line in lines.values() for w in line})
    rows = [
        [str(side**2), *(mean_and_range(line[w]) if w in line else "" for w in widths)]
        for side, line in lines.items()
        if line
    ]
    caption = "CP from random init: test accuracy by the number of columns and the width"
    return Table("mnist_size", caption, ["columns", *(f"{w:g}" for w in widths)], rows)


def mean_and_range(values: list[float]) -> str:
    """Return both in one cell."""
    mean, _, ends, _ = report.spread(values, 3)
    return f"{mean} ({ends})" if ends else mean


def order_table(found: Found) -> Table:
    """Return accuracies for both orders of the pixels."""
    rows = []
    for start in ("near-one init", "linear init"):
        for format in RANKS:
            model = f"{format}, {start}"
            pair = [found.values("accuracy", model, order=order) for order in ORDERS]
            if all(pair):
                cells = [cell for values in pair for cell in report.spread(values, 3)[:3]]
                differ = f"{report.mean(differences(found, model)):.1f} of 1,000"
                seconds = f"{report.mean(found.values('seconds', model)):.1f}"
                rows.append([model, *cells, str(len(pair[0])), differ, seconds])
    header = ["model"] + [h for order in ORDERS for h in (f"accuracy, {order}", "sd", "range")]
    header += ["fits each", "predictions that differ", "fit s"]
    return Table("mnist_order", "Pixels in order and permuted", header, rows)


def differences(found: Found, model: str) -> list[float]:
    """Return how many predicted digits differ, for each seed, when the pixels are permuted."""
    pairs = zip(*(found.of(model, order=order) for order in ORDERS))
    return [float(sum(i != j for i, j in zip(a["digits"], b["digits"]))) for a, b in pairs]


def learnt(line: dict[float, list[float]]) -> list[float]:
    """Return the widths at which every fit has learnt."""
    return [w for w, values in line.items() if min(values) >= LEARNT]


def numbers(widths: Any) -> str:
    """Return the widths as text."""
    return ", ".join(f"{w:g}" for w in widths) or "none"


def claims(found: Found) -> list[Claim]:
    """The sentences of section IX-E, and that CP does not depend on the order of columns."""
    out = [size_claim(found)]
    for format in SWEPT:
        for start in WIDTHS:
            if sweep(found, format, start):
                out += [width_claim(found, format, start), range_claim(found, format, start)]
    for format in LINEAR_RANKS:
        line, random = sweep(found, format, "linear init"), sweep(found, format, "random init")
        if line and random:
            evidence = (
                f"with noise of {numbers(line)}, all fits have learnt at {numbers(learnt(line))}; "
                f"from random init at {numbers(learnt(random))}"
            )
            text = f"{format}: the linear init alleviates this"
            shares = [len(learnt(points)) / len(points) for points in (line, random)]
            out.append(Claim(text, evidence, shares[0] > shares[1]))
    for start in ("near-one init", "linear init"):
        model = f"cp, {start}"
        first, second = (found.values("accuracy", model, order=order) for order in ORDERS)
        gaps = [abs(a - b) for a, b in zip(first, second)]
        if gaps:
            evidence = f"largest difference in accuracy {max(gaps):.3f} over {len(gaps)} seeds"
            text = f"CP does not depend on the order of columns ({start})"
            out.append(Claim(text, evidence, max(gaps) <= AGREE))
    return out


def size_claim(found: Found) -> Claim:
    """With more columns, fewer widths of random init learn."""
    text = "With more columns, random init is more sensitive to its width"
    good = {side: learnt(size_sweep(found, side)) for side in SIZES if size_sweep(found, side)}
    if len(good) < 2:
        return Claim(text, "", None)
    parts = [f"{side**2} columns: {numbers(widths)}" for side, widths in good.items()]
    counts = [len(widths) for widths in good.values()]
    holds = counts[-1] < counts[0] and all(b <= a for a, b in pairwise(counts))
    return Claim(text, f"widths at which all fits have learnt, {'; '.join(parts)}", holds)


def width_claim(found: Found, format: str, start: str) -> Claim:
    """Some widths learn and others do not; where none does, there is nothing to tell."""
    line = sweep(found, format, start)
    good = learnt(line)
    own = "" if start == "random init" else report.OWN
    text = f"{format}: {start} is sensitive to its width{own}"
    evidence = f"of {numbers(line)}, all fits have learnt at {numbers(good)}"
    return Claim(text, evidence, len(good) < len(line) if good else None)


def range_claim(found: Found, format: str, start: str) -> Claim:
    """Too small a width gives vanishing predictions, too large a one exceedingly large ones."""
    model = f"{format}, {start}, width"
    widths = list(sweep(found, format, start))
    gone, lost = [], []
    for w in widths:
        results = found.of(model, width=w)
        if any(not r["finite"] for r in results):
            lost.append(w)
        elif all(r["spread"] is not None and r["spread"] < VANISHED for r in results):
            gone.append(w)
    own = "" if start == "random init" else report.OWN
    text = f"{format}: {start} gives vanishing or exceedingly large predictions{own}"
    evidence = (
        f"predictions are the same for all rows at {numbers(gone)}, and leave the range of "
        f"numbers at {numbers(lost)}"
    )
    return Claim(text, evidence, bool(gone or lost))
