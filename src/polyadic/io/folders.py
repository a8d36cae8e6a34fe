"""Folders for temporary files, which later processes remove if theirs was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from polyadic.io.atomic import can_lock, claim, lock, open_own

_LOCK = "lock"  # a file in the folder, which its process keeps locked


def start_folder(prefix: str, parent: Any = None) -> tuple[BinaryIO, Path]:
    """Make a folder, and remove those of the same prefix whose process was killed.

    Parameters
    ----------
    prefix : str
        How the names of such folders begin.
    parent : path, optional
        Where to make it; by default the folder of the system for temporary files.

    Returns
    -------
    held : file
        To be closed when the folder is removed: while it is open, the folder belongs to a process.
    folder : path

    Examples
    --------
    >>> held, folder = start_folder("polyadic-example-")
    >>> folder.is_dir()
    True
    >>> held.close()
    >>> held, other = start_folder("polyadic-example-")
    >>> folder.exists(), other.exists()
    (False, True)
    >>> held.close()
    >>> shutil.rmtree(other)
    """
    place = Path(tempfile.gettempdir() if parent is None else parent)
    _remove_abandoned(place, prefix)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        try:
            held = open(folder / _LOCK, "xb")  # noqa: SIM115 - closed by the caller
        except FileNotFoundError:  # another process has removed the folder while it was empty
            continue
        if claim(held, folder / _LOCK):
            return held, folder
        held.close()


def _remove_abandoned(place: Path, prefix: str) -> None:
    """Remove the folders of this user whose lock nobody holds."""
    if not can_lock:
        return
    for folder in place.glob(f"{prefix}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with open_own(folder / _LOCK) as file:
                if lock(file):
                    shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # gone, or its process was killed before there was a lock
            _remove_empty(folder)
        except OSError:  # not ours to tell
            continue


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
