"""One instance of every part, in several configurations: the laws run over these lists."""

from __future__ import annotations

from polyadic import maps

MAPS = [
    maps.Polynomial(),
    maps.Polynomial(d=1),
    maps.Polynomial(d=2),
    maps.Polynomial(d=6),
    maps.Polynomial(d=5, standardize=True),
    maps.Polynomial(d=1, normalize=True),
    maps.Polynomial(d=4, normalize=True),
    maps.Polynomial(d=75, normalize=True),
    maps.Hat(),
    maps.Hat(n_knots=2),
    maps.Hat(n_knots=7),
    maps.BSpline(),
    maps.BSpline(n_knots=2, degree=1),
    maps.BSpline(n_knots=5, degree=2),
    maps.Fourier(),
    maps.Fourier(n_frequencies=1),
    maps.Trigonometric(),
    maps.Chebyshev(),
    maps.Chebyshev(d=3),
    maps.OneHot(),
    maps.OneHot(min_count=3),
]
