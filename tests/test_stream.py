"""Fits of tables that are read in parts: the same answers as in memory, and what is refused."""

import os
import resource

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from streams import QUICK, TINY, make_rows, small_limits, write_rows

import polyadic
from polyadic import CPClassifier, CPRegressor, TNRegressor, explain
from polyadic.data.columns import Columns
from polyadic.data.rows import CodedRows
from polyadic.estimators import streamed
from polyadic.maps import Hat
from polyadic.objective.losses import SquaredError
from polyadic.objective.penalties import ridge
from polyadic.objective.problem import Problem, Rows
from polyadic.scale.memory import parse_memory
from polyadic.scale.store import RowStore
from polyadic.solvers.adam import Adam
from polyadic.solvers.blockwise import BlockLoop
from polyadic.solvers.inits import NearOne
from polyadic.training import members, streaming


@pytest.fixture
def small():
    with small_limits():
        yield


def features(table):
    return table.select(["a", "b", "kind"])


# ---- the parts -----------------------------------------------------------------------------------


def test_blocks_hold_every_row_once_at_random(tmp_path):
    rng = np.random.default_rng(0)
    columns, coded = Columns.learn(features(make_rows(900)))
    y, weight = rng.normal(size=(900, 2)), rng.uniform(1, 2, 900)
    block_of = rng.integers(0, 4, 900)
    with RowStore(columns.columns, 2, 4, [False, True, False], tmp_path) as store:
        for part in np.array_split(np.arange(900), 5):
            rows = CodedRows([c[part] for c in coded], y[part], weight[part])
            store.add(rows, block_of[part])
        read = list(store.blocks([2, 0, 3, 1]))
        folder = store.folder
        assert store.n_rows == 900
    for k, block in zip([2, 0, 3, 1], read):
        own = block_of == k
        for found, given in zip(block.columns, coded):
            np.testing.assert_array_equal(found, given[own])
        np.testing.assert_array_equal(block.y, y[own])
        np.testing.assert_array_equal(block.weight, weight[own])
    assert not folder.exists()


def test_blocks_of_a_living_process_are_not_taken_for_those_of_a_dead_one(tmp_path):
    (tmp_path / "polyadic-rows-empty").mkdir()
    (tmp_path / "polyadic-rows-dead").mkdir()
    (tmp_path / "polyadic-rows-dead" / "lock").touch()
    (tmp_path / "polyadic-rows-other").mkdir()
    (tmp_path / "polyadic-rows-other" / "notes.txt").touch()  # no lock: nobody can tell whose it is
    with RowStore([], 1, 1, [], tmp_path) as one, RowStore([], 1, 1, [], tmp_path) as other:
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {one.folder.name, other.folder.name, "polyadic-rows-other"}


@pytest.mark.parametrize("most", [300, 1000])
def test_partitions_and_filters_of_a_dataset_are_respected(tmp_path, most):
    rows = make_rows(1000).select(["kind", "a", "y"])
    keys = ds.partitioning(pa.schema([("kind", pa.string())]), flavor="hive")
    ds.write_dataset(rows, tmp_path, format="parquet", partitioning=keys, max_rows_per_group=90)
    dataset = ds.dataset(tmp_path, partitioning="hive")
    if most < 1000:
        dataset = dataset.filter(pa.compute.field("a") < rows["a"][most])
    source = polyadic.scale.open_source(dataset)
    assert source.n_rows == most
    read = pa.Table.from_batches(list(source.batches(64)))
    assert read.equals(dataset.to_table())


