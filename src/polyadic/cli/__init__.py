"""The command `polyadic`.

The commands are in the other files of this folder, one per file; they need the extra `cli`.
"""

from __future__ import annotations

import sys

_NEEDED = ("typer", "click", "rich", "pyarrow")


def main() -> None:
    """Run the command line, or print what to install for it."""
    try:
        from polyadic.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _NEEDED:
            raise
        print(
            f"The polyadic command needs {error.name}, which is not installed. "
            "Install it with: pip install 'polyadic[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    app()


if __name__ == "__main__":
    main()
