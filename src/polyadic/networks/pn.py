"""Polynomial networks: sums of products of affine forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyadic.networks.base import Array, Format, balanced_weights


class PolynomialNetwork(Format):
    """Polynomial network of order m: f(x)_l = sum_k C_kl prod_{t=1..m} (b_tk + sum_n w_tkn z_n).

    Each of the R terms is a product of m affine forms of the columns: numbers as they are, and
    one-hot categories. So it has powers of single columns too, up to order m.
    """

    name = "pn"
    is_network = False
    by_order = True
    constants = False
    weighs_terms = True

    @property
    def width(self) -> int:
        """Number of parameters per basis element: one for each of the m forms of each term."""
        return self.rank * self.order

    def extra_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the constants of the forms and of the output weights."""
        return [(self.order, self.rank), (self.rank, self.n_outputs)]

    def contract(self, parts: Array, extras: Sequence[Array]) -> Array:
        """Add up the columns within each form, and multiply the forms."""
        forms = parts.sum(1).reshape(len(parts), self.order, self.rank) + extras[0]
        product = forms[:, 0]
        for t in range(1, self.order):
            product = product * forms[:, t]
        return product @ extras[1]

    def as_network(self, extras):
        """Refuse: the product of a form with itself is not affine in the part of a column."""
        raise ValueError(
            "format='pn' multiplies a column with itself, so no closed form averages over it. "
            "Models of format cp, tt, tr, ht, tucker and fm can be explained."
        )

    def near_one(self, rngs, sigma):
        """Return forms near the constant one."""
        cores = self.noise(rngs, sigma)
        for core in cores:
            core[0] = 0.0
        weights = balanced_weights(rngs[-1], np.ones((self.rank, self.n_outputs)))
        return cores, [np.ones((self.order, self.rank)), weights]

    def gaussian(self, rngs, sigma):
        """Return noise of one size for the slopes and the constants of the forms."""
        cores, (constants, weights) = super().gaussian(rngs, sigma)
        return cores, [sigma * rngs[-1].normal(size=constants.shape), weights]