def test_one_block_is_trained_to_the_same_bits_as_in_memory():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(700, 3))
    rows = CodedRows(list(x.T), np.sin(6 * x[:, :1]) * x[:, 1:2], rng.uniform(1, 2, 700))
    held = CodedRows([c[:90] for c in rows.columns], rows.y[:90], rows.weight[:90])
    maps = [Hat(12).fit(c) for c in rows.columns]
    problem = Problem(
        Rows.encode(rows, maps),
        Rows.encode(held, maps),
        SquaredError(),
        np.zeros(1),
        [m.degrees for m in maps],
        effective_rows=700.0,
    ).penalised(ridge(maps, 1e-3))
    start = NearOne().start(problem, 8, [np.random.default_rng(k) for k in range(4)])
    solver = Adam(max_iter=6, batch_size=32)
    whole = solver.solve(problem, start.cores, start.free, np.random.default_rng(5))
    local = problem.local
    share = np.split(local.counts()[2:-2] / 700, np.cumsum(local.dims)[:-1])
    loop = BlockLoop(solver, problem, start.cores, start.free, -(-700 // 32), share, 6)
    order, rates = np.random.default_rng(5), solver.rates(6 * loop.n_batches)
    for part in np.split(rates, 6):
        loop.train_block(problem.rows, part, order)
        loop.measure(float(part[-1]))
    streamed = loop.solution()
    for a, b in zip(whole.cores.factors, streamed.cores.factors):
        np.testing.assert_array_equal(a, b)
    assert whole.history == streamed.history
    np.testing.assert_array_equal(whole.held_out, streamed.held_out)


def small_problem():
    """Return a problem of 300 rows, a start, and shares of the rows that use each element."""
    x = np.random.default_rng(1).uniform(size=(300, 2))
    rows = CodedRows(list(x.T), x[:, :1] * x[:, 1:], np.ones(300))
    maps = [Hat(8).fit(c) for c in rows.columns]
    own = Rows.encode(rows, maps)
    problem = Problem(own, own, SquaredError(), np.zeros(1), [m.degrees for m in maps])
    start = NearOne().start(problem, 8, [np.random.default_rng(k) for k in range(3)])
    return problem, start, [np.full(m.dim, 0.3) for m in maps]


def test_a_loss_that_rises_at_first_ends_no_run():
    """Patience counts checks of the loss, not passes over all rows, of which there may be one."""
    problem, start, share = small_problem()
    solver = Adam(max_iter=1, batch_size=32)
    loop = BlockLoop(solver, problem, start.cores, start.free, 10, share, 40)
    loop.best_loss, loop.latest = 0.010, 0.012
    for n_checks, stops in ((1, False), (9, False), (10, True)):
        loop.history["train_loss"] = [0.01] * n_checks
        assert loop.should_stop() == stops


def test_a_table_may_have_more_blocks_than_files_may_be_open(tmp_path):
    columns, coded = Columns.learn(features(make_rows(300)))
    rows = CodedRows(coded, np.zeros((300, 1)), np.ones(300))
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_blocks = len(os.listdir("/proc/self/fd")) + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_blocks - 20, usual[1]))
    try:
        with RowStore(columns.columns, 1, n_blocks, [False, True, False], tmp_path) as store:
            store.add(rows, np.arange(300) % n_blocks)
            assert sum(len(block) for block in store.blocks(range(n_blocks))) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def test_a_loop_goes_on_from_its_snapshot_to_the_same_bits(tmp_path):
    problem, start, share = small_problem()
    own, solver = problem.rows, Adam(max_iter=4, batch_size=32)

    def run(stops):
        loop = BlockLoop(solver, problem, start.cores, start.free, 10, share, 4)
        for epoch in range(4):
            if epoch in stops:
                kept = {name: array.copy() for name, array in loop.snapshot().items()}
                loop = BlockLoop(solver, problem, start.cores, start.free, 10, share, 4)
                loop.restore(kept)
            rates = solver.rates(40)[10 * epoch : 10 * epoch + 10]
            loop.train_block(own, rates, np.random.default_rng(epoch))
            if epoch != 1:
                loop.measure(float(rates[-1]))
        return loop.solution()

    one, other = run(()), run((1, 2, 3))
    for a, b in zip(one.cores.factors, other.cores.factors):
        np.testing.assert_array_equal(a, b)
    assert one.history == other.history


# ---- the fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "glob", "dataset", "function"])
def test_a_table_that_fits_is_fitted_as_in_memory(tmp_path, kind):
    folder = write_rows(tmp_path / "rows", ["y"])
    table = pa.concat_tables([b.to_table() for b in ds.dataset(folder).get_fragments()])
    source = {
        "folder": folder,
        "glob": str(folder / "*.parquet"),
        "dataset": ds.dataset(folder),
        "function": table.to_batches,
    }[kind]
    whole = CPRegressor(**QUICK).fit(features(table), table["y"].to_numpy())
    read = CPRegressor(**QUICK).fit(source, "y")
    np.testing.assert_array_equal(read.predict(features(table)), whole.predict(features(table)))
    assert read.target_names_ == ["y"]


