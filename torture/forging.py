"""Changes of model files: of their bytes, or of their content with right checksums.

A case is made from prepared pieces: the text of the header, and for every array its bytes and what
its checksum covers. Only what was changed is written and hashed anew.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass

import numpy as np
from common import pick

from polyadic.maps import MAPS
from polyadic.networks import FORMATS
from polyadic.objective.losses import LOSSES
from polyadic.solvers.inits import INITS

TEXTS = ["", "x", "hat", "cpu", "\x00", "☃" * 9, "@map", "inf", "y" * 5000, "os.system"]
NUMBERS = [0, 1, -1, 2, 3, 255, 10**6, -(10**9), 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, 1e-320]
TAGS = [
    {"@number": "nan"},
    {"@tuple": [1, 2]},
    {"@pairs": [[1, 2]]},
    {"@array": ["float64", [1, 2]]},
    {"@array": ["U", ["a", "bcd"]]},
    {"@loss": "x.Y", "params": {}},
    {"@import": "os"},
]
# Every registered part, as a header would name it: by its class, or by the text of a parameter.
REGISTERED = [
    *({"@map": cls.__name__, "params": {}} for cls in MAPS.values()),
    *({"@part": cls.__name__, "params": {}} for cls in (*LOSSES.values(), *INITS.values())),
    *MAPS,
    *LOSSES,
    *INITS,
    *FORMATS,
]
ODD = [0, 1, -1, 2, 127, -128, 10**9, -(10**9)]
ODD_FLOATS = [*ODD, np.nan, np.inf, 1e308, -1e-320, 1e38, 3.5e38]
_CODES = {"bool": "BOOL", "float16": "F16", "float32": "F32", "float64": "F64"} | {
    f"{'u' * unsigned}int{bits}": f"{'U' if unsigned else 'I'}{bits}"
    for unsigned in (False, True)
    for bits in (8, 16, 32, 64)
}


@dataclass
class Piece:
    """An array as it is written."""

    array: np.ndarray
    data: bytes
    signed: bytes  # what the checksum covers
    code: str

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> Piece:
        kind, data = array.dtype.name, array.tobytes()
        signed = f"{name} {kind} {array.shape} ".encode() + data
        return cls(array, data, signed, _CODES[kind])


@dataclass
class Content:
    """The header and the arrays of a model file, ready to be changed and written."""

    text: str  # the header, without checksums and with no array packed
    ways: list[tuple]
    pieces: dict[str, Piece]

    @classmethod
    def of(cls, header: dict, arrays: dict[str, np.ndarray]) -> Content:
        sums = {"sha256", "tensors_sha256"}
        header = {key: value for key, value in header.items() if key not in sums}
        header["packed"] = {}
        pieces = {name: Piece.of(name, array) for name, array in arrays.items()}
        return cls(dumps(header), ways(header), pieces)


def dumps(value) -> str:
    return json.dumps(value, separators=(",", ":"))


def written(text: str, pieces: dict[str, Piece]) -> bytes:
    """Return a file with this header and these arrays, with right checksums."""
    sums = hashlib.sha256()
    for name in sorted(pieces):
        sums.update(pieces[name].signed)
    start = "{" if text == "{}" else text[:-1] + ","
    text = f'{start}"tensors_sha256":"{sums.hexdigest()}"}}'
    text = f'{text[:-1]},"sha256":"{hashlib.sha256(text.encode()).hexdigest()}"}}'
    index: dict = {"__metadata__": {"polyadic": text}}
    chunks, at = [], 0
    for name in sorted(pieces, key=lambda name: -pieces[name].array.itemsize):  # aligned
        piece = pieces[name]
        end = at + len(piece.data)
        index[name] = {"dtype": piece.code, "shape": piece.array.shape, "data_offsets": [at, end]}
        chunks.append(piece.data)
        at = end
    head = dumps(index).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *chunks])


# ---- damage by chance ----------------------------------------------------------------------------


def damaged(rng, data: bytes) -> bytes:
    """Return the bytes of a file with a few changes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, n = int(rng.integers(len(out))), int(rng.integers(1, 200))
        match int(rng.integers(6)):
            case 0:
                out[at] ^= 1 << int(rng.integers(8))
            case 1:
                del out[at:]
            case 2:
                del out[at : at + n]
            case 3:
                out[at:at] = rng.bytes(n)
            case 4:
                out[at : at + n] = bytes(n)
            case _:
                out[at : at + n] = out[:n]
        if len(out) < 2:
            break
    return bytes(out)


