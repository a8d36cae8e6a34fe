"""Interpretability (paper, appendix B): the coefficients of the synthetic polynomial, recovered.

The coefficient of a monomial is the sum over terms of the product of the cores' entries,
sum_r c_r prod_n A^(n)[i_n, r]. The model is CP of Table I, from random init or with the order
penalty, fitted in the original units: its maps
standardise the columns, which `polyadic.explain.coefficients` undoes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polypow

from experiments import algebra, models, report
from experiments.cells import Cell, Found, Scale
from experiments.published import POLYNOMIAL
from experiments.report import Claim, Section, Table
from experiments.synthetic import ALPHA, BETA, EPOCHS, NOISE, RANK, D
from experiments.synthetic import in_original_units as data
from polyadic import CPRegressor
from polyadic.explain import coefficients
from polyadic.inits import Linear

NAME = "coefficients"
N_COLUMNS = 7
N_USED = 4  # columns that the polynomial depends on, the first ones
TOP = 15  # monomials that the table in standardised units shows
# From which correlation coefficients count as recovered, and below which share of the squared
# coefficients columns count as without effect; chosen by hand.
CORRELATED, NEGLIGIBLE = 0.95, 0.01
MODELS = {"cp": "CP from random init", "cp, order penalty": "CP, linear init and order penalty"}
Monomial = tuple[int, ...]


# ---- polynomials --------------------------------------------------------------------------------


def of_model(model: CPRegressor) -> dict[Monomial, float]:
    """Return the polynomial of a model with polynomial maps, in x."""
    found = coefficients(model, max_order=N_COLUMNS, top=None)
    names = model.columns_.names
    out = {tuple(row.factors.get(n, 0) for n in names): row.coefficient for row in found.rows}
    return {(0,) * len(names): found.constant} | out


def units(model: CPRegressor) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of every column, as its polynomial map learnt them."""
    maps: list[Any] = model.maps_
    return [m.mean_ for m in maps], [m.std_ for m in maps]


def standardise(
    polynomial: dict[Monomial, float], mean: np.ndarray, std: np.ndarray, d: int
) -> dict[Monomial, float]:
    """Rewrite a polynomial in x as one in z, where x = mean + std z."""
    whole = np.zeros((d,) * len(mean))
    for powers, coefficient in polynomial.items():
        whole[powers] = coefficient
    for n, (m, s) in enumerate(zip(mean, std)):
        expanded = np.zeros((d, d))  # (m + s z)^k in powers of z, for every k
        for k in range(d):
            expanded[k, : k + 1] = polypow([m, s], k)
        whole = np.moveaxis(np.tensordot(expanded, whole, (0, n)), 0, n)
    return {powers: float(value) for powers, value in np.ndenumerate(whole)}


def least_squares() -> dict[Monomial, float]:
    """Fit the true monomials alone: the best that these rows allow if the monomials are known."""
    X, y = data().X_train, data().y_train
    design = np.column_stack([np.prod(X ** np.array(powers), axis=1) for powers in POLYNOMIAL])
    return dict(zip(POLYNOMIAL, np.linalg.lstsq(design, y, rcond=None)[0]))


# ---- cells --------------------------------------------------------------------------------------


def cp(seed: int, epochs: int, order_penalty: bool) -> dict[str, Any]:
    """Fit CP of Table I in original units; return its coefficients in x and in z.

    With the order penalty, init and strengths are those of the learning curves.
    """
    model = models.cp_regressor(seed, D, RANK, epochs)
    if order_penalty:
        init = Linear(NOISE, degree_one=True)
        model.set_params(init=init, order_alpha=ALPHA, order_beta=BETA)
    found = models.fit_on_split(model, data())
    scale, (mean, std) = float(np.var(data().y_train)), units(model)
    polynomial = of_model(model)
    return {
        "val": found["val"] / scale,
        "seconds": found["seconds"],
        "original": named(polynomial),
        "standardised": named(standardise(polynomial, np.array(mean), np.array(std), D)),
        "mean": mean,
        "std": std,
        "gap": algebra.largest_gap(model, data().X_test),
    }


def known_monomials(seed: int) -> dict[str, Any]:
    """Return least squares on the true monomials."""
    return {"original": named(least_squares())}


def named(polynomial: dict[Monomial, float]) -> dict[str, float]:
    """Return the polynomial with names for monomials."""
    return {name(powers): value for powers, value in polynomial.items()}


def name(powers: Monomial) -> str:
    """Return a monomial as text.

    >>> name((2, 1, 0)), name((0, 0, 0))
    ('x0^2 x1', '1')
    """
    parts = [f"x{n}^{k}" if k > 1 else f"x{n}" for n, k in enumerate(powers) if k]
    return " ".join(parts) or "1"


def cells(scale: Scale) -> list[Cell]:
    """Return all fits of this experiment."""
    out = [Cell(NAME, "least squares", 0, known_monomials)]
    settings: dict[str, Any]
    for model in MODELS:
        settings = {"epochs": scale.epochs(EPOCHS), "order_penalty": model != "cp"}
        out += [Cell(NAME, model, seed, cp, settings) for seed in scale.fits(NAME, model)]
    for format in algebra.FORMATS:
        settings = {"format": format, "epochs": scale.epochs(algebra.EPOCHS)}
        name = f"algebra, {format}"
        fits = scale.fits(NAME, name)[: algebra.SEEDS]
        out += [Cell(NAME, name, seed, algebra.gap, settings) for seed in fits]
    return out


# ---- what the report says -----------------------------------------------------------------------