@pytest.mark.usefixtures("small")
def test_a_streamed_fit_is_about_as_good_as_one_in_memory(tmp_path):
    # A wide margin, chosen by hand: it was not measured over seeds.
    folder = write_rows(tmp_path / "rows", ["y"], n_rows=4000)
    test = make_rows(2000, seed=9)
    how = {"n_members": 2, "random_state": 0}
    errors = []
    for memory in ("auto", TINY):
        model = CPRegressor(**how, memory=memory).fit(folder, "y")
        errors.append(np.mean((model.predict(features(test)) - test["y"].to_numpy()) ** 2))
    assert errors[1] < 2 * errors[0]
    assert int(model.plan_["passes over all rows"]) >= 1
    assert "tensor prior" in model.plan_["shares"]
    # The explanations, which average over the marginals of all rows, agree with the predictions.
    values = explain.shapley(model, features(test).slice(0, 50))
    raw = model.raw(features(test).slice(0, 50))[:, 0]
    total = np.asarray(values.values).reshape(50, -1).sum(axis=1) + np.ravel(values.base)[0]
    np.testing.assert_allclose(total, raw, atol=1e-4)
    path = tmp_path / "model.safetensors"
    model.save(path)
    np.testing.assert_array_equal(
        polyadic.load(path).predict(features(test)), model.predict(features(test))
    )
    page = tmp_path / "page.html"
    polyadic.report(model, features(test), test["y"].to_numpy(), page)
    assert page.stat().st_size > 0


@pytest.mark.usefixtures("small")
def test_threads_and_the_size_of_row_groups_change_no_bit(tmp_path):
    table = make_rows().select(["a", "b", "kind", "y"])
    found = []
    for n_jobs, rows in ((1, 10_000), (2, 170)):
        batches = table.to_batches(max_chunksize=rows)
        model = CPRegressor(memory=TINY, **{**QUICK, "n_members": 2}, n_jobs=n_jobs)
        found.append(model.fit(lambda batches=batches: batches, "y").predict(features(table)))
    np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("target", ["label", "two"])
def test_classes_and_their_weights_are_streamed(tmp_path, target):
    folder = write_rows(tmp_path / "rows", [target, "weight"])
    test = make_rows(500, seed=3)
    model = CPClassifier(memory=TINY, class_weight="balanced", **QUICK)
    model.fit(folder, target, sample_weight="weight")
    assert set(model.classes_) == set(test[target].to_pylist())
    assert model.score(features(test), test[target].to_numpy(zero_copy_only=False)) > 0.8


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"low": np.inf}, "gives the class 'low' the weight inf"),
        ({"low": 0, "middle": 0, "high": 0}, "is zero for every class that has rows"),
    ],
)
def test_wrong_weights_of_classes_are_refused_in_streams_too(given, text):
    rows = make_rows(1500).select(["a", "b", "kind", "label"])
    with pytest.raises(ValueError, match=text):
        CPClassifier(memory=TINY, class_weight=given, **QUICK).fit(rows.to_batches, "label")


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_class_of_weight_zero_is_streamed():
    rows = make_rows(1500).select(["a", "b", "kind", "label"])
    model = CPClassifier(memory=TINY, class_weight={"low": 0}, **QUICK)
    found = model.fit(rows.to_batches, "label").predict(features(rows))
    assert set(found) == {"middle", "high"}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("given", [{"low": 9, "middle": 2, "high": 4}, "balanced", None])
def test_rows_have_the_same_unit_of_weight_as_in_memory(monkeypatch, given):
    class Seen(Exception):
        pass

    def see(plan, rows, held_out, *rest):
        raise Seen(rows, rest[-1])

    monkeypatch.setattr("polyadic.estimators.base.train", see)
    table = make_rows().filter(pa.compute.field("weight") > 0)
    table = table.select(["a", "b", "kind", "weight", "label"])
    label, weight = (table[name].to_numpy(zero_copy_only=False) for name in ("label", "weight"))
    with pytest.raises(Seen) as memory:
        CPClassifier(class_weight=given).fit(features(table), label, sample_weight=weight)
    model = CPClassifier(class_weight=given, memory=TINY)
    with pytest.raises(Seen) as stream:
        model.fit(table.to_batches, "label", sample_weight="weight")
    whole, parts = memory.value.args[0], stream.value.args[1].keywords["rows"]
    np.testing.assert_allclose(parts.effective_rows, whole.effective_rows())
    np.testing.assert_allclose(parts.mean_weight, whole.weight.mean())


