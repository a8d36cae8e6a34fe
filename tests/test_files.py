"""Model files: written completely or not at all, and a clear error for other files."""

import os
import pickle
import stat

import needs
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from sklearn.exceptions import NotFittedError
from stored import (
    FAST,
    built,
)

from polyadic.estimators import CPRegressor
from polyadic.estimators.loading import load
from polyadic.estimators.saving import save
from polyadic.io.files import ModelFileError

# Two epochs may end far from the optimum, which does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["named columns with categories and missing values", "three text classes", "ht, three classes"],
)
def test_saving_twice_gives_the_same_bytes(name, tmp_path):
    model, _ = built(name)
    save(model, tmp_path / "a")
    save(model, tmp_path / "b")
    save(load(tmp_path / "a"), tmp_path / "c")
    first, second, third = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == second == third


def test_unfitted_model_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(CPRegressor(), tmp_path / "m")
    assert not os.listdir(tmp_path)


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    class Mine(CPRegressor):
        pass

    model, X = built("quantile")
    with pytest.raises(TypeError, match="Mine"):
        save(Mine(**FAST).fit(X, X[:, 0]), tmp_path / "m")
    broken = pickle.loads(pickle.dumps(model))
    with pytest.raises(TypeError, match="among the parameters"):
        save(broken.set_params(categorical_features={1, 2}), tmp_path / "m")
    with pytest.raises(ValueError, match="rank must be"):
        save(broken.set_params(categorical_features=None, rank=-1), tmp_path / "m")
    broken.set_params(rank=4).tensor_.factors[0][0, 0] = np.nan
    with pytest.raises(ValueError, match=r"factors\.0 is not finite"):
        save(broken, tmp_path / "m")
    network = pickle.loads(pickle.dumps(built("ht, one output")[0]))
    network.tensor_.extras[1][:] = np.inf
    with pytest.raises(ValueError, match=r"extras\.1 is not finite"):
        save(network, tmp_path / "m")
    odd = pickle.loads(pickle.dumps(built("two text classes")[0]))
    odd.classes_ = np.array(["2001", "2002"], dtype="M8[Y]")
    with pytest.raises(TypeError, match="'classes'"):
        save(odd, tmp_path / "m")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=repr)
def test_failed_save_does_not_change_the_old_file(step, error, tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        save(built("quantile")[0], path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        save(built("quantile")[0], tmp_path / "nowhere" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(built("quantile")[0], tmp_path)
    assert not os.listdir(tmp_path)


def test_links_and_permissions_are_kept(tmp_path):
    save(built("quantile")[0], tmp_path / "m")
    (tmp_path / "plain").write_bytes(b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m", "plain")]
    assert modes[0] == modes[1]
    try:
        (tmp_path / "link").symlink_to(tmp_path / "plain")
    except OSError:
        needs.missing("symbolic links", "run on a file system that has them")
    save(built("quantile")[0], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "m").read_bytes()


# ---- other files, and damaged ones -------------------------------------------------------------


def test_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file .*gone"):
        load(tmp_path / "gone")


FOREIGN = {
    "empty": (b"", "not a model file"),
    "text": (b"x,y\n1,2\n" * 20, "not a model file"),
    "pickle": (pickle.dumps(list(range(99))), "not a model file"),
    "safetensors": (safetensors.numpy.save({"weights": np.ones(2)}), "not one that polyadic"),
    "other metadata": (
        safetensors.numpy.save({"weights": np.ones(2)}, {"format": "pt"}),
        "not one that polyadic",
    ),
    "no tensors": (safetensors.numpy.save({}, {"polyadic": "{}"}), "Its content is wrong"),
    "no JSON": (safetensors.numpy.save({}, {"polyadic": "model"}), "Its content is wrong"),
    "a list": (safetensors.numpy.save({}, {"polyadic": "[1]"}), "Its content is wrong"),
    "deep": (safetensors.numpy.save({}, {"polyadic": "[" * 100_000}), "Its content is wrong"),
    "long number": (safetensors.numpy.save({}, {"polyadic": "9" * 9_999}), "Its content is wrong"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_file_is_refused(name, tmp_path):
    data, words = FOREIGN[name]
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_every_damage_is_detected(seed, tmp_path):
    name = "three text classes" if seed % 2 else "named columns with categories and missing values"
    save(built(name)[0], tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    rng = np.random.default_rng(seed)
    header = 8 + int.from_bytes(whole[:8], "little")
    for trial in range(300):
        data = bytearray(whole)
        if trial % 3 == 0:
            data = data[: rng.integers(len(whole))]
        else:
            reach = header if trial % 3 == 1 else len(whole)
            for at in rng.integers(0, reach, rng.integers(1, 4)):
                data[at] ^= 1 << rng.integers(8)
        if data == whole:
            continue
        (tmp_path / "m").write_bytes(data)
        with pytest.raises(ModelFileError):
            load(tmp_path / "m")


def test_the_error_says_whether_arrays_or_header_are_damaged(tmp_path):
    save(built("quantile")[0], tmp_path / "m")
    data = bytearray((tmp_path / "m").read_bytes())
    data[-3] ^= 16
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum of its arrays"):
        load(tmp_path / "m")
    data[-3] ^= 16
    at = data.index(b"learning_rate")
    data[at] = ord("L")
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ModelFileError, match="checksum of its header"):
        load(tmp_path / "m")


def test_too_little_memory_is_not_a_wrong_file(tmp_path, monkeypatch):
    save(built("quantile")[0], tmp_path / "m")

    def refuse(*args, **options):
        raise safetensors.SafetensorError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr(safetensors, "safe_open", refuse)
    with pytest.raises(OSError, match="Not enough memory to read the model"):
        load(tmp_path / "m")
