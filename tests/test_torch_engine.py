"""The torch engine against finite differences, the fused engine and the NumPy formulas."""

from dataclasses import replace

import needs
import numpy as np
import parts
import pytest
from problems import batch_gradient, make_problem

from polyadic import CPRegressor, losses, maps, networks
from polyadic.data.features import encode
from polyadic.networks.cores import make_cores
from polyadic.objective import penalties
from polyadic.solvers.adam import Adam

torch = needs.package("torch")

from polyadic.solvers import torch_engine as engine  # noqa: E402
from polyadic.solvers.torch_optim import TorchLoop, optimiser_names  # noqa: E402
from polyadic.solvers.torch_solver import TorchOptim  # noqa: E402

CPU = torch.device("cpu")


def name_of(case):
    name, kwargs = case
    return "-".join([name, *(f"{k}{v}" for k, v in kwargs.items())])


every_format = pytest.mark.parametrize("case", parts.FORMATS, ids=name_of)
every_network = pytest.mark.parametrize("case", parts.NETWORKS, ids=name_of)
outputs_of_interest = pytest.mark.parametrize("n_outputs", [1, 3])


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pack(cores, dtype=torch.float64):
    """Return a network whose parameters require gradients."""
    network = engine.Network.pack(cores, CPU, dtype)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network


def all_rows(features):
    return torch.arange(features.n_rows)


def dense_parts(network, family, columns):
    """Return the parts (n, N, K) from feature vectors with every element written out."""
    projected = []
    for core, m, x in zip(network.factors, family, columns):
        phi = m.dense(x)
        if m.constant and not network.format.constants:
            phi[:, 0] -= 1.0
        projected.append(phi @ core)
    return np.stack(projected, axis=1)


# ---- features -----------------------------------------------------------------------------------

FAMILIES = {
    "dense": [maps.Polynomial(3), maps.Polynomial(5), maps.Polynomial(4, normalize=True)],
    "sparse": [maps.Hat(6), maps.BSpline(5), maps.Hat(9)],
    "mixed": [maps.Hat(6), maps.Polynomial(3), maps.BSpline(5), maps.Polynomial(5)],
    "no slots": [maps.Polynomial(1), maps.Polynomial(1)],
    "some without slots": [maps.Polynomial(1), maps.Hat(4), maps.Polynomial(3)],
    "no slots and sparse": [maps.Hat(4), maps.Polynomial(1)],
    "one column": [maps.Hat(4)],
}


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("name", ["tt", "fm"])
def test_parts_are_those_of_the_dense_feature_vectors(kind, name):
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=30) for _ in FAMILIES[kind]]
    for x in columns:
        x[rng.random(30) < 0.2] = np.nan
    family = [m.clone().fit(x) for m, x in zip(FAMILIES[kind], columns)]
    network = parts.random_network(name, {"rank": 2}, [m.dim for m in family], 3)
    features = engine.Features(
        encode(family, columns), CPU, network.format.constants, torch.float64
    )
    table = engine.Network.pack(network, CPU, torch.float64).table
    rows = np.array([3, 29, 3, 0])
    found = features.parts(table, torch.as_tensor(rows))
    expected = dense_parts(network, family, [x[rows] for x in columns])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@every_format
@outputs_of_interest
def test_raw_on_torch_is_the_numpy_contraction(case, n_outputs):
    family, columns = parts.mixed_table(n=20)
    cores = parts.random_network(*case, [m.dim for m in family], n_outputs)
    center, scale = np.arange(n_outputs) + 1.0, np.full(n_outputs, 3.0)
    found = engine.predict(cores.rescale(center, scale), encode(family, columns), CPU)
    inner = cores.format.contract(dense_parts(cores, family, columns), cores.extras)
    expected = center + 3.0 * inner
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_prediction_does_not_depend_on_the_chunks(monkeypatch):
    family, columns = parts.mixed_table(n=300)
    cores = parts.random_network("tt", {"rank": 3}, [m.dim for m in family], 2)
    features = encode(family, columns)
    whole = engine.predict(cores, features, CPU)
    monkeypatch.setattr(engine, "_NUMBERS", 1)  # as if every row were huge
    pieces = list(engine.in_chunks(engine.Network.pack(cores, CPU), features, CPU))
    assert [piece.n_rows for piece in pieces] == [64, 64, 64, 64, 44]
    np.testing.assert_allclose(engine.predict(cores, features, CPU), whole, rtol=1e-5, atol=1e-6)


