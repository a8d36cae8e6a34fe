"""The paper's experiments: kept cells, intervals of differences, and recovered coefficients."""

import json
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest

from experiments import __main__ as command
from experiments import code, coefficients, mnist, models, statistics
from experiments.cells import Cell, Found, Kept, Record, Scale, plain, run_cells
from experiments.published import POLYNOMIAL
from polyadic import CPRegressor
from polyadic.datasets import load_synthetic
from polyadic.inits import Gaussian
from polyadic.maps import Polynomial


def counting_cell(calls, seed=0, **settings):
    def work(seed, **given):
        calls.append((seed, given))
        return {"value": seed + sum(given.values())}

    return Cell("toy", "model", seed, work, settings)


def run(cells, kept, printed=None):
    return run_cells(cells, kept, lambda cell: 60.0, ([] if printed is None else printed).append)


# ---- cells --------------------------------------------------------------------------------------


def test_finished_cells_are_not_run_again(tmp_path):
    calls, kept = [], Kept(tmp_path)
    cells = [counting_cell(calls, seed, a=1) for seed in range(3)]
    first = run(cells[:2], kept)
    second = run(cells, kept)
    assert [seed for seed, _ in calls] == [0, 1, 2]
    assert [r.result for r in second[:2]] == [r.result for r in first]


def test_other_settings_are_another_cell(tmp_path):
    calls, kept = [], Kept(tmp_path)
    run([counting_cell(calls, a=1)], kept)
    run([counting_cell(calls, a=2)], kept)
    assert [given for _, given in calls] == [{"a": 1}, {"a": 2}]


def test_quick_and_full_cells_have_folders_of_their_own():
    assert Scale(quick=True).name != Scale().name


def test_an_interrupted_run_keeps_what_was_finished(tmp_path):
    def interrupt(seed):
        raise KeyboardInterrupt

    calls, kept = [], Kept(tmp_path)
    cells = [counting_cell(calls), Cell("toy", "model", 1, interrupt)]
    with pytest.raises(KeyboardInterrupt):
        run(cells, kept)
    assert kept.get(cells[0]) is not None
    assert kept.get(cells[1]) is None


