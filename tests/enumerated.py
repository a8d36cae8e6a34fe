"""Raw predictions in double precision, and means over the enumerated product of marginals."""

from itertools import product

import numpy as np
import pandas as pd


def exact_raw(model, X):
    """Return the raw predictions of a CP model, (n, L), without rounding to single precision."""
    coded, cores = model.columns_.code(X), model.tensor_
    raw = np.tile(np.asarray(cores.intercept, dtype=float), (len(coded[0]), 1))
    terms = np.ones((len(raw), cores.rank))
    for n, (own, x) in enumerate(zip(model.maps_, coded)):
        phi = own.dense(x)
        terms *= phi @ cores.factors[n]
        if cores.additive is not None:
            raw += phi @ cores.additive[n]
    raw += terms @ cores.weights
    if cores.trees is not None:
        cores.trees.add_to(raw, coded)
    return raw


def enumerate_rows(X):
    """Return a table of all combinations of the columns' values, and the share of each row."""
    frame = pd.DataFrame(X)
    counted = [frame[c].value_counts(normalize=True, dropna=False) for c in frame]
    rows = list(product(*(list(c.index) for c in counted)))
    share = np.prod(list(product(*(c.to_numpy() for c in counted))), axis=1)
    out = pd.DataFrame(rows, columns=frame.columns)
    for name, dtype in frame.dtypes.items():
        out[name] = out[name].astype(dtype)
    return (out if isinstance(X, pd.DataFrame) else out.to_numpy()), share


def moments(values, share):
    """Return the mean, (L,), and the variance summed over outputs, of values (n, L)."""
    mean = share @ values
    return mean, float(np.sum(share @ (values - mean) ** 2))
