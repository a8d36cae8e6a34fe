"""Initial cores. Each init has `start(problem, rank, rngs) -> Start`.

Each column has its own generator, and the output weights one more, so that the noise of a column
does not depend on its position in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

from polyadic.data.features import sparse_design
from polyadic.networks.base import Format, balanced_weights, near_one_sigma
from polyadic.networks.cores import make_cores
from polyadic.networks.cp import CanonicalPolyadic, CPCores, write_linear
from polyadic.objective.losses import Logistic, Loss, SquaredError
from polyadic.solvers.linear import minimise_linear

if TYPE_CHECKING:
    from polyadic.objective.problem import Problem

# Basis elements up to which the normal equations are formed, in cubic time; chosen by hand.
_DENSE_LIMIT = 1000
# Rows that tell which sum of elements is nearest to one, steps of conjugate gradients to it, and
# the squared slope from which on there is nothing to gain. Chosen by hand.
_SOME_ROWS, _MOST_STEPS, _NO_SLOPE = 1000, 10, 1e-24


@dataclass(frozen=True)
class Start:
    """Cores to start from, and which output weights are free to move: see `Solver.solve`."""

    cores: Any
    free: np.ndarray | None = None


class Starter(Protocol):
    """Anything that returns initial cores for a problem."""

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores; `rngs` holds one generator per column and one more."""
        ...


