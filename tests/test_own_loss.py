"""A loss written by a user: it works like polyadic's own losses, or is refused by name."""

import pickle
from dataclasses import dataclass

import needs
import numpy as np
import parts
import pytest
from sklearn.base import clone

import polyadic
from polyadic import CPClassifier, CPRegressor, explain, losses, maps

FAST = {"rank": 4, "max_iter": 5, "n_members": 2, "random_state": 0}


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=n)


@dataclass(frozen=True)
class Squares(losses.Loss):
    """The squared error, written as a user would."""

    location_scale = True
    exact_curvature = True

    @staticmethod
    def value_and_slope(y, raw):
        """Return the loss of one number and its slope."""
        return (raw - y) ** 2, 2.0 * (raw - y)

    @staticmethod
    def curvature(y, raw):
        """Return the second derivative."""
        return 2.0


@dataclass(frozen=True)
class LogCosh(losses.Loss):
    """A loss without a curvature and without a torch form."""

    location_scale = True

    @staticmethod
    def value_and_slope(y, raw):
        """Return log cosh of the error, without overflow."""
        size = abs(raw - y)
        return size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0), np.tanh(raw - y)


@dataclass(frozen=True)
class TorchSquares(losses.Loss):
    """A loss that is written in torch alone."""

    location_scale = True

    def torch_losses(self, y, raw):
        """Return squares."""
        return ((raw - y) ** 2).sum(1)


@dataclass(frozen=True)
class Focal(losses.Loss):
    """A loss for two classes: the logistic one, with less weight on rows predicted well."""

    targets = ("two classes",)
    link_name = "logit"

    @staticmethod
    def value_and_slope(y, raw):
        """Return (1 - p)^2 (-log p) for the probability p of the class that y is."""
        sign = 2.0 * y - 1.0
        small = np.exp(-abs(raw))
        log_p = -np.log1p(small) + min(sign * raw, 0.0)
        p = np.exp(log_p)
        return -((1 - p) ** 2) * log_p, sign * (1 - p) ** 2 * (2 * p * log_p - (1 - p))


# ---- like polyadic's own losses ------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["adam", "als", "als+adam"])
@pytest.mark.parametrize("family", ["hat", maps.Polynomial(3)], ids=["hat", "polynomial"])
def test_the_squared_error_written_by_a_user_gives_the_same_model(solver, family):
    X, y = table()
    # Two epochs: both take the same steps, and rounding errors stay small. Over 4 seeds the
    # predictions had the same bits.
    few = {**FAST, "n_members": 1, "max_iter": 2, "early_stopping": False}
    ours = CPRegressor(maps=family, solver=solver, **few).fit(X, y).predict(X)
    theirs = CPRegressor(maps=family, solver=solver, loss=Squares(), **few).fit(X, y).predict(X)
    np.testing.assert_allclose(theirs, ours, atol=1e-3 * np.std(ours))


def test_one_member_on_several_threads_trains_with_an_own_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 60))
    y = X[:, 0] + X[:, 1] * X[:, 2]
    few = {**FAST, "n_members": 1, "batch_size": 128, "solver": "adam", "max_iter": 2}
    ours = CPRegressor(**few).fit(X, y).predict(X)
    theirs = CPRegressor(loss=Squares(), **few).fit(X, y).predict(X)
    np.testing.assert_allclose(theirs, ours, atol=2e-3 * np.std(ours))


def test_kernels_are_not_compiled_again_for_another_own_loss():
    from polyadic.kernels import adam
    from polyadic.kernels import losses as kernel

    X, y = table()
    CPRegressor(loss=Squares(), **FAST).fit(X, y)
    before = len(adam.train_epoch.signatures), len(kernel.weighted_losses.signatures)
    CPRegressor(loss=parts.Expectile(0.3), **FAST).fit(X, y)
    CPRegressor(loss=LogCosh(), **FAST).fit(X, y)
    assert (len(adam.train_epoch.signatures), len(kernel.weighted_losses.signatures)) == before


