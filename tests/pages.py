"""Tables, models and pages that the tests of the live page share."""

import base64
import json

import numpy as np
import pandas as pd

from polyadic import CPClassifier, CPRegressor

TYPES = {"f4": np.float32, "f8": np.float64}
# Names that would run a script, or break out of an attribute, if the page did not escape them.
HOSTILE = "<script>alert(1)</script>"
HOSTILE_QUOTES = "\"'></script><img src=x onerror=alert(1)>&amp;\u2028"
FAST = {"rank": 3, "n_members": 1, "max_iter": 3, "solver": "adam", "random_state": 0}


def numeric_table(n_rows=200, n_columns=4, missing=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    X[rng.random(X.shape) < missing] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2] ** 2) + 0.1 * rng.normal(size=n_rows)
    return X, y


def mixed_table(n_rows=240, seed=0):
    """Return two numbers and two categories with hostile names, missing values, and a score."""
    rng = np.random.default_rng(seed)
    city = np.array(["Ulm", "Bonn", HOSTILE, HOSTILE_QUOTES], dtype=object)[
        rng.integers(0, 4, n_rows)
    ]
    grade = np.array([1, 2, 3], dtype=object)[rng.integers(0, 3, n_rows)]
    area = rng.gamma(3.0, 30.0, n_rows)
    rooms = rng.integers(1, 6, n_rows).astype(float)
    score = area / 60 + 0.4 * rooms + (city == "Ulm") - grade.astype(float)
    area[rng.random(n_rows) < 0.1] = np.nan
    city[rng.random(n_rows) < 0.1] = None
    table = pd.DataFrame({"area": area, "rooms": rooms, HOSTILE: city, "grade": grade})
    return table, score + 0.2 * rng.normal(size=n_rows)


def three_classes(score):
    return np.array(["low", HOSTILE, "zz high"])[np.digitize(score, np.quantile(score, [0.3, 0.7]))]


def tiny_regressor(**changes):
    return CPRegressor(**(FAST | changes))


def tiny_classifier(**changes):
    return CPClassifier(**(FAST | changes))


def decode(array):
    return np.frombuffer(base64.b64decode(array["data"]), dtype=TYPES[array["type"]])


def data_of(path):
    """Return the data inside a page."""
    text = path.read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start : text.index("</script>", start)])


def mixed_model():
    """Return a classifier of three classes on numbers and categories, its table and its labels."""
    X, score = mixed_table()
    labels = three_classes(score)
    return tiny_classifier().fit(X, labels), X, labels