def test_no_rows_give_no_predictions():
    family, columns = parts.mixed_table(n=30)
    cores = parts.random_network("tr", {"rank": 2}, [m.dim for m in family], 3)
    none = encode(family, [x[:0] for x in columns])
    assert engine.predict(cores, none, CPU).shape == (0, 3)


@every_format
def test_unpacking_gives_back_what_was_packed(case):
    cores = parts.random_network(*case, [3, 1, 2], 2)
    again = engine.Network.pack(cores, CPU).unpack(cores)
    for a, b in zip([*cores.factors, *cores.extras], [*again.factors, *again.extras]):
        np.testing.assert_allclose(b, a, rtol=1e-6)


# ---- gradients ----------------------------------------------------------------------------------


def check_by_differences(function, parameters, n_places=12, step=1e-6):
    """Compare autograd's gradient with central differences at some entries of every parameter."""
    gradients = torch.autograd.grad(function(), parameters)
    rng = np.random.default_rng(0)
    for parameter, gradient in zip(parameters, gradients):
        flat = parameter.data.view(-1)
        for k in rng.permutation(len(flat))[:n_places]:
            before, values = flat[k].item(), []
            for sign in (1, -1):
                flat[k] = before + sign * step
                with torch.no_grad():
                    values.append(function().item())
            flat[k] = before
            slope = (values[0] - values[1]) / (2 * step)
            assert slope == pytest.approx(gradient.reshape(-1)[k].item(), rel=1e-4, abs=1e-6)


@every_format
@outputs_of_interest
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_gradient_matches_finite_differences(case, n_outputs, zeros):
    family, columns = parts.mixed_table(n=9)
    cores = parts.random_network(*case, [m.dim for m in family], n_outputs, zeros=zeros)
    network = pack(cores)
    features = engine.Features(
        encode(family, columns), CPU, network.format.constants, torch.float64
    )
    rng = np.random.default_rng(1)
    weight = torch.tensor(rng.normal(size=(9, n_outputs)))
    target = torch.tensor(rng.normal(size=(9, n_outputs)))

    def value():
        return (weight * (network.raw(features, all_rows(features)) - target) ** 2).mean()

    check_by_differences(value, network.parameters())


@every_network
@outputs_of_interest
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_order_penalty_matches_the_order_norm_and_finite_differences(case, n_outputs, zeros):
    dims = [3, 2, 4, 1, 2]
    cores = parts.random_network(*case, dims, n_outputs, zeros=zeros)
    network = pack(cores)
    rng = np.random.default_rng(0)
    emphasis = [rng.uniform(0.5, 2.0, d) for d in dims]
    stacked = torch.tensor(np.concatenate([[0, 0], *emphasis, [0, 0]]))[:, None]
    value = network.order_penalty(stacked)
    assert value.item() == pytest.approx(cores.order_norm(emphasis), rel=1e-10)
    check_by_differences(lambda: network.order_penalty(stacked), network.parameters())


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht"])
def test_order_penalty_of_300_columns_has_a_finite_gradient_in_single_precision(name):
    dims = [3] * 300
    form = networks.resolve(name)(dims, 4)
    rngs = [np.random.default_rng(n) for n in range(301)]
    factors, extras = form.near_one(rngs, 0.03)
    cores = make_cores(form, factors, extras, np.zeros(1))
    network = pack(cores, torch.float32)
    b = torch.tensor([0.0, 0.0] + [1.0, 2.0, 4.0] * 300 + [0.0, 0.0])[:, None]
    value = network.order_penalty(b)
    value.backward()
    assert value.item() == pytest.approx(cores.order_norm([np.array([1.0, 2, 4])] * 300), rel=1e-3)
    for parameter in network.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("name", ["cp", "tt", "tr"])
