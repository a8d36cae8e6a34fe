"""The progress bar: it names its phase, never goes back, and tells the loss and the time left."""

import io
import re
import sys

import numpy as np
import parts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyadic import CPRegressor
from polyadic.training import progress
from polyadic.training.plan import Work
from polyadic.training.progress import Progress
from polyadic.training.watch import Step, Watch


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    """Return the lines that were drawn over each other."""
    return [line.rstrip() for line in stream.getvalue().split("\r") if line.strip()]


def percents(lines):
    return [int(re.search(r"(\d+)%", line)[1]) for line in lines]


KEYS = [("a", "pilot"), ("a", "member"), ("b", "member")]
EVENTS = st.one_of(
    st.tuples(st.just("expect"), st.sampled_from(KEYS), st.integers(-3, 50)),
    st.tuples(st.just("begin"), st.sampled_from(KEYS), st.integers(0, 9)),
    st.tuples(st.just("epoch"), st.integers(0, 9), st.floats()),
    st.tuples(st.just("end"), st.integers(0, 9), st.none()),
)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.lists(EVENTS, max_size=60))
def test_the_share_never_falls_whatever_happens(expected, events):
    bar, running, before = Progress("Fit", stream=Terminal()), [], 0.0
    bar.start({key: Work(1, n, 1.0 + n) for key, n in zip(KEYS, expected)}, 99)
    for name, one, other in events:
        if name == "expect":
            bar.expect(one, other)
        elif name == "begin":
            running.append(Step(one, "some phase", other))
            bar.begin(running[-1])
        elif running and name == "epoch":
            bar.epoch(running[one % len(running)], other, True, None)
        elif running:
            bar.end(running.pop(one % len(running)), None)
        assert before <= bar.share < 1.0
        before = bar.share
    bar.close()
    assert bar.share == 1.0
    assert np.all(np.diff(percents(shown(bar.stream))) >= 0)


def test_work_of_one_kind_without_surprises_is_counted_evenly():
    bar, found = Progress("Kernels", 4, stream=Terminal()), []
    for done in range(1, 5):
        bar.reach(done)
        found.append(bar.share)
    np.testing.assert_allclose(found, np.arange(1, 5) / 5)


def test_epochs_that_take_longer_count_for_more(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    bar = Progress("Fit", stream=Terminal())
    fast, slow = KEYS[0], KEYS[2]
    bar.start({fast: Work(1, 10, 1.0), slow: Work(1, 10, 1.0)}, 2)
    for key, seconds in ((fast, 1.0), (slow, 9.0)):
        bar.begin(step := Step(key, "first", 1))
        now[0] += seconds
        bar.epoch(step, 1.0, True, None)
        bar.end(step, None)
    before = bar.share
    bar.begin(step := Step(fast, "second", 9))
    for _ in range(9):
        now[0] += 1.0
        bar.epoch(step, 1.0, True, None)
    assert bar.share - before < 0.12  # nine seconds of about ninety that are left
    assert "about 81 s left" in bar.line()


def test_the_lowest_loss_is_told_and_that_of_held_out_rows_if_there_are_some():
    bar, step = Progress("Fit", stream=Terminal()), Step(KEYS[0], "pilot 1 of 1", 9)
    bar.begin(step)
    assert "loss" not in bar.line()
    for loss in (0.5, 0.25, np.nan, np.inf, 0.75):
        bar.epoch(step, loss, False, None)
    assert "  loss 0.25  " in bar.line()
    bar.epoch(step, 0.3, True, None)
    assert "  held-out loss 0.3  " in bar.line()


def test_a_shorter_line_leaves_nothing_of_a_longer_one(monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    bar = Progress("Fit", stream=Terminal())
    for phase in ("a very long phase indeed", "trees"):
        bar.begin(Step(KEYS[0], phase, 1))
    first, second = (len(line) for line in bar.stream.getvalue().split("\r")[1:])
    assert second >= first


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 149, 150, 200])
def test_a_line_is_shorter_than_the_terminal_is_wide(monkeypatch, columns):
    monkeypatch.setattr(Progress, "_columns", lambda self: columns)
    bar = Progress("CPRegressor", stream=Terminal())
    bar.start({KEYS[0]: Work(5, 500)}, 5)
    bar.begin(step := Step(KEYS[0], "tensor prior: member on all rows 10 of 10", 500))
    for _ in range(100):
        bar.epoch(step, 1.2345e-5, True, None)
    line = bar.line()
    assert len(line) < columns
    assert ("CPRegressor [" in line) == (columns >= 150)
    assert ("tensor prior: " in line) == (columns >= 100)
    if columns >= 80:
        assert re.search("member on all rows 10 of 10  held-out( loss)? 1.234e-05  ", line)
        assert line.endswith(" s left")