@pytest.mark.usefixtures("small")
def test_losses_several_targets_and_held_out_rows_are_streamed(tmp_path):
    folder = write_rows(tmp_path / "rows", ["y", "z"])
    test = make_rows(500, seed=3)
    both = CPRegressor(memory=TINY, **QUICK).fit(folder, ["y", "z"])
    assert both.predict(features(test)).shape == (500, 2)
    assert both.score(features(test), np.column_stack([test["y"], test["z"]])) > 0.8
    write_rows(tmp_path / "more", ["y", "z"], seed=4)
    high = CPRegressor(loss="quantile", quantile=0.9, memory=TINY, **QUICK)
    source = ds.dataset(folder)
    high.fit(lambda: source.to_batches(columns=["a", "b", "kind", "y"]), "y")
    share = np.mean(high.predict(features(test)) > test["y"].to_numpy())
    assert 0.75 < share < 1.0
    # Held-out rows from other files: none of the table's own are held out.
    chosen = CPRegressor(memory=TINY, **QUICK).fit(
        lambda: source.to_batches(columns=["a", "b", "kind", "y"]),
        "y",
        X_val=write_rows(tmp_path / "held", ["y"], n_rows=300, seed=5),
    )
    assert chosen.plan_["n_folds"] == "0"


def scaled_rows(name, factor):
    """Return a table of which one column was multiplied by a number."""
    table = make_rows(1500).select(["a", "b", "kind", "weight", "y"])
    values = pa.array(np.asarray(table[name]) * factor)
    return table.set_column(table.column_names.index(name), name, values)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("factor", [2.0**990, 2.0**-700])
def test_huge_and_tiny_targets_are_streamed(factor):
    model = CPRegressor(memory=TINY, **QUICK).fit(scaled_rows("y", factor).to_batches, "y")
    test = make_rows(500, seed=3)
    found = model.predict(test.select(["a", "b", "kind", "weight"])) / factor
    assert np.corrcoef(found, test["y"])[0, 1] > 0.9


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("factor", [1e-310, 5e-324])
def test_targets_that_vary_too_little_are_refused_in_streams_too(factor):
    with pytest.raises(ValueError, match=r"y varies by about .* only"):
        CPRegressor(memory=TINY, **QUICK).fit(scaled_rows("y", factor).to_batches, "y")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("model", [CPRegressor, CPClassifier])
@pytest.mark.parametrize("factor", [1e300, 5e-324])
def test_weights_too_large_or_too_small_for_a_stream_are_refused(factor, model):
    rows = scaled_rows("weight", factor)
    rows = rows.append_column("two", pa.array(np.asarray(rows["y"]) > 0))
    target = "y" if model is CPRegressor else "two"
    with pytest.raises(ValueError, match=r"must be zero or from 1e-30 to 1e\+30; one is"):
        model(memory=TINY, **QUICK).fit(rows.to_batches, target, "weight")


@pytest.mark.usefixtures("small")
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("small", "large"), [(1e-30, 1.0), (1.0, 1e30), (1e-30, 1e-30)])
def test_weights_near_the_limits_are_streamed(small, large):
    rows = make_rows(1500).select(["a", "b", "kind", "y"])
    light = np.arange(1500) % 3 == 0
    known = np.where(light, np.asarray(rows["a"]), np.nan)  # a column of small weights only
    table = rows.append_column("c", pa.array(known))
    table = table.append_column("weight", pa.array(np.where(light, small, large)))
    model = CPRegressor(memory=TINY, **QUICK).fit(table.to_batches, "y", "weight")
    assert model.score(table.select(list(model.feature_names_in_)), np.asarray(rows["y"])) > 0.5


@pytest.mark.usefixtures("small")
def test_rows_of_weight_zero_are_left_out(tmp_path):
    table = make_rows().select(["a", "b", "kind", "weight", "y"])
    kept = table.filter(pa.compute.field("weight") > 0)
    models = [
        CPRegressor(memory=TINY, **QUICK).fit(part.to_batches, "y", sample_weight="weight")
        for part in (table, kept)
    ]
    assert models[0].marginals_[0].weight == models[1].marginals_[0].weight
    assert models[0].marginals_[0].weight < table["weight"].to_numpy().sum()  # held-out rows


