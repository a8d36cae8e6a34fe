"""Solvers: how a problem is minimised, and the parameters they start from."""