def test_steps_are_counted_by_strategy_and_kind():
    watch, names = Watch(), []
    watch.start({("a", "pilot"): Work(2, 9), ("b", "pilot"): Work(1, 9)}, 9)
    watch.skip("b", "member", 1)
    watch.expect("b", "member", 3, 9)
    for part, kind in [*[("a", "pilot")] * 3, ("b", "member"), ("trees", "trees")]:
        with watch.step(part, kind, 1) as step:
            names.append(step.step.phase)
    assert names == [
        "a: pilot 1 of 2",
        "a: pilot 2 of 2",
        "a: pilot 3 of 3",
        "b: member 2 of 3",
        "trees",
    ]


# ---- real fits -----------------------------------------------------------------------------------


def table(n=300):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * X[:, 2]


@pytest.fixture(scope="module")
def drawn():
    """Return what a default fit with trees draws on a terminal, and the model."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch, parts.shared_trees():
        patch.setattr(progress, "_PAUSE", 0.0)
        patch.setattr(sys, "stderr", stream)
        model = CPRegressor(random_state=0, trees=True, verbose=1).fit(*table())
    return [line for line in shown(stream) if line.startswith("CPRegressor [")], model


def test_the_bar_of_a_fit_never_goes_back_and_ends_at_all(drawn):
    lines, _ = drawn
    found = percents(lines)
    assert np.all(np.diff(found) >= 0)
    assert found[0] == 0
    assert found[-1] == 100
    assert 100 not in found[:-1]
    assert len(set(found)) > 30  # it moves
    filled = [line.split("[")[1].split("]")[0].count("#") for line in lines]
    assert np.all(np.diff(filled) >= 0)


def test_the_bar_of_a_fit_names_its_phases(drawn):
    lines, model = drawn
    text = "\n".join(lines)
    either = "(?:factor penalties|tensor prior)"  # one of them may be left out after its pilots
    for phase in ("factor penalties: pilot", "tensor prior: pilot", f"{either}: member"):
        found = re.findall(rf"{phase} (\d+) of (\d+)", text)
        assert found
        assert all(1 <= int(k) <= int(n) for k, n in found)
    assert "  trees  " in text
    share = re.search(r"tensor prior (\d\.\d\d)", model.plan_["shares"])
    if share is None or float(share[1]) > 0.01:
        assert ("  tensor prior: member on all rows 1 of " in text) == (share is not None)


def test_the_bar_of_a_fit_tells_loss_and_time(drawn):
    lines, _ = drawn
    told = [float(found[1]) for line in lines if (found := re.search(r"held-out loss (\S+)", line))]
    assert np.all(np.diff(told) <= 0)
    assert re.search(r"\d s, about \d+ s left$", lines[len(lines) // 2])
    assert re.search(r"100%  held-out loss \S+  [\d.]+ s$", lines[-1])


def test_watching_changes_no_bit(drawn):
    _, model = drawn
    with parts.shared_trees():
        alone = CPRegressor(random_state=0, trees=True).fit(*table())
    X, _ = table()
    assert alone.raw(X).tobytes() == model.raw(X).tobytes()


def test_one_strategy_needs_no_name(capsys):
    X, y = table(60)
    CPRegressor(n_members=2, max_iter=2, rank=2, random_state=0, verbose=1).fit(X, y)
    written = capsys.readouterr().err
    assert written.count("\n") == 1  # not a terminal
    assert "100%" in written
