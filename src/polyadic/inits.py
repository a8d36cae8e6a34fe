"""The inits: where training starts."""

from polyadic.solvers.inits import INITS, Gaussian, Linear, NearOne

__all__ = ["INITS", "Gaussian", "Linear", "NearOne"]
