"""Solvers: how a problem is minimised, and where they start."""