def test_parameters_of_an_own_loss_take_effect():
    X, y = table(400)
    y = y + np.random.default_rng(1).gumbel(size=400)
    low, high = (
        CPRegressor(loss=parts.Expectile(level), **FAST).fit(X, y).predict(X).mean()
        for level in (0.1, 0.9)
    )
    assert high - low > y.std()


# ---- what estimators do with it ------------------------------------------------------------------


def test_a_model_with_an_own_loss_is_cloned_pickled_and_continued():
    X, y = table()
    model = CPRegressor(loss=LogCosh(), **FAST).fit(X, y, sample_weight=np.ones(len(y)))
    assert "validation_loss" in model.history_[0]
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    before = model.predict(X)
    model.partial_fit(X, y).partial_fit(X, y)
    assert not np.array_equal(model.predict(X), before)
    fresh = CPRegressor(loss=LogCosh(), rank=4, random_state=0).partial_fit(X, y)
    assert np.all(np.isfinite(fresh.predict(X)))


def test_a_weight_of_two_is_the_row_twice():
    X, y = table(60)
    weight = np.ones(60)
    weight[:10] = 2.0
    twice = np.concatenate([np.arange(60), np.arange(10)])
    a = CPRegressor(loss=LogCosh(), **FAST).fit(X, y, sample_weight=weight)
    b = CPRegressor(loss=LogCosh(), **FAST).fit(X[twice], y[twice])
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def test_a_model_with_an_own_loss_is_explained():
    X, y = table()
    model = CPRegressor(loss=LogCosh(), **FAST).fit(X, y)
    values = explain.shapley(model, X[:5])
    total = values.values.sum(axis=1) + values.base
    np.testing.assert_allclose(total.ravel(), model.raw(X[:5]).ravel(), atol=1e-5)
    assert "prediction" in str(explain.in_words(model))


def test_an_own_loss_of_two_classes_gives_probabilities():
    X, y = table(300)
    model = CPClassifier(loss=Focal(), **{**FAST, "max_iter": 20}).fit(X, y > 0)
    assert model.score(X, y > 0) > 0.85
    share = model.predict_proba(X)
    assert np.all((share > 0) & (share < 1))
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    with pytest.raises(ValueError, match=r"Focal\(\) is for two classes, but y holds classes"):
        CPClassifier(loss=Focal(), **FAST).fit(X, np.digitize(y, [-0.5, 0.5]))
    with pytest.raises(ValueError, match=r"Focal\(\) is for two classes, but y holds numbers"):
        CPRegressor(loss=Focal(), **FAST).fit(X, y)


def test_a_file_stores_an_own_loss_by_the_name_of_its_class(tmp_path):
    X, y = table()
    model = CPRegressor(loss=parts.Expectile(0.8), **FAST).fit(X, y)
    path = tmp_path / "model.polyadic"
    model.save(path)
    again = polyadic.load(path, losses=[parts.Expectile])
    assert again.loss == model.loss
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
    with pytest.raises(polyadic.ModelFileError, match=r"load\(path, losses=\[Expectile\]\)"):
        polyadic.load(path)
    with pytest.raises(TypeError, match="losses must hold subclasses of Loss"):
        polyadic.load(path, losses=[parts.Expectile()])


def test_the_torch_engine_uses_the_torch_form():
    needs.package("torch")
    from polyadic import TNRegressor

    X, y = table()
    few = {**FAST, "engine": "torch", "solver": "adam", "n_members": 1}
    theirs = CPRegressor(loss=TorchSquares(), **few).fit(X, y).predict(X)
    ours = CPRegressor(**few).set_params(batch_size="auto").fit(X, y).predict(X)
    assert np.corrcoef(theirs, ours)[0, 1] > 0.9
    network = TNRegressor(loss=parts.Expectile(0.6), rank=2, max_iter=2, random_state=0)
    assert np.all(np.isfinite(network.fit(X, y).predict(X)))


# ---- refusals ------------------------------------------------------------------------------------


def test_auto_takes_adam_and_least_squares_require_a_curvature():
    X, y = table()
    model = CPRegressor(loss=LogCosh(), **FAST).fit(X, y)
    assert model.plan_["solver"] == "adam"
    for solver in ("als", "als+adam", "adam+als"):
        with pytest.raises(
            ValueError, match=r"cannot train LogCosh\(\): the loss lacks `curvature`"
        ):
            CPRegressor(loss=LogCosh(), solver=solver, **FAST).fit(X, y)


