"""Hash seeds: Python orders sets of texts by a seed of the process. Models must not depend on it.

    python torture/hashes.py --minutes 10

A case is some tables with text: columns of categories, classes, and a fit of each in three
processes, with PYTHONHASHSEED=0 and two other seeds. Cores and predictions must have the same bits,
and the saved files the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import tables
from common import ONE_THREAD, run

TABLES = 20  # of a case: starting a process takes as long as some tables


def with_text(rng):
    """Return a table with at least two columns of text, a target, weights and an estimator."""
    X, y, weight, model = tables.drawn(rng)
    n = len(X)
    texts = np.array([f"town {k}" for k in range(int(rng.integers(2, 30)))], dtype=object)
    for name in ("first text", "second text"):
        X[name] = pd.Series(texts[rng.integers(0, len(texts), n)], dtype=object)
    return X, y, weight, model


def fingerprint(seed: int, folder) -> str:
    """Fit one table, and return a hash of all that it gave; a refused one has its error."""
    X, y, weight, model = with_text(np.random.default_rng(seed))
    if getattr(model, "max_time", None) is not None:
        return "depends on time"
    try:
        model.fit(X, y, sample_weight=weight)
    except tables.DEFINED as error:
        return f"refused: {type(error).__name__}"
    model.save(os.path.join(folder, "model"))
    with open(os.path.join(folder, "model"), "rb") as file:
        out = hashlib.sha256(file.read())
    out.update(np.asarray(model.raw(X)).tobytes())
    return out.hexdigest()


def fingerprints(first: int, folder, hash_seed: int) -> list[str]:
    """Return the fingerprints of the tables of a case, computed in a process of its own."""
    found = subprocess.run(
        [sys.executable, __file__, "--tables", str(first), str(folder)],
        env={**os.environ, **ONE_THREAD, "PYTHONHASHSEED": str(hash_seed)},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(found.stdout)


def case(rng, folder) -> str:
    first = int(rng.integers(2**40))
    want = fingerprints(first, folder, 0)
    for hash_seed in rng.integers(1, 2**32, 2):
        found = fingerprints(first, folder, int(hash_seed))
        for k, (have, one) in enumerate(zip(found, want)):
            assert have == one, f"table {first + k} depends on PYTHONHASHSEED={hash_seed}"
    return f"{TABLES} tables, three hash seeds"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tables"]:
        warnings.simplefilter("ignore")
        first, folder = int(sys.argv[2]), sys.argv[3]
        print(json.dumps([fingerprint(first + k, folder) for k in range(TABLES)]))
    else:
        run("hashes", case, block=1)
