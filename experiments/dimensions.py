"""The figures on California Housing: local dimension, time, rank (paper, sections IX-C and IX-D).

All models are CP with Adam 1e-3 and batches of 32, on the split of Table III.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import figures, models, report, statistics
from experiments.california import L2, RANK, data
from experiments.cells import Cell, Found, Scale
from experiments.report import Claim, Picture, Section, Table
from polyadic import TNRegressor
from polyadic.inits import Gaussian
from polyadic.maps import Polynomial

NAME = "dimensions"
EPOCHS, TIME_EPOCHS = 100, 50
DIMENSIONS = (2, 3, 5, 10, 25, 50, 75, 100, 150)
RANKS = (1, 2, 5, 10, 20, 50, 100)
RANK_DIMENSIONS = (2, 75)
SIGMAS = (
    0.2,
    0.4,
)  # of the random init in the sweep over ranks: 0.2 leaves models of few terms without a gradient
TORCH_EPOCHS = 2  # on the torch engine, a hundred times slower with batches of 32
TORCH_DIMENSIONS = (2, 25, 75, 150)
# The figure of learning curves: name, and what the map is.
MAPS: dict[str, dict[str, Any]] = {
    "d=2": {"d": 2},
    "d=3": {"d": 3},
    "d=5": {"d": 5},
    "d=5, elements standardised": {"d": 5, "standardize": True},
    "d=75, normalised": {"d": 75, "normalize": True},
}
# Relative differences up to which two errors count as the same, or as fairly constant, and the
# roughness below which a curve counts as smooth; chosen by hand.
SAME, STEADY, SMOOTH = 0.02, 0.1, 0.05
LEARNT = 0.3  # validation MSE of a fit that has learnt: linear regression has 0.37


def curve(seed: int, epochs: int, **map_settings: Any) -> dict[str, Any]:
    """Record the validation loss with an unnormalised, standardised or normalised map."""
    model = models.cp_regressor(seed, rank=RANK, epochs=epochs, **map_settings)
    return models.fit_on_split(model, data())


def at_dimension(seed: int, d: int, l2: float, epochs: int) -> dict[str, Any]:
    """Validation loss of the normalised map of dimension d, with or without L2."""
    model = models.cp_regressor(seed, d, RANK, epochs, normalize=True, l2=l2)
    return without_curves(models.fit_on_split(model, data()))


def at_rank(seed: int, d: int, rank: int, sigma: float, epochs: int) -> dict[str, Any]:
    """Training and validation loss at this rank."""
    model = models.cp_regressor(seed, d, rank, epochs, normalize=True, l2=L2, init=Gaussian(sigma))
    return without_curves(models.fit_on_split(model, data()))


def timed(seed: int, d: int, epochs: int) -> dict[str, Any]:
    """Seconds for 50 epochs at rank 20."""
    model = models.cp_regressor(seed, d, RANK, epochs, normalize=True, l2=L2)
    return without_curves(models.fit_on_split(model, data()))


def timed_on_torch(seed: int, d: int, epochs: int) -> dict[str, Any]:
    """Seconds on the torch engine, an eager framework as the authors' was."""
    model = TNRegressor(
        "cp",
        maps=Polynomial(d, normalize=True),
        rank=RANK,
        l2=L2,
        smoothness=0,
        schedule="constant",
        ema_decay=0.0,
        learning_rate=models.LEARNING_RATE,
        batch_size=models.BATCH,
        max_iter=epochs,
        early_stopping=False,
        random_state=seed,
    )
    return models.fit_on_train(model, data())