def section(found: Found, folder: Path) -> Section:
    """Return the coefficients beside the true ones, in both units."""
    return Section(
        "Interpretability: the polynomial, read off the cores",
        "Appendix B says that coefficients can be read off the cores; the paper shows none. This "
        "is algebra, and is judged as such: the polynomial of the coefficients must be the model. "
        "Whether they are also those of the target is an addition. The "
        "target is y = 1000 + 6 x0 - 4 x2 + 4 x2 x3 + 0.5 x0^2 x1 + 0.2 x1^2 x2 + 0.1 x1^2 x2 x3 "
        "plus noise of standard deviation 100 (the two terms 3 x0 x1 cancel). The columns run from "
        "0 to 10, so that a coefficient in original units is a statement about a corner of the "
        "data, where small errors are much enlarged; least squares on the seven true monomials "
        "alone shows how much can be known. In standardised units, z = (x - mean) / std, the same "
        "polynomial is a statement about the middle of the data. The model with the order penalty "
        "was added after Table I's had been seen to recover original units badly.",
        [original_table(found), standardised_table(found)],
        [],
        claims(found),
    )


HEADER = ["monomial", "true"] + [h for m in MODELS.values() for h in (m, "sd", "range")]


def by_model(found: Found, units: str, term: str, digits: int) -> list[str]:
    """Return mean, standard deviation and range of a coefficient, for both models."""
    runs = [[r[units][term] for r in found.of(model)] for model in MODELS]
    return [cell for values in runs for cell in report.spread(values, digits)[:3]]


def original_table(found: Found) -> Table:
    """Return the true monomials with their coefficients in original units."""
    known = found.of("least squares")
    rows = []
    for powers, true in POLYNOMIAL.items():
        term = name(powers)
        attainable = report.number(known[0]["original"][term], 3) if known else ""
        rows.append([term, f"{true:g}", *by_model(found, "original", term, 3), attainable])
    header = [*HEADER, "least squares on these monomials"]
    return Table("coefficients_original", "Coefficients in original units", header, rows)


def truth(found: Found) -> dict[str, float]:
    """Return the true polynomial in standardised units."""
    result = found.of("cp")[0]
    mean, std = np.array(result["mean"]), np.array(result["std"])
    return named(standardise(POLYNOMIAL, mean, std, D))


def standardised_table(found: Found) -> Table:
    """Return the largest coefficients, true or recovered, in standardised units."""
    results = found.of("cp")
    true = truth(found)
    ours = {t: [r["standardised"][t] for r in results] for t in results[0]["standardised"]}
    size = {t: max(abs(true.get(t, 0.0)), abs(report.mean(v))) for t, v in ours.items()}
    largest = sorted(size, key=lambda t: -size[t])[:TOP]
    rows = [
        [t.replace("x", "z"), f"{true.get(t, 0.0):.2f}", *by_model(found, "standardised", t, 2)]
        for t in largest
    ]
    caption = f"The {TOP} largest coefficients in standardised units, of {len(ours):,}"
    return Table("coefficients_standardised", caption, HEADER, rows)


def claims(found: Found) -> list[Claim]:
    """Appendix B: coefficients are readily obtained. Are they right?"""
    others = {f: found.values("gap", f"algebra, {f}") for f in algebra.FORMATS}
    texts = (f"{f} {max(gaps):.1e}" for f, gaps in others.items() if gaps)
    known = [gap for gaps in others.values() for gap in gaps]
    text = "Coefficients can be obtained from the cores of the other formats too" + report.OWN
    exact = max(known) < algebra.ROUNDING if known else None
    largest = Claim(text, f"largest gaps: {', '.join(texts)}", exact)
    return [*(claim for model in MODELS for claim in claims_of(found, model)), largest]


def original_correlation(result: dict[str, Any], terms: list[str]) -> float:
    """Return the correlation of coefficients in original units with the true ones."""
    true = named(POLYNOMIAL)
    wanted = np.array([true.get(t, 0.0) for t in terms])
    return float(np.corrcoef(wanted, [result["original"][t] for t in terms])[0, 1])


def claims_of(found: Found, model: str) -> list[Claim]:
    """Return the claims about one of the two models."""
    true, results, name = truth(found), found.of(model), MODELS[model]
    terms = [t for t in results[0]["standardised"] if t != "1"]
    wanted = np.array([true.get(t, 0.0) for t in terms])
    ours = [np.array([r["standardised"][t] for t in terms]) for r in results]
    products = np.array([t.count("x") > 1 for t in terms])  # of more than one column
    standardised = [float(np.corrcoef(wanted[products], v[products])[0, 1]) for v in ours]
    original = [original_correlation(r, terms) for r in results]
    gaps = [r["gap"] for r in results]
    unused = [any(f"x{n}" in t for n in range(N_USED, N_COLUMNS)) for t in terms]
    shares = [float(np.sum(v[unused] ** 2) / np.sum(v**2)) for v in ours]
    return [
        Claim(
            f"{name}: the coefficient of each interaction can be obtained from the cores",
            f"the polynomial of all {len(terms) + 1:,} coefficients is the model's prediction on "
            f"the test rows to {max(gaps):.1e} of its standard deviation",
            max(gaps) < algebra.ROUNDING,
        ),
        Claim(
            f"{name}: coefficients are those of the target" + report.OWN,
            f"correlation with the true ones over {products.sum():,} products of columns, "
            f"standardised units: {min(standardised):.4f} to {max(standardised):.4f}",
            min(standardised) > CORRELATED,
        ),
        Claim(
            f"{name}: and so in original units" + report.OWN,
            f"correlation over {len(terms):,} monomials: {min(original):.4f} to "
            f"{max(original):.4f}",
            min(original) > CORRELATED,
        ),
        Claim(
            f"{name}: columns without an effect are seen to have none" + report.OWN,
            f"their share of the sum of squared coefficients: {min(shares):.4f} to "
            f"{max(shares):.4f}",
            max(shares) < NEGLIGIBLE,
        ),
    ]