def test_an_interrupted_write_leaves_no_partial_result(tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    calls, kept = [], Kept(tmp_path)
    cell = counting_cell(calls)
    monkeypatch.setattr("experiments.cells.os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        run([cell], kept)
    assert kept.get(cell) is None
    monkeypatch.undo()
    run([cell], kept)
    assert len(calls) == 2
    assert kept.get(cell)["value"] == 0


def test_the_expected_time_is_printed_first_and_counts_only_what_is_left(tmp_path):
    calls, kept, printed = [], Kept(tmp_path), []
    cells = [counting_cell(calls, seed) for seed in range(3)]
    run(cells[:1], kept)
    run(cells, kept, printed)
    assert "3 cells, 1 of them kept" in printed[0]
    assert "2 min" in printed[0]


def test_a_missing_package_is_reported_and_not_kept(tmp_path):
    def work(seed):
        raise ModuleNotFoundError("No module named 'forest'")

    kept, printed = Kept(tmp_path), []
    cell = Cell("toy", "forest", 0, work)
    found = run([cell], kept, printed)
    assert "skipped, No module named 'forest'" in printed[1]
    assert found.of("forest") == []
    assert "forest" in found.skipped("forest")
    assert kept.get(cell) is None


def test_numbers_that_are_not_finite_are_kept_as_null():
    found = plain({"a": np.array([1.0, np.nan]), "b": np.float32(np.inf), "c": np.int64(3)})
    assert json.loads(json.dumps(found, allow_nan=False)) == {"a": [1.0, None], "b": None, "c": 3}
    records = Found([Record("toy", "m", 0, {}, found)])
    assert records.values("b", "m") == [np.inf]


def test_a_quick_sweep_has_first_and_last_point():
    points = (2, 3, 5, 10, 150)
    assert Scale(quick=True).some(points, 3) == [2, 5, 150]
    assert Scale().some(points, 3) == list(points)


def test_a_result_of_other_code_is_run_again(tmp_path, monkeypatch):
    calls, kept = [], Kept(tmp_path)
    cell = Cell("toy", "model", 0, command.synthetic.linear_regression)
    monkeypatch.setattr(Cell, "run", lambda self: calls.append(self) or {"value": 1})
    now = {"code": ""}
    monkeypatch.setattr(Cell, "code", property(lambda self: now["code"]))
    for state, runs in (("a/x", 1), ("a/x", 1), ("b/x", 2), ("b/y", 3)):
        now["code"] = state
        run([cell], kept)
        assert len(calls) == runs
    now["code"] = "b/z"
    assert kept.get(cell) is None
    assert Kept(tmp_path, any_library=True).get(cell) is not None
    now["code"] = "c/y"
    assert Kept(tmp_path, any_library=True).get(cell) is None


def test_the_code_of_a_cell_follows_default_values(monkeypatch):
    before = code.fingerprint(command.movielens.cp)
    monkeypatch.setattr(command.movielens, "ALPHA", 1.0)  # a default of a function that it uses
    code.fingerprint.cache_clear()
    assert code.fingerprint(command.movielens.cp) != before
    code.fingerprint.cache_clear()


def test_the_code_is_read_before_the_first_fit(tmp_path):
    cells, seen = [counting_cell([], seed) for seed in range(2)], []
    read = property(lambda self: seen.append(self.seed) or "a/b")
    with (
        patch.object(Cell, "code", read),
        patch.object(Cell, "run", lambda self: {"seen": len(set(seen))}),
    ):
        found = run(cells, Kept(tmp_path))
    assert [r.result["seen"] for r in found] == [2, 2]


def test_the_code_of_a_cell_follows_constants_and_functions(monkeypatch):
    def digest():
        code.fingerprint.cache_clear()
        return code.fingerprint(command.synthetic.neural_network)

    before = digest()
    assert digest() == before
    monkeypatch.setattr(command.synthetic, "HIDDEN", (20, 20, 16))
    changed = digest()
    assert changed.split("/")[0] != before.split("/")[0]
    monkeypatch.undo()
    monkeypatch.setattr(command.models, "BATCH", 33)  # used by a function that the cell's uses
    assert digest() not in (before, changed)
    monkeypatch.undo()
    assert digest() == before
    code.fingerprint.cache_clear()


def test_only_the_added_model_that_is_named_counts():
    found = [code.fingerprint(command.synthetic.added, (name,)) for name in ("LightGBM", "XGBoost")]
    assert found[0] != found[1]


def test_comments_and_docstrings_do_not_count():
    first = 'def f(x):\n    """Say."""\n    return x  # why'
    second = "def f(x):\n    pass\n    return x"
    assert code._bare(first) == code._bare(second)
    assert code._bare(first) != code._bare(first.replace("return x", "return 2 * x"))


def test_every_model_has_one_fit_or_as_many_as_its_time_allows():
    for module in command.EXPERIMENTS.values():
        cells = module.cells(Scale())
        assert len({cell.key for cell in cells}) == len(cells)
        counts = Counter((cell.model, str(cell.settings)) for cell in cells)
        assert set(counts.values()) <= {1, 3, 5, 20, 50}


def test_quick_models_have_more_seeds():
    table = {"a/fast": 0.1, "a/slow": 2.0, "a/slowest": 30.0}
    with patch("experiments.cells.expected_table", lambda: table):
        fits = [len(Scale().fits("a", name)) for name in ("fast", "slow", "slowest", "unknown")]
        assert fits == [50, 20, 5, 5]
        assert len(Scale().fits("a", "slowest", at_least=9)) == 9
    assert len(Scale(seeds=2).fits("a", "fast")) == 2


def double(seed, value):
    return {"value": 2 * value + seed}


def test_cells_side_by_side_have_the_same_results_in_the_same_order(tmp_path):
    cells = [Cell("toy", "model", s, double, {"value": s}, alone=s == 3) for s in range(4)]
    found = run_cells(cells, Kept(tmp_path), lambda cell: 1.0, [].append, jobs=2)
    assert [r.result["value"] for r in found] == [0, 3, 6, 9]
    assert [r.seed for r in found] == [0, 1, 2, 3]


# ---- intervals ----------------------------------------------------------------------------------


def test_intervals_are_paired_and_tell_what_is_sure():
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 1, 30)  # seeds differ far more than models do
    first, second = seeds, seeds + 0.1 + 0.01 * rng.normal(size=30)
    assert statistics.smaller(first, second) is True
    assert statistics.smaller(second, first) is False
    assert statistics.smaller(first, rng.permutation(first)) is None
    found = statistics.paired_difference(first, second)
    assert found.low < found.mean < found.high < 0


def test_one_fit_is_compared_with_every_seed():
    assert statistics.smaller([1.0], [2.0, 2.1, 1.9]) is True
    assert statistics.smaller([2.0], [1.0, 3.0]) is None
    assert statistics.smaller([], [1.0]) is None
    assert statistics.smaller([1.0], []) is None
    assert statistics.smaller([1.0], [2.0]) is None  # nothing tells how much seeds differ


def test_few_seeds_are_rarely_sure_of_what_is_not_so():
    rng = np.random.default_rng(0)
    sure = [statistics.smaller(rng.normal(size=5), rng.normal(size=5)) for _ in range(400)]
    assert np.mean([v is not None for v in sure]) < 0.09  # 0.05 expected, 0.16 without stretching


def test_a_model_must_be_better_than_every_other():
    rng = np.random.default_rng(0)
    noisy = 1.24 + rng.normal(size=5)
    scores = {"own": [1.0] * 5, "close": [1.1] * 5, "noisy": noisy}
    assert statistics.lowest(scores, "own") == ("close", None)
    assert statistics.lowest({k: scores[k] for k in ("own", "close")}, "own") == ("close", True)


def test_more_seeds_of_one_model_are_used():
    rng = np.random.default_rng(0)
    found = statistics.paired_difference(rng.normal(size=50), [10.0, 10.1, 9.9])
    assert found.mean == pytest.approx(-10, abs=0.5)
    assert found.high < -8


def test_fits_that_diverged_are_larger():
    assert statistics.smaller([1.0, 1.0], [np.inf, np.inf]) is True
    assert statistics.smaller([np.inf, np.inf], [np.inf, np.inf]) is None


def test_a_model_that_diverged_has_an_infinite_error():
    X = np.linspace(-1, 1, 40).reshape(20, 2)
    model = CPRegressor(maps=Polynomial(6), rank=2, n_members=1, max_iter=2, random_state=0)
    model.fit(X, X[:, 0])
    found = models.predict_or_nan(model.predict, X * 1e50)  # beyond the range of numbers
    assert models.error(X[:, 0], found) == np.inf
    assert models.predict_or_nan(model.raw, X * 1e50, 1).shape == (20, 1)
    np.testing.assert_array_equal(models.predict_or_nan(model.predict, X), model.predict(X))
    with pytest.raises(ValueError, match="2 features"):  # any other error is told
        models.predict_or_nan(model.predict, X[:, :1])


def test_a_fit_of_pictures_that_diverged_is_measured(monkeypatch):
    """Far from one, products over 784 columns are beyond the range of numbers at the start."""
    monkeypatch.setattr(mnist, "N_TEST", 20)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 784)), np.arange(60) % 3
    found = mnist.fit(mnist.classifier("cp", 2, Gaussian(1e3), 1e-3, 1, 0), table, 40)
    assert not found["finite"]
    assert found["spread"] is None
    assert found["digits"] == "0" * 20


