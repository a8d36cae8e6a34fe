"""Models that other libraries have grown, for tests of their readers, and sources evaluated.

`CASES` has a builder for each library and task: it returns a fitted model, its table, and the
function of a table that returns the library's own raw predictions.
"""

import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import sklearn.ensemble as ensembles
import xgboost as xgb
from sklearn import tree as single

from polyadic.objective.losses import Logistic, Poisson, Quantile, Softmax, SquaredError

# ---- a source, evaluated -------------------------------------------------------------------------


def as_numbers(source, X):
    """Return the table as numbers, (n, N): of a category its position, NaN where it is unseen."""
    frame = pd.DataFrame(X)
    out = np.empty(frame.shape)
    for j in range(frame.shape[1]):
        values = frame.iloc[:, j]
        if j in source.categories:
            place = {value: i for i, value in enumerate(source.categories[j])}
            out[:, j] = [np.nan if v is None else place.get(v, np.nan) for v in values.tolist()]
        else:
            out[:, j] = values.astype(float)
    return out


def leaves_of(tree, numbers):
    """Return the leaf of each row, (n,)."""
    widest = 1 + max((int(s.max(initial=0)) for s in tree.sets.values()), default=0)
    chosen = np.zeros((len(tree.column), widest + 1), dtype=bool)
    for node, positions in tree.sets.items():
        chosen[node, positions] = True
    has_set = np.isin(np.arange(len(tree.column)), list(tree.sets))
    node, rows = np.zeros(len(numbers), dtype=int), np.arange(len(numbers))
    while rows.size:
        rows = rows[tree.column[node[rows]] >= 0]
        at = node[rows]
        x = numbers[rows, tree.column[at]]
        missing = np.isnan(x)
        place = np.clip(np.where(missing | ~has_set[at], 0, x), 0, widest).astype(int)
        left = np.where(has_set[at], chosen[at, place], x <= tree.threshold[at])
        left = np.where(missing, tree.missing_left[at], left)
        node[rows] = np.where(left, tree.left[at], tree.right[at])
    return node


def evaluate(source, X):
    """Return the raw predictions of a source, (n, L)."""
    numbers = as_numbers(source, X)
    raw = np.tile(source.base, (len(numbers), 1))
    for tree in source.trees:
        width = tree.value.shape[1]
        raw[:, tree.output : tree.output + width] += tree.value[leaves_of(tree, numbers)]
    return raw


# ---- tables --------------------------------------------------------------------------------------

TINY = float(np.float32(1e-35))  # LightGBM takes it for zero


def numeric(rng, n=150, missing=True):
    X = np.column_stack(
        (rng.normal(size=n), rng.integers(-3, 4, n), rng.normal(size=n).round(1), rng.random(n))
    )
    if missing:
        X[rng.random(n) < 0.2, 2] = np.nan
    return X


def score(X):
    """Return a smooth target of a table of numbers, in which missing entries matter."""
    X = np.asarray(X, dtype=float)
    filled = np.where(np.isnan(X), 2.0, X)
    return filled[:, 0] * (filled[:, 1] > 0) + np.abs(filled[:, 2]) + 0.5 * filled[:, 3]


def mixed(rng, n=300, missing=True):
    """Return a frame whose second and fourth columns are categorical: strings, and numbers."""
    kinds = np.array(
        ["red", "green", "blue", "grey", "white", "black", "pink", "cyan"], dtype=object
    )
    colour, size = rng.integers(0, 8, n), rng.integers(0, 3, n)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": 0, "c": rng.normal(size=n), "d": 0})
    frame["b"] = pd.Categorical(kinds[colour], categories=kinds)
    frame["d"] = pd.Categorical(np.array([10, 20, 30])[size])
    if missing:
        for column in frame:
            frame.loc[rng.random(n) < 0.1, column] = None
    y = frame["a"].fillna(1.0) + np.array([0, 3, 1, 2, 3, 0, 2, 1])[colour] * (size != 1)
    return frame, y.to_numpy() + frame["c"].isna().to_numpy()


