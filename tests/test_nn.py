"""Tensor networks as plain torch modules."""

import copy
import subprocess
import sys
from pathlib import Path

import needs
import numpy as np
import parts
import pytest

from polyadic import networks
from polyadic.networks.cores import NetworkCores

torch = needs.package("torch")

from polyadic.nn import TensorNetwork  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "own_loop.py"
DIMS = [3, 2, 4, 1, 2]


def name_of(case):
    name, kwargs = case
    return "-".join([name, *(f"{k}{v}" for k, v in kwargs.items())])


every_format = pytest.mark.parametrize("case", parts.FORMATS, ids=name_of)
outputs_of_interest = pytest.mark.parametrize("n_outputs", [1, 3])


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def padded_features(n=7, seed=0):
    """Return phi : (n, N, d) with zeros beyond each column's own elements."""
    rng = np.random.default_rng(seed)
    phi = np.zeros((n, len(DIMS), max(DIMS)), np.float32)
    for k, d in enumerate(DIMS):
        phi[:, k, :d] = rng.normal(size=(n, d))
    return phi


@every_format
@outputs_of_interest
def test_forward_is_the_contraction(case, n_outputs):
    name, kwargs = case
    network = TensorNetwork(name, DIMS, n_outputs=n_outputs, **kwargs)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    phi = padded_features()
    found = network(torch.tensor(phi)).detach().numpy()
    cores = [c[:d].detach().numpy() for c, d in zip(network.cores, DIMS)]
    projected = np.stack([phi[:, k, :d] @ cores[k] for k, d in enumerate(DIMS)], axis=1)
    form = networks.resolve(name)(DIMS, n_outputs=n_outputs, **kwargs)
    expected = form.contract(projected, [e.detach().numpy() for e in network.extras])
    assert found.shape == (7, n_outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def column_list(phi):
    """Return the same features as one array (n, d_n) per column."""
    return [phi[:, k, :d] for k, d in enumerate(DIMS)]


@every_format
@pytest.mark.parametrize("as_given", [torch.tensor, np.asarray], ids=["torch", "numpy"])
def test_a_list_of_columns_gives_the_predictions_and_gradients_of_one_array(case, as_given):
    name, kwargs = case
    network = TensorNetwork(name, DIMS, n_outputs=2, **kwargs)
    phi = padded_features()
    found = {}
    for kind, given in {
        "array": as_given(phi),
        "list": [as_given(own) for own in column_list(phi)],
    }.items():
        network.zero_grad()
        raw = network(given)
        raw.square().sum().backward()
        found[kind] = [raw, *(p.grad.clone() for p in network.parameters())]
    for one, other in zip(found["array"], found["list"]):
        torch.testing.assert_close(one, other)


def test_a_list_gets_the_dtype_of_the_network():
    network = TensorNetwork("tt", DIMS, 2).double()
    columns = column_list(padded_features())  # single precision
    assert network(columns).dtype == torch.float64
    torch.testing.assert_close(network(columns), network([c.astype(float) for c in columns]))


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (DIMS[:-1], "phi must have one array for each of the 5 columns, got 4"),
        ([*DIMS, 2], "phi must have one array for each of the 5 columns, got 6"),
        ([3, 2, 5, 1, 2], r"phi\[2\] must be \(n, 4\), got \(7, 5\)"),
    ],
)
def test_lists_of_other_widths_are_refused(widths, message):
    network = TensorNetwork("cp", DIMS, 2)
    with pytest.raises(ValueError, match=message):
        network([torch.ones(7, d) for d in widths])


def test_lists_of_other_shapes_are_refused():
    network = TensorNetwork("cp", DIMS, 2)
    columns = [torch.ones(7, d) for d in DIMS]
    with pytest.raises(ValueError, match=r"phi\[3\] must be \(n, 1\), got \(7,\)"):
        network([*columns[:3], torch.ones(7), columns[4]])
    with pytest.raises(ValueError, match=r"rows: phi\[0\] has 7, phi\[4\] has 6"):
        network([*columns[:4], torch.ones(6, 2)])


@every_format
def test_every_parameter_in_use_has_a_gradient(case):
    name, kwargs = case
    network = TensorNetwork(name, DIMS, n_outputs=2, **kwargs)
    phi = torch.tensor(padded_features())
    ((network(phi) - 1) ** 2).sum().backward()
    assert network.cores.grad.abs().sum() > 0
    for k, d in enumerate(DIMS):
        assert torch.all(network.cores.grad[k, d:] == 0)  # padding stays as it is
        if name in ("fm", "pn"):  # no constant: every element is random
            assert torch.all(network.cores[k, :d].abs().sum(-1) > 0) or kwargs["order"] == 1


