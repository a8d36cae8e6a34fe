"""Nodes of trees that a file may hold: what no tree can have is refused before it is used."""

import numpy as np
import parts
import pytest

from polyadic import maps
from polyadic.io.trees import _check_shape_of_trees, _check_splits
from polyadic.kernels.trees import BY_SET
from polyadic.networks.trees import category_map


def grown():
    """Return random trees over two numbers and a category."""
    rng = np.random.default_rng(0)
    steps = [maps.Step(4).fit(rng.normal(size=50)) for _ in range(2)]
    return parts.random_trees([*steps, category_map(5)], 3, 1, rng, depth=3)


def changed(name, where, value):
    """Return the nodes and maps of the trees, with one array changed."""
    trees = grown()
    array = getattr(trees.nodes, name).copy()
    at = np.flatnonzero(where(trees.nodes))
    assert len(at)
    array[at[0]] = value
    return trees.nodes._replace(**{name: array}), trees


def number(nodes):
    return (nodes.column >= 0) & (nodes.missing != BY_SET)


def category(nodes):
    return nodes.missing == BY_SET


def leaf(nodes):
    return nodes.column < 0


FAULTS = {
    "a set of numbers": ("missing", number, BY_SET, "asks numbers for a set"),
    "an interval of categories": ("missing", category, 0, "categories for an interval"),
    "a bin too far": ("place", number, 99, "bin that does not exist"),
    "no bin": ("place", number, 0, "bin that does not exist"),
    "a set too far": ("place", category, 99, "set that does not exist"),
    "a column too far": ("column", number, 7, "column that does not exist"),
    "a leaf of another column": ("column", leaf, -3, "a leaf of a tree has a column"),
    "a leaf with a child": ("left", leaf, 1, "a leaf of a tree has a column or a child"),
    "a way that does not exist": ("missing", number, 9, "does not exist"),
    "a share above one": ("share", number, 1.5, "share"),
    "a negative share": ("share", number, -0.5, "share"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_split_that_no_tree_can_have_is_refused(fault):
    name, where, value, match = FAULTS[fault]
    nodes, trees = changed(name, where, value)
    with pytest.raises(ValueError, match=match):
        _check_splits(nodes, trees.maps)


@pytest.mark.parametrize("value", [0, -1, 10**6])
def test_links_that_no_tree_can_have_are_refused(value):
    nodes, trees = changed("right", number, value)
    with pytest.raises(ValueError, match=r"child|parent"):
        _check_shape_of_trees(nodes, trees.roots)


def test_trees_as_they_are_pass():
    trees = grown()
    _check_shape_of_trees(trees.nodes, trees.roots)
    _check_splits(trees.nodes, trees.maps)