def replaced(source, X, values_of, rng):
    """Return rows of X in which one number is replaced by each of `values_of(column)`."""
    frame = pd.DataFrame(X)
    rows = []
    for j in range(frame.shape[1]):
        if j not in source.categories:
            values = values_of(j)
            part = frame.iloc[rng.integers(0, len(frame), len(values))].copy()
            part.isetitem(j, values)
            rows.append(part)
    out = pd.concat(rows, ignore_index=True)
    return out if isinstance(X, pd.DataFrame) else out.to_numpy()


def edges(source, X, rng, most=25):
    """Return rows of X in which one number is a threshold, or a neighbour of one."""

    def values_of(j):
        found = [t.threshold[t.column == j] for t in source.trees]
        t = np.unique(np.concatenate([*found, [0.0, TINY, -TINY]]))
        t = rng.permutation(t[np.abs(t) < 1e30])[:most]
        narrow = t.astype(np.float32)
        up, down = (np.nextafter(narrow, np.float32(end)) for end in (np.inf, -np.inf))
        near = (t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf), narrow, up, down)
        return np.concatenate([values.astype(float) for values in near])

    return replaced(source, X, values_of, rng)


def without(X):
    """Return rows of X in which one column, or all, are missing."""
    frame = pd.DataFrame(X).iloc[: len(X[:1].T) + 1].reset_index(drop=True)
    for j in range(frame.shape[1]):
        frame.isetitem(j, frame.iloc[:, j].mask(frame.index.isin([j, frame.shape[1]])))
    return frame if isinstance(X, pd.DataFrame) else frame.to_numpy()


# ---- models: each returns the model, its table, and its raw predictions --------------------------

