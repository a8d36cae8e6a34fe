"""The live page: one HTML file that holds a model and its explanations."""

from __future__ import annotations

from polyadic.page.page import report

__all__ = ["report"]
