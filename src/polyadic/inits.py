"""The inits: the parameters that training starts from."""

from polyadic.solvers.inits import INITS, Gaussian, Linear, NearOne

__all__ = ["INITS", "Gaussian", "Linear", "NearOne"]
