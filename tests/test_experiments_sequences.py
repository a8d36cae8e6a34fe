"""Columns with an order: the tables of the experiment, its cells, and what it says of results."""

import needs
import numpy as np
import pytest

from experiments import sequences
from experiments.cells import Found, Record, Scale
from polyadic import networks

needs.package("torch")


def test_the_automaton_is_a_train_of_as_many_ranks_as_states():
    """Each symbol is a matrix: with one-hot symbols, the last state is a train's contraction."""
    split = sequences.automaton(3, "in order")
    rng = np.random.default_rng(3)
    turns = np.array([sequences.rotation(rng) for _ in range(2)])
    np.testing.assert_allclose(turns @ turns.swapaxes(1, 2), [np.eye(3)] * 2, atol=1e-12)
    assert np.abs(turns[0] @ turns[1] - turns[1] @ turns[0]).max() > 1e-3
    form = networks.resolve("tt")([2] * sequences.N_SYMBOLS, sequences.N_STATES)
    parts = turns[(split.X_test > 0).astype(int)].reshape(len(split.X_test), -1, 9)
    first = np.eye(sequences.N_STATES)[0]
    exact = form.contract(parts, [first, first[:, None]])[:, 0]
    slope, start = np.polyfit(exact, split.y_test, 1)
    noise = np.std(split.y_test - start - slope * exact)
    assert noise == pytest.approx(sequences.NOISE, rel=0.1)


def test_a_permuted_table_has_the_same_rows():
    for table, n_columns in ((sequences.automaton, 16), (sequences.digits, 64)):
        whole, moved = table(0, "in order"), table(0, "permuted")
        places = sequences.places("permuted", n_columns, 0)
        assert sorted(places) == list(range(n_columns))
        np.testing.assert_array_equal(moved.X_test, whole.X_test[:, places])
        np.testing.assert_array_equal(moved.y_test, whole.y_test)


def test_neighbours_in_snake_order_are_neighbours_in_the_picture():
    places = sequences.places("snake", 64, 0)
    assert sorted(places) == list(range(64))
    row, column = np.divmod(places, 8)
    assert set(np.abs(np.diff(row)) + np.abs(np.diff(column))) == {1}


@pytest.mark.parametrize(
    ("ranks", "n_columns", "n_outputs"),
    [(sequences.AUTOMATON_RANKS, 16, 1), (sequences.DIGIT_RANKS, 64, 10)],
)
def test_formats_have_about_the_same_number_of_parameters(ranks, n_columns, n_outputs):
    sizes = [
        networks.resolve(name)([2] * n_columns, rank, n_outputs).n_parameters()
        for name, rank in ranks.items()
    ]
    assert max(sizes) < 1.1 * min(sizes)


def test_a_cell_returns_errors_of_the_rate_that_validation_rows_choose():
    cells = sequences.cells(Scale(quick=True, seeds=1, most_epochs=1))
    assert len({cell.key for cell in cells}) == len(cells)
    for table in ("automaton", "digits"):
        cell = next(c for c in cells if c.model == f"{table}, cp, permuted")
        found = cell.run()
        assert found["rate"] in (*sequences.AUTOMATON_RATES, *sequences.DIGIT_RATES)
        assert 0 < found["test"] < 2


def records(tt_error):
    """Return results of all cells: TT has this error, all others one of 0.5."""
    return Found(
        Record(cell.experiment, cell.model, cell.seed, cell.settings, result(cell, tt_error))
        for cell in sequences.cells(Scale())
    )


def result(cell, tt_error):
    own = tt_error if cell.settings["format"] == "tt" else 0.5
    return {"test": own + 0.01 * cell.seed, "parameters": 500, "seconds": 1.0}


@pytest.mark.parametrize(("tt_error", "holds"), [(0.1, True), (0.9, False), (0.5, None)])
def test_verdicts_follow_the_errors(tt_error, holds, tmp_path):
    section = sequences.section(records(tt_error), tmp_path)
    verdicts = [c.holds for c in section.claims if "more suitable for sequential" in c.text]
    assert verdicts == [holds, holds]
    order = [c.holds for c in section.claims if "does not depend on the order" in c.text]
    assert order == [True]
    assert [len(table.rows) for table in section.tables] == [5, 4]


def test_a_quick_run_has_a_section(tmp_path):
    scale = Scale(quick=True, seeds=1, most_epochs=1)
    found = Found(
        Record(cell.experiment, cell.model, cell.seed, cell.settings, result(cell, 0.1))
        for cell in sequences.cells(scale)
    )
    section = sequences.section(found, tmp_path)
    assert [row[0] for row in section.tables[0].rows] == ["TT", "CP"]
