"""Laws of every loss."""

from dataclasses import dataclass

import numpy as np
import parts
import pytest
from scipy.optimize import minimize_scalar

from polyadic import losses
from polyadic.kernels import losses as kernel
from polyadic.objective.losses import resolve

every_loss = pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)


def example(loss, n=30, n_outputs=3, seed=0):
    """Return targets in the loss's domain, raw predictions and weights."""
    rng = np.random.default_rng(seed)
    raw = 2 * rng.normal(size=(n, n_outputs))
    weight = rng.random(n) + 0.1
    return parts.draw_targets(loss, n, n_outputs, rng), raw, weight


@every_loss
def test_gradient_matches_finite_differences(loss):
    y, raw, weight = example(loss)
    gradient = loss.gradient(y, raw, weight)
    step = 1e-6
    for i, k in [(0, 0), (3, 1), (7, 2), (29, 0)]:
        up, down = raw.copy(), raw.copy()
        up[i, k] += step
        down[i, k] -= step
        slope = (loss.value(y, up, weight) - loss.value(y, down, weight)) / (2 * step)
        assert slope == pytest.approx(gradient[i, k], rel=1e-5, abs=1e-9)


@every_loss
def test_a_weight_of_two_is_the_row_twice(loss):
    y, raw, _ = example(loss, n=6)
    twice = np.array([2.0, 1, 1, 1, 1, 1])
    rows = [0, 0, 1, 2, 3, 4, 5]
    assert loss.value(y, raw, twice) == pytest.approx(loss.value(y[rows], raw[rows]), rel=1e-12)


@every_loss
def test_baseline_is_the_best_constant(loss):
    y, _, weight = example(loss, n=200)
    best = loss.baseline(y, weight)
    at_best = loss.value(y, np.tile(best, (200, 1)), weight)
    for k in range(len(best)):

        def shifted(delta, k=k):
            raw = np.tile(best, (200, 1))
            raw[:, k] += delta
            return loss.value(y, raw, weight)

        found = minimize_scalar(shifted, bounds=(-1, 1), method="bounded")
        assert at_best <= found.fun + (1e-4 if loss.best_baseline else 2e-2)


@dataclass(frozen=True)
class Pinball(losses.Loss):
    """A loss with corners, in the units of y, without a baseline of its own."""

    level: float = 0.9

    @staticmethod
    def value_and_slope(y, raw, level):
        """Return the loss of a quantile."""
        return max((1 - level) * (raw - y), level * (y - raw)), 1 - level if raw > y else -level


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_default_baseline_does_not_depend_on_the_units_of_y(unit):
    y = unit * np.random.default_rng(0).gumbel(size=(500, 2))
    weight = np.ones(500)
    best = Pinball().baseline(y, weight)
    quantile = losses.Quantile(0.9).baseline(y, weight)
    found, exact = (Pinball().value(y, np.tile(c, (500, 1)), weight) for c in (best, quantile))
    assert found <= (1 + 1e-6) * exact  # over 20 seeds they differed by rounding only


def test_the_default_baseline_of_one_value_is_that_value():
    for loss in (Pinball(), parts.Expectile()):
        np.testing.assert_allclose(loss.baseline(np.full((9, 1), 7.0), np.ones(9)), 7.0, rtol=1e-6)


@every_loss
def test_loss_is_finite_for_extreme_predictions(loss):
    y, raw, weight = example(loss)
    for scale in (1e4, -1e4):
        assert np.isfinite(loss.value(y, np.full_like(raw, scale), weight))
        assert np.all(np.isfinite(loss.gradient(y, np.full_like(raw, scale), weight)))


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Poisson()], ids=repr)
def test_link_and_inverse_link_undo_each_other(loss):
    raw = np.linspace(-5, 5, 11)[:, None]
    np.testing.assert_allclose(loss.link(loss.inverse_link(raw)), raw, rtol=1e-9)


def test_softmax_probabilities_undo_the_link():
    loss = losses.Softmax(3)
    share = np.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(loss.inverse_link(loss.link(share)), share, rtol=1e-9)


def test_float32_agrees_with_float64():
    from polyadic.kernels.losses import weighted_losses

    for loss in parts.LOSSES:
        y, raw, weight = example(loss)
        out = np.empty_like(raw, dtype=np.float32)
        single = [np.ascontiguousarray(a, dtype=np.float32) for a in (y, weight, raw)]
        rows = np.arange(len(raw))
        form = loss.compiled(np.float32)
        value = weighted_losses(form, *single[:2], rows, 0, single[2], out)
        assert value / weight.sum() == pytest.approx(loss.value(y, raw, weight), rel=1e-5)
        expected = loss.gradient(y, raw, weight) * weight.sum()
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match=r"needs y >= 0, but the smallest y is -1"):
        losses.Poisson().check(np.array([[1.0], [-1.0]]))


def test_unknown_loss_lists_the_known_ones():
    known = sorted(name for name, loss in losses.LOSSES.items() if "numbers" in loss.targets)
    expected = f"{', '.join(known)}, or an instance"
    with pytest.raises(ValueError, match=f"Unknown loss 'l3'. Choose from: {expected}"):
        resolve("l3")


@pytest.mark.parametrize("make", [lambda: losses.Quantile(1.5), lambda: losses.Huber(0.0)])
def test_a_parameter_out_of_range_is_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_exponentials_of_softmax_are_those_of_numpy():
    x = -np.concatenate([np.linspace(0.0, 50.0, 1001), [1e-300, 699.0, 701.0, 1e300]])
    raw = np.column_stack([np.zeros_like(x), x])  # the slope of the second class is exp / (1 + exp)
    value, slope = losses.Softmax().value_and_gradient(np.zeros((len(x), 1)), raw)
    want = np.exp(x) / (1.0 + np.exp(x))
    assert np.allclose(slope[:, 1] * len(x), want, rtol=1e-12, atol=1e-290)
    assert value == pytest.approx(np.mean(np.log1p(np.exp(x))), rel=1e-12)


def test_one_curvature_of_all_classes_is_the_largest():
    rng = np.random.default_rng(0)
    raw, weight = 5.0 * rng.normal(size=(500, 4)), rng.uniform(0.1, 2.0, 500)
    form, y = losses.Softmax().compiled_curvature(), np.zeros((500, 1))
    every, one = np.empty((500, 4)), np.empty((500, 1))
    for out in (every, one):
        kernel.curvatures(form, y, weight, raw, out)
    assert np.allclose(one[:, 0], every.max(axis=1), rtol=1e-12)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Softmax(3)], ids=repr)
def test_derivatives_of_classes_are_those_of_the_loss_and_its_curvature(loss):
    rng = np.random.default_rng(0)
    n_outputs = 1 if isinstance(loss, losses.Logistic) else 3
    raw, weight = 5.0 * rng.normal(size=(400, n_outputs)), rng.uniform(0.1, 2.0, 400)
    raw[:4] = np.array([800.0, -800.0, 0.0, 1e-300])[:, None]
    y = rng.integers(0, max(2, n_outputs), (400, 1)).astype(float)
    found, wanted = np.empty((2, *raw.shape)), np.empty((2, *raw.shape))
    kernel.class_derivatives(loss.code, y, weight, raw, *found)
    kernel.weighted_losses(loss.compiled(), y, weight, np.arange(400), 0, raw, wanted[0])
    kernel.curvatures(loss.compiled_curvature(), y, weight, raw, wanted[1])
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
