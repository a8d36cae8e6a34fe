"""What the tests of the command line share: small tables, and ways to run the command."""

import os
import subprocess
import sys

import needs
import numpy as np
import pandas as pd

needs.package("typer")
from typer.testing import CliRunner  # noqa: E402

from polyadic.cli.app import app  # noqa: E402


def run(*arguments, **settings):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments], **settings)


def start(*arguments, **settings):
    """Start the command as a process of its own."""
    environment = {**os.environ, "TERM": "xterm-256color"} | settings.pop("env", {})
    command = [sys.executable, "-m", "polyadic", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, **settings)


def failed(result, *texts):
    """Check that a command has failed with one clear line, which holds these texts."""
    assert result.exit_code == 1, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    for text in texts:
        assert text in lines[0]


def houses(n=200, seed=0):
    """Return a table with numbers, text, digits that are text, and missing values."""
    rng = np.random.default_rng(seed)
    area, rooms = rng.uniform(20, 200, n).round(1), rng.integers(1, 6, n)
    city = np.array(["Ulm", "Bonn", "NA"], dtype=object)[rng.integers(0, 3, n)]
    price = 2.0 * area + 30.0 * (city == "Ulm") * rooms + rng.normal(size=n)
    table = pd.DataFrame({"area": area, "rooms": rooms, "city": city, "price": price.round(2)})
    table.insert(2, "zip", np.array(["01", "1", "7"], dtype=object)[rng.integers(0, 3, n)])
    table.loc[::20, "area"] = np.nan
    return table.assign(sold=np.where(price > 200, "yes", "no"), id=np.arange(n))
