"""Data sets of the paper and of the benchmarks: fetched, verified, cached, split."""

from polyadic.datasets.loaders import (
    Dataset,
    Split,
    fetch_adult,
    fetch_california_housing,
    fetch_mnist5k,
    fetch_movielens100k,
    load_synthetic,
)
from polyadic.datasets.sources import DatasetUnavailable, WrongHash

__all__ = [
    "Dataset",
    "DatasetUnavailable",
    "Split",
    "WrongHash",
    "fetch_adult",
    "fetch_california_housing",
    "fetch_mnist5k",
    "fetch_movielens100k",
    "load_synthetic",
]
