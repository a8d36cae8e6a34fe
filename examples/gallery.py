"""What the examples of the gallery share: options of the command line, and small pictures."""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image


def run(main: Callable[..., None], description: str) -> None:
    """Call main(out, quick) with the options of the command line."""
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("gallery"), help="folder for pictures")
    options.add_argument("--quick", action="store_true", help="few rows, a tiny model")
    main(**vars(options.parse_args()))


def save(ax: plt.Axes, path: Path, dpi: int = 90) -> None:
    """Write the figure of these axes to a small file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Few colours are enough for lines and bars, and make a file much smaller.
    ax.figure.savefig(path, dpi=dpi)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    plt.close(ax.figure)
    print(f"Wrote {path}")
