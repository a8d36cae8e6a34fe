"""Print the lowest version of each dependency that pyproject.toml allows, as constraints for pip.

Extras are left out: pip takes the newest version of them that works with the rest.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest(requirements: list[str]) -> list[str]:
    """Return a constraint for each requirement.

    >>> lowest(["numba>=0.62,<0.69", "joblib>=1.2"])
    ['numba==0.62', 'joblib==1.2']
    """
    return [re.sub(r"^([\w-]+)>=([\d.]+).*", r"\1==\2", line) for line in requirements]


if __name__ == "__main__":
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    print("\n".join(lowest(settings["project"]["dependencies"])))
