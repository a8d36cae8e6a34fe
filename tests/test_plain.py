"""Parameters as JSON, and back."""

import json

import numpy as np
import pytest

from polyadic import inits, losses, maps
from polyadic.io.plain import dumps, pack, pack_labels, unpack, unpack_labels


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [1, 2.5, "é\ud800", -0.0],
        (1, ("a",)),
        {"a": 1, "b": [None]},
        {1: "x", "y": 2, (1, 2): 3.0},
        {"@odd": 1},
        float("inf"),
        -float("inf"),
        losses.Huber(2.0),
        inits.Gaussian(0.5),
        maps.Polynomial(4, standardize=True),
        {"a": maps.Hat(3), "b": "hat"},
    ],
    ids=repr,
)
def test_parameters_survive_json(value):
    find = {cls.__name__: cls for cls in maps.MAPS.values()}
    assert repr(unpack(json.loads(dumps(pack(value))), lambda name, kind: find[name])) == repr(
        value
    )


def test_deep_nesting_is_refused():
    value = 1
    for _ in range(30):
        value = [value]
    with pytest.raises(ValueError, match="nested more than"):
        pack(value)
    with pytest.raises(ValueError, match="nested more than"):
        unpack(value, lambda name, kind: None)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "str", object])
def test_parameter_arrays_keep_their_type(dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    again = unpack(json.loads(dumps(pack(array))), lambda name, kind: None)
    np.testing.assert_array_equal(again, array)
    assert again.dtype.kind == array.dtype.kind


@pytest.mark.parametrize(
    "labels",
    [np.array(["b", "ab\u2603"]), np.array(["b", 2, None], dtype=object), np.array([1.5, 2.5])],
    ids=repr,
)
def test_labels_keep_their_type(labels):
    how, array = pack_labels(labels)
    assert array.dtype.kind in "uif"
    again = unpack_labels(how, array)
    assert again.dtype == labels.dtype
    assert again.tolist() == labels.tolist()


def test_unknown_objects_are_refused():
    with pytest.raises(TypeError, match="of type set, found among the parameters"):
        pack({"a": [{1, 2}]})
