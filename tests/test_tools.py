"""The examples with other tools run: MLflow, Optuna, skops, and the wrapper for AutoGluon."""

import importlib.util
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest

import polyadic

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # of MLflow, about pickles and its own future
def test_a_model_goes_through_mlflow(tmp_path, capsys):
    # A constant has 0; this had 0.95.
    assert load("mlflow_model").main(tmp_path, n_rows=400, max_iter=20) > 0.5
    assert "R2 of the loaded model" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_optuna_prunes_trials_by_callbacks(capsys):
    study = load("optuna_pruning").main(n_trials=8, n_rows=150, max_iter=6)
    states = [trial.state for trial in study.trials]
    assert optuna.trial.TrialState.COMPLETE in states
    watched = hasattr(polyadic.CPRegressor(), "set_callbacks")
    assert (optuna.trial.TrialState.PRUNED in states) == watched
    assert any(trial.intermediate_values for trial in study.trials) == watched


def test_a_model_card_tells_what_was_learnt(tmp_path):
    text = load("model_card").main(tmp_path, n_rows=300).read_text()
    assert "# What it has learnt" in text
    assert "x0" in text
    assert polyadic.load(tmp_path / "model.safetensors").n_features_in_ == 3


def test_the_wrapper_of_autogluon_passes_its_limits_on(monkeypatch):
    wrapper, warmed = load("autogluon_model"), []
    monkeypatch.setattr(wrapper.polyadic, "warmup", lambda **given: warmed.append(given))
    settings = wrapper.settings_for({"n_members": 1, "max_iter": 2}, 100.0, 1, 0)
    assert settings == {
        "n_jobs": 1, "random_state": 0, "n_members": 1, "max_iter": 2, "max_time": 90.0
    }  # fmt: skip
    X = pd.DataFrame({"a": np.arange(60.0), "b": pd.Categorical(["u", "v"] * 30)})
    y = np.where(X["a"] > 30, "up", "down")
    model = wrapper.fit_estimator(X, y, "binary", settings, (X[:9], y[:9]))
    assert warmed == [{"n_jobs": 1, "verbose": False}]
    assert isinstance(model, polyadic.CPClassifier)
    assert model.predict(X).shape == (60,)
    with pytest.raises(ValueError, match="one model has one"):
        wrapper.fit_estimator(X, y, "quantile", settings)


def test_the_memory_that_autogluon_is_told_grows_with_rows_and_categories():
    wrapper = load("autogluon_model")
    small = pd.DataFrame({"a": np.arange(50.0), "b": ["u", "v"] * 25})
    long, wide = pd.concat([small] * 1000), small.assign(b=[f"k{i}" for i in range(50)])
    least, for_rows, for_categories = map(wrapper.memory_of, (small, long, wide))
    assert for_rows > least
    assert for_categories > least
    assert wrapper.memory_of(long, num_classes=10) > for_rows
