"""The record of the campaign: what was run, of which code, and what failed.

    python torture/record.py            # one line per part: all runs of the code as it is now
    python torture/record.py --all      # and those of earlier code

Every run adds lines to `results/torture/PART.jsonl`: a range of cases of one seed, what became of
them, their failures, and a hash of the code. The next run goes on after the last case of its seed,
whatever the code was: cases are numbered through, and are not repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "torture"
PARTS = ("files", "tables", "hashes", "faults", "clusters", "load", "reports", "peers")
_SOURCES = {".py", ".js", ".css", ".html"}
_MATERIAL = ("browsing.py", "parts.py", "stored.py", "streams.py")  # what parts use of the tests


@dataclass
class Block:
    """Cases of one seed that were run in a row."""

    seed: int
    first: int
    last: int  # the case after the last one
    code: str
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[int, str]] = field(default_factory=list)
    options: list[str] = field(default_factory=list)  # of the part, as on the command line
    seconds: float = 0.0
    cpu: float = 0.0  # seconds of the processor, of the worker and its children


@cache
def code_of(part: str) -> str:
    """Return a hash of the package's source and of all that cases are made with."""
    out = hashlib.sha256(part.encode())
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in _SOURCES]
    own = [*(ROOT / "torture").glob("*.py"), *(ROOT / "tests" / name for name in _MATERIAL)]
    for path in [*sorted(files), *sorted(own)]:
        out.update(path.read_bytes())
    return out.hexdigest()[:10]


class Record:
    """The blocks of one part; `kept=False` keeps nothing on disk."""

    def __init__(self, part: str, kept: bool = True):
        self.part = part
        self.path = RESULTS / f"{part}.jsonl" if kept else None
        self.blocks: list[Block] = []
        if self.path is not None and self.path.exists():
            self.blocks = [Block(**json.loads(text)) for text in self.path.read_text().splitlines()]

    def next_case(self, seed: int) -> int:
        """Return the first case of a seed that no run has reached."""
        return max((block.last for block in self.blocks if block.seed == seed), default=0)

    def add(self, block: Block) -> None:
        """Add a block, and tell of its failures."""
        self.blocks.append(block)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(block)) + "\n")
        for number, error in block.failures:
            last = error.strip().splitlines()[-1]
            print(f"case {number} failed: {last}\n    again: {self.command(block, number)}")

    def command(self, block: Block, number: int) -> str:
        """Return the command that repeats a case of a block."""
        own = shlex.join(["--seed", str(block.seed), "--case", str(number), *block.options])
        return f"PYTHONPATH=tests python torture/{self.part}.py {own}"

    def n_failed(self, code: str) -> int:
        """Return the number of failures of a code."""
        return sum(len(block.failures) for block in self.blocks if block.code == code)

    def line(self, code: str, blocks: list[Block] | None = None) -> str:
        """Return one line on all runs of a code, or on some blocks of it."""
        own = [b for b in (self.blocks if blocks is None else blocks) if b.code == code]
        n_cases = sum(block.last - block.first for block in own)
        n_failed = sum(len(block.failures) for block in own)
        counts = sum((Counter(block.counts) for block in own), Counter())
        told = ", ".join(f"{word} {n:,}" for word, n in sorted(counts.items()))
        seeds = ", ".join(str(seed) for seed in sorted({block.seed for block in own}))
        minutes = sum(block.cpu for block in own) / 60.0
        rate = f", {n_cases / minutes:,.0f} per minute of CPU" if minutes > 0 else ""
        return (
            f"{self.part}: {n_cases:,} cases, {n_failed} failures (seeds {seeds or 'none'}, code "
            f"{code}, {minutes:.1f} minutes of CPU{rate}; {told or 'nothing run'})"
        )


def main() -> None:
    """Print one line per part, and the commands that repeat failures."""
    parser = argparse.ArgumentParser(description="Sum up what was run.")
    parser.add_argument("--all", action="store_true", help="earlier code, too")
    given = parser.parse_args()
    for part in PARTS:
        record, now = Record(part), code_of(part)
        codes = list(dict.fromkeys(block.code for block in record.blocks if block.code != now))
        for code in [*codes, now] if given.all else [now]:
            print(record.line(code))
            for block in record.blocks:
                if block.code == code:
                    for number, _ in block.failures:
                        print(f"    again: {record.command(block, number)}")


if __name__ == "__main__":
    main()