# ---- changes with right checksums ----------------------------------------------------------------


def ways(value, way=()) -> list[tuple]:
    """Return the ways to all entries of a header."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    out = []
    for key, inner in items:
        out.append((*way, key))
        if isinstance(inner, dict | list):
            out += ways(inner, (*way, key))
    return out


def at_way(value, way):
    """Return the entry at the end of a way."""
    for key in way:
        value = value[key]
    return value


def change_entry(rng, header, own, other_header, other) -> None:
    """Replace, remove or double one entry of a header; also by one of another model's header."""
    way = pick(rng, own)
    at = at_way(header, way[:-1])
    match int(rng.integers(8)):
        case 0 if isinstance(at, dict):
            del at[way[-1]]
        case 1 if isinstance(at[way[-1]], int | float):
            at[way[-1]] = at[way[-1]] + pick(rng, [1, -1, 0.5])
        case 2:
            at[way[-1]] = copy.deepcopy(at_way(header, pick(rng, own)))
        case 3:
            at[way[-1]] = at_way(other_header, way if way in other else pick(rng, other))
        case 4:
            at[way[-1]] = copy.deepcopy(pick(rng, REGISTERED))
        case _:
            plain = [None, True, [], {}, pick(rng, TEXTS), pick(rng, NUMBERS), pick(rng, TAGS)]
            at[way[-1]] = copy.deepcopy(pick(rng, plain))


def change_array(rng, pieces: dict[str, Piece], other: dict[str, Piece]) -> None:
    """Change the values, the type or the shape of an array, remove it, or take another model's."""
    name = pick(rng, pieces)
    array = pieces[name].array.copy()
    flat = array.reshape(-1)
    odd = np.array(pick(rng, ODD_FLOATS if array.dtype.kind == "f" else ODD))
    with np.errstate(all="ignore"):
        match int(rng.integers(10)):
            case 0 if flat.size:
                flat[rng.random(flat.size) < pick(rng, [0.05, 1.0])] = odd.astype(array.dtype)
            case 1 if flat.size:
                flat[int(rng.integers(flat.size))] = odd.astype(array.dtype)
            case 2:
                array = array.astype(pick(rng, ["f2", "f4", "f8", "i4", "i8", "u1", "?"]))
            case 3:
                array = flat[: int(rng.integers(flat.size + 1))]
            case 4 if array.ndim:
                array = np.concatenate([array, array])
            case 5 if array.ndim:
                array = array[::-1]
            case 6:
                del pieces[name]
                return
            case 7:
                array = pieces[pick(rng, pieces)].array
            case 8:
                array = other[name if name in other else pick(rng, other)].array
            case _:
                array = rng.permutation(flat).reshape(array.shape)
    pieces[name] = Piece.of(name, np.ascontiguousarray(array))


def forged(rng, content: Content, other: Content) -> bytes:
    """Return a file with one to three changes and right checksums."""
    header, pieces = None, dict(content.pieces)
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5 and pieces:
            change_array(rng, pieces, other.pieces)
            continue
        own = content.ways if header is None else ways(header)
        header = json.loads(content.text) if header is None else header
        if own:
            change_entry(rng, header, own, json.loads(other.text), other.ways)
    return written(content.text if header is None else dumps(header), pieces)
