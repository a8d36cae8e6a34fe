"""Higher-order factorization machines, by the recursion of the ANOVA kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import Array, Format
from polyadic.networks.tt import TensorTrain


class FactorizationMachine(Format):
    """Factorization machine of order m: products of up to m distinct columns.

    f(x)_l = sum_n w_nl z_n + sum_{t=2..m} sum_k C_tkl A_t(p_tk * z), with A_t the sum of all
    products of t distinct entries, by A_t <- A_t + u_n A_{t-1} column after column. Its
    inputs are the elements of degree one: numbers as they are, and one-hot categories. Each order
    has the same rank k.
    """

    name = "fm"
    is_network = False
    by_order = True
    constants = False
    weighs_terms = True

    @property
    def width(self) -> int:
        """Number of parameters per basis element: L linear weights, and k for each order >= 2."""
        return self.n_outputs + self.rank * (self.order - 1)

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of the output weights of the orders from two."""
        return [(self.order - 1, self.rank, self.n_outputs)] if self.order > 1 else []

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Add the linear part and, for each order, the recursion over the columns."""
        raw = parts[:, :, : self.n_outputs].sum(1)
        for t in range(2, self.order + 1):
            start = self.n_outputs + (t - 2) * self.rank
            u = parts[:, :, start : start + self.rank]  # (n, N, k)
            raw = raw + anova_kernel(u, t) @ extras[0][t - 2]
        return raw

    def weigh_outputs(self, cores, extras, matrix):
        """Multiply the linear weights, and the output weights of all orders."""
        n_outputs = self.n_outputs
        linear = [np.hstack([c[:, :n_outputs] @ matrix, c[:, n_outputs:]]) for c in cores]
        return linear, [e @ matrix for e in extras]

    def as_network(self, extras):
        """Write the recursion as a Tensor Train whose matrices are I + E, E linear in the part.

        The state of the train holds a one, the L outputs so far and, for order t, the sums A_1 to
        A_{t-1} of each of the k terms; E adds A_{s-1} u to A_s, and C_t A_{t-1} u to the outputs.
        """
        k, n_outputs = self.rank, self.n_outputs
        size = 1 + n_outputs + k * sum(range(1, self.order))
        moves = np.zeros((self.width, size, size))
        for output in range(n_outputs):
            moves[output, 0, 1 + output] = 1.0
        start, term = 1 + n_outputs, np.arange(k)
        for t in range(2, self.order + 1):
            own = n_outputs + (t - 2) * k + term  # the entries u of a part
            moves[own, 0, start + term] = 1.0
            for s in range(t - 2):
                moves[own, start + s * k + term, start + (s + 1) * k + term] = 1.0
            last = start + (t - 2) * k + term
            moves[own, last, 1 : 1 + n_outputs] = extras[0][t - 2]
            start += (t - 1) * k
        flat, one = moves.reshape(self.width, size**2), np.eye(size).ravel()
        ends = [np.eye(size)[0], np.eye(size)[:, 1 : 1 + n_outputs]]
        train = TensorTrain(self.dims, size, n_outputs)
        return train, ends, lambda parts: one + parts @ flat

    def near_one(self, rngs, sigma):
        """Return small noise, and no linear part: a factorization machine starts near zero."""
        cores = self.noise(rngs, sigma)
        for core in cores:
            core[0] = 0.0  # the constant is not used in products of columns
            core[:, : self.n_outputs] = 0.0
        return cores, [rngs[-1].normal(size=shape) for shape in self.extra_shapes()]


def anova_kernel(u: Array, order: int) -> Array:
    """Return the sum over all products of `order` distinct columns of u : (n, N, k), (n, k).

    >>> import numpy as np
    >>> anova_kernel(np.array([[[1.0], [2.0], [3.0]]]), 2)  # 1*2 + 1*3 + 2*3
    array([[11.]])
    """
    sums = [u[:, 0] * 0 + 1.0] + [u[:, 0] * 0 for _ in range(order)]
    for n in range(u.shape[1]):
        for t in range(min(n + 1, order), 0, -1):
            sums[t] = sums[t] + u[:, n] * sums[t - 1]
    return sums[order]