class Init(Starter, Protocol):
    """The methods of every init: `start` for CP, and `network` for any format."""

    def network(self, problem: Problem, form: Format, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores of a format."""
        ...


def _output_weights(rank: int, n_outputs: int, separate: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the paper's C, ones in blocks, and the mask of its entries that may move."""
    if not separate:
        return np.ones((rank, n_outputs)), np.full((rank, n_outputs), float(n_outputs > 1))
    weights = np.kron(np.eye(n_outputs), np.ones((rank, 1)))
    return weights, np.zeros_like(weights)


@dataclass(frozen=True)
class Gaussian:
    """Draw every entry from a normal distribution cut off at two standard deviations.

    One output, or separate tensors for several, keep the paper's output weights of one. So do
    factorization machines and polynomial networks with one output, as in the libraries tffm and
    polylearn. In formats other than CP the distribution is not cut off.
    """

    sigma: float = 0.2

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores."""
        weights, free = _output_weights(rank, problem.n_outputs, problem.separate)
        if problem.n_outputs > 1 and not problem.separate:
            weights = rngs[-1].normal(size=weights.shape)
        factors = [
            _truncated_normal(rng, (dim, len(weights))) * self.sigma
            for rng, dim in zip(rngs, problem.local.dims)
        ]
        return Start(CPCores(factors, weights, problem.intercept), free)

    def network(self, problem: Problem, form: Format, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores of another format."""
        cores, extras = form.gaussian(rngs, self.sigma)
        free = np.zeros_like(extras[-1]) if form.keeps_weights else None
        return Start(make_cores(form, cores, extras, problem.intercept), free)


def _truncated_normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Draw from a normal distribution; draw again what is beyond two standard deviations."""
    out = rng.normal(size=size)
    while np.any(far := np.abs(out) > 2):
        out[far] = rng.normal(size=int(far.sum()))
    return out


@dataclass(frozen=True)
class NearOne:
    """Start every factor near the constant one: 1 + sigma noise, with C ~ normal / sqrt(R).

    A product of hundreds of such factors neither vanishes nor overflows. By default sigma is
    smaller for more columns. Where a map has no constant element, as Trigonometric and
    Polynomial(normalize=True), the sum of its elements that is nearest to one takes its place.
    """

    sigma: float | None = None

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores."""
        # All factors are near one: the terms cancel, and the prediction is about the intercept.
        mask, _ = _output_weights(rank, problem.n_outputs, problem.separate)
        weights = balanced_weights(rngs[-1], mask)
        factors = _near_one_factors(problem, len(mask), rngs, self.sigma)
        factors = _with_constants(factors, problem)
        return Start(CPCores(factors, weights, problem.intercept), mask)

    def network(self, problem: Problem, form: Format, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores of another format."""
        sigma = near_one_sigma(form.n_columns) if self.sigma is None else self.sigma
        cores, extras = form.near_one(rngs, sigma)
        return Start(make_cores(form, _with_constants(cores, problem), extras, problem.intercept))


def _near_one_factors(
    problem: Problem, rank: int, rngs: list[np.random.Generator], sigma: float | None = None
) -> list[np.ndarray]:
    """Return CP factors (d_n, R) near one where element 0 is constant, else near that element.

    With a prior the noise is limited, so that the norm of a term stays near that of a constant.
    """
    form = CanonicalPolyadic(problem.local.dims.tolist(), rank, problem.n_outputs)
    sizes = np.full(form.n_columns, near_one_sigma(form.n_columns) if sigma is None else sigma)
    if sigma is None and problem.norm is not None:
        allowed = [form.n_columns * band[1:, 2].sum() for band in problem.norm.metric]
        sizes = np.minimum(sizes, 1.0 / np.sqrt(np.maximum(allowed, 1e-12)))
    return form.factors_near_one(rngs, sizes)


def _with_constants(cores: list[np.ndarray], problem: Problem) -> list[np.ndarray]:
    """Let the first row of each core belong to the constant one, where element 0 is another.

    Cores (d_n, K) are written as if element 0 were one for every row. Where it is not, that row is
    added to all rows, times the sum of elements that is nearest to one.
    """
    out = list(cores)
    for n in np.flatnonzero(~problem.local.layout.constant).tolist():
        noise = out[n].copy()
        noise[0] = 0.0
        out[n] = noise + np.outer(_nearest_to_one(problem, n), out[n][0])
    return out


def _nearest_to_one(problem: Problem, n: int) -> np.ndarray:
    """Return the sum of the elements of column n that is nearest to one on its rows, (d_n,).

    By steps of conjugate gradients on the least-squares problem, from zero: few of them keep the
    coefficients small where elements are nearly dependent, and without BLAS the bits do not depend
    on its threads. Some of the rows will do; they are sorted by a hash of their content.
    """
    local, layout = problem.local, problem.local.layout
    if layout.slots[n + 1] - layout.slots[n] == 1 and not layout.dense[n]:
        # One element per row, as of categories, some of which may have none of the rows below.
        value = local.value[:, layout.slots[n]]
        if np.all((value == 1) | (value == 0)):
            return np.ones(local.dims[n])
    rows = np.unique(np.linspace(0, len(local) - 1, min(len(local), _SOME_ROWS)).astype(np.intp))
    own = slice(local.layout.slots[n], local.layout.slots[n + 1])
    index, value = local.index[rows, own] - local.layout.first[n], local.value[rows, own]
    phi = np.zeros((len(rows), local.dims[n]))
    for at, v in zip(index.T, value.T):
        phi[np.arange(len(rows)), at] += v
    weight = problem.weight[rows]
    root = np.sqrt(weight / weight.sum())
    phi *= root[:, None]
    out, left = np.zeros(phi.shape[1]), root
    slope = np.einsum("nd,n->d", phi, left)
    step, size = slope, np.sum(slope * slope)
    for _ in range(min(phi.shape[1], _MOST_STEPS)):
        moved = np.einsum("nd,d->n", phi, step)
        if not (size > _NO_SLOPE and np.sum(moved * moved) > 0):
            break
        share = size / np.sum(moved * moved)
        out, left = out + share * step, left - share * moved
        slope = np.einsum("nd,n->d", phi, left)
        before, size = size, np.sum(slope * slope)
        step = slope + size / before * step
    return out


@dataclass(frozen=True)
class Linear:
    """Start from the linear model on the basis elements (paper, section VII).

    The linear model is logistic regression with C = 1 for two classes, least squares for the
    squared error, and the minimum of the loss plus the squares of the slopes, over 2 n, otherwise.
    Under the squared error, the log-odds of two classes are scaled to fit the labels -1 and +1.

    If R >= N L, term (l, n) is column n's part of output l as in the paper; terms beyond those
    start near one with an output weight of zero. Otherwise the linear solution becomes the additive
    part of the model. So it does where a map has no constant element, as Polynomial(normalize=True)
    and Trigonometric: the columns of such maps keep all their elements, and if no map has a
    constant, the linear model has no bias beside the intercept. Formats other than CP have no
    additive part, and refuse such maps.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise that is added to all entries, as in the paper. With noise,
        terms beyond the linear ones start at zero plus noise, as in the paper.
    degree_one : bool
        Use only the elements of degree one in the linear model, and of degree zero where these are
        no constants.
    """

    noise: float = 0.0
    degree_one: bool = False

    def start(self, problem: Problem, rank: int, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores."""
        bias, slopes = solve_linear(problem, self.degree_one)
        n_columns, n_outputs = len(slopes), problem.n_outputs
        total = rank * n_outputs if problem.separate else rank
        if total >= n_columns * n_outputs and problem.local.layout.constant.all():
            start = self._as_terms(problem, rank, total, rngs, bias, slopes)
        else:
            start = self._as_additive(problem, rank, rngs, bias, slopes)
        if self.noise > 0:
            factors = [
                a + self.noise * rng.normal(size=a.shape)
                for a, rng in zip(start.cores.factors, rngs)
            ]
            start = Start(
                CPCores(factors, start.cores.weights, problem.intercept, start.cores.additive),
                start.free,
            )
        return start

    def network(self, problem: Problem, form: Format, rngs: list[np.random.Generator]) -> Start:
        """Return initial cores of another format."""
        _check_constants(problem)
        bias, slopes = solve_linear(problem, self.degree_one)
        # What the linear model leaves unused has no noise but the one that was asked for.
        unused = 0.0 if self.noise > 0 else near_one_sigma(form.n_columns)
        cores, extras = form.linear(bias, slopes, rngs, unused)
        cores = [a + b for a, b in zip(cores, form.noise(rngs, self.noise))]
        return Start(make_cores(form, cores, extras, problem.intercept))

    def _as_terms(self, problem, rank, total, rngs, bias, slopes) -> Start:
        """Write the linear model into the terms, equation (lin_init_rows) of the paper."""
        n_columns, n_outputs = len(slopes), problem.n_outputs
        weights, free = _output_weights(rank, n_outputs, problem.separate)
        if self.noise > 0 and not np.any(free):
            factors = [np.zeros((dim, total)) for dim in problem.local.dims]
        else:
            factors = _near_one_factors(problem, total, rngs)
            free, weights = weights, np.zeros_like(weights)
        stride = rank if problem.separate else n_columns
        write_linear(factors, weights, bias, slopes, stride)
        return Start(CPCores(factors, weights, problem.intercept), free)

    def _as_additive(self, problem, rank, rngs, bias, slopes) -> Start:
        """Write the linear model into the additive part; output weights start at zero."""
        free, _ = _output_weights(rank, problem.n_outputs, problem.separate)
        factors = _near_one_factors(problem, len(free), rngs)
        for n in np.flatnonzero(problem.local.layout.constant)[:1]:  # none: there is no bias
            slopes[n][0] = bias
        return Start(CPCores(factors, np.zeros_like(free), problem.intercept, slopes), free)


def _check_constants(problem: Problem) -> None:
    if not np.all(problem.local.layout.constant):
        raise ValueError(
            "init='linear' needs a constant element in every map, unless a model has an additive "
            "part, as CPRegressor and CPClassifier; Polynomial(normalize=True) and Trigonometric "
            "have none. Choose init='near_one' or 'gaussian', or other maps."
        )


def solve_linear(problem: Problem, degree_one: bool) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fit the linear model on the basis elements; return its bias : (L,) and slopes : (d_n, L).

    The bias is relative to the problem's intercept, and the row of a constant element is zero. If
    no map has a constant element, the bias is zero: there is no place for it.
    """
    design, kept = _design(problem, degree_one)
    with_bias = bool(problem.local.layout.constant.any())
    if isinstance(problem.loss, SquaredError) and problem.two_classes:
        bias, solution = _scaled_log_odds(design, problem, with_bias)
    elif problem.loss.quadratic:
        bias, solution = _least_squares(design, problem, with_bias)
    else:
        rows = (problem.y, problem.weight, problem.intercept)
        bias, solution = _minimise(problem.loss, design, *rows, with_bias)
    height = problem.local.layout.first[-1] + problem.local.dims[-1]
    full = np.zeros((height, problem.n_outputs))
    full[kept] = solution
    firsts = problem.local.layout.first
    return bias, [full[f : f + d].copy() for f, d in zip(firsts, problem.local.dims)]


def _design(problem: Problem, degree_one: bool) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the basis elements as a sparse matrix, constants left out, and their table rows."""
    local = problem.local
    height = local.layout.first[-1] + local.dims[-1]
    matrix = sparse_design(local.index, local.value, height)
    degrees = np.zeros(height, dtype=int)
    # An element of degree zero that is no constant counts as one of degree one.
    degrees[local.layout.first[0] :] = np.concatenate(
        [d if c else np.maximum(d, 1) for d, c in zip(problem.degrees, local.layout.constant)]
    )
    kept = np.flatnonzero(degrees == 1 if degree_one else degrees > 0)
    return matrix[:, kept], kept


def _least_squares(design, problem: Problem, with_bias: bool) -> tuple[np.ndarray, np.ndarray]:
    """Solve weighted least squares, with a bias or without; of least norm if not unique."""
    weight = problem.weight / problem.weight.sum()
    target = problem.y - problem.intercept
    mean_y = with_bias * (weight @ target)
    mean_x = with_bias * (design.T @ weight)
    if design.shape[1] <= _DENSE_LIMIT:
        scaled = design.multiply(weight[:, None]).tocsr()
        gram = (design.T @ scaled).toarray() - np.outer(mean_x, mean_x)
        moment = scaled.T @ target - np.outer(mean_x, mean_y)
        size = np.sqrt(np.maximum(np.diag(gram), 1e-30))
        solution = np.linalg.lstsq(gram / np.outer(size, size), moment / size[:, None], rcond=1e-12)
        slopes = solution[0] / size[:, None]
    else:
        root = np.sqrt(weight)[:, None]
        ones = np.ones((len(target), int(with_bias)))
        columns = sparse.hstack([design, ones]).tocsr().multiply(root)
        slopes = np.column_stack(
            [lsqr(columns, r, damp=1e-6, iter_lim=300)[0] for r in (target * root).T]
        )[: design.shape[1]]
    return mean_y - mean_x @ slopes, slopes


def _scaled_log_odds(design, problem: Problem, with_bias: bool) -> tuple[np.ndarray, np.ndarray]:
    """Fit logistic regression, and fit labels of -1 and +1 by a line in its log-odds.

    So the authors of the paper started under the squared error. A line keeps the order of the rows;
    its slope is not negative, since the log-odds increase with the label.
    """
    loss, share = Logistic(), (problem.y + 1.0) / 2.0
    base = loss.baseline(share, problem.weight)
    bias, slopes = _minimise(loss, design, share, problem.weight, base, with_bias)
    log_odds = sparse.csr_array(bias + design @ slopes)  # relative to the base
    level, factor = _least_squares(log_odds, problem, with_bias)
    return level + factor[0] * bias, factor[0] * slopes


def _minimise(
    loss: Loss,
    design: sparse.csr_array,
    y: np.ndarray,
    weight: np.ndarray,
    intercept: np.ndarray,
    with_bias: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the loss plus |slopes|^2 / (2 n), which is logistic regression with C = 1."""
    return minimise_linear(
        loss,
        design,
        y,
        weight,
        intercept,
        1.0 / weight.sum(),
        with_bias=with_bias,
        max_steps=1000,
        slope_tolerance=1e-9,
        loss_tolerance=1e-14,
    )


INITS: dict[str, type] = {"gaussian": Gaussian, "linear": Linear, "near_one": NearOne}


def resolve(init: str | Init) -> Init:
    """Return the init of that name, or the instance itself.

    >>> resolve("gaussian")
    Gaussian(sigma=0.2)
    """
    if isinstance(init, str) and init in INITS:
        return INITS[init]()
    if not isinstance(init, str) and hasattr(init, "start"):
        return init
    raise ValueError(f"Unknown init {init!r}. Choose from: {', '.join(sorted(INITS))}.")