@outputs_of_interest
def test_linear_start_leaves_no_free_state_without_a_gradient(name, n_outputs):
    dims, spare = [3, 2, 4], 2
    used = 3 * n_outputs if name == "cp" else 1 + n_outputs
    rank = used + spare
    form = networks.resolve(name)(dims, rank, n_outputs)
    rng = np.random.default_rng(0)
    slopes = [rng.normal(size=(d, n_outputs)) for d in dims]
    rngs = [np.random.default_rng(n) for n in range(4)]
    factors, extras = form.linear(rng.normal(size=n_outputs), slopes, rngs, 0.1)
    factors = [torch.tensor(a, requires_grad=True) for a in factors]
    extras = [torch.tensor(e, requires_grad=True) for e in extras]
    phis = [torch.tensor(np.hstack([np.ones((9, 1)), rng.normal(size=(9, d - 1))])) for d in dims]
    projected = torch.stack([phi @ a for phi, a in zip(phis, factors)], dim=1)
    weight = torch.tensor(rng.normal(size=(9, n_outputs)))
    (form.contract(projected, extras) * weight).sum().backward()
    for state in range(used, rank):
        slope = 0.0
        for a in factors:
            g = a.grad if name == "cp" else a.grad.reshape(-1, rank, rank)
            slope += g[..., state].abs().sum() + (0 if name == "cp" else g[:, state].abs().sum())
        for e in extras:
            held = e.grad.movedim(-1, 0) if name == "tr" else e.grad
            slope += held[state].abs().sum()
        assert slope > 1e-3


# ---- the two engines ----------------------------------------------------------------------------


@outputs_of_interest
@pytest.mark.parametrize("additive", [False, True])
def test_both_engines_predict_the_same(n_outputs, additive):
    family, columns = parts.mixed_table(n=200)  # with missing values
    features = encode(family, columns)
    cores = parts.random_cores(features.dims, 5, n_outputs, additive=additive)
    fused = cores.contract(features)
    size = np.abs(fused).max()
    found = engine.predict(cores, features, CPU)
    np.testing.assert_allclose(found, fused, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
@pytest.mark.parametrize("additive", [False, True])
def test_both_engines_have_the_same_gradient(loss, additive):
    family, columns = parts.mixed_table(n=30)
    problem = make_problem(loss, 3, family, columns)
    cores = parts.random_cores(problem.local.dims, 3, 3, additive=additive)
    rows = np.array([4, 0, 7, 2, 8, 21])
    value, gradient, _ = batch_gradient(problem, cores, rows)

    network = pack(cores)
    features = engine.Features(problem.local, CPU, True, torch.float64)
    at = torch.as_tensor(rows)
    raw = network.raw(features, at) + torch.tensor(cores.intercept)
    y, weight = torch.tensor(problem.y)[at], torch.tensor(problem.weight)[at]
    found = engine.mean_loss(loss, raw, y, weight)
    found.backward()
    assert found.item() == pytest.approx(value, rel=1e-6)
    slopes = engine.Network(network.format, network.table.grad, [network.extras[0].grad])
    slopes = slopes.unpack(cores)
    pairs = [*zip(slopes.factors, gradient.factors), (slopes.weights, gradient.weights)]
    pairs += zip(slopes.additive, gradient.additive) if additive else []
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6 * np.abs(theirs).max())


def dense_problem(order=False, n=150):
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)]
    family = [maps.Polynomial(3).fit(columns[0]), maps.Polynomial(2).fit(columns[1])]
    family.append(maps.Polynomial(4, normalize=True).fit(columns[2]))
    penalty = penalties.Order(0.01, penalties.emphasis(family, 1.5)) if order else None
    problem = make_problem(losses.SquaredError(), 2, family, columns, penalty)
    return problem.penalised(penalties.ridge(family, 0.01))


@pytest.mark.parametrize("order", [False, True], ids=["", "order penalty"])
@pytest.mark.parametrize("fixed_weights", [False, True])
def test_adam_takes_the_same_steps_on_both_engines(order, fixed_weights):
    problem = dense_problem(order)
    cores = parts.random_cores(problem.local.dims, 4, 2, zeros=0.0)
    cores = replace(cores, intercept=problem.intercept)
    settings = {"learning_rate": 0.01, "batch_size": 16, "max_iter": 3, "ema_decay": 0.9}
    free = np.zeros((4, 2)) if fixed_weights else None
    runs = [
        solver.solve(problem, cores, free, np.random.default_rng(7))
        for solver in (Adam(**settings), TorchOptim(**settings, weigh_columns=True))
    ]
    fused, found = (run.cores for run in runs)
    for a, b in zip([*fused.factors, fused.weights], [*found.factors, found.weights]):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(
        runs[1].history["train_loss"], runs[0].history["train_loss"], rtol=1e-4
    )
    if fixed_weights:
        np.testing.assert_allclose(found.weights, cores.weights, rtol=1e-6)


