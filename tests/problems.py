"""Problems for a solver: random rows, penalties, and their compiled gradient."""

from dataclasses import replace

import numpy as np
import parts

from polyadic import maps
from polyadic.data.features import always_touched, encode
from polyadic.kernels import adam as kernel
from polyadic.kernels.jit import jit
from polyadic.objective import penalties
from polyadic.objective.problem import Problem, Rows
from polyadic.solvers.adam import AdamState


def random_rows(loss, n_outputs, family, columns, rng):
    """Return features with random weights and random targets that the loss allows."""
    n = len(columns[0])
    y = parts.draw_targets(loss, n, n_outputs, rng)
    return Rows(encode(family, columns), y, rng.random(n) + 0.5)


def make_problem(loss, n_outputs, family, columns, order=None, seed=0):
    """Return a problem without penalties, or with the order penalty where given."""
    rows = random_rows(loss, n_outputs, family, columns, np.random.default_rng(seed))
    degrees = [m.degrees for m in family]
    own = () if order is None else (order,)
    return Problem(rows, None, loss, np.zeros(n_outputs), degrees, own)


def batch_gradient(problem, cores, rows):
    """Run the compiled gradient of the mean loss in double precision.

    One compiled form serves all models, since each form takes seconds to compile: an additive part
    is zero where there is none, and the layout says of every column whether it is dense.
    """
    features = problem.local
    if cores.additive is None:
        cores = replace(cores, additive=[np.zeros((d, cores.n_outputs)) for d in features.dims])
    state = AdamState.start(cores, np.float64)
    flat = kernel.FlatRows(
        features.index.ravel(), features.value.ravel(), problem.y.astype(float), problem.weight
    )
    always = always_touched(features.layout, features.dims)
    job = kernel.Job(
        parameters=state.parameters,
        moments=state.moments,
        clock=state.clock,
        gradients=state.gradients,
        layout=features.layout,
        rows=flat,
        intercept=cores.intercept,
        loss=problem.loss.compiled(),
        band=np.zeros((0, 5)),
        order=None,
        mask=np.ones_like(state.parameters.weights),
    )
    workspace = kernel.Workspace.make(
        state.parameters, len(features.dims), problem.n_outputs, always
    )
    loss, count = _batch_gradient(job, workspace, rows, len(always))
    return loss / len(rows), cores.unpack(state.gradients), set(workspace.touched[:count].tolist())


@jit
def _batch_gradient(job, workspace, rows, n_always):
    share = np.float64(1.0) / rows.shape[0]
    return kernel.batch_gradient(job, workspace, rows, 0, rows.shape[0], share, n_always)


# ---- problems of local maps ----------------------------------------------------------------------


class ScaledHat(maps.Hat):
    """Hats whose values do not add up to one."""

    def encode(self, x):
        index, value = super().encode(x)
        return index, value * np.float32([0.5, 2.0])


FAMILY = [
    maps.Hat(n_knots=5),
    maps.OneHot(),
    maps.BSpline(n_knots=4),
    ScaledHat(n_knots=4),
    maps.Hat(n_knots=2),
    maps.Polynomial(d=3),
    maps.Polynomial(d=4, normalize=True),
    maps.Polynomial(d=1),
    maps.Chebyshev(d=5),
]


def local_table(n=60, seed=0):
    """Return fitted local maps and columns with missing values and unseen categories."""
    return parts.fitted_table(FAMILY, n, np.random.default_rng(seed))


def tensor_norm(family):
    """Return a norm whose matrices couple neighbours, the constant among them."""
    metric = []
    for m in family:
        band = penalties.smoothness([m], 0.7).bands[0] + penalties.ridge([m], 0.3).bands[0]
        band[0, 2] += 1.0
        if m.dim > 1:
            band[0, 3] = band[1, 1] = 0.1
        metric.append(band)
    return penalties.Norm(0.02, metric)


def banded(band):
    """Return a band (d, 5) as a matrix (d, d)."""
    out = np.zeros((len(band), len(band)))
    for k in range(len(band)):
        for b in range(5):
            if 0 <= k + b - 2 < len(band):
                out[k, k + b - 2] = band[k, b]
    return out


def local_problem(loss, n_outputs, extra="", seed=0, n=60):
    """Return local maps, columns, and a problem; extra may name "order" and "norm"."""
    family, columns = local_table(n, seed)
    rows = random_rows(loss, n_outputs, family, columns, np.random.default_rng(seed))
    fixed = penalties.ridge(family, 0.01) + penalties.smoothness(family, 0.02)
    problem = Problem(rows, None, loss, np.zeros(n_outputs), [m.degrees for m in family], (fixed,))
    if "order" in extra:
        problem = problem.penalised(penalties.Order(0.01, penalties.emphasis(family, 1.5)))
    if "norm" in extra:
        problem = replace(problem.penalised(tensor_norm(family)), keep_last=True)
    return family, columns, problem
