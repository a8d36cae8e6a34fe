"""Files of other libraries' trees that were changed, or say anything: refused with a reason."""

import copy
import json

import catboost as cb
import grown
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from polyadic.objective.losses import Softmax, SquaredError
from polyadic.trees import catboost as cat_reader
from polyadic.trees import lightgbm as lgb_reader
from polyadic.trees import xgboost as xgb_reader
from polyadic.trees.source import Source, SourceTree, UnreadableModel, checked


def fitted(kind, **options):
    X = grown.numeric(np.random.default_rng(0), missing=False)
    return kind(**options).fit(X, grown.score(X))


def stump(**changes):
    """Return a tree of one question, with changes."""
    parts = {
        "column": np.array([0, -1, -1], dtype=np.int32),
        "threshold": np.zeros(3),
        "missing_left": np.zeros(3, dtype=bool),
        "left": np.array([1, -1, -1], dtype=np.int32),
        "right": np.array([2, -1, -1], dtype=np.int32),
        "value": np.array([[0.0], [1.0], [2.0]]),
    }
    return SourceTree(**{**parts, **changes})


def int32(*numbers):
    return np.array(numbers, dtype=np.int32)


LOOP = {
    "column": int32(0, -1, -1, 0, 0, -1, -1),
    "left": int32(1, -1, -1, 4, 3, -1, -1),
    "right": int32(2, -1, -1, 5, 6, -1, -1),
    "threshold": np.zeros(7),
    "missing_left": np.zeros(7, dtype=bool),
    "value": np.zeros((7, 1)),
}
FAULTS = {
    "no nodes": (stump(column=int32()), "no nodes"),
    "length": (stump(threshold=np.zeros(2)), "threshold is"),
    "dtype": (stump(left=np.array([1.0, -1.0, -1.0])), "left is"),
    "values": (stump(value=np.zeros(3)), "value is"),
    "outputs": (stump(output=1), "outputs 1 to 1, of 1"),
    "value": (stump(value=np.array([[0.0], [np.nan], [1.0]])), "not finite"),
    "child": (stump(right=int32(3, -1, -1)), "outside of the nodes 1 to 2"),
    "root": (stump(left=int32(0, -1, -1)), "outside of the nodes 1 to 2"),
    "twice": (stump(right=int32(1, -1, -1)), "node 1 is the child of 2"),
    "loop": (stump(**LOOP), "4 nodes are not reached"),
    "leaf": (stump(left=int32(1, 2, -1)), "a leaf has children"),
    "inner value": (stump(value=np.ones((3, 1))), "has a value"),
    "column": (stump(column=int32(2, -1, -1)), "column outside of 0 to 1"),
    "negative": (stump(column=int32(0, -2, -1)), "column outside of 0 to 1"),
    "threshold": (stump(threshold=np.array([np.nan, 0, 0])), "threshold is not a number"),
    "no categories": (stump(sets={0: np.array([0])}), "its column has none"),
    "unsorted": (stump(column=int32(1, -1, -1), sets={0: np.array([1, 0])}), "ascending"),
    "unknown": (stump(column=int32(1, -1, -1), sets={0: np.array([0, 3])}), "outside of 0 to 2"),
    "number": (stump(column=int32(1, -1, -1)), "column of categories for a number"),
}


def source_of(*trees, **changes):
    parts = {
        "base": np.zeros(1),
        "n_columns": 2,
        "loss": SquaredError(),
        "categories": {1: [*"abc"]},
    }
    return Source(trees, **{**parts, **changes})


