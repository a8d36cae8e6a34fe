"""Write files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: str | os.PathLike, data: bytes) -> None:
    """Write the bytes to a file, whole or not at all."""
    with drafted(path) as draft, open(draft, "xb") as file:
        file.write(data)


@contextmanager
def drafted(path: str | os.PathLike) -> Iterator[Path]:
    """Give a draft in the same folder to write to, and rename it in one step when it is done."""
    target = check_place(path)
    draft = target.with_name(f".polyadic-{secrets.token_hex(8)}.tmp")
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check_place(path: str | os.PathLike) -> Path:
    """Return the file that a path points to; refuse a folder, or a path in no folder."""
    target = Path(os.path.realpath(path))  # the target of a link, so that the link itself is kept
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot save to {str(path)!r}: there is no folder {str(target.parent)!r}. "
            "Create it first."
        )
    if target.is_dir():
        raise IsADirectoryError(f"Cannot save to {str(path)!r}: it is a folder. Add a file name.")
    return target
