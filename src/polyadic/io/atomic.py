"""Write files whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: drafts of killed processes stay
    fcntl = None  # type: ignore[assignment]

can_lock = fcntl is not None
_DRAFT = ".polyadic-{}.tmp"  # with 16 hexadecimal digits
_DRAFTS = re.compile(_DRAFT.format("[0-9a-f]{16}").replace(".", "[.]"))


def write_whole(path: str | os.PathLike, data: bytes) -> None:
    """Write the bytes to a file, whole or not at all."""
    with drafted(path) as draft:
        draft.write_bytes(data)


@contextmanager
def drafted(path: str | os.PathLike) -> Iterator[Path]:
    """Give a draft in the same folder to write to, and rename it in one step when it is done.

    A file that was there before keeps its permissions. Drafts that a killed process has left in the
    folder are removed.
    """
    target = check_place(path)
    _remove_abandoned(target.parent)
    held, draft = _start(target.parent)
    with held:
        try:
            yield draft
            if target.exists():
                os.chmod(draft, stat.S_IMODE(target.stat().st_mode))
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def check_place(path: str | os.PathLike) -> Path:
    """Return the file that a path points to; refuse what cannot be replaced by a file."""
    target = Path(os.path.realpath(path))  # the target of a link, so that the link itself is kept
    if target.is_symlink():  # all links were followed, unless they have no end
        raise OSError(
            f"Cannot save to {str(path)!r}: it is a link that leads back to itself. Remove it, or "
            "choose another name."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot save to {str(path)!r}: there is no folder {str(target.parent)!r}. "
            "Create it first."
        )
    if target.is_dir():
        raise IsADirectoryError(f"Cannot save to {str(path)!r}: it is a folder. Add a file name.")
    if target.exists() and not target.is_file():
        raise OSError(
            f"Cannot save to {str(path)!r}: it is a device, a pipe or a socket, not a file. Choose "
            "another name."
        )
    return target


def _start(folder: Path) -> tuple[BinaryIO, Path]:
    """Create a draft, and lock it: a draft that is not locked belongs to no living process."""
    while True:
        draft = folder / _DRAFT.format(secrets.token_hex(8))
        file = open(draft, "xb")  # noqa: SIM115 - closed by the caller
        if claim(file, draft):
            return file, draft
        file.close()


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of processes that were killed."""
    if not can_lock:
        return
    for draft in folder.glob(_DRAFT.format("*")):
        if not _DRAFTS.fullmatch(draft.name):
            continue
        try:
            with open_own(draft) as file:
                if lock(file):
                    draft.unlink(missing_ok=True)
        except OSError:  # someone else's, or gone: not ours to tell
            continue


def open_own(path: Path) -> BinaryIO:
    """Open a regular file of this user for reading; raise OSError for all else, without waiting."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    file = os.fdopen(number, "rb")
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        file.close()
        raise OSError(f"{str(path)!r} is no regular file of this user.")
    return file


def lock(file: BinaryIO) -> bool:
    """Lock a file as long as it is open; tell whether nobody else had locked it.

    Raises OSError where the file system has no locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def claim(file: BinaryIO, path: Path) -> bool:
    """Lock a file that was just made; tell whether no other process has removed it before.

    Where the file system has no locks, no other process removes it.
    """
    try:
        return lock(file) and path.exists()
    except OSError:
        return True