@every_format
def test_a_seed_gives_one_start_and_a_state_dict_restores_it(case):
    name, kwargs = case
    a, b = (TensorNetwork(name, DIMS, seed=3, **kwargs) for _ in range(2))
    other = TensorNetwork(name, DIMS, seed=4, **kwargs)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))
    other.load_state_dict(a.state_dict())
    phi = torch.tensor(padded_features())
    torch.testing.assert_close(other(phi), a(phi))
    torch.testing.assert_close(copy.deepcopy(a)(phi), a(phi))


@pytest.mark.parametrize("name", ["cp", "tt", "tr", "ht"])
def test_784_columns_start_in_range_and_have_gradients(name):
    network = TensorNetwork(name, [3] * 784, rank=6, n_outputs=10)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(8, 784, generator=generator)
    raw = network(torch.stack([torch.ones_like(x), x, x**2], dim=2))
    assert torch.isfinite(raw).all()
    assert raw.abs().max() < 30
    raw.square().mean().backward()
    for parameter in network.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


def test_unknown_format_and_sizes_beyond_memory_are_refused():
    with pytest.raises(ValueError, match="Choose from: cp, fm, ht, pn, tr, tt, tucker"):
        TensorNetwork("mps", DIMS, 3)
    with pytest.raises(MemoryError, match="over 26 columns would need"):
        TensorNetwork("tucker", [3] * 26, 5)


def test_parameters_are_those_of_the_format():
    network = TensorNetwork("tt", [3, 3], 4, n_outputs=2)
    assert sum(p.numel() for p in network.parameters()) == network.network.n_parameters()


@pytest.mark.parametrize("case", [("cp", {"rank": 3}), ("tt", {"rank": 3}), ("tr", {"rank": 2})])
def test_the_module_takes_the_cores_of_an_estimator(case):
    name, kwargs = case
    cores: NetworkCores = parts.random_network(name, kwargs, [3, 3, 3], 2)
    network = TensorNetwork(name, [3, 3, 3], n_outputs=2, **kwargs).double()
    with torch.no_grad():
        network.cores.copy_(torch.tensor(np.stack(cores.factors)))
        for ours, theirs in zip(network.extras, cores.extras):
            ours.copy_(torch.tensor(theirs))
    phi = np.random.default_rng(0).normal(size=(5, 3, 3))
    projected = np.stack([phi[:, k] @ cores.factors[k] for k in range(3)], axis=1)
    expected = cores.format.contract(projected, cores.extras)
    np.testing.assert_allclose(network(torch.tensor(phi)).detach(), expected, rtol=1e-10)


@pytest.mark.parametrize("name", sorted(networks.FORMATS))
@pytest.mark.filterwarnings("ignore")  # warnings of torch's compiler
def test_compiled_network_is_the_same_function(name):
    torch._dynamo.reset()
    network = TensorNetwork(name, DIMS, rank=3, n_outputs=2)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    phi = torch.tensor(padded_features())
    torch.testing.assert_close(compiled(phi), network(phi))
    torch.testing.assert_close(compiled(column_list(phi)), network(phi))
    compiled(phi).square().sum().backward()
    found = network.cores.grad.clone()
    network.cores.grad = None
    network(phi).square().sum().backward()
    torch.testing.assert_close(found, network.cores.grad)


def test_the_example_trains_in_a_loop_of_ten_lines():
    code = EXAMPLE.read_text()
    assert len(code.splitlines()) <= 25
    loop = code.split("n_epochs = ")[1].split("\n\n")[1].splitlines()
    assert len(loop) <= 10
    run = subprocess.run([sys.executable, EXAMPLE, "6"], capture_output=True, text=True, check=True)
    assert float(run.stdout.split(":")[1]) < 0.05


@pytest.mark.parametrize("name", sorted(networks.FORMATS))
def test_no_rows_give_no_outputs(name):
    network = TensorNetwork(name, [3] * 4, 2, n_outputs=2)
    assert network(torch.rand(0, 4, 3)).shape == (0, 2)
    assert network([torch.rand(0, 3)] * 4).shape == (0, 2)


@pytest.mark.parametrize("name", sorted(networks.FORMATS))
def test_inputs_of_another_shape_are_refused(name):
    network = TensorNetwork(name, [3] * 4, 2)
    for given in (torch.rand(5, 1, 3), np.ones((5, 1, 3))):
        with pytest.raises(ValueError, match=r"phi must be \(n, 4, 3\), got \(5, 1, 3\)"):
            network(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank must be a whole number of at least 1, got 0"),
        ({"rank": 2.7}, "rank must be a whole number"),
        ({"n_outputs": 0}, "n_outputs must be a whole number"),
        ({"order": 0}, "order must be a whole number"),
        ({"dims": []}, "dims must have one number per column"),
        ({"dims": [3, 0]}, "dims must be a whole number"),
    ],
)
def test_invalid_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TensorNetwork(**{"format": "pn", "dims": [3, 3], "rank": 2} | change)
