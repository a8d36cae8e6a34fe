"""Bombs: a small model file cannot take much memory or time, whichever of its fields is forged."""

import copy
import inspect
import time
import tracemalloc
import zlib

import needs
import numpy as np
import pytest
from stored import FAST, built, frame, numbers, write_signed

from polyadic import CPClassifier, CPRegressor, ModelFileError, TNRegressor, load, maps
from polyadic.io.files import read_file

# Two epochs may end far from the optimum, which does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MOST_TIMES, MOST_CONSTANT = 100, 10e6  # bytes of memory per byte of the file, and besides
MOST_SECONDS = 5.0  # of the processor, traced, for files of about 300 kB
N_BYTES = 100_000  # of a file without a bomb: what it may unpack to depends on it
PRIME = 2**61 - 1  # whole numbers with the same remainder have the same hash


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return header and arrays of models that have parts of every kind."""
    needs.package("torch")
    X, table = numbers(), frame()
    options = {**FAST, "n_members": 2, "trees": True}
    models = {
        "named columns, trees, blocks": CPRegressor(**options).fit(table, table["rooms"]),
        "classes": CPClassifier(**FAST).fit(X, np.array(["no", "yes", "so"])[np.arange(60) % 3]),
        "network": TNRegressor("ht", rank=4, max_iter=1, random_state=0).fit(X, X[:, :2]),
    }
    path, out = tmp_path_factory.mktemp("files") / "m", {}
    for name, model in models.items():
        model.save(path)
        out[name] = read_file(path)
    return out


def check(path, header, arrays):
    """Check that loading a file takes little; return why it is refused.

    The file is as bad as it can be: arrays are packed as far as the limits allow.
    """
    arrays = dict(arrays)
    arrays["pad"] = np.random.default_rng(0).integers(0, 256, N_BYTES).astype(np.uint8)
    packed, tensors = {}, {}
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        tensors[name] = array
        if name != "pad" and array.nbytes > 1000:
            words = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
            packed[name] = [array.dtype.name, list(array.shape), 0]
            tensors[name] = np.frombuffer(zlib.compress(words.T.tobytes()), np.uint8)
    write_signed(path, {**header, "packed": packed}, tensors)
    tracemalloc.start()
    start = time.process_time()
    try:
        load(path)
        raise AssertionError("the padding was accepted")
    except ModelFileError as error:
        told = str(error)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "checksum" not in told
    assert len(told) < 2000
    assert seconds < MOST_SECONDS, told
    assert peak < MOST_CONSTANT + MOST_TIMES * path.stat().st_size, told
    return told


def leaves(value, way=()):
    """Return the way to every entry of a header; of the entries of a list, only to the first."""
    inner = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:1]))
    return [way] * bool(way) + [found for key, one in inner for found in leaves(one, (*way, key))]


def replaced(header, way, value):
    """Return a copy of a header in which one entry is another."""
    out = at = copy.deepcopy(header)
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    return out


HEADER_BOMBS = {
    "text": "x" * 100_000,
    "lists": [{}] * 5_000,
    "one long text": {"@array": ["U", ["x" * 50_000, *["y"] * 10_000]]},
    "a large number": 10**6,
}


@pytest.mark.parametrize("bomb", HEADER_BOMBS)
def test_no_entry_of_a_header_is_a_bomb(bomb, files, tmp_path):
    seen = {"sha256", "tensors_sha256", "packed", "format", "version"}
    for header, arrays in files.values():
        # Parameters are all read by the same code: the first, and all that are not parameters.
        ways = [way for way in leaves(header) if way[0] not in seen and way[0] != "params"]
        for way in [("params",), ("params", "maps"), *ways]:
            if way not in seen:
                check(tmp_path / "m", replaced(header, way, HEADER_BOMBS[bomb]), arrays)
                seen.add(way)
    assert len(seen) > 40


@pytest.mark.parametrize("name", ["named columns, trees, blocks", "classes", "network"])
def test_no_array_is_a_bomb(name, files, tmp_path):
    header, arrays = files[name]
    by_field = {}
    for key in arrays:  # of the columns, one of each kind
        by_field.setdefault((tuple(part for part in key.split(".") if not part.isdigit())), key)
    for key in by_field.values():
        array = arrays[key]
        for axis in range(array.ndim):
            shape = list(array.shape)
            others = array.nbytes // max(shape[axis], 1)
            shape[axis] = 10 * N_BYTES // max(others, array.itemsize)
            larger = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
            check(tmp_path / "m", header, {**arrays, key: larger})
            small = np.zeros(larger.size, np.int8).reshape(shape)  # many entries in few bytes
            check(tmp_path / "m", header, {**arrays, key: small})
            check(tmp_path / "m", header, {**arrays, key: np.zeros(shape, array.dtype)})


# ---- every map, with a core of the right size ----------------------------------------------------

MAP_FIELDS = [
    (cls, field)
    for cls in maps.MAPS.values()
    for field in (*inspect.signature(cls).parameters, *cls.state)
]


def large_map(cls, field, size):
    """Return a map one of whose fields is large, as far as the map allows."""
    x = np.arange(2.0 if cls.kind == "numeric" else 2)
    if field not in cls.state:
        try:
            return cls(**{field: size}).fit(x)
        except (ValueError, TypeError):
            own = cls().fit(x)
            setattr(own, field, size)
            return own
    own = cls().fit(x)
    if field == "lookup_":
        own.lookup_ = np.arange(1, size + 1, dtype=np.int32)
    elif np.ndim(getattr(own, field)):
        setattr(own, field, np.linspace(-1.0, 1.0, size))
    else:
        setattr(own, field, np.zeros(size))
    return own


def entry_of(own):
    """Return the entry of a map in a header."""
    return {"@map": type(own).__name__, "params": own.params(), "arrays": list(own.arrays())}


@pytest.mark.parametrize(
    ("cls", "field"), MAP_FIELDS, ids=lambda part: getattr(part, "__name__", part)
)
@pytest.mark.parametrize("size", [1_000, 30_000])
def test_no_field_of_a_map_is_a_bomb(cls, field, size, files, tmp_path):
    own = large_map(cls, field, size)
    header, arrays = copy.deepcopy(files["classes"])
    kept = ("maps.0.", "marginals.", "columns.0.", "factors.")
    arrays = {key: array for key, array in arrays.items() if not key.startswith(kept)}
    rank = len(arrays["weights"])
    header["marginals"] = []
    header["maps"] = [entry_of(own)]
    header["columns"]["columns"] = header["columns"]["columns"][:1]
    header["columns"]["columns"][0]["kind"] = cls.kind
    if cls.kind == "categorical":
        text = "[" + ",".join(map(str, range(size))) + "]"
        arrays["columns.0.categories"] = np.frombuffer(text.encode(), np.uint8)
    arrays |= {f"maps.0.{key}": array for key, array in own.arrays().items()}
    arrays["factors.0"] = np.zeros((own.dim, rank), np.float32)
    check(tmp_path / "m", header, arrays)


@pytest.mark.parametrize(
    ("cls", "field"),
    [(cls, field) for cls, field in MAP_FIELDS if field not in cls.state],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_no_parameter_of_maps_of_trees_is_a_bomb(cls, field, files, tmp_path):
    """Many short texts can ask for large maps: those of trees have no cores that would tell."""
    n_columns, own = 300, large_map(cls, field, 10**6)
    header, arrays = copy.deepcopy(files["named columns, trees, blocks"])
    columns = ("maps.", "trees.maps.", "marginals.", "columns.", "factors.", "blocks.", "additive.")
    arrays = {key: array for key, array in arrays.items() if not key.startswith(columns)}
    numeric = cls.kind == "numeric"
    small = (maps.Step if numeric else maps.OneHot)().fit(np.arange(2.0 if numeric else 2))
    header["columns"] = {
        "named": False,
        "columns": [{"name": f"x{n}", "kind": cls.kind} for n in range(n_columns)],
    }
    header |= {"maps": [entry_of(small)] * n_columns, "marginals": []}
    header["tensor"] = {"additive": False}
    header["trees"] = {"maps": [entry_of(own)] * n_columns, "shares": True}
    for n in range(n_columns):
        arrays[f"factors.{n}"] = np.zeros((small.dim, len(arrays["weights"])), np.float32)
        arrays |= {f"maps.{n}.{key}": array for key, array in small.arrays().items()}
        # Short arrays, so that many maps make a small file.
        arrays |= {f"trees.maps.{n}.{key}": np.ravel(a)[:2] for key, a in own.arrays().items()}
        if not numeric:
            arrays[f"columns.{n}.categories"] = np.frombuffer(b"[0,1]", np.uint8)
    told = check(tmp_path / "m", header, arrays)
    assert cls in (maps.Step, maps.OneHot) or "must be Step or OneHot" in told


# ---- bombs of a kind of their own ----------------------------------------------------------------


def test_keys_with_one_hash_are_refused(files, tmp_path):
    header, arrays = files["classes"]
    bomb = {"@pairs": [[k * PRIME, 0] for k in range(30_000)]}
    check(tmp_path / "m", replaced(header, ("params", "class_weight"), bomb), arrays)


def test_categories_with_one_hash_are_refused(files, tmp_path):
    header, arrays = files["named columns, trees, blocks"]
    (key,) = [key for key in arrays if key.endswith("2.categories")]
    for items in (
        ",".join(str(k * PRIME) for k in range(30_000)),
        ",".join(["[]"] * 300_000),
        ",".join(["{}"] * 300_000),
        '"' + '\\"' * 400_000,
    ):
        text = np.frombuffer(f"[{items}]".encode(), np.uint8)
        check(tmp_path / "m", header, {**arrays, key: text})


def test_a_tree_as_deep_as_it_has_nodes_is_refused(files, tmp_path):
    header, arrays = copy.deepcopy(files["named columns, trees, blocks"])
    n_nodes = 40_001
    inner = np.arange(n_nodes) % 2 == 0
    inner[-1] = False
    column = np.where(inner, 0, -1).astype(np.int32)
    chain = {
        "column": column,
        "place": np.where(inner, 1, 0).astype(np.int32),
        "missing": np.zeros(n_nodes, np.uint8),
        "left": np.where(inner, 1, 0).astype(np.int32),
        "right": np.where(inner, 2, 0).astype(np.int32),
        "roots": np.zeros(1, np.int32),
        "output": np.zeros(1, np.int32),
        "value": np.zeros((int((~inner).sum()), 1)),
    }
    header["trees"]["shares"] = False
    arrays.pop("trees.share", None)
    arrays |= {f"trees.{key}": array for key, array in chain.items()}
    check(tmp_path / "m", header, arrays)


def test_leaves_of_any_width_are_refused_where_there_is_no_leaf(files, tmp_path):
    header, arrays = copy.deepcopy(files["named columns, trees, blocks"])
    n_nodes = 1250
    forged = {
        "column": np.zeros(n_nodes, np.int32),
        "place": np.ones(n_nodes, np.int32),
        "missing": np.zeros(n_nodes, np.uint8),
        "left": np.zeros(n_nodes, np.int32),
        "right": np.zeros(n_nodes, np.int32),
        "roots": np.zeros(1, np.int32),
        "output": np.zeros(1, np.int32),
        "value": np.zeros((0, 10**9)),
    }
    header["trees"]["shares"] = False
    arrays.pop("trees.share", None)
    check(tmp_path / "m", header, arrays | {f"trees.{k}": array for k, array in forged.items()})


def test_blocks_that_would_make_huge_factors_are_refused(files, tmp_path):
    header, arrays = copy.deepcopy(files["named columns, trees, blocks"])
    ranks = header["tensor"]["blocks"]
    key = next(key for key in arrays if key.startswith("blocks.") and key.endswith("kept"))
    n = key.split(".")[1]
    n_knots = 40_000
    kept = np.zeros((len(ranks), n_knots), np.uint8)
    kept[:, ::10] = 1
    arrays[key] = kept
    arrays[f"blocks.{n}.values"] = np.zeros(
        int((kept.sum(axis=1) * np.array(ranks)).sum()), np.float32
    )
    arrays[f"maps.{n}.knots_"] = np.arange(float(n_knots))
    check(tmp_path / "m", header, arrays)


def test_a_model_of_zeros_can_be_saved_and_loaded(tmp_path):
    """What packs too well is stored as it is: no model is refused that was saved."""
    X = numbers(8)
    model = CPRegressor(n_members=3, rank=40, max_iter=1, random_state=0).fit(X, np.ones(len(X)))
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").predict(X).tobytes() == model.predict(X).tobytes()


def test_a_text_array_of_uneven_texts_is_kept(tmp_path):
    model, X = copy.deepcopy(built("two text classes"))
    model.set_params(categorical_features=np.array(["x" * 900, *["y"] * 900]))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert list(again.categorical_features) == list(model.categorical_features)
    assert again.predict(X).tobytes() == model.predict(X).tobytes()
