"""Merged models as blocks on their own knots: the same functions, the same bits, small files."""

import hashlib
import json
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pandas as pd
import parts
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import put, reshape

from polyadic import CPClassifier, CPRegressor, ModelFileError, explain, load
from polyadic.estimators.saving import describe
from polyadic.io.blocks import pack_blocks, rebuild_blocks
from polyadic.io.files import digest, read_file
from polyadic.networks import blocks as own_knots
from polyadic.networks import trees
from polyadic.networks.blocks import Blocks, make_blocks, to_single
from polyadic.networks.cp import CPCores


def table(n=400, missing=False):
    """Return a table of two numbers and a category, and a target."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.uniform(size=n)})
    X["c"] = rng.choice(["x", "y", "z"], n)
    y = np.sin(2 * X["a"]) * X["b"] + (X["c"] == "x") + 0.1 * rng.normal(size=n)
    if missing:
        X.loc[::5, "a"], X.loc[::7, "c"] = np.nan, None
    return X, y.to_numpy()


@cache
def fitted(name):
    """Return a merged model of each kind, and its table."""
    X, y = table(missing=name == "missing")
    with parts.shared_trees():
        if name == "classes":
            return CPClassifier(random_state=0, trees=True).fit(X, np.digitize(y, [0, 1])), X
        return CPRegressor(random_state=0, trees=name != "smooth").fit(X, y), X


NAMES = ["smooth", "trees", "missing", "classes"]


# ---- functions -----------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 9))
def test_a_core_on_all_knots_is_the_function_of_its_block(seed, n_blocks, most):
    rng = np.random.default_rng(seed)
    own = [np.unique(rng.normal(size=rng.integers(1, most + 1))) for _ in range(n_blocks)]
    cores = [to_single(rng.normal(size=(1 + len(k), 2))) for k in own]
    knots = np.unique(np.concatenate(own))
    blocks, constant = make_blocks(cores, knots, own)
    core = blocks.core(constant)
    x = np.concatenate([rng.normal(size=20), knots])
    for k, (mine, one) in enumerate(zip(own, cores)):
        for r in range(2):
            have = np.interp(x, knots, core[0, 2 * k + r] + core[1:, 2 * k + r])
            want = np.interp(x, mine, one[0, r] + one[1:, r])
            np.testing.assert_allclose(have, want, atol=1e-6)


def test_another_constant_changes_no_function():
    blocks = Blocks(np.ones((1, 3), bool), [np.arange(6.0).reshape(3, 2)])
    one, other = (blocks.core(np.array(c)) for c in ([0.0, 0.0], [5.0, -1.0]))
    np.testing.assert_array_equal(one[0] + one[1:], other[0] + other[1:])
    assert other[0].tolist() == [5.0, -1.0]


@pytest.mark.parametrize("name", NAMES)
def test_rounding_changes_predictions_by_less_than_a_millionth(name):
    model, X = fitted(name)
    with (
        patch.object(own_knots, "to_single", lambda array: array),
        patch.object(trees, "to_single", lambda array: array),
    ):
        exact, _ = fitted.__wrapped__(name)
    values = [own for column in exact.tensor_.blocks for own in column.values]
    assert any(np.any(own != own.astype(np.float32)) for own in values)
    raw, scale = exact.raw(X), np.ptp(exact.raw(X))
    np.testing.assert_allclose(model.raw(X), raw, rtol=0, atol=1e-6 * scale)


# ---- files ---------------------------------------------------------------------------------------


def check_same(model, again, X):
    """Check that two models predict and explain the same bits, also for missing values."""
    rows = X.iloc[:9].copy()
    rows.loc[rows.index[::2], "a"] = np.nan
    rows.loc[rows.index[::3], "c"] = None
    for some in (X, rows):
        assert again.raw(some).tobytes() == model.raw(some).tobytes()
    for explained in (
        lambda one: explain.shapley(one, rows).values,
        lambda one: explain.sobol(one).total,
    ):
        assert explained(again).tobytes() == explained(model).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_model_predicts_and_explains_the_same_bits(name, tmp_path):
    model, X = fitted(name)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.tensor_.blocks is not None
    check_same(model, again, X)
    for have, want in zip(again.tensor_.factors, model.tensor_.factors):
        assert have.tobytes() == want.tobytes()
        assert have.flags.c_contiguous == want.flags.c_contiguous
    again.save(tmp_path / "n")
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_far_smaller_than_the_factors(name, tmp_path):
    model, _ = fitted(name)
    model.save(tmp_path / "m")
    size = sum(factor.nbytes for factor in model.tensor_.factors)
    assert (tmp_path / "m").stat().st_size < 0.5 * size


def test_shares_of_missing_values_are_stored_only_where_they_do_not_follow(tmp_path):
    model, X = fitted("trees")
    model.save(tmp_path / "m")
    assert "trees.share" not in read_file(tmp_path / "m")[1]
    forest = model.tensor_.trees
    nodes = forest.nodes._replace(share=np.where(forest.nodes.share >= 0, 0.25, -1.0))
    other = CPRegressor(random_state=0, trees=True)
    other.__dict__.update(model.__dict__)
    other.tensor_ = replace(model.tensor_, trees=replace(forest, nodes=nodes))
    other.save(tmp_path / "n")
    assert "trees.share" in read_file(tmp_path / "n")[1]
    check_same(other, load(tmp_path / "n"), X)


def test_factors_that_someone_has_changed_are_saved_as_they_are(tmp_path):
    model, X = fitted("smooth")
    model.save(tmp_path / "m")
    changed = load(tmp_path / "m")
    changed.cores_[0][1:] *= 1.5
    changed.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.tensor_.blocks is None
    assert again.raw(X).tobytes() == changed.raw(X).tobytes()
    assert not np.array_equal(again.raw(X), model.raw(X))


def test_further_training_drops_the_blocks(tmp_path):
    model, X = fitted("smooth")
    model.save(tmp_path / "m")
    again = load(tmp_path / "m").partial_fit(X, model.predict(X))
    assert again.tensor_.blocks is None
    again.save(tmp_path / "m")
    assert load(tmp_path / "m").raw(X).tobytes() == again.raw(X).tobytes()


# ---- older and forged files ----------------------------------------------------------------------


def write(path, header, tensors):
    """Write a file of any content, with right checksums."""
    header["tensors_sha256"] = digest(tensors)
    header.pop("sha256", None)
    text = json.dumps(header, separators=(",", ":"))
    header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(header, separators=(",", ":"))
    path.write_bytes(safetensors.numpy.save(tensors, {"polyadic": text}))


@pytest.mark.parametrize("has_shares", [True, False])
def test_a_file_of_format_3_is_still_read(has_shares, tmp_path):
    model, X = fitted("trees")
    forest = model.tensor_.trees
    header, tensors = describe(load_plain(model, tmp_path))
    header |= {"format": 3, "version": "0.1.0", "trees": header["trees"]["maps"]}
    tensors = {name: np.ascontiguousarray(a) for name, a in tensors.items()}
    tensors |= {f"trees.{name}": getattr(forest.nodes, name) for name in ("left", "right", "share")}
    tensors["trees.value"] = forest.value
    if not has_shares:
        del tensors["trees.share"]
    write(tmp_path / "old", header, tensors)
    again = load(tmp_path / "old")
    if has_shares:
        check_same(model, again, X)
    else:  # missing values went one way then
        assert np.all(again.tensor_.trees.nodes.share == -1.0)
        assert again.raw(X).tobytes() == model.raw(X).tobytes()


def load_plain(model, folder):
    """Return the same model without blocks."""
    model.save(folder / "m")
    again = load(folder / "m")
    again.tensor_ = replace(again.tensor_, blocks=None)
    return again


FORGERIES = {
    "ranks": (put("tensor", "blocks", [1]), "do not go with"),
    "ranks of zero": (put("tensor", "blocks", [0]), "do not go with"),
    "ranks as text": (put("tensor", "blocks", "abc"), "Cannot load"),
    "a block without elements": (
        reshape("blocks.0.kept", lambda a: a * (np.arange(len(a)) > 0)[:, None].astype("u1")),
        "must mark",
    ),
    "marks above one": (reshape("blocks.0.kept", lambda a: 2 * a), "must mark"),
    "marks as numbers": (reshape("blocks.0.kept", lambda a: a.astype(int)), "must mark"),
    "one mark less": (reshape("blocks.0.kept", lambda a: a[:, :-1]), r"values|knots"),
    "one value less": (reshape("blocks.0.values", lambda a: a[:-1]), "has the shape"),
    "values not finite": (reshape("blocks.0.values", lambda a: a * np.nan), "finite"),
    "whole values": (reshape("blocks.0.values", lambda a: a.astype(int)), "floating-point"),
    "values beyond": (
        lambda header, tensors: tensors.update(
            {
                "blocks.0.values": np.full(len(tensors["blocks.0.values"]), 1e308),
                "blocks.0.constant": np.full(len(tensors["blocks.0.constant"]), -1e308),
            }
        ),
        "finite numbers",
    ),
    "one constant less": (reshape("blocks.0.constant", lambda a: a[:-1]), "has the shape"),
    "knots descending": (reshape("maps.0.knots_", lambda a: a[::-1]), r"ascend|finite"),
    "one knot less": (reshape("maps.0.knots_", lambda a: a[1:]), "knots"),
    "a factor beside": (
        lambda header, tensors: tensors.update({"factors.0": np.ones((3, 1))}),
        "has the shape",
    ),
    "a leaf less": (reshape("trees.value", lambda a: a[:-1]), "has the shape"),
    "a link back": (reshape("trees.left", lambda a: -a), "child"),
    "a link too far": (reshape("trees.right", lambda a: a + np.int32(2**31 - 9)), "child"),
    "links of another type": (reshape("trees.left", lambda a: a.astype(np.int64)), "type"),
    "shares that are not there": (put("trees", "shares", True), "'trees.share' is miss"),
    "no marginals": (
        lambda header, tensors: header.update({"marginals": []}),
        "no marginals are known",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FORGERIES)
def test_forged_blocks_and_trees_are_refused(name, tmp_path):
    change, words = FORGERIES[name]
    fitted("trees")[0].save(tmp_path / "m")
    header, tensors = read_file(tmp_path / "m")
    header["packed"] = {}
    change(header, tensors)
    write(tmp_path / "m", header, tensors)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(tmp_path / "m")
    assert "checksum" not in str(caught.value)


def test_blocks_far_shorter_than_their_factor_are_not_written_and_refused(tmp_path):
    knots = np.arange(500.0)
    kept = np.zeros((1, 500), bool)
    kept[0, [0, -1]] = True
    blocks = Blocks(kept, [np.ones((2, 3))], knots)
    constant = np.zeros(3)
    cores = CPCores([blocks.core(constant)], np.ones((3, 1)), np.zeros(1), blocks=[blocks])
    assert pack_blocks(cores) is None
    arrays = {
        "blocks.0.kept": kept.astype(np.uint8),
        "blocks.0.values": np.ones(6),
        "blocks.0.constant": constant,
        "maps.0.knots_": knots,
    }
    with pytest.raises(ValueError, match="too short"):
        rebuild_blocks(1, 3, [3], arrays, np.inf)


def test_a_column_of_the_constant_alone_is_saved_and_loaded(tmp_path):
    """Identifiers are folded into the constant, so that their blocks have no elements."""
    x = np.random.default_rng(0).normal(size=60)
    X = pd.DataFrame({"x": x, "id": [f"id{k}" for k in range(60)]})
    with pytest.warns(UserWarning, match="id"):
        model = CPRegressor(n_members=2, rank=2, max_iter=1, random_state=0).fit(X, x)
    assert len(model.cores_[1]) == 1
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").predict(X).tobytes() == model.predict(X).tobytes()
