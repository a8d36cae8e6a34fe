"""Fits by several workers, here threads: the model of one machine, for any number of workers."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import exchanges
import numpy as np
import pyarrow as pa
import pytest
from streams import QUICK, TINY, make_rows, small_limits

from polyadic import CPClassifier, CPRegressor, TNRegressor
from polyadic.scale.sources import Source


class Threads:
    """A cluster of threads, which reads a table in parts of these lengths."""

    def __init__(self, table, storage, n_workers=2, lengths=(700, 0, 1300)):
        self.table, self.storage, self.n_workers = table, storage, n_workers
        cuts = np.minimum(np.cumsum([0, *lengths, len(table)]), len(table))
        self.parts = [table.slice(a, b - a) for a, b in pairwise(cuts)]
        self.places = cuts[:-1].tolist()
        types = {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types)}
        self.source = Source(lambda *_: (), table.column_names, None, "The table", types)

    def map_tables(self, work):
        for number, (part, first) in enumerate(zip(self.parts, self.places)):
            yield work(part, number, first)

    def map(self, work, tasks):
        with ThreadPoolExecutor(self.n_workers) as pool:
            return list(pool.map(work, tasks))

    def train(self, work):
        exchanges.together(work, self.n_workers)


@pytest.fixture(autouse=True)
def small():
    with small_limits():
        yield


def rows_of(*columns, n=3000):
    return make_rows(n).select(["a", "b", "kind", *columns])


def fit_by_threads(model, table, y, folder, how="rows", weight=None, **cluster):
    return model._fit_on(Threads(table, folder, **cluster), y, weight, how)


CASES = {
    "numbers": (lambda: CPRegressor(memory=TINY, **QUICK), "y", None),
    "weights": (lambda: CPRegressor(memory=TINY, **QUICK), "y", "weight"),
    "two targets": (lambda: CPRegressor(memory=TINY, **QUICK), ["y", "z"], None),
    "classes": (lambda: CPClassifier(memory=TINY, **QUICK), "label", None),
    "class weights": (
        lambda: CPClassifier(memory=TINY, class_weight="balanced", **QUICK),
        "two",
        None,
    ),
}


def names(y, weight):
    return [*([y] if isinstance(y, str) else y), *([] if weight is None else [weight])]


def raw(model, table):
    return model.raw(table.select(["a", "b", "kind"]))


@pytest.mark.parametrize("case", CASES)
def test_workers_find_the_model_of_one_machine(case, tmp_path):
    make, y, weight = CASES[case]
    table = rows_of(*names(y, weight))
    alone = make().fit(table.to_batches, y, weight)
    both = fit_by_threads(make(), table, y, tmp_path, weight=weight)
    # Gradients are added in another order.
    scale = np.std(raw(alone, table))
    np.testing.assert_allclose(raw(both, table), raw(alone, table), atol=2e-3 * scale)
    a, b = (model.feature_importances_ for model in (alone, both))
    np.testing.assert_allclose(a, b, atol=2e-3)
    assert {"statistics", "blocks", "members on all rows"} <= both.plan_.seconds.keys()
    assert both.checkpoint is None
    assert not any((tmp_path / name).exists() for name in ("rows",))
    assert not list((tmp_path / "checkpoint").iterdir())


@pytest.mark.parametrize("how", ["members", "shards"])
def test_members_are_spread_over_workers(how, tmp_path):
    table = rows_of("y")
    settings = {**QUICK, "n_members": 3}
    make = lambda: CPRegressor(memory=TINY, **settings)  # noqa: E731
    found = fit_by_threads(make(), table, "y", tmp_path, how, lengths=[3000])
    alone = make().fit(table.to_batches, "y")
    y = table["y"].to_numpy()
    if how == "members":  # the same work, in other processes
        np.testing.assert_array_equal(raw(found, table), raw(alone, table))
    error = [np.mean((raw(m, table)[:, 0] - y) ** 2) for m in (found, alone)]
    assert max(error) < 0.1 * y.var()  # a member of a shard sees a third of the rows


def test_members_share_a_shard_where_there_are_fewer_blocks(tmp_path):
    table = rows_of("y", n=600)
    model = CPRegressor(memory="1GB", **{**QUICK, "n_members": 3})
    found = fit_by_threads(model, table, "y", tmp_path, "shards", lengths=[600])
    y = table["y"].to_numpy()
    assert np.mean((raw(found, table)[:, 0] - y) ** 2) < 0.2 * y.var()


def test_the_number_of_workers_and_of_parts_has_no_effect(tmp_path):
    table = rows_of("y")
    make = lambda: CPRegressor(memory=TINY, **QUICK)  # noqa: E731
    one = fit_by_threads(make(), table, "y", tmp_path / "1", n_workers=1, lengths=[3000])
    three = fit_by_threads(make(), table, "y", tmp_path / "3", n_workers=3, lengths=[1, 2, 800])
    np.testing.assert_allclose(raw(one, table), raw(three, table), atol=2e-3)


def test_what_cannot_be_done_is_refused_by_name(tmp_path):
    table = rows_of("y")
    for settings, message in (
        ({"max_time": 5.0}, "max_time cannot be used"),
        ({"random_state": None}, "random_state to be a whole number"),
        ({"solver": "als"}, "solver='als' cannot be used"),
    ):
        model = CPRegressor(**{**QUICK, "memory": TINY, **settings})
        with pytest.raises(ValueError, match=message):
            fit_by_threads(model, table, "y", tmp_path)
        assert not hasattr(model, "tensor_")
    with pytest.raises(ValueError, match="how must be one of 'rows', 'members', 'shards'"):
        fit_by_threads(CPRegressor(**QUICK), table, "y", tmp_path, "other")
    with pytest.raises(ValueError, match="no column 'price'"):
        fit_by_threads(CPRegressor(**QUICK), table, "price", tmp_path)
    none = table.append_column("w", pa.array(np.zeros(len(table))))
    with pytest.raises(ValueError, match="no rows of a weight above zero"):
        fit_by_threads(CPRegressor(**QUICK), none, "y", tmp_path, weight="w")
    assert not hasattr(TNRegressor(), "_fit_on")


def test_training_that_stops_goes_on(tmp_path):
    """A cluster that fails after some blocks, as if it were killed; the same call goes on."""
    table = rows_of("y")
    make = lambda: CPRegressor(memory=TINY, **QUICK)  # noqa: E731
    undisturbed = fit_by_threads(make(), table, "y", tmp_path / "a")

    class Failing(Threads):
        def train(self, work):
            exchanges.together(work, self.n_workers, fails_after=40)

    with pytest.raises(exchanges.Failed):
        make()._fit_on(Failing(table, tmp_path / "b"), "y", None, "rows")
    kept = list((tmp_path / "b" / "checkpoint").rglob("*.npz"))
    assert kept
    again = fit_by_threads(make(), table, "y", tmp_path / "b")
    np.testing.assert_array_equal(raw(again, table), raw(undisturbed, table))
