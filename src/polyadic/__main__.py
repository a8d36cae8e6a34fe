"""`python -m polyadic` is the command `polyadic`."""

from polyadic.cli import main

main()
