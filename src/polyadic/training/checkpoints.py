"""Checkpoints: what a fit has finished, in a folder, so that the same fit goes on after a stop.

Every fit of a pilot or a member has its own random numbers, whatever was trained before it. So it
is enough to keep finished ones: a fit that starts again takes them from the folder, and trains the
others. Training on rows that are read block by block takes long, and is kept in between.

Files hold arrays and JSON, nothing that is executed, and are whole or not there.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from polyadic.io.atomic import write_whole
from polyadic.networks.cp import CPCores
from polyadic.solvers.contract import Solution

_CHECKED = 16  # bytes at the end of a file
_VALUES = ("history", "n_iter", "converged", "message", "loss", "constant_loss")


class Checkpoint:
    """The folder of one fit, inside the folder that the user named.

    Parameters
    ----------
    folder : path
        It is made if it is not there.
    identity : iterable of bytes
        All that the fit depends on: rows, parameters, versions. A fit that differs in any of it has
        a folder of its own.

    Examples
    --------
    >>> import tempfile
    >>> kept = Checkpoint(tempfile.mkdtemp(), [b"rows", b"parameters"])
    >>> kept.arrays("state") is None
    True
    >>> kept.keep("state", {"x": np.arange(3)})
    >>> kept.arrays("state")
    {'x': array([0, 1, 2])}
    """

    def __init__(self, folder: Any, identity: Iterable[bytes]):
        self.folder = Path(folder) / _digest(identity)
        self.folder.mkdir(parents=True, exist_ok=True)

    def arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """Return arrays that were kept under a name; None if there are none, or damaged ones."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if _checksum(data[:-_CHECKED]) != data[-_CHECKED:]:
            return None  # it is trained again
        with np.load(io.BytesIO(data[:-_CHECKED]), allow_pickle=False) as found:
            return dict(found)

    def keep(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep arrays under a name, in place of those of before."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        data = buffer.getvalue()
        write_whole(self._path(name), data + _checksum(data))

    def solution(self, name: str) -> Solution | None:
        """Return the solution that was kept under a name, if any."""
        found = self.arrays(name)
        if found is None:
            return None
        values = json.loads(found["values"].tobytes())
        n_columns = values.pop("n_columns")
        additive = None
        if "additive0" in found:
            additive = [found[f"additive{n}"] for n in range(n_columns)]
        factors = [found[f"factor{n}"] for n in range(n_columns)]
        cores = CPCores(factors, found["weights"], found["intercept"], additive)
        return Solution(cores, **values, held_out=found.get("held_out"))

    def keep_solution(self, name: str, solution: Solution) -> None:
        """Keep a solution under a name."""
        cores = solution.cores
        arrays = {f"factor{n}": factor for n, factor in enumerate(cores.factors)}
        arrays |= {f"additive{n}": own for n, own in enumerate(cores.additive or ())}
        arrays |= {"weights": cores.weights, "intercept": cores.intercept}
        if solution.held_out is not None:
            arrays["held_out"] = solution.held_out
        values = {key: getattr(solution, key) for key in _VALUES} | {
            "n_columns": len(cores.factors)
        }
        arrays["values"] = np.frombuffer(json.dumps(values, default=float).encode(), np.uint8)
        self.keep(name, arrays)

    def remove(self) -> None:
        """Remove what was kept: the fit is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{_digest([name.encode()])}.npz"


def name_of(fit: Any, strategy: str) -> str:
    """Return a name for a fit of a pilot or a member: all that distinguishes it from the others."""
    start = b"" if fit.start is None else _cores_digest(fit.start)
    own = (fit.number, fit.strength, fit.rank, fit.all_rows, fit.resumed, fit.solver)
    return repr((strategy, *own, start))


def _cores_digest(cores: CPCores) -> bytes:
    arrays = (*cores.factors, cores.weights, cores.intercept)
    return _digest(np.ascontiguousarray(array).tobytes() for array in arrays).encode()


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKED).digest()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
