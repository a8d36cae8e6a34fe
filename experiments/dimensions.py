"""The figures on California Housing: local dimension, time, rank (paper, sections IX-C and IX-D).

All models are CP with Adam 1e-3 and batches of 32, on the split of Table III.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import figures, models, report
from experiments.california import L2, RANK, data
from experiments.cells import Cell, Found, Scale
from experiments.report import Claim, Picture, Section, Table

NAME = "dimensions"
EPOCHS, TIME_EPOCHS = 100, 50
DIMENSIONS = (2, 3, 5, 10, 25, 50, 75, 100, 150)
RANKS = (1, 2, 5, 10, 20, 50, 100)
RANK_DIMENSIONS = (2, 75)
# The figure of learning curves: name, and what the map is.
MAPS = {
    "d=2": {"d": 2},
    "d=3": {"d": 3},
    "d=5": {"d": 5},
    "d=5, elements standardised": {"d": 5, "standardize": True},
    "d=75, normalised": {"d": 75, "normalize": True},
}
SAME = 0.02  # relative difference up to which two errors count as the same; chosen by hand


def curve(seed: int, epochs: int, **map_settings: Any) -> dict[str, Any]:
    """Record the validation loss with an unnormalised, standardised or normalised map."""
    model = models.cp_regressor(seed, rank=RANK, epochs=epochs, **map_settings)
    return models.fit_on_split(model, data())


def at_dimension(seed: int, d: int, l2: float, epochs: int) -> dict[str, Any]:
    """Validation loss of the normalised map of dimension d, with or without L2."""
    model = models.cp_regressor(seed, d, RANK, epochs, normalize=True, l2=l2)
    return without_curves(models.fit_on_split(model, data()))


def at_rank(seed: int, d: int, rank: int, epochs: int) -> dict[str, Any]:
    """Training and validation loss at this rank."""
    model = models.cp_regressor(seed, d, rank, epochs, normalize=True, l2=L2)
    return without_curves(models.fit_on_split(model, data()))


def timed(seed: int, d: int, epochs: int) -> dict[str, Any]:
    """Seconds for 50 epochs at rank 20."""
    model = models.cp_regressor(seed, d, RANK, epochs, normalize=True, l2=L2)
    return without_curves(models.fit_on_split(model, data()))


def without_curves(found: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the least training loss instead of its curves."""
    least = float(np.min(found["train_curve"]))
    return {k: v for k, v in found.items() if "curve" not in k} | {"train": least}


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment."""
    out, epochs = [], scale.epochs(EPOCHS)
    settings: dict[str, Any]
    for seed in range(scale.seeds):
        for name, settings in MAPS.items():
            out.append(Cell(NAME, f"curve, {name}", seed, curve, {**settings, "epochs": epochs}))
        for d in scale.some(DIMENSIONS, 3):
            for l2 in (0.0, L2):
                settings = {"d": d, "l2": l2, "epochs": epochs}
                out.append(Cell(NAME, f"loss, d={d}", seed, at_dimension, settings))
            settings = {"d": d, "epochs": scale.epochs(TIME_EPOCHS)}
            out.append(Cell(NAME, f"time, d={d}", seed, timed, settings))
        for r in scale.some(RANKS, 3):
            for d in RANK_DIMENSIONS:
                settings = {"d": d, "rank": r, "epochs": epochs}
                out.append(Cell(NAME, f"rank, d={d}, R={r}", seed, at_rank, settings))
    return out


# ---- what the report says -----------------------------------------------------------------------


def section(found: Found, folder: Path) -> Section:
    """Return the four figures, their numbers as tables, and the claims."""
    draw(found, folder)
    return Section(
        "Local dimension and rank on California Housing",
        "Sections IX-C and IX-D. CP with random init; the sweeps over d and R are with the "
        "normalised map, that over R with L2. Losses are the least over the epochs. A "
        "learning curve is *rough* by the mean rise or fall from epoch to epoch over its second "
        "half, relative to its level. At a low rank some seeds never leave the start, with an MSE "
        "of about one: the random init multiplies eight numbers of size 0.2, and few terms give "
        "Adam little to follow. The means over seeds at ranks 1 to 5 are made of such fits and of "
        "good ones; the range in the figure, and the best seed in the table, tell them apart.",
        [curve_table(found), dimension_table(found), rank_table(found)],
        [
            Picture("figure_california_curves.png", "Validation loss by the map, R=20."),
            Picture("figure_california_dimension.png", "Loss against the local dimension d."),
            Picture("figure_california_time.png", "Seconds for 50 epochs against d, R=20."),
            Picture("figure_california_rank.png", "Training and validation loss against rank."),
        ],
        [*map_claims(found), *dimension_claims(found), *rank_claims(found)],
    )


def draw(found: Found, folder: Path) -> None:
    """Draw the four figures of the paper."""
    figure, (panel,) = figures.new_figure()
    wanted = [name for name in MAPS if name not in ("d=2", "d=3")]
    curves = {name: [r["curve"] for r in found.of(f"curve, {name}")] for name in wanted}
    figures.draw_curves(panel, curves, "California Housing", "validation MSE")
    panel.set_ylim(0.15, 1e5)  # d=5 without standardised elements lies far above the others
    figures.save(figure, folder / "figure_california_curves.png")

    figure, panels = figures.new_figure(2)
    for panel, key, what in zip(panels, ("val", "train"), ("validation", "training")):
        lines = {label: losses(found, key, l2) for label, l2 in (("no L2", 0.0), ("L2 3e-7", L2))}
        figures.draw_sweep(panel, lines, ("local dimension d", f"{what} MSE"))
    figures.save(figure, folder / "figure_california_dimension.png")

    figure, (panel,) = figures.new_figure()
    figures.draw_sweep(panel, {"fused engine": times(found)}, ("local dimension d", "seconds"))
    panel.set_ylim(bottom=0)
    figures.save(figure, folder / "figure_california_time.png")

    figure, (panel,) = figures.new_figure()
    lines = {
        f"d={d}, {what}": ranks(found, key, d)
        for d in RANK_DIMENSIONS
        for key, what in (("train", "training"), ("val", "validation"))
    }
    figures.draw_sweep(panel, lines, ("CP rank", "MSE"), log_x=True)
    figures.save(figure, folder / "figure_california_rank.png")


def losses(found: Found, key: str, l2: float) -> dict[int, list[float]]:
    """Return the losses at every d, over seeds."""
    points = {d: found.values(key, f"loss, d={d}", l2=l2) for d in DIMENSIONS}
    return {d: values for d, values in points.items() if values}


def times(found: Found) -> dict[int, list[float]]:
    """Return the seconds at every d, over seeds."""
    points = {d: found.values("seconds", f"time, d={d}") for d in DIMENSIONS}
    return {d: values for d, values in points.items() if values}


def ranks(found: Found, key: str, d: int) -> dict[int, list[float]]:
    """Return the losses at every rank, over seeds."""
    points = {r: found.values(key, f"rank, d={d}, R={r}") for r in RANKS}
    return {r: values for r, values in points.items() if values}


def curve_table(found: Found) -> Table:
    """Return the least losses and the roughness of the learning curves."""
    rows = []
    for name in MAPS:
        model = f"curve, {name}"
        whole = len([r for r in found.of(model) if len(r["curve"]) == max_iter(found, model)])
        cells = [*report.spread(found.values("val", model)), report.number(roughness(found, name))]
        rows.append([name, *cells, f"{whole} of {len(found.of(model))}"])
    header = ["map", "val MSE", "sd", "range", "fits", "roughness", "fits that ran to the end"]
    return Table("figure_california_curves", "Learning curves by map", header, rows)


def max_iter(found: Found, model: str) -> int:
    """Return how many epochs a fit was given."""
    return max((r.settings["epochs"] for r in found.records(model)), default=0)


def dimension_table(found: Found) -> Table:
    """Return losses and times against d."""
    rows = []
    without, with_l2, seconds = losses(found, "val", 0.0), losses(found, "val", L2), times(found)
    train = losses(found, "train", 0.0)
    for d in without:
        cells = [*report.spread(without[d])[:3], *report.spread(with_l2[d])[:3]]
        rows.append([str(d), *cells, report.number(report.mean(train[d]))])
        rows[-1].append(f"{report.mean(seconds[d]):.2f}")
    header = ["d", "val MSE, no L2", "sd", "range", "val MSE, L2", "sd", "range"]
    header += ["train MSE, no L2", "s for 50 epochs"]
    return Table("figure_california_dimension", "Loss and time against d", header, rows)


def rank_table(found: Found) -> Table:
    """Return training and validation losses against rank."""
    lines = [ranks(found, key, d) for d in RANK_DIMENSIONS for key in ("train", "val")]
    rows = [
        [str(r), *(cell for line in lines for cell in mean_and_best(line[r]))] for r in lines[0]
    ]
    header = ["R"]
    for d in RANK_DIMENSIONS:
        for what in ("train", "val"):
            header += [f"{what} MSE, d={d}", "best seed"]
    return Table("figure_california_rank", "Loss against rank, means over seeds", header, rows)


def mean_and_best(values: list[float]) -> list[str]:
    """Return the mean over seeds and the best of them."""
    return [report.number(report.mean(values)), report.number(min(values))]


def roughness(found: Found, name: str) -> float:
    """Return the mean change from epoch to epoch in the second half, relative to the level."""
    out = []
    for result in found.of(f"curve, {name}"):
        values = [v for v in result["curve"] if v is not None]
        half = np.array(values[len(values) // 2 :])
        if len(half) > 1:
            out.append(np.mean(np.abs(np.diff(half))) / np.median(half))
    return report.mean(out)


# ---- claims -------------------------------------------------------------------------------------


def map_claims(found: Found) -> list[Claim]:
    """Sentences on unnormalised, standardised and normalised maps."""
    val = {name: report.mean(found.values("val", f"curve, {name}")) for name in MAPS}
    rough = {name: roughness(found, name) for name in MAPS}
    plain, standardised, high = "d=5", "d=5, elements standardised", "d=75, normalised"
    return [
        Claim(
            "Unnormalised map: d=3 improves on d=2",
            f"{val['d=3']:.4f} against {val['d=2']:.4f}",
            val["d=3"] < val["d=2"],
        ),
        Claim(
            "Unnormalised map: d=5 is highly unstable",
            f"roughness {rough[plain]:.3g}, d=75 normalised {rough[high]:.3g}",
            not rough[plain] <= 5 * rough[high],
        ),
        Claim(
            "Standardising the elements prevents overflow but leaves erratic curves",
            f"roughness {rough[standardised]:.3g}, d=75 normalised {rough[high]:.3g}",
            bool(np.isfinite(val[standardised])) and rough[standardised] > 2 * rough[high],
        ),
        Claim(
            "The normalised map trains reliably at d=75, with smooth learning curves",
            f"roughness {rough[high]:.3g}, worst seed "
            f"{max(found.values('val', f'curve, {high}')):.4f}",
            rough[high] < 0.05,
        ),
    ]


def dimension_claims(found: Found) -> list[Claim]:
    """Sentences on the loss and the time against d."""
    plain = means(losses(found, "val", 0.0))
    l2 = means(losses(found, "val", L2))
    train, seconds = means(losses(found, "train", 0.0)), means(times(found))
    best, best_l2 = min(plain, key=plain.__getitem__), min(l2, key=l2.__getitem__)
    first, last = min(plain), max(plain)
    high = [d for d in plain if d >= 75]
    return [
        Claim(
            "Without L2 the lowest validation error is at d=25",
            f"at d={best}: {plain[best]:.4f}; d=25: {plain.get(25, np.nan):.4f}",
            best == 25 if 25 in plain else None,
        ),
        Claim(
            "With L2 the lowest validation error is at d=75",
            f"at d={best_l2}: {l2[best_l2]:.4f}; d=75: {l2.get(75, np.nan):.4f}",
            best_l2 == 75 if 75 in l2 else None,
        ),
        Claim(
            "L2 lowers the validation error at high d",
            ", ".join(f"d={d}: {l2[d]:.4f} with, {plain[d]:.4f} without" for d in high),
            all(l2[d] < plain[d] for d in high),
        ),
        Claim(
            "Without L2 the training error keeps falling with d",
            ", ".join(f"d={d}: {train[d]:.4f}" for d in train),
            min(train, key=train.__getitem__) == last,
        ),
        Claim(
            "A higher d has a small impact on training time",
            f"d={first}: {seconds[first]:.2f} s, d={last}: {seconds[last]:.2f} s, "
            f"{last / first:.0f} times the parameters in {seconds[last] / seconds[first]:.1f} "
            "times the time",
            seconds[last] / seconds[first] < 2,
        ),
    ]


def rank_claims(found: Found) -> list[Claim]:
    """Sentences on the loss against rank."""
    low_train, low = (means(ranks(found, key, 2)) for key in ("train", "val"))
    high_train, high = (means(ranks(found, key, 75)) for key in ("train", "val"))
    best = {d: {r: min(v) for r, v in ranks(found, "val", d).items()} for d in RANK_DIMENSIONS}
    smallest, largest = min(low), max(low)
    steady = [v for r, v in high.items() if r >= 5]
    small = {r: v for r, v in high.items() if r in (2, 5)}
    return [
        Claim(
            "d=2: training and validation errors fall up to R=50, then plateau",
            ", ".join(f"R={r}: {low_train[r]:.4f} and {low[r]:.4f}" for r in low),
            low[smallest] > low[50] and abs(low[largest] / low[50] - 1) <= SAME
            if {50, 100} <= set(low)
            else None,
        ),
        Claim(
            "d=75: the training error falls with rank",
            ", ".join(f"R={r}: {v:.4f}" for r, v in high_train.items()),
            high_train[largest] < high_train[smallest],
        ),
        Claim(
            "d=75: the validation error remains fairly constant",
            ", ".join(f"R={r}: {v:.4f}, best seed {best[75][r]:.4f}" for r, v in high.items()),
            max(steady) / min(steady) < 1.1 if len(steady) > 1 else None,
        ),
        Claim(
            "d=75 with a rank of 2 to 5 is better than any rank with d=2",
            f"d=75: {', '.join(f'R={r}: {v:.4f}' for r, v in small.items())}; "
            f"best of d=2: {min(low.values()):.4f}. By the best seed, d=75: "
            f"{', '.join(f'R={r}: {best[75][r]:.4f}' for r in small)}; "
            f"d=2: {min(best[2].values()):.4f}",
            max(small.values()) < min(low.values()) if small else None,
        ),
    ]


def means(points: dict[int, list[float]]) -> dict[int, float]:
    """Return the mean over seeds at every point."""
    return {x: report.mean(values) for x, values in points.items()}
