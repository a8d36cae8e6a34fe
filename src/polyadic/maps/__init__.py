"""Local feature maps: each turns one column into a few non-zero numbers."""

from __future__ import annotations

from polyadic.maps.base import FeatureMap
from polyadic.maps.bspline import BSpline
from polyadic.maps.chebyshev import Chebyshev
from polyadic.maps.choice import choose_maps, map_kinds
from polyadic.maps.fourier import Fourier, Trigonometric
from polyadic.maps.hat import Hat
from polyadic.maps.onehot import OneHot
from polyadic.maps.polynomial import Polynomial
from polyadic.maps.step import Step

__all__ = [
    "MAPS",
    "BSpline",
    "Chebyshev",
    "FeatureMap",
    "Fourier",
    "Hat",
    "OneHot",
    "Polynomial",
    "Step",
    "Trigonometric",
    "choose_maps",
    "map_kinds",
    "resolve",
]

MAPS: dict[str, type[FeatureMap]] = {
    "bspline": BSpline,
    "chebyshev": Chebyshev,
    "fourier": Fourier,
    "hat": Hat,
    "onehot": OneHot,
    "polynomial": Polynomial,
    "step": Step,
    "trigonometric": Trigonometric,
}


def resolve(name_or_instance: str | FeatureMap) -> FeatureMap:
    """Return the map of that name with its default parameters, or the given map itself.

    >>> resolve("hat")
    Hat(n_knots='auto', by_target=0.0)
    >>> resolve("spline")
    Traceback (most recent call last):
    ...
    ValueError: Unknown map 'spline'. Choose from: bspline, ...
    """
    if isinstance(name_or_instance, FeatureMap):
        return name_or_instance
    if isinstance(name_or_instance, type) and issubclass(name_or_instance, FeatureMap):
        name = name_or_instance.__name__
        raise TypeError(f"A map must be an instance, got the class {name}. Write {name}().")
    if not isinstance(name_or_instance, str):
        raise TypeError(
            f"A map must be a name or a FeatureMap instance, got {name_or_instance!r} of type "
            f"{type(name_or_instance).__name__}."
        )
    if name_or_instance not in MAPS:
        raise ValueError(
            f"Unknown map {name_or_instance!r}. Choose from: {', '.join(sorted(MAPS))}."
        )
    return MAPS[name_or_instance]()
