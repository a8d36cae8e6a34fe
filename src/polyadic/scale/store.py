"""Coded rows on disk, in blocks of rows drawn at random.

Rows of a file are often sorted, by time or by place, and steps on neighbours that are alike train
badly. So each row is written to one of the blocks, drawn at random once, and a block is permuted in
memory every time it is read: every order of all rows is possible. A block is read whole, so it must
fit into memory; all together need not.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from polyadic.data.columns import Column
from polyadic.data.rows import CodedRows
from polyadic.io.folders import start_folder
from polyadic.scale.ahead import one_ahead


class RowStore:
    """Rows in a folder, one file per block; a context that removes them at the end.

    A process that is killed leaves its folder; the next store in the same place removes it.

    Parameters
    ----------
    columns : sequence of Column
    n_targets : int
    n_blocks : int
    single : sequence of bool
        Which columns of numbers are exact in single precision.
    folder : path, optional
        Where to put the folder of the files; by default that of the system for temporary files.
    """

    _held: BinaryIO | None = None  # while it is open, the folder belongs to this process

    def __init__(
        self,
        columns: Sequence[Column],
        n_targets: int,
        n_blocks: int,
        single: Sequence[bool],
        folder: Any = None,
    ):
        self._lay_out(columns, n_targets, n_blocks, single)
        self._held, self.folder = start_folder("polyadic-rows-", folder)
        for k in range(n_blocks):
            (self.folder / f"{k}.rows").touch()

    def _lay_out(
        self, columns: Sequence[Column], n_targets: int, n_blocks: int, single: Sequence[bool]
    ) -> None:
        kinds = [_stored_type(c, exact) for c, exact in zip(columns, single)]
        self._numeric = [column.kind == "numeric" for column in columns]
        fields: list[Any] = [(f"c{n}", kind) for n, kind in enumerate(kinds)]
        self.record = np.dtype([*fields, ("y", "f8", (n_targets,)), ("weight", "f8")])
        self.sizes = np.zeros(n_blocks, dtype=np.int64)
        self.checksums = [0]  # of all rows, in the order in which they were added

    def __enter__(self) -> RowStore:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._held is not None:
            self._held.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_rows(self) -> int:
        """The number of rows in all blocks."""
        return int(self.sizes.sum())

    def add(self, rows: CodedRows, block_of: np.ndarray) -> None:
        """Append rows, each to its block, block_of : (n,)."""
        records, counts = self.to_records(rows, block_of)
        ends = np.cumsum(counts)
        for k in np.flatnonzero(counts):
            # Opened each time: a system allows fewer open files than a table may have blocks.
            with (self.folder / f"{k}.rows").open("ab") as file:
                records[ends[k] - counts[k] : ends[k]].tofile(file)
        self.checksums = [checksum(records, self.checksums[0])]
        self.sizes += counts

    def to_records(self, rows: CodedRows, block_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows as they are written, block by block, and how many each block gets."""
        order = np.argsort(block_of, kind="stable")
        records = np.empty(len(order), self.record)
        for n, column in enumerate(rows.columns):
            records[f"c{n}"] = column[order]
        records["y"], records["weight"] = rows.y[order], rows.weight[order]
        return records, np.bincount(block_of, minlength=len(self))

    def read(self, block: int) -> CodedRows:
        """Return the rows of a block, in the order in which they were added."""
        records = np.fromfile(self.folder / f"{block}.rows", self.record)
        return self.from_records(records)

    def from_records(self, records: np.ndarray) -> CodedRows:
        """Return rows that were read."""
        columns = [
            np.ascontiguousarray(records[f"c{n}"], dtype=np.float64 if numeric else np.int64)
            for n, numeric in enumerate(self._numeric)
        ]
        return CodedRows(columns, records["y"].copy(), records["weight"].copy())

    def blocks(self, order: Sequence[int] | np.ndarray) -> Iterator[CodedRows]:
        """Yield blocks in this order; a thread reads the next one while one is used."""
        return one_ahead(self.read(int(k)) for k in order)


def checksum(records: np.ndarray, before: int = 0) -> int:
    """Return a checksum of records, and of those before them."""
    return zlib.crc32(records.view(np.uint8).data, before)


def _stored_type(column: Column, single: bool) -> str:
    """Return the smallest type that holds the values of a column exactly."""
    if column.kind == "numeric":
        return "f4" if single else "f8"
    n_codes = len(column.categories or ())
    return next(f"i{size}" for size in (1, 2, 4) if n_codes < 2 ** (8 * size - 1))
