"""CityHash64 in its first version: CatBoost stores the lower half of it in place of a category."""

from __future__ import annotations

_MASK = 2**64 - 1
_K0, _K1 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273
_K2, _K3 = 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MIX = 0x9DDFEA08EB382D69

Pair = tuple[int, int]


def category_hash(text: str) -> int:
    """Return the signed number of 32 bits that CatBoost stores for a category.

    >>> category_hash("hello_world")
    -1531371997
    """
    low = city_hash(text.encode()) & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


def city_hash(data: bytes) -> int:
    """Return the hash of some bytes, 64 bits."""
    if len(data) <= 16:
        return _short(data)
    if len(data) <= 32:
        return _medium(data)
    return _long(data) if len(data) <= 64 else _longest(data)


def _word(data: bytes, at: int, size: int = 8) -> int:
    """Return the number in some bytes; a negative place counts from the end."""
    at = at if at >= 0 else len(data) + at
    return int.from_bytes(data[at : at + size], "little")


def _turn(x: int, by: int) -> int:
    x &= _MASK
    return ((x >> by) | (x << (64 - by))) & _MASK


def _fold(x: int) -> int:
    x &= _MASK
    return x ^ (x >> 47)


def _join(u: int, v: int) -> int:
    """Return one number of 64 bits for two."""
    u, v = u & _MASK, v & _MASK
    a = _fold((u ^ v) * _MIX)
    return _fold((v ^ a) * _MIX) * _MIX & _MASK


def _short(data: bytes) -> int:
    n = len(data)
    if n > 8:
        last = _word(data, -8)
        return _join(_word(data, 0), _turn(last + n, n)) ^ last
    if n >= 4:
        return _join(n + (_word(data, 0, 4) << 3), _word(data, -4, 4))
    if n > 0:
        y, z = data[0] + (data[n >> 1] << 8), n + (data[-1] << 2)
        return _fold(y * _K2 ^ z * _K3) * _K2 & _MASK
    return _K2


def _medium(data: bytes) -> int:
    a, b = _word(data, 0) * _K1, _word(data, 8)
    c, d = _word(data, -8) * _K2, _word(data, -16) * _K0
    return _join(_turn(a - b, 43) + _turn(c, 30) + d, a + _turn(b ^ _K3, 20) - c + len(data))


def _half(start: int, z: int, second: int, third: int) -> Pair:
    """Return two sums over 32 bytes of a long text."""
    a, b, c = start, _turn(start + z, 52), _turn(start, 37)
    a += second
    c += _turn(a, 7)
    a += third
    return a + z, b + _turn(a, 31) + c


def _long(data: bytes) -> int:
    start = _word(data, 0) + (len(data) + _word(data, -16)) * _K0
    v = _half(start, _word(data, 24), _word(data, 8), _word(data, 16))
    start = _word(data, 16) + _word(data, -32)
    w = _half(start, _word(data, -8), _word(data, -24), _word(data, -16))
    return _fold(_fold((v[0] + w[1]) * _K2 + (w[0] + v[1]) * _K0) * _K0 + v[1]) * _K2 & _MASK


def _weak(data: bytes, at: int, a: int, b: int) -> Pair:
    """Return two sums over 32 bytes, from two seeds."""
    at = at if at >= 0 else len(data) + at
    first, second, third, last = (_word(data, at + 8 * i) for i in range(4))
    a += first
    b = _turn(b + a + last, 21)
    c = a
    a += second + third
    b += _turn(a, 44)
    return (a + last) & _MASK, (b + c) & _MASK


def _longest(data: bytes) -> int:
    n = len(data)
    x, y, z = _word(data, 0), _word(data, -16) ^ _K1, _word(data, -56) ^ _K0
    v = _weak(data, -64, n, y)
    w = _weak(data, -32, n * _K1, _K0)
    z += _fold(v[1]) * _K1
    x = _turn(z + x, 39) * _K1
    y = _turn(y, 33) * _K1
    for at in range(0, (n - 1) // 64 * 64, 64):
        x = _turn(x + y + v[0] + _word(data, at + 16), 37) * _K1
        y = _turn(y + v[1] + _word(data, at + 48), 42) * _K1
        x, y, z = (x ^ w[1]) & _MASK, (y ^ v[0]) & _MASK, _turn(z ^ w[0], 33)
        v = _weak(data, at, v[1] * _K1, x + w[0])
        w = _weak(data, at + 32, z + w[1], y)
        x, z = z, x
    return _join(_join(v[0], w[0]) + _fold(y) * _K1 + z, _join(v[1], w[1]) + x)
