"""Settings for every test: a folder of data beside the project is used where there is one."""

import os
from pathlib import Path

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("POLYADIC_DATA", str(_DATA))
