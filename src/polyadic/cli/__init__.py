"""The command `polyadic`.

The commands are in the other files of this folder, one per file; they need the extra `cli`.
"""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("typer", "rich", "pyarrow")


def main() -> None:
    """Run the command line, or print what to install for it."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"The polyadic command needs {missing[0]}, which is not installed. "
            "Install it with: pip install 'polyadic[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    from polyadic.cli.app import app

    app(prog_name="polyadic")


if __name__ == "__main__":
    main()