@pytest.mark.parametrize("name", FAULTS)
def test_a_tree_that_is_none_is_refused(name):
    tree, match = FAULTS[name]
    with pytest.raises(UnreadableModel, match=f"Tree 1 .*{match}"):
        checked(source_of(stump(), tree))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_columns": 0}, "0 columns"),
        ({"base": np.array([np.inf])}, "base"),
        ({"base": np.zeros((1, 1))}, "base"),
        ({"names": ["a"]}, "1 names"),
        ({"categories": {2: ["a"]}}, "categories of column 2"),
        ({"classes": np.arange(3)}, "3 classes and 1 outputs"),
        ({"classes": np.arange(1)}, "1 classes"),
        ({"loss": Softmax(3)}, "its loss has 3 classes"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(changes, match):
    with pytest.raises(UnreadableModel, match=match):
        checked(source_of(**changes))


def test_a_chain_of_many_nodes_is_checked():
    n = 20_001
    inner = (np.arange(n) % 2 == 0) & (np.arange(n) < n - 1)
    column, left, right = (
        np.where(inner, number, -1).astype(np.int32)
        for number in (0, np.arange(n) + 1, np.arange(n) + 2)
    )
    parts = {"column": column, "left": left, "right": right, "threshold": np.zeros(n)}
    source = source_of(stump(**parts, missing_left=np.zeros(n, dtype=bool), value=np.zeros((n, 1))))
    assert checked(source) is source


def at(*path):
    """Return a function that replaces an entry of nested dicts and lists."""
    *parents, last = path

    def put(dump, value):
        for name in parents:
            dump = dump[name]
        if value is None:
            del dump[last]
        else:
            dump[last] = value

    return put


MODEL = ("learner", "gradient_booster", "model")
TREE = (*MODEL, "trees", 0)
XGB_CHANGES = {
    "version": (at("version"), [9, 0, 0], "version 9.0.0"),
    "no version": (at("version"), None, "lacks the entry version"),
    "no learner": (at("learner"), None, "lacks the entry learner"),
    "no name": (at("learner", "objective", "name"), None, "lacks the entry name"),
    "base": (at("learner", "learner_model_param", "base_score"), "abc", "base_score"),
    "bases": (at("learner", "learner_model_param", "base_score"), "[1,2]", "2 numbers, not 1"),
    "nan base": (at("learner", "learner_model_param", "base_score"), "[nan]", "base"),
    "columns": (at("learner", "learner_model_param", "num_feature"), "1", "column outside"),
    "no columns": (at("learner", "learner_model_param", "num_feature"), "x", "whole number"),
    "child": (at(*TREE, "left_children", 0), 99, "no node of it"),
    "negative": (at(*TREE, "right_children", 0), -5, "no node of it"),
    "cycle": (at(*TREE, "left_children", 1), 0, "outside of the nodes"),
    "length": (at(*TREE, "split_indices"), [0], "1 numbers instead of"),
    "text": (at(*TREE, "default_left"), "yes", "must be a list of numbers"),
    "ragged": (at(*TREE, "left_children"), [[1], [2, 3]], "must be a list of numbers"),
    "column": (at(*TREE, "split_indices", 0), 70, "column outside of 0 to 3"),
    "large": (at(*TREE, "split_indices", 0), 2**40, "32 bits"),
    "nan": (at(*TREE, "split_conditions", 0), float("nan"), "threshold is not a number"),
    "leaf": (at(*TREE, "split_conditions", -1), float("inf"), "not finite"),
    "kind": (at(*TREE, "split_type", 0), 1, "split_type"),
    "group": (at(*MODEL, "tree_info", 0), 4, "outputs 4 to 4, of 1"),
    "groups": (at(*MODEL, "tree_info"), [0], "more trees than"),
    "no trees": (at(*MODEL, "trees"), 3, "must be a list"),
    "new entry": (at(*MODEL, "weight_of_trees"), [1.0], "not known here: weight_of_trees"),
    "new entry of a tree": (at(*TREE, "leaf_models"), [1.0], "not known here: leaf_models"),
    "weights": (at(*MODEL, "weight_drop"), [1.0], "more trees than tree_info or weight_drop"),
}


@pytest.mark.parametrize("name", XGB_CHANGES)
def test_a_file_of_xgboost_that_was_changed_is_refused(name):
    put, value, match = XGB_CHANGES[name]
    dump = json.loads(fitted(xgb.XGBRegressor, **grown.XGB).get_booster().save_raw("json"))
    put(dump, value)
    with pytest.raises(UnreadableModel, match=match):
        checked(xgb_reader.parse(dump))


FRAME_CHANGES = {
    "no categories": (at(*MODEL, "cats"), None, "since its version 3.1"),
    "columns": (at(*MODEL, "cats", "enc"), [{"values": []}], "4 columns, but categories of 1"),
    "few": (at(*MODEL, "cats", "enc", 3), {"values": [1]}, "has 1 categories, but"),
    "cut": (at(*MODEL, "cats", "enc", 1, "offsets", -1), 999, "places out of range"),
    "segment": (at(*TREE, "categories_segments", 0), 999, "categories out of range"),
    "negative": (at(*TREE, "categories_nodes", 0), -1, "categories out of range"),
    "lengths": (at(*TREE, "categories_sizes"), [1], "1 numbers instead of"),
}


@pytest.mark.parametrize("name", FRAME_CHANGES)
def test_categories_of_xgboost_that_were_changed_are_refused(name):
    put, value, match = FRAME_CHANGES[name]
    model, *_ = grown.CASES["xgboost one-hot"].build(np.random.default_rng(0))
    dump = json.loads(model.get_booster().save_raw("json"))
    put(dump, value)
    with pytest.raises(UnreadableModel, match=match):
        checked(xgb_reader.parse(dump))


LGB_CHANGES = {
    "start": ("tree\nversion", "wood\nversion", "start with the line"),
    "version": ("version=v4", "version=v9", "version 'v9'"),
    "no version": ("version=v4", "", "lacks the line version="),
    "outputs": ("num_tree_per_iteration=1", "num_tree_per_iteration=4", "one output, not 4"),
    "columns": ("max_feature_idx=3", "max_feature_idx=1", "feature_infos of 4"),
    "child": ("\nleft_child=", "\nleft_child=99 ", "numbers, not"),
    "text": ("\nthreshold=", "\nthreshold=a", "must hold numbers"),
    "nan": ("\nthreshold=", "\nthreshold=nan ", "numbers, not"),
    "leaves": ("\nleaf_value=", "\nleaf_value=1 ", "numbers, not"),
    "lacks": ("\nright_child=", "\nwrong_child=", "lacks the line right_child="),
    "count": ("\nnum_leaves=8", "\nnum_leaves=x", "whole number"),
    "sets": ("\nnum_cat=0", "\nnum_cat=1", "lacks the line cat_boundaries="),
}


@pytest.mark.parametrize("name", LGB_CHANGES)
def test_a_text_of_lightgbm_that_was_changed_is_refused(name):
    old, new, match = LGB_CHANGES[name]
    text = fitted(lgb.LGBMRegressor, **grown.LGB).booster_.model_to_string()
    assert old in text
    with pytest.raises(UnreadableModel, match=match):
        checked(lgb_reader.parse(text.replace(old, new)))


def change_line(text, name, change):
    """Return the text with the numbers of the first line of this name changed."""
    head, mark, rest = text.partition(f"\n{name}=")
    line, end, tail = rest.partition("\n")
    numbers = line.split()
    change(numbers)
    return head + mark + " ".join(numbers) + end + tail


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("left_child", "99", "outside of the nodes"),
        ("left_child", "-99", "outside of the nodes"),
        ("left_child", "0", "outside of the nodes"),
        ("split_feature", "4", "column outside of 0 to 3"),
        ("split_feature", "4294967296", "at most 32 bits"),
        ("split_feature", "4294967295", "column outside of 0 to 3"),
        ("threshold", "nan", "threshold is not a number"),
        ("leaf_value", "inf", "not finite"),
        ("decision_type", "1", "no set of categories"),
    ],
)
def test_a_tree_of_lightgbm_that_was_changed_is_refused(name, value, match):
    text = fitted(lgb.LGBMRegressor, **grown.LGB).booster_.model_to_string()
    if name == "decision_type":
        added = "\nnum_cat=1\ncat_boundaries=0\ncat_threshold=0"
        text = text.replace("\nnum_cat=0", added, 1)
    text = change_line(text, name, lambda numbers: numbers.__setitem__(0, value))
    with pytest.raises(UnreadableModel, match=match):
        checked(lgb_reader.parse(text))