def test_nearly_the_same_is_decided_by_the_interval():
    close, far = [1.0, 1.01, 0.99], [1.2, 1.21, 1.19]
    assert statistics.same(close, [1.0], 0.05) is True
    assert statistics.same(far, [1.0], 0.05) is False
    assert statistics.same([0.8, 1.0, 1.2], [1.0], 0.05) is None
    assert statistics.same([1.0, 1.0], [np.inf, np.inf], 0.05) is None


# ---- coefficients -------------------------------------------------------------------------------


def evaluate(polynomial, X):
    return sum(c * np.prod(X ** np.array(powers), axis=1) for powers, c in polynomial.items())


def test_a_standardised_polynomial_has_the_same_values():
    rng = np.random.default_rng(1)
    X, mean, std = rng.uniform(0, 10, (30, 7)), rng.normal(size=7), rng.uniform(1, 3, 7)
    found = coefficients.standardise(POLYNOMIAL, mean, std, 3)
    np.testing.assert_allclose(
        evaluate(found, (X - mean) / std), evaluate(POLYNOMIAL, X), rtol=1e-10
    )


def test_the_split_in_original_units_has_the_tables_rows():
    X, y = load_synthetic(return_X_y=True)
    split = coefficients.data()
    parts = np.concatenate([split.X_train, split.X_val, split.X_test])
    order, wanted = np.argsort(parts[:, 0]), np.argsort(X[:, 0])
    np.testing.assert_allclose(parts[order], X[wanted], rtol=1e-9)
    targets = np.concatenate([split.y_train, split.y_val, split.y_test])
    np.testing.assert_allclose(targets[order], y[wanted], rtol=1e-9)


def test_the_published_polynomial_is_the_tables_target():
    X, y = load_synthetic(return_X_y=True)
    noise = y - evaluate(POLYNOMIAL, X)
    assert abs(noise.mean()) < 6
    assert 95 < noise.std() < 105


def test_a_models_polynomial_predicts_as_the_model_does():
    split = coefficients.data()
    model = coefficients.models.cp_regressor(0, d=3, rank=4, epochs=2)
    model.fit(split.X_train, split.y_train)
    X, wanted = split.X_test[:50], model.predict(split.X_test[:50])
    found = evaluate(coefficients.of_model(model), X)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
