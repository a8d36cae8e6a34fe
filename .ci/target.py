"""Print how else to compile than for this machine: generic, haswell and plain take turns.

The first two are CPUs; plain is this machine without vector types (POLYADIC_SIMD=0).

The turn is the number of commits. A shallow clone does not know it, and a folder without git knows
nothing: there the last commit's name and the day take its place.
"""

from __future__ import annotations

import subprocess
import time

from llvmlite import binding


def git(*arguments: str) -> str:
    """Return what git says, or nothing where it cannot say it."""
    try:
        found = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def turn() -> int:
    """Return a number that changes from one submission to the next."""
    name = git("rev-parse", "HEAD")
    if not name:
        return int(time.time() // 86_400)
    shallow = git("rev-parse", "--is-shallow-repository") != "false"
    return int(name, 16) if shallow else int(git("rev-list", "--count", "HEAD"))


def other_target(turn: int, host: str, has_avx2: bool) -> str:
    """Return the target whose turn it is; never the host's, nor one that it cannot run."""
    targets = ["generic", "haswell", "plain"] if has_avx2 else ["generic", "plain"]
    targets = [target for target in targets if target != host]
    return targets[turn % len(targets)]


if __name__ == "__main__":
    features = binding.get_host_cpu_features()
    print(other_target(turn(), binding.get_host_cpu_name(), bool(features.get("avx2"))))