def without_curves(found: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the least training loss instead of its curves."""
    least = float(np.min(found["train_curve"]))
    return {k: v for k, v in found.items() if "curve" not in k} | {"train": least}


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment."""
    out: list[Cell] = []
    epochs: dict[str, Any] = {"epochs": scale.epochs(EPOCHS)}

    def add(model: str, work: Any, alone: bool = False, **settings: Any) -> None:
        for seed in scale.fits(NAME, model):
            out.append(Cell(NAME, model, seed, work, settings, alone))

    for name, settings in MAPS.items():
        add(f"curve, {name}", curve, **settings, **epochs)
    for d in scale.some(DIMENSIONS, 3):
        for l2 in (0.0, L2):
            add(f"loss, d={d}", at_dimension, d=d, l2=l2, **epochs)
        add(f"time, d={d}", timed, alone=True, d=d, epochs=scale.epochs(TIME_EPOCHS))
    for d in [] if scale.quick else TORCH_DIMENSIONS:  # half a minute
        add(f"torch time, d={d}", timed_on_torch, alone=True, d=d, epochs=TORCH_EPOCHS)
    for r in scale.some(RANKS, 3):
        for d in RANK_DIMENSIONS:
            for sigma in scale.some(SIGMAS, 1):
                add(f"rank, d={d}, R={r}", at_rank, d=d, rank=r, sigma=sigma, **epochs)
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
        "half, relative to its level. At a low rank and with a standard deviation of 0.2 some "
        "seeds never leave the start, with an MSE of about one: the random init multiplies eight "
        "small numbers, and few terms give Adam little to follow. So the sweep over ranks has two "
        f"standard deviations, {' and '.join(f'{s:g}' for s in SIGMAS)}, and the one counts that "
        "has the lower mean validation loss at that rank. Times on the torch engine, an eager "
        f"framework as the authors' was, are of {TORCH_EPOCHS} epochs.",
        [curve_table(found), dimension_table(found), rank_table(found)],
        [
            Picture("figure_california_curves.png", "Validation loss by the map, R=20."),
            Picture("figure_california_dimension.png", "Loss against the local dimension d."),
            Picture("figure_california_time.png", "Training time against d, R=20."),
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
    lines = {"fused engine": times(found), "torch engine": times(found, "torch time")}
    relative = {name: relative_to_first(line) for name, line in lines.items() if line}
    figures.draw_sweep(panel, relative, ("local dimension d", "time over that of d=2"))
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


def times(found: Found, what: str = "time") -> dict[int, list[float]]:
    """Return the seconds at every d, over seeds."""
    points = {d: found.values("seconds", f"{what}, d={d}") for d in DIMENSIONS}
    return {d: values for d, values in points.items() if values}


def relative_to_first(line: dict[int, list[float]]) -> dict[int, list[float]]:
    """Divide by the mean at the first point."""
    first = report.mean(line[min(line)])
    return {x: [v / first for v in values] for x, values in line.items()}


def ranks(found: Found, key: str, d: int) -> dict[int, list[float]]:
    """Return the losses at every rank, over seeds, with the better standard deviation."""
    out = {}
    for r in RANKS:
        model = f"rank, d={d}, R={r}"
        known = [sigma for sigma in SIGMAS if found.of(model, sigma=sigma)]
        if known:
            best = min(known, key=lambda s: report.mean(found.values("val", model, sigma=s)))
            out[r] = found.values(key, model, sigma=best)
    return out


def curve_table(found: Found) -> Table:
    """Return the least losses and the roughness of the learning curves."""
    rows = []
    for name in MAPS:
        model = f"curve, {name}"
        whole = len([r for r in found.of(model) if len(r["curve"]) == max_iter(found, model)])
        cells = [
            *report.spread(found.values("val", model)),
            report.number(report.mean(roughnesses(found, name))),
        ]
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


def roughnesses(found: Found, name: str) -> list[float]:
    """Return the mean change from epoch to epoch in the second half, relative to the level."""
    out = []
    for result in found.of(f"curve, {name}"):
        if any(v is None for v in result["curve"]):  # not finite
            out.append(np.inf)
            continue
        half = np.array(result["curve"][len(result["curve"]) // 2 :])
        if len(half) > 1:
            out.append(float(np.mean(np.abs(np.diff(half))) / np.median(half)))
    return out


# ---- claims -------------------------------------------------------------------------------------


def map_claims(found: Found) -> list[Claim]:
    """Sentences on unnormalised, standardised and normalised maps."""
    val = {name: found.values("val", f"curve, {name}") for name in MAPS}
    rough = {name: roughnesses(found, name) for name in MAPS}
    plain, standardised, high = "d=5", "d=5, elements standardised", "d=75, normalised"
    finite = all(np.isfinite(val[standardised])) if val[standardised] else None
    return [
        Claim(
            "Unnormalised map: d=3 improves on d=2",
            f"{mean(val['d=3'])} against {mean(val['d=2'])}",
            statistics.smaller(val["d=3"], val["d=2"]),
        ),
        Claim(
            "Unnormalised map: d=5 is highly unstable",
            f"roughness {report.mean(rough[plain]):.3g}, d=75 normalised "
            f"{report.mean(rough[high]):.3g}",
            statistics.smaller(rough[high], rough[plain], by=0.8),
        ),
        Claim(
            "Standardising the elements prevents overflow but leaves erratic curves",
            f"roughness {report.mean(rough[standardised]):.3g}, d=75 normalised "
            f"{report.mean(rough[high]):.3g}",
            statistics.all_of(
                [finite, statistics.smaller(rough[high], rough[standardised], by=0.5)]
            ),
        ),
        Claim(
            "The normalised map trains reliably at d=75, with smooth learning curves",
            f"roughness {report.mean(rough[high]):.3g}, worst seed {max(val[high], default=0):.4f}",
            statistics.all_of(
                [
                    statistics.smaller(rough[high], [SMOOTH]),
                    all(np.isfinite(val[high])) if val[high] else None,
                    statistics.smaller(val[high], [LEARNT]),
                ]
            ),
        ),
    ]


def dimension_claims(found: Found) -> list[Claim]:
    """Sentences on the loss and the time against d."""
    plain, l2 = losses(found, "val", 0.0), losses(found, "val", L2)
    train = losses(found, "train", 0.0)
    high = [d for d in plain if d >= 75]
    steps = list(zip(list(train)[:-1], list(train)[1:]))
    return [
        lowest_at("Without L2 the lowest validation error is at d=25", plain, 25),
        lowest_at("With L2 the lowest validation error is at d=75", l2, 75),
        Claim(
            "L2 lowers the validation error at high d",
            ", ".join(f"d={d}: {mean(l2[d])} with, {mean(plain[d])} without" for d in high),
            statistics.all_of([statistics.smaller(l2[d], plain[d]) for d in high]),
        ),
        Claim(
            "Without L2 the training error keeps falling with d",
            ", ".join(f"d={d}: {mean(train[d])}" for d in train),
            statistics.all_of([statistics.smaller(train[b], train[a]) for a, b in steps]),
        ),
        time_claim("fused engine", times(found)),
        time_claim("torch engine", times(found, "torch time")),
    ]


def lowest_at(text: str, points: dict[int, list[float]], wanted: int) -> Claim:
    """Claim that the error is lowest at one d; judged against the best other."""
    if wanted not in points:
        return Claim(text, "", None)
    found = {d: report.mean(values) for d, values in points.items()}
    best = min(found, key=found.__getitem__)
    rivals = {f"d={d}": values for d, values in points.items()}
    _, holds = statistics.lowest(rivals, f"d={wanted}")
    return Claim(text, f"at d={best}: {found[best]:.4f}; d={wanted}: {found[wanted]:.4f}", holds)


def time_claim(engine: str, seconds: dict[int, list[float]]) -> Claim:
    """Claim that the largest d takes less than twice the time of the smallest."""
    text = f"A higher d has a small impact on training time ({engine})"
    if len(seconds) < 2:
        return Claim(text, "", None)
    first, last = min(seconds), max(seconds)
    ratio = report.mean(seconds[last]) / report.mean(seconds[first])
    evidence = (
        f"d={first}: {report.mean(seconds[first]):.2f} s, d={last}: "
        f"{report.mean(seconds[last]):.2f} s, {last / first:.0f} times the parameters in "
        f"{ratio:.1f} times the time"
    )
    return Claim(text, evidence, statistics.smaller(seconds[last], [2 * v for v in seconds[first]]))


def rank_claims(found: Found) -> list[Claim]:
    """Sentences on the loss against rank."""
    low_train, low = (ranks(found, key, 2) for key in ("train", "val"))
    high_train, high = (ranks(found, key, 75) for key in ("train", "val"))
    if not {2, 5, 20, 50, 100} <= set(low) & set(high):
        return []
    smallest, largest = min(low), max(low)
    steady = {f"R={r}": v for r, v in high.items() if r >= 5}
    best_low = min(low, key=lambda r: report.mean(low[r]))
    return [
        Claim(
            "d=2: training and validation errors fall up to R=50, then plateau",
            ", ".join(f"R={r}: {mean(low_train[r])} and {mean(low[r])}" for r in low),
            statistics.all_of(
                [
                    verdict
                    for line in (low_train, low)
                    for verdict in (
                        statistics.smaller(line[50], line[20]),
                        statistics.same(line[100], line[50], SAME),
                    )
                ]
            ),
        ),
        Claim(
            "d=75: the training error falls with rank",
            ", ".join(f"R={r}: {mean(v)}" for r, v in high_train.items()),
            statistics.smaller(high_train[largest], high_train[smallest]),
        ),
        Claim(
            "d=75: the validation error remains fairly constant (from R=5, within a tenth)",
            ", ".join(f"R={r}: {mean(v)}" for r, v in high.items()),
            statistics.all_of([statistics.same(v, high[largest], STEADY) for v in steady.values()]),
        ),
        *(
            Claim(
                f"d=75 with a rank of {r} is better than any rank with d=2",
                f"d=75: {mean(high[r])}; best of d=2, R={best_low}: {mean(low[best_low])}",
                statistics.all_of([statistics.smaller(high[r], values) for values in low.values()]),
            )
            for r in (2, 5)
        ),
    ]


def mean(values: list[float]) -> str:
    """Return the mean as text."""
    return report.number(report.mean(values))
