"""A name for the code that a fit depends on: a cell is run again when it changes."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import polyadic

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "catboost": "catboost",
    "ebm": "interpret",
    "hist": "sklearn",
    "lightgbm": "lightgbm",
    "lightgbm_1000": "lightgbm",
    "linear": "sklearn",
    "mlp": "sklearn",
    "xgboost": "xgboost",
}  # modules of what is compared; all other models are of this library


def fingerprint(model: ModuleType, data: ModuleType) -> str:
    """Return a name for the sources of a model and of a data set, and for the library behind it."""
    name = model.__name__.split(".")[-1]
    parts = [*(HERE / "models").glob("*.py"), Path(data.__file__), HERE / "tasks.py"]
    parts += [HERE / "mixed.py", HERE / "uci.py"]
    digest = hashlib.blake2b(digest_size=8)
    if name in PACKAGES:
        parts = [path for path in parts if path.parent.name != "models" or path.stem == name]
        digest.update(f"{PACKAGES[name]} {import_module(PACKAGES[name]).__version__}".encode())
    else:
        parts += list(Path(polyadic.__file__).parent.rglob("*.py"))
    for path in sorted(parts):
        digest.update(path.read_bytes())
    return digest.hexdigest()
