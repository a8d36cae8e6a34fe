"""Arrays in fewer bytes: any array comes back to the last bit, and nothing else is accepted."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from polyadic.io import packing
from polyadic.io.plain import NUMBERS

TYPES = st.sampled_from([name for name in NUMBERS if name != "bool"])


def same(have, want):
    return (have.dtype, have.shape, have.tobytes()) == (want.dtype, want.shape, want.tobytes())


@settings(deadline=None)
@given(st.data(), TYPES, st.integers(0, 99))
def test_any_array_comes_back_to_the_last_bit(data, dtype, n_more):
    bits = f"u{np.dtype(dtype).itemsize}"
    some = data.draw(arrays(bits, array_shapes(max_dims=3)))
    long = np.concatenate([some.ravel()] * (1 + packing._LEAST_BYTES // some.nbytes))
    given = {"long": long.view(dtype), "some": some.view(dtype), "more": np.zeros((n_more, 0))}
    back = packing.unpack_arrays(*packing.pack_arrays(given))
    assert back.keys() == given.keys()
    assert all(same(back[name], given[name]) for name in given)


def test_smooth_numbers_and_numbers_of_few_digits_take_less_space():
    x = np.linspace(0.0, 1.0, 1000)
    noise = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    _, packed = packing.pack_arrays({"curve": x**2, "digits": noise.astype(np.float64)})
    assert packed["curve"].nbytes < 0.7 * x.nbytes
    assert packed["digits"].nbytes < 0.6 * x.nbytes


def test_a_short_array_stays_as_it_is():
    given = {"short": np.arange(5.0)}
    assert packing.pack_arrays(given) == ({}, given)


def test_a_file_never_unpacks_to_far_more_than_it_holds():
    zeros = {"zeros": np.zeros(10**6)}
    entries, packed = packing.pack_arrays(zeros)  # zlib would make them a thousandth
    assert entries == {}
    assert packed["zeros"] is zeros["zeros"]
    bomb = np.frombuffer(zlib.compress(bytes(10**6)), np.uint8)
    with pytest.raises(ValueError, match="far more memory"):
        packing.unpack_arrays({"bomb": ["uint8", [10**6], 0]}, {"bomb": bomb})


def packed(n=1000):
    return packing.pack_arrays({"a": np.random.default_rng(0).integers(0, 999, n)})


FAULTS = {
    "type": (["object", [1000], 0], "cannot be packed"),
    "shape": (["int64", [-1], 0], "cannot be packed"),
    "shape as a number": (["int64", 1000, 0], "cannot be packed"),
    "a fraction": (["int64", [1000.0], 0], "cannot be packed"),
    "differences": (["int64", [1000], 3], "cannot be packed"),
    "too many": (["int64", [1001], 0], "does not hold 8008 bytes"),
    "too few": (["int64", [999], 0], "does not hold 7992 bytes"),
    "too large": (["int64", [2**40, 2**40], 0], "far more memory"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_entry_that_does_not_fit_is_refused(name):
    entry, match = FAULTS[name]
    _, stored = packed()
    with pytest.raises(ValueError, match=match):
        packing.unpack_arrays({"a": entry}, stored)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[:-1],
        lambda a: np.append(a, a),
        lambda a: np.append(a, np.zeros(1, np.uint8)),
        lambda a: a.astype(np.int32),
        lambda a: a[None],
    ],
)
def test_damaged_bytes_are_refused(change):
    entries, stored = packed()
    with pytest.raises((ValueError, zlib.error)):
        packing.unpack_arrays(entries, {"a": change(stored["a"])})


def test_an_entry_without_an_array_is_refused():
    entries, _ = packed()
    with pytest.raises((ValueError, KeyError)):
        packing.unpack_arrays(entries, {"b": np.zeros(999)})
