"""scikit-learn's callbacks: told of every step, able to stop a fit, otherwise without effect."""

import importlib.util
import sys
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from polyadic import CPClassifier, CPRegressor
from polyadic.estimators import callbacks

callback = pytest.importorskip(
    "sklearn.callback", reason="needs scikit-learn 1.9; pip install 'scikit-learn>=1.9'"
)

SMALL = {"rank": 3, "n_members": 3, "max_iter": 4, "random_state": 0}


def table(n=120):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2]


class Recorder:
    """Write down what it is told; ask to stop, or fail, at the end of some tasks."""

    def __init__(self, stop=lambda context: False):
        self.stop, self.told = stop, []

    def setup(self, estimator, context):
        self.told.append(("setup", context))

    def teardown(self, estimator, context):
        self.told.append(("teardown", context))

    def on_fit_task_begin(self, estimator, context):
        self.told.append(("begin", context))

    def on_fit_task_end(self, estimator, context):
        self.told.append(("end", context))
        return self.stop(context)

    def contexts(self, event):
        return [context for name, context in self.told if name == event]


def is_epoch(context):
    return context.task_name == "epoch"


def is_step(context):
    return context.parent is not None and not is_epoch(context)


def fit(watcher, kind=CPRegressor, **options):
    X, y = table()
    model = kind(**{**SMALL, **options}).set_callbacks(watcher)
    return model.fit(X, y if kind is CPRegressor else y > 0)


@pytest.mark.parametrize("kind", [CPRegressor, CPClassifier])
def test_every_task_begins_and_ends_within_the_fit(kind):
    watcher = Recorder()
    fit(watcher, kind)
    names = [name for name, _ in watcher.told]
    assert (names[0], names[1], names[-2], names[-1]) == ("setup", "begin", "end", "teardown")
    begun, ended = (watcher.contexts(event) for event in ("begin", "end"))
    assert set(map(id, begun)) == set(map(id, ended))
    assert begun[0] is ended[-1]
    members = [c.task_name for c in begun if is_step(c)]
    assert "member 3 of 3" in members
    assert any(is_epoch(c) for c in begun)


@pytest.mark.parametrize("options", [{}, {"n_jobs": 1}, {"n_members": "auto", "max_iter": "auto"}])
def test_watching_changes_no_bit(options):
    X, y = table()
    watched = fit(Recorder(), **options)
    alone = CPRegressor(**{**SMALL, **options}).fit(X, y)
    assert watched.raw(X).tobytes() == alone.raw(X).tobytes()


def test_a_callback_ends_a_step_after_its_first_epoch():
    model = fit(Recorder(is_epoch), n_members=1)
    assert model.n_iter_ == 1
    assert fit(Recorder(), n_members=1).n_iter_ > 3


def test_a_callback_ends_the_fit_after_its_first_step():
    options = {"n_members": 5, "l2": 0.01, "smoothness": 0.01, "n_jobs": 1}
    stopped, watched = Recorder(is_step), Recorder()
    model = fit(stopped, **options)
    fit(watched, **options)
    assert len([c for c in stopped.contexts("begin") if is_step(c)]) == 1
    assert len([c for c in watched.contexts("begin") if is_step(c)]) == 5
    assert np.all(np.isfinite(model.predict(table()[0])))


class Pruned(Exception):
    pass


def test_a_callback_that_fails_ends_the_fit_and_leaves_the_model_as_it_was():
    def prune(context):
        raise Pruned

    watcher = Recorder(prune)
    X, y = table()
    model = CPRegressor(**SMALL).set_callbacks(watcher)
    with pytest.raises(Pruned):
        model.fit(X, y)
    assert not hasattr(model, "tensor_")
    assert watcher.told[-1][0] == "teardown"


def test_a_scoring_monitor_scores_members_epochs_and_the_fitted_model():
    monitor = callback.ScoringMonitor(scoring="r2")
    model = fit(monitor)
    rows = monitor.get_logs().data
    final = [row for row in rows if row["task_name"] == "fit"]
    assert [row["r2"] for row in final] == [model.score(*table())]
    kinds = {row["task_name"].split()[0] for row in rows}
    assert {"epoch", "member", "fit"} <= kinds
    assert all(np.isfinite(row["r2"]) for row in rows)


def test_the_progress_bar_of_scikit_learn_shows_a_fit(capsys):
    pytest.importorskip("rich", reason="needs rich; pip install 'polyadic[cli]'")
    fit(callback.ProgressBar())
    assert "CPRegressor - fit" in capsys.readouterr().out


def test_callbacks_of_a_search_reach_the_model():
    watcher = Recorder()
    watcher.max_propagation_depth = 1
    search = GridSearchCV(CPRegressor(**SMALL), {"rank": [2, 3]}, cv=2)
    search.set_callbacks(watcher).fit(*table())
    assert any(c.estimator_name == "CPRegressor" for c in watcher.contexts("begin"))


def test_without_callbacks_of_scikit_learn_everything_else_works():
    spec = importlib.util.spec_from_file_location("older", callbacks.__file__)
    older = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"sklearn.callback": None}):
        spec.loader.exec_module(older)
    assert older.with_callbacks(fit) is fit
    assert not hasattr(older.CallbackSupportMixin, "set_callbacks")
    assert not older.has_callbacks(CPRegressor())
