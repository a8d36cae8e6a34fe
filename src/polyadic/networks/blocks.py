"""Terms on knots of their own: the form in which a merged model is kept and stored.

The members of a merged model have knots of their own, and a term bends only at the knots of its
member. So its values there tell all of it; between them it is linear. The core on the knots of all
members is computed from these values by the same steps at the end of a fit and after loading, so
that both have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SINGLE = 24  # bits of a number in single precision


@dataclass(frozen=True)
class Blocks:
    """All terms of one column in B blocks, each with elements of its own.

    The elements of the column's map add up to one, so that a core with the constant added to all
    others has the values of its functions at the knots, or for the categories.

    Attributes
    ----------
    kept : (B, d - 1) bool
        Which of the elements behind the constant a block has; every block has at least one.
    values : list of B arrays (number kept, R_b)
        The core at these elements, the constant added.
    knots : (d - 1,) or None
        Where the elements are; None where every block has all of them.
    """

    kept: np.ndarray
    values: list[np.ndarray]
    knots: np.ndarray | None = None

    def core(self, constant: np.ndarray) -> np.ndarray:
        """Return the core of all terms on all elements, (d, R), whose constants are (R,).

        >>> kept = np.array([[True, False, True]])
        >>> Blocks(kept, [np.array([[1.0], [3.0]])], np.arange(3.0)).core(np.array([2.0])).ravel()
        array([ 2., -1.,  0.,  1.])
        """
        parts = [
            own if np.all(kept) else _on_all_knots(self.knots, kept, own)
            for kept, own in zip(self.kept, self.values)
        ]
        # In one order of memory: sums over arrays of the same bits could round differently.
        return np.ascontiguousarray(np.vstack([constant, np.hstack(parts) - constant]))


def make_blocks(
    cores: Sequence[np.ndarray], knots: np.ndarray | None, own_knots: Sequence[np.ndarray]
) -> tuple[Blocks, np.ndarray]:
    """Return the blocks of one column, in single precision, and the constants of all terms, (R,).

    Parameters
    ----------
    cores : sequence of B arrays (d_b, R_b)
    knots : (d - 1,) or None
        The knots of all cores together; None where all cores have the same elements.
    own_knots : sequence of B arrays (d_b - 1,)
        Those of each core; they are not used without `knots`.
    """
    cores = [np.asarray(core, dtype=np.float64) for core in cores]
    values = [to_single(core[1:] + core[:1]) for core in cores]
    constant = np.concatenate([core[0] for core in cores])
    if knots is None:
        kept = np.ones((len(cores), len(cores[0]) - 1), dtype=bool)
    else:
        kept = np.array([np.isin(knots, own) for own in own_knots])
    return Blocks(kept, values, knots), constant


def to_single(array: np.ndarray) -> np.ndarray:
    """Round to the precision of float32, but not to its range; the type stays float64.

    >>> to_single(np.array([1.0 + 2.0**-30, 2.0**900])) == np.array([1.0, 2.0**900])
    array([ True,  True])
    """
    mantissa, exponent = np.frexp(np.asarray(array, dtype=np.float64))
    return np.ldexp(np.rint(np.ldexp(mantissa, _SINGLE)), exponent - _SINGLE)


def _on_all_knots(knots: np.ndarray | None, kept: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return functions, (K, R), that are linear between the knots kept and constant beyond them.

    In steps that round alike on every machine: no sum has more than two terms.
    """
    if knots is None:
        raise ValueError("a block without all elements needs knots.")
    own = knots[kept]
    if len(own) == 1:
        return np.repeat(values, len(knots), axis=0)
    cell = np.clip(np.searchsorted(own, knots, side="right") - 1, 0, len(own) - 2)
    # Halved first: a difference of knots at both ends of the float range would overflow.
    width = 0.5 * own[cell + 1] - 0.5 * own[cell]
    t = np.clip((0.5 * knots - 0.5 * own[cell]) / width, 0.0, 1.0)[:, None]
    return (1.0 - t) * values[cell] + t * values[cell + 1]