def test_an_engine_refuses_a_loss_without_its_form():
    needs.package("torch")
    X, y = table()
    with pytest.raises(ValueError, match=r"engine='torch' cannot train LogCosh\(\): .* `torch_los"):
        CPRegressor(loss=LogCosh(), engine="torch", solver="adam", **FAST).fit(X, y)
    message = r"engine='fused' cannot train TorchSquares\(\): .* Use engine='torch'"
    with pytest.raises(ValueError, match=message):
        CPRegressor(loss=TorchSquares(), **FAST).fit(X, y)


def test_a_loss_with_an_unknown_code_has_no_form():
    @dataclass(frozen=True)
    class Unknown(losses.Loss):
        code = 99

    X, y = table()
    for form in ("compiled", "curvature", "torch"):
        assert not Unknown().has(form)
    with pytest.raises(ValueError, match=r"Unknown\(\): the loss lacks .* no form at all"):
        CPRegressor(loss=Unknown(), **FAST).fit(X, y)


def test_overriding_the_form_of_a_compiled_loss_is_refused():
    with pytest.raises(TypeError, match=r"inherits the compiled loss of Huber. Subclass Loss"):

        @dataclass(frozen=True)
        class Odd(losses.Huber):
            @staticmethod
            def value_and_slope(y, raw, width):
                return 0.0, 0.0


def test_a_loss_that_numba_cannot_compile_is_refused():
    @dataclass(frozen=True)
    class Odd(losses.Loss):
        @staticmethod
        def value_and_slope(y, raw):
            return no_such_name(y), 0.0  # noqa: F821

    @dataclass(frozen=True)
    class Method(losses.Loss):
        def value_and_slope(self, y, raw):
            return 0.0, 0.0

    @dataclass(frozen=True)
    class Single(losses.Loss):
        @staticmethod
        def value_and_slope(y, raw):
            return (raw - y) ** 2

    X, y = table()
    with pytest.raises(TypeError, match=r"^Single.value_and_slope must return \(value, slope\)"):
        CPRegressor(loss=Single(), **FAST).fit(X, y)
    with pytest.raises(ValueError, match=r"Numba cannot compile Odd.value_and_slope\(y, raw\)"):
        CPRegressor(loss=Odd(), **FAST).fit(X, y)
    with pytest.raises(TypeError, match=r"Method.value_and_slope must be a @staticmethod"):
        CPRegressor(loss=Method(), **FAST).fit(X, y)


def test_a_page_shows_a_known_link_and_refuses_another(tmp_path):
    X, y = table()
    model = CPRegressor(loss=LogCosh(), **FAST).fit(X, y)
    page = polyadic.report(model, X, y, tmp_path / "page.html").read_text()
    assert "log cosh loss" in page.lower()

    @dataclass(frozen=True)
    class Odd(Squares):
        def inverse_link(self, raw):
            return raw**3

    model = CPRegressor(loss=Odd(), **FAST).fit(X, y)
    with pytest.raises(ValueError, match=r"A page cannot show .*Odd.*`inverse_link` of its own"):
        polyadic.report(model, X, y, tmp_path / "page.html")


def test_a_compiled_loss_for_more_than_two_classes_is_refused():
    """It sees one output of one row, and the number of the class is not enough there."""

    @dataclass(frozen=True)
    class OneByOne(losses.Loss):
        targets = ("classes",)

        @staticmethod
        def value_and_slope(y, raw):
            """Return a squared error."""
            return (raw - y) ** 2, 2.0 * (raw - y)

    X, y = table()
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    with pytest.raises(ValueError, match=r"cannot train .*OneByOne\(\) on more than two classes"):
        CPClassifier(loss=OneByOne(), **FAST).fit(X, labels)
    with pytest.raises(ValueError, match="torch_losses"):
        OneByOne().value(labels[:, None].astype(float), np.zeros((len(y), 3)))