SPLIT = ("oblivious_trees", 0, "splits", 0)
CAT_CHANGES = {
    "no bias": (at("scale_and_bias"), None, "lacks the entry scale_and_bias"),
    "bias": (at("scale_and_bias"), [1], "two entries"),
    "nan bias": (at("scale_and_bias"), [1, [float("nan")]], "base"),
    "loss": (at("model_info", "params", "loss_function", "type"), "Mine", "loss.*is Mine"),
    "no trees": (at("oblivious_trees"), None, "lacks the entry trees"),
    "leaves": (at("oblivious_trees", 0, "leaf_values"), [1.0], "1 numbers instead of 8"),
    "nan": (at("oblivious_trees", 0, "leaf_values", 0), float("nan"), "not finite"),
    "text": (at("oblivious_trees", 0, "leaf_values", 0), "x", "must be numbers"),
    "kind": (at(*SPLIT, "split_type"), "OnlineCtr", "unknown"),
    "index": (at(*SPLIT, "float_feature_index"), 77, "unknown"),
    "border": (at(*SPLIT, "border"), float("nan"), "threshold is not a number"),
    "no border": (at(*SPLIT, "border"), None, "lacks the entry border"),
    "column": (at("features_info", "float_features", 0, "flat_feature_index"), 9, "column outside"),
    "missing": (at("features_info", "float_features", 0, "nan_value_treatment"), "New", "New"),
}


@pytest.fixture(scope="module")
def catboost_dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("catboost") / "model.json"
    fitted(cb.CatBoostRegressor, **grown.CAT).save_model(str(path), format="json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", CAT_CHANGES)
def test_a_file_of_catboost_that_was_changed_is_refused(name, catboost_dump):
    put, value, match = CAT_CHANGES[name]
    dump = copy.deepcopy(catboost_dump)
    if name == "column":  # all columns, of which trees ask some
        for feature in dump["features_info"]["float_features"]:
            feature["flat_feature_index"] = 9
    put(dump, value)
    with pytest.raises(UnreadableModel, match=match):
        checked(cat_reader.parse(dump, ["a", "b", "c", "d"]))
