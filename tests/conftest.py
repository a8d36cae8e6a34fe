"""Settings for every test: a folder of data beside the project, and a cache for compiled kernels.

Numba looks for changes in the file of the function that it loads from its cache, not in those of
the functions that it calls. So the cache is named by the content of all kernels.
"""

import hashlib
import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_KERNELS = sorted((_ROOT / "src" / "polyadic" / "kernels").glob("*.py"))
_MARK = hashlib.sha256(b"".join(path.read_bytes() for path in _KERNELS)).hexdigest()[:12]
os.environ.setdefault("NUMBA_CACHE_DIR", str(_ROOT / ".cache" / f"kernels-{_MARK}"))

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("POLYADIC_DATA", str(_DATA))