LGB = {"n_estimators": 6, "num_leaves": 8, "min_child_samples": 5, "n_jobs": 1, "verbose": -1}
XGB = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}
CAT = {"iterations": 6, "depth": 3, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
SMALL = {"random_state": 0, "max_depth": 4}
HGB = {"max_iter": 6, "min_samples_leaf": 5, "random_state": 0}
CASES = {}


@contextmanager
def quiet():
    """Hide what libraries say of names that an array lacks, and of parts that they will remove."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        warnings.filterwarnings("ignore", r"(?s).*deprecated")
        yield


def case(name, tolerance=1e-12, nan=True, inf=False, **expected):
    def add(build):
        CASES[name] = SimpleNamespace(
            build=quiet()(build), tolerance=tolerance, nan=nan, inf=inf, expected=expected
        )
        return build

    return add


def three(y):
    return np.digitize(y, np.quantile(y, [0.3, 0.6]))


def two(y):
    return (y > np.median(y)).astype(int)


def counts(y):
    return np.exp(0.3 * y).round() + 1.0


TARGETS = {
    "numbers": (lambda y: y, SquaredError(), None),
    "two": (lambda y: np.array(["no", "yes"])[two(y)], Logistic(), ["no", "yes"]),
    "three": (lambda y: np.array(["p", "q", "r"])[three(y)], Softmax(3), ["p", "q", "r"]),
    "counts": (counts, Poisson(), None),
}


@quiet()
def lgb_raw(model, X):
    return model.predict(X, raw_score=True)


def add_lightgbm(name, target, kind, factor=1.0, **options):
    change, loss, classes = TARGETS[target]

    @case(f"lightgbm {name}", inf=True, loss=loss, classes=classes)
    def build(rng):
        X = numeric(rng)
        model = kind(**{**LGB, **options}).fit(X, change(score(X)))
        return model, X, lambda X: factor * lgb_raw(model, X)


add_lightgbm("numbers", "numbers", lgb.LGBMRegressor)
add_lightgbm("two classes", "two", lgb.LGBMClassifier)
add_lightgbm("sigmoid", "two", lgb.LGBMClassifier, factor=2.5, sigmoid=2.5)
add_lightgbm("three classes", "three", lgb.LGBMClassifier)
add_lightgbm("poisson", "counts", lgb.LGBMRegressor, objective="poisson")
add_lightgbm("tweedie", "counts", lgb.LGBMRegressor, objective="tweedie")
add_lightgbm("dart", "numbers", lgb.LGBMRegressor, boosting_type="dart", drop_rate=0.5)
add_lightgbm("no missing", "numbers", lgb.LGBMRegressor, use_missing=False)
# A forest predicts the mean of its trees, but what it calls raw score is their sum.
FOREST = {"boosting_type": "rf", "subsample": 0.7, "subsample_freq": 1, "factor": 1 / 6}
add_lightgbm("forest", "numbers", lgb.LGBMRegressor, **FOREST)
add_lightgbm("forest of classes", "three", lgb.LGBMClassifier, **FOREST)


@case("lightgbm zero missing", inf=True, loss=SquaredError())
def _(rng):
    X = rng.choice([0.0, 1.0, 2.0, 3.5], (200, 2)) * rng.random((200, 2)).round(1)
    model = lgb.LGBMRegressor(**LGB, zero_as_missing=True).fit(X, X[:, 0] + X[:, 1])
    return model, X, lambda X: lgb_raw(model, X)


@case("lightgbm frame", inf=True, loss=SquaredError())
def _(rng):
    X, y = mixed(rng)
    model = lgb.LGBMRegressor(**LGB, min_data_per_group=5, cat_smooth=1).fit(X, y)
    return model, X, lambda X: lgb_raw(model, X)


@case("lightgbm codes", loss=Quantile(0.7))
def _(rng):
    X = numeric(rng)
    X[:, 1] = rng.integers(0, 40, len(X))
    y = score(X) + np.sin(7 * X[:, 1])
    options = {"objective": "quantile", "alpha": 0.7, "min_data_per_group": 2, "cat_smooth": 0.1}
    model = lgb.LGBMRegressor(**LGB, **options).fit(X, y, categorical_feature=[1])
    return model, X, lambda X: lgb_raw(model, X)


@case("lightgbm stopped early", loss=Logistic(), classes=[0, 1])
def _(rng):
    X, y = numeric(rng), rng.integers(0, 2, 150)
    data = lgb.Dataset(X[:100], y[:100], free_raw_data=False)
    stop = lgb.early_stopping(2, verbose=False)
    parameters = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3}
    held_out = [data.create_valid(X[100:], y[100:])]
    options = {"valid_sets": held_out, "callbacks": [stop], "keep_training_booster": True}
    booster = lgb.train(parameters, data, 30, **options)
    assert booster.best_iteration < booster.current_iteration()
    return booster, X, lambda X: booster.predict(X, raw_score=True)


def add_xgboost(name, target, kind, **options):
    change, loss, classes = TARGETS[target]
    classes = None if classes is None else list(range(len(classes)))

    @case(f"xgboost {name}", tolerance=1e-6, loss=loss, classes=classes)
    def build(rng):
        X = numeric(rng)
        y = change(score(X))
        if classes is not None:
            y = np.unique(y, return_inverse=True)[1]
        model = kind(**{**XGB, **options}).fit(X, y)
        return model, X, lambda X: model.predict(X, output_margin=True)


add_xgboost("numbers", "numbers", xgb.XGBRegressor)
add_xgboost("pruned", "numbers", xgb.XGBRegressor, tree_method="exact", gamma=3.0, max_depth=6)
add_xgboost("two classes", "two", xgb.XGBClassifier, base_score=0.3)
add_xgboost("raw classes", "two", xgb.XGBClassifier, objective="binary:logitraw")
add_xgboost("three classes", "three", xgb.XGBClassifier)
add_xgboost("poisson", "counts", xgb.XGBRegressor, objective="count:poisson")
add_xgboost("gamma", "counts", xgb.XGBRegressor, objective="reg:gamma")
add_xgboost("forest", "numbers", xgb.XGBRFRegressor, colsample_bynode=0.8)
add_xgboost("forest of classes", "three", xgb.XGBRFClassifier)
add_xgboost("dart", "three", xgb.XGBClassifier, booster="dart", rate_drop=0.5)
add_xgboost("leaf by leaf", "numbers", xgb.XGBRegressor, grow_policy="lossguide", max_leaves=9)


def add_xgboost_outputs(strategy):
    @case(f"xgboost {strategy}", tolerance=1e-6, loss=SquaredError())
    def build(rng):
        X = numeric(rng)
        Y = np.column_stack((score(X), X[:, 0], X[:, 3] ** 2))
        model = xgb.XGBRegressor(**XGB, multi_strategy=strategy).fit(X, Y)
        return model, X, lambda X: model.predict(X)


add_xgboost_outputs("one_output_per_tree")
add_xgboost_outputs("multi_output_tree")


def add_xgboost_frame(name, **options):
    @case(f"xgboost {name}", tolerance=1e-6, loss=SquaredError())
    def build(rng):
        X, y = mixed(rng)
        model = xgb.XGBRegressor(**XGB, enable_categorical=True, **options).fit(X, y)
        return model, X, lambda X: model.predict(X)


add_xgboost_frame("one-hot", max_cat_to_onehot=100)
add_xgboost_frame("partitions", max_cat_to_onehot=1)


@case("xgboost codes", tolerance=1e-6, loss=SquaredError())
def _(rng):
    X = numeric(rng)
    X[:, 1] = rng.integers(0, 12, len(X))
    kinds = ["q", "c", "q", "q"]
    data = xgb.DMatrix(X, score(X) + np.cos(5 * X[:, 1]), feature_types=kinds)
    booster = xgb.train({"max_depth": 3, "nthread": 1}, data, 5)
    return booster, X, lambda X: booster.predict(xgb.DMatrix(X, feature_types=kinds))


@case("xgboost stopped early", tolerance=1e-6, loss=Softmax(3), classes=[0, 1, 2])
def _(rng):
    X, y = numeric(rng), rng.integers(0, 3, 150)
    model = xgb.XGBClassifier(**{**XGB, "n_estimators": 30}, early_stopping_rounds=2)
    model.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    return model, X, lambda X: model.predict(X, output_margin=True)


def add_catboost(name, target, kind, missing=True, **options):
    change, loss, classes = TARGETS[target]

    @case(f"catboost {name}", inf=True, loss=loss, classes=classes)
    def build(rng):
        X = numeric(rng, missing=missing)
        model = kind(**{**CAT, **options}).fit(X, change(score(X)))
        return model, X, lambda X: model.predict(X, prediction_type="RawFormulaVal")


add_catboost("numbers", "numbers", cb.CatBoostRegressor)
add_catboost("missing last", "numbers", cb.CatBoostRegressor, nan_mode="Max")
add_catboost("missing unseen", "numbers", cb.CatBoostRegressor, missing=False)
add_catboost(
    "missing refused", "numbers", cb.CatBoostRegressor, missing=False, nan_mode="Forbidden"
)
add_catboost("two classes", "two", cb.CatBoostClassifier)
add_catboost("three classes", "three", cb.CatBoostClassifier)
add_catboost("poisson", "counts", cb.CatBoostRegressor, loss_function="Poisson")
add_catboost("leaf by leaf", "three", cb.CatBoostClassifier, grow_policy="Lossguide")
add_catboost("level by level", "numbers", cb.CatBoostRegressor, grow_policy="Depthwise")


@case("catboost outputs", inf=True, loss=SquaredError())
def _(rng):
    X = numeric(rng)
    Y = np.column_stack((score(X), X[:, 0], X[:, 3] ** 2))
    model = cb.CatBoostRegressor(**CAT, loss_function="MultiRMSE").fit(X, Y)
    return model, X, lambda X: model.predict(X)


def add_catboost_frame(policy):
    @case(f"catboost one-hot {policy}", nan=False, loss=Quantile(0.5))
    def build(rng):
        X, y = mixed(rng, missing=False)
        options = {**CAT, "one_hot_max_size": 20, "cat_features": ["b", "d"], "depth": 5}
        model = cb.CatBoostRegressor(**options, grow_policy=policy, loss_function="MAE").fit(X, y)
        return model, X, lambda X: model.predict(X)


for one_policy in ("SymmetricTree", "Lossguide"):
    add_catboost_frame(one_policy)


def add_scikit(name, target, kind, factor=1.0, nan=True, inf=False, **options):
    change, loss, classes = TARGETS[target]

    @case(f"sklearn {name}", nan=nan, inf=inf, loss=loss, classes=classes)
    def build(rng):
        X = numeric(rng, missing=nan)
        model = kind(**options).fit(X, change(score(X)))
        if hasattr(model, "decision_function"):
            return model, X, lambda X: factor * model.decision_function(X)
        return model, X, lambda X: loss.link(model.predict(X))


BOOST = {**SMALL, "n_estimators": 6, "nan": False}
add_scikit("hist numbers", "numbers", ensembles.HistGradientBoostingRegressor, inf=True, **HGB)
add_scikit("hist two", "two", ensembles.HistGradientBoostingClassifier, inf=True, **HGB)
add_scikit("hist three", "three", ensembles.HistGradientBoostingClassifier, inf=True, **HGB)
add_scikit("hist poisson", "counts", ensembles.HistGradientBoostingRegressor, loss="poisson", **HGB)
add_scikit("hist gamma", "counts", ensembles.HistGradientBoostingRegressor, loss="gamma", **HGB)
add_scikit("boosted numbers", "numbers", ensembles.GradientBoostingRegressor, **BOOST)
add_scikit("boosted zero", "numbers", ensembles.GradientBoostingRegressor, init="zero", **BOOST)
add_scikit("boosted two", "two", ensembles.GradientBoostingClassifier, **BOOST)
add_scikit("boosted three", "three", ensembles.GradientBoostingClassifier, **BOOST)
add_scikit(
    "boosted exponential",
    "two",
    ensembles.GradientBoostingClassifier,
    factor=2.0,
    loss="exponential",
    **BOOST,
)


@case("sklearn hist frame", inf=True, loss=SquaredError())
def _(rng):
    X, y = mixed(rng)
    model = ensembles.HistGradientBoostingRegressor(**HGB).fit(X, y)
    return model, X, model.predict


@case("sklearn hist codes", inf=True, loss=SquaredError())
def _(rng):
    X = numeric(rng)
    X[:, 1] = rng.integers(0, 12, len(X)) * 2.0
    options = {**HGB, "categorical_features": [False, True, False, False]}
    model = ensembles.HistGradientBoostingRegressor(**options).fit(X, score(X) + np.cos(X[:, 1]))
    return model, X, model.predict


def add_average(name, kind, target, missing=True, **options):
    change, _, classes = TARGETS[target]

    @case(f"sklearn {name}", loss=SquaredError(), classes=classes, nan=missing)
    def build(rng):
        X = numeric(rng, missing=missing)
        model = kind(**SMALL, **options).fit(X, change(score(X)))
        if classes is None:
            return model, X, model.predict
        first = 1 if len(classes) == 2 else 0
        return model, X, lambda X: 2.0 * model.predict_proba(X)[:, first:] - 1.0


TREES = {"n_estimators": 7}
add_average("forest", ensembles.RandomForestRegressor, "numbers", **TREES)
add_average("forest two", ensembles.RandomForestClassifier, "two", **TREES)
add_average("forest three", ensembles.RandomForestClassifier, "three", **TREES)
add_average("extra trees", ensembles.ExtraTreesRegressor, "numbers", missing=False, **TREES)
add_average("extra trees three", ensembles.ExtraTreesClassifier, "three", missing=False, **TREES)
add_average("tree", single.DecisionTreeRegressor, "numbers")
add_average("tree two", single.DecisionTreeClassifier, "two")
add_average("extra tree", single.ExtraTreeRegressor, "numbers", missing=False)
add_average("tree, missing unseen", single.DecisionTreeClassifier, "three", missing=False)


def add_average_outputs(kind):
    @case(f"sklearn outputs {kind.__name__}", loss=SquaredError())
    def build(rng):
        X = numeric(rng)
        model = kind(**SMALL).fit(X, np.column_stack((score(X), X[:, 0])))
        return model, X, model.predict


add_average_outputs(ensembles.RandomForestRegressor)
add_average_outputs(single.DecisionTreeRegressor)
