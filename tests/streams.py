"""Tables in files, for tests of streamed fits, and small limits so that few rows count as many."""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyadic.estimators import streamed
from polyadic.scale import memory
from polyadic.training import streaming

TINY = 100_000  # bytes: fewer than a fit in memory of the tables below takes
# One member of one strategy, trained briefly.
QUICK = {"n_members": 1, "max_iter": 3, "random_state": 0, "trees": False}


@contextmanager
def small_limits(sample=600, held_out=200, block=500):
    """Make blocks, samples and held-out rows small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamed, "SAMPLE_ROWS", sample)
        patch.setattr(streamed, "HELD_OUT_ROWS", held_out)
        patch.setattr(memory, "_FEWEST", block)
        patch.setattr(memory, "_MOST", block)
        patch.setattr(streaming, "CHECKPOINT_SECONDS", 0.0)
        yield


def make_rows(n_rows=3000, seed=0):
    """Return a table of numbers, categories and missing values, sorted by its first column."""
    rng = np.random.default_rng(seed)
    a, b = np.sort(rng.uniform(-1, 1, n_rows)), rng.uniform(-1, 1, n_rows)
    kind = rng.choice(["p", "q", "r"], n_rows)
    y = np.sin(3 * a) + a * b + (kind == "q") + 0.1 * rng.normal(size=n_rows)
    return pa.table(
        {
            "a": a,
            "b": pa.array(np.where(rng.random(n_rows) < 0.05, np.nan, b).astype(np.float32)),
            "kind": kind,
            "weight": rng.integers(0, 3, n_rows).astype(float),
            "y": y,
            "z": 2 * y + 1,
            "label": np.where(y > 1, "high", np.where(y > 0, "middle", "low")),
            "two": y > 0,
        }
    )


def write_rows(folder, columns, n_rows=3000, seed=0):
    """Write two files with these columns; return the folder."""
    table = make_rows(n_rows, seed).select(["a", "b", "kind", *columns])
    folder.mkdir(exist_ok=True)
    pq.write_table(table.slice(0, n_rows // 3), folder / "1.parquet", row_group_size=400)
    pq.write_table(table.slice(n_rows // 3), folder / "2.parquet", row_group_size=700)
    return folder