@outputs_of_interest
def test_an_estimator_is_the_same_on_both_engines(n_outputs):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] * X[:, 1])[:, None] + rng.normal(size=(200, n_outputs))
    params = {"maps": maps.Polynomial(3), "rank": 6, "max_iter": 2, "n_members": 1}
    fused, found = (
        CPRegressor(**params, engine=e, random_state=0).fit(X, y) for e in ("fused", "torch")
    )
    np.testing.assert_allclose(found.predict(X), fused.predict(X), rtol=1e-3, atol=1e-4)
    for a, b in zip(fused.cores_, found.cores_):
        np.testing.assert_allclose(b, a, atol=1e-4)


# ---- losses and penalties -----------------------------------------------------------------------


@pytest.mark.parametrize("loss", parts.LOSSES, ids=repr)
@outputs_of_interest
def test_mean_loss_is_the_loss(loss, n_outputs):
    rng = np.random.default_rng(0)
    n_outputs = 3 if loss.code == losses.Softmax.code else n_outputs
    raw = 2 * rng.normal(size=(12, n_outputs))
    y = rng.normal(size=(12, n_outputs))
    if loss.code == losses.Logistic.code:
        y = (y > 0).astype(float)
    if loss.code == losses.Poisson.code:
        y = np.floor(np.exp(y))
    if loss.code == losses.Softmax.code:
        y = rng.integers(0, 3, (12, 1)).astype(float)
    else:
        raw[0] = y[0]  # where quantiles have their kink
        raw[1] = 70.0  # exp overflows in single precision
        raw[2] = -70.0
    weight = rng.random(12) + 0.5
    weight /= weight.mean()
    moving = torch.tensor(raw, requires_grad=True)
    found = engine.mean_loss(loss, moving, torch.tensor(y), torch.tensor(weight))
    found.backward()
    assert found.item() == pytest.approx(loss.value(y, raw, weight), rel=1e-6)
    expected = loss.gradient(y, raw, weight)
    np.testing.assert_allclose(moving.grad, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("kind", ["ridge", "smoothness", "both"])
def test_band_penalty_is_the_banded_penalty(additive, kind):
    family, _ = parts.mixed_table()
    banded = penalties.ridge(family, 0.3 if kind != "smoothness" else 0.0)
    if kind != "ridge":
        banded = banded + penalties.smoothness(family, 0.7)
    cores = parts.random_cores([m.dim for m in family], 3, 2, additive=additive)
    table = pack(cores).table
    band = np.concatenate([np.zeros((2, 5)), *banded.bands, np.zeros((2, 5))])
    diagonals = [b for b in range(5) if np.any(band[:, b])]
    value = engine.band_penalty(table, torch.tensor(band), diagonals)
    assert value.item() == pytest.approx(banded.value(cores), rel=1e-10)
    (slope,) = torch.autograd.grad(value, table)
    expected = [np.zeros_like(a) for a in [*cores.factors, *(cores.additive or [])]]
    banded.add_gradient(cores, expected)
    factors = np.split(slope[2:-2, :3].numpy(), np.cumsum(cores.dims)[:-1])
    extra = np.split(slope[2:-2, 3:].numpy(), np.cumsum(cores.dims)[:-1]) if additive else []
    for found, wanted in zip([*factors, *extra], expected):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


# ---- the run ------------------------------------------------------------------------------------


def network_problem(name="tt", held_out=False):
    problem = dense_problem()
    if held_out:
        problem = replace(problem, held_out=problem.rows)
    form = networks.resolve(name)(problem.local.dims.tolist(), 3, 2)
    rngs = [np.random.default_rng(n) for n in range(4)]
    factors, extras = form.near_one(rngs, 0.1)
    cores = make_cores(form, factors, extras, problem.intercept)
    return problem, cores


@pytest.mark.parametrize("optimiser", optimiser_names())
def test_every_optimiser_of_the_list_lowers_the_loss(optimiser):
    problem, cores = network_problem()
    solver = TorchOptim(learning_rate=0.01, batch_size=32, max_iter=8, optimiser=optimiser)
    curve = solver.solve(problem, cores, None, np.random.default_rng(0)).history["train_loss"]
    assert curve[-1] < curve[0]


@pytest.mark.parametrize("order", [False, True], ids=["", "order penalty"])
def test_a_step_copies_nothing_to_the_cpu(order, monkeypatch):
    problem, cores = network_problem()
    if order:
        emphasis = [np.ones(d) for d in problem.local.dims]
        problem = problem.penalised(penalties.Order(0.01, emphasis))
    run = TorchLoop(TorchOptim(batch_size=8, max_iter=1), "Adam", "cpu", problem, cores, None)
    copies = []
    for name in ("cpu", "numpy", "item", "tolist", "__float__", "__bool__", "__int__"):
        kept = getattr(torch.Tensor, name)

        def counted(self, *args, _name=name, _kept=kept, **kwargs):
            copies.append(_name)
            return _kept(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counted)
    run.train(np.full(run.n_batches, 0.01, np.float32), np.random.default_rng(0))
    monkeypatch.undo()
    assert run.n_batches > 10
    assert len(copies) <= 1, copies  # the loss, at the end of the epoch


def test_held_out_rows_are_copied_to_the_device_once(monkeypatch):
    problem, cores = network_problem(held_out=True)
    made = []
    kept = engine.Features

    def counted(*args, **kwargs):
        made.append(1)
        return kept(*args, **kwargs)

    monkeypatch.setattr(engine, "Features", counted)
    TorchOptim(max_iter=5).solve(problem, cores, None, np.random.default_rng(0))
    assert len(made) == 2  # training rows, held-out rows


def test_the_best_epoch_is_kept_and_not_overwritten():
    problem, cores = network_problem(held_out=True)
    solver = TorchOptim(learning_rate=0.3, max_iter=12, schedule="constant", batch_size=16)
    solution = solver.solve(problem, cores, None, np.random.default_rng(0))
    raw = engine.predict(solution.cores, problem.local, CPU)
    best = min(solution.history["validation_loss"])
    assert problem.loss.value(problem.y, raw, problem.weight) == pytest.approx(best, rel=1e-5)
    assert solution.history["validation_loss"][-1] != best


def test_average_is_the_running_mean_of_the_parameters():
    problem, cores = network_problem()
    run = TorchLoop(TorchOptim(batch_size=30, ema_decay=0.8), "Adam", "cpu", problem, cores, None)
    mean = run.network.table.detach().numpy().astype(float)
    rng = np.random.default_rng(0)
    rates = np.full(1, 0.01, np.float32)
    for _ in range(6):
        run.train(rates, rng)
        mean = 0.8 * mean + 0.2 * run.network.table.detach().numpy()
    assert not any(a.requires_grad for a in run.average)  # it keeps no graph of the steps
    np.testing.assert_allclose(run.averaged(None).table, mean, rtol=1e-5, atol=1e-6)


def test_divergence_is_reported_with_the_parameter_to_change():
    problem, cores = network_problem()
    solver = TorchOptim(learning_rate=1e30, max_iter=5, schedule="constant", optimiser="SGD")
    solution = solver.solve(problem, cores, None, np.random.default_rng(0))
    assert not solution.converged
    assert "learning_rate" in solution.message
    assert all(np.all(np.isfinite(a)) for a in solution.cores.factors)


@pytest.mark.parametrize("flush", [False, True])
def test_denormal_setting_of_the_thread_is_restored(flush):
    problem, cores = network_problem()
    try:
        torch.set_flush_denormal(flush)
        TorchOptim(max_iter=1).solve(problem, cores, None, np.random.default_rng(0))
        assert (np.float32(1e-38) * np.float32(0.1) == 0) == flush
    finally:
        torch.set_flush_denormal(False)


def test_the_cpu_is_always_found():
    assert engine.find_device("cpu") == CPU


BEYOND = f"cuda:{torch.cuda.device_count()}"  # one more than there are


@pytest.mark.parametrize("name", [BEYOND, "nonsense", "meta", "hpu", "privateuseone", "", None])
def test_an_absent_device_is_refused_with_those_available(name):
    with pytest.raises(ValueError, match=f"device={name!r} cannot be used here.*: cpu"):
        engine.find_device(name)