@pytest.mark.usefixtures("small")
def test_least_squares_is_left_out_where_it_would_take_too_much_memory(tmp_path, monkeypatch):
    folder = write_rows(tmp_path / "rows", ["y"])
    how = {"memory": TINY, "n_members": 2, "random_state": 0, "max_time": 2}
    usual = CPRegressor(**how).fit(folder, "y")
    monkeypatch.setattr("polyadic.training.resolve_cp._LEAST_MEMORY", 0.0)
    bounded = CPRegressor(**how).fit(folder, "y")
    assert "tensor prior" in usual.plan_["strategy"]
    assert (bounded.plan_["solver"], bounded.plan_["strategy"]) == ("adam", "factor penalties")


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"solver": "als"}, "solver='als' cannot be used for a table larger than memory"),
        ({"engine": "torch", "solver": "adam"}, "engine='torch' cannot be used"),
        ({"warm_start": True}, "warm_start=True cannot be used"),
        ({"memory": "many"}, "memory must be 'auto', a number of bytes"),
        ({"checkpoint": 3}, "checkpoint must be the path of a folder"),
    ],
)
def test_what_cannot_be_streamed_is_refused_by_name(tmp_path, how, text):
    folder = write_rows(tmp_path / "rows", ["y"])
    model = CPRegressor(**{"memory": TINY, **QUICK, **how})
    with pytest.raises(ValueError, match=text):
        model.fit(folder, "y")
    assert not hasattr(model, "tensor_")


def test_wrong_names_and_types_are_refused(tmp_path):
    folder = write_rows(tmp_path / "rows", ["y", "label"])
    with pytest.raises(ValueError, match="has no column 'price'"):
        CPRegressor().fit(folder, "price")
    with pytest.raises(TypeError, match="y is the name of the target's column"):
        CPRegressor().fit(folder, np.zeros(3000))
    with pytest.raises(TypeError, match="sample_weight is the name of a column"):
        CPRegressor().fit(folder, "y", sample_weight=np.ones(3000))
    with pytest.raises(FileNotFoundError, match="no file"):
        CPRegressor().fit(tmp_path / "nothing.parquet", "y")
    with small_limits(), pytest.raises(ValueError, match="y holds text"):
        CPRegressor(memory=TINY).fit(folder, "label")
    with pytest.raises(ValueError, match="checkpoint needs random_state"):
        CPRegressor(checkpoint=tmp_path / "kept", n_members=1, max_iter=1).fit(folder, "y")


def test_no_file_is_left_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    rows = make_rows().select(["a", "b", "kind", "y"])
    calls = []

    def batches():
        calls.append(0)
        for k, batch in enumerate(rows.to_batches(max_chunksize=500)):
            if len(calls) > 3 and k == 4:
                raise OSError("the disk is gone")
            yield batch

    with small_limits(), pytest.raises(OSError, match="the disk is gone"):
        CPRegressor(memory=TINY, **QUICK).fit(batches, "y")
    assert list(tmp_path.iterdir()) == []


def test_other_formats_say_that_they_need_a_table(tmp_path):
    folder = write_rows(tmp_path / "rows", ["y"])
    with pytest.raises((TypeError, ValueError)):
        TNRegressor("tt").fit(str(folder), "y")


@pytest.mark.parametrize(
    "given", [0, -1, "2 parsecs", "GB", None, True, float("inf"), 10**400, "1.2.3MB"]
)
def test_memory_that_is_no_number_of_bytes_is_refused(given):
    with pytest.raises(ValueError, match="memory must be"):
        parse_memory(given, 1e9)


def test_only_the_columns_that_are_asked_for_are_read(tmp_path):
    folder = write_rows(tmp_path / "rows", ["y", "z"])
    some = polyadic.scale.open_source(folder, columns=["b", "a", "y"])
    model = CPRegressor(**QUICK).fit(some, "y")
    assert model.feature_names_in_.tolist() == ["b", "a"]
    with pytest.raises(ValueError, match="has no column 'c'"):
        polyadic.scale.open_source(folder, columns=["c"])


def test_a_sample_of_few_distinct_rows_leaves_out_no_strategy(monkeypatch):
    """Members go on over all rows, of which a sample of few distinct rows says little."""
    given = []

    def go_on(training, *args, **kwargs):
        given.append((len(training.members), len(training.fits.problems)))
        return streaming.go_on(training, *args, **kwargs)

    monkeypatch.setattr(members, "comparable", lambda strategies: True)
    monkeypatch.setattr(members, "worth_training", lambda strategies, beside: [])
    monkeypatch.setattr(streamed, "go_on", go_on)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 10, 5000), rng.integers(0, 8, 5000)
    table = pa.table({"a": a, "b": b, "y": np.round(a % 3 + b / 2 + rng.normal(size=5000))})
    model = CPRegressor(memory=TINY, n_members=2, random_state=0)
    model.fit(lambda: table.to_batches(max_chunksize=1000), "y")
    assert given == [(2, 0)]  # and no problem of the sample takes memory any more
