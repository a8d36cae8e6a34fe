"""Save a fitted model to one file, and load it again."""

from __future__ import annotations

from polyadic.io.files import FORMAT, ModelFileError, load, save

__all__ = ["FORMAT", "ModelFileError", "load", "save"]
