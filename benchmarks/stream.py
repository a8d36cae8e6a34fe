"""Tables larger than memory: speed, memory and error of a streamed fit, beside boosted trees.

A table of 20 columns is made, reproducibly, as Parquet files: twelve of numbers, eight of skewed
categories with up to a million values. Each model is fitted in a process of its own, so that its
peak memory can be measured. LightGBM reads it in batches into bins that it keeps in memory; XGBoost
uses external memory. Both see categories by their numbers.

    python benchmarks/stream.py                      # 10 million rows
    python benchmarks/stream.py --rows 1000000,10000000,100000000    # time against rows
    python benchmarks/stream.py --rows 300000 --memory 500MB         # a short trial

What each model took is kept in results/stream.jsonl as soon as it is known: the same command, after
it was stopped, measures only what is missing there (--anew: everything).

Uses internals: it imports modules of polyadic that are not public.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import machine, print_table, print_title, verdict

N_NUMBERS = 12
SIZES = (2, 5, 12, 40, 300, 5_000, 60_000, 1_000_000)  # values of the columns of categories
PART, GROUP = 1_000_000, 100_000  # rows of a file, and of a row group
TEST_ROWS = 200_000
NOISE = 0.5  # standard deviation; the other parts of the target have a variance of about one each
TELL_SECONDS = 60.0  # between two lines where the output is no terminal
MOST_MEMORY, MOST_SLOWER, MOST_GROWTH = 2e9, 1.5, 1.1
NAMES = [f"x{k}" for k in range(N_NUMBERS)] + [f"c{k}" for k in range(len(SIZES))]


def make_part(number: int, n_rows: int) -> Any:
    """Return some rows: the same for the same number."""
    import pyarrow as pa

    rng = np.random.default_rng((7, number))
    x = rng.normal(size=(n_rows, N_NUMBERS)).astype(np.float32)
    codes = [(size * rng.random(n_rows) ** 3).astype(np.int64) for size in SIZES]
    y = np.sin(2 * x[:, 0]) * x[:, 1] + np.abs(x[:, 2]) + 0.5 * x[:, 3] * (codes[1] - 2)
    for k, (size, code) in enumerate(zip(SIZES, codes)):
        y = y + np.random.default_rng((8, k)).normal(size=size)[code] / 2
    y = y + NOISE * rng.normal(size=n_rows)
    texts = [pa.array(np.char.add("v", code.astype("U7"))) for code in codes]
    return pa.table(dict(zip(NAMES, [*x.T, *texts])) | {"y": y})


def write_table(folder: Path, n_rows: int) -> None:
    """Write the files of a table that are not there yet, and one of test rows."""
    import pyarrow.parquet as pq

    for number, path in enumerate(files(folder, n_rows)):
        if not Path(path).exists():
            own = min(PART, n_rows - number * PART)
            draft = Path(path).with_suffix(".draft")
            pq.write_table(make_part(number, own), draft, row_group_size=GROUP)
            draft.rename(path)  # a file with its name is whole
            say(f"wrote {min((number + 1) * PART, n_rows):,} of {n_rows:,} rows")
    pq.write_table(make_part(10**6, TEST_ROWS), folder / "test.rows")


def files(folder: Path, n_rows: int) -> list[str]:
    """Return the files of the first rows; the last has a name of its own if it is not full."""
    names = [f"{number:04d}" for number in range(-(-n_rows // PART))]
    if n_rows % PART:
        names[-1] += f"-{n_rows % PART}"
    return [str(folder / f"{name}.parquet") for name in names]


def say(text: str, end: str = "\n") -> None:
    """Tell on stderr what happens."""
    on_terminal = sys.stderr.isatty()
    if on_terminal or end == "\n":
        print(f"\r{text:<70}" if on_terminal else text, end=end, file=sys.stderr, flush=True)


# ---- the models, each in a process of its own ----------------------------------------------------


def fit_ours(folder: Path, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from polyadic import CPRegressor, scale

    start = perf_counter()
    members = options.members if options.members == "auto" else int(options.members)
    model = CPRegressor(memory=options.memory, random_state=0, n_members=members)
    model.fit(ds.dataset(files(folder, n_rows)), "y")
    fitted = perf_counter()
    if "statistics" not in model.plan_.seconds:
        raise SystemExit(f"The table fits into --memory {options.memory}: give less.")
    out = folder / "predicted.parquet"
    done = scale.predict(model, files(folder, n_rows)[0], out)
    speed = done / (perf_counter() - fitted)
    test = pq.read_table(folder / "test.rows")
    error = np.mean((model.predict(test.select(NAMES)) - test["y"].to_numpy()) ** 2)
    spent, passes = model.plan_.seconds, int(model.plan_["passes over all rows"])
    n_members = int(model.plan_["n_members"])
    return {
        "error": error,
        "seconds": fitted - start,
        "statistics, rows/s": n_rows / spent["statistics"],
        "blocks, rows/s": n_rows / spent["blocks"],
        "training, rows/s": n_rows * passes * n_members / all_rows(spent),
        "prediction, rows/s": speed,
        "phases": {name: round(value, 1) for name, value in spent.items()},
    }


def all_rows(spent: dict[str, float]) -> float:
    """Return the seconds of the passes over all rows."""
    return next(value for name, value in spent.items() if name.startswith("members on all rows"))


def number_columns(table: Any) -> np.ndarray:
    """Return the columns as numbers; a category by the number in its name."""
    import pyarrow.compute as pc

    columns = [table[name].to_numpy() for name in NAMES[:N_NUMBERS]]
    for name in NAMES[N_NUMBERS:]:
        text = pc.utf8_slice_codeunits(table[name], 1)
        columns.append(pc.cast(text, "int32").to_numpy())
    return np.column_stack(columns).astype(np.float32)


def fit_lightgbm(folder: Path, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    import lightgbm as lgb
    import pyarrow.parquet as pq

    start = perf_counter()

    class Part(lgb.Sequence):
        """The rows of one file, read when they are asked for."""

        batch_size = GROUP

        def __init__(self, path: str):
            self.path, self.n_rows = path, pq.ParquetFile(path).metadata.num_rows
            self.known: tuple[int, Any] | None = None

        def __len__(self) -> int:
            return self.n_rows

        def __getitem__(self, place: Any) -> np.ndarray:
            group = (place.start if isinstance(place, slice) else place) // self.batch_size
            if self.known is None or self.known[0] != group:
                table = pq.ParquetFile(self.path).read_row_group(group)
                self.known = group, number_columns(table).astype(np.float64)
            first = group * self.batch_size
            if isinstance(place, slice):
                return self.known[1][place.start - first : place.stop - first]
            return self.known[1][place - first]

    paths = files(folder, n_rows)
    y = np.concatenate([pq.read_table(path, columns=["y"])["y"].to_numpy() for path in paths])
    categories = list(range(N_NUMBERS, len(NAMES)))
    settings = {"verbosity": -1, "num_threads": 2, "seed": 0}
    data = lgb.Dataset(
        [Part(path) for path in paths], y, categorical_feature=categories, params=settings
    )
    model = lgb.train(settings, data, 100)
    fitted = perf_counter()
    return _scored(folder, model.predict, fitted - start)


def fit_xgboost(folder: Path, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    import pyarrow.parquet as pq
    import xgboost as xgb

    start = perf_counter()
    paths = files(folder, n_rows)

    class Parts(xgb.DataIter):
        """The files, one after another."""

        def __init__(self) -> None:
            super().__init__(cache_prefix=str(folder / "xgb"))
            self.place = 0

        def next(self, input_data: Any) -> bool:
            if self.place == len(paths):
                return False
            table = pq.read_table(paths[self.place])
            input_data(data=number_columns(table), label=table["y"].to_numpy())
            self.place += 1
            return True

        def reset(self) -> None:
            self.place = 0

    data = xgb.ExtMemQuantileDMatrix(Parts())
    settings = {"tree_method": "hist", "nthread": 2, "seed": 0}
    model = xgb.train(settings, data, 100)
    fitted = perf_counter()
    return _scored(folder, lambda X: model.predict(xgb.DMatrix(X)), fitted - start)


def _scored(folder: Path, predict: Any, seconds: float) -> dict[str, Any]:
    import pyarrow.parquet as pq

    test = pq.read_table(folder / "test.rows")
    error = np.mean((predict(number_columns(test)) - test["y"].to_numpy()) ** 2)
    return {"error": error, "seconds": seconds}


def measure_engine(folder: Path, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Compare one pass over rows in memory with one over the same rows in blocks, one thread."""
    from polyadic.data.rows import CodedRows
    from polyadic.maps import Hat
    from polyadic.objective.losses import SquaredError
    from polyadic.objective.problem import Problem, Rows
    from polyadic.scale.memory import choose_block_rows
    from polyadic.scale.statistics import Column
    from polyadic.scale.store import RowStore
    from polyadic.solvers.adam import Adam, AdamLoop
    from polyadic.solvers.blockwise import BlockLoop
    from polyadic.solvers.inits import NearOne

    rng = np.random.default_rng(0)
    n_rows, n_columns = min(n_rows, 1_000_000), len(NAMES)
    columns = list(rng.normal(size=(n_columns, n_rows)).astype(np.float32).astype(float))
    rows = CodedRows(columns, columns[0][:, None] * columns[1][:, None], np.ones(n_rows))
    maps = [Hat(96).fit(column[:50_000]) for column in columns]
    problem = Problem(
        Rows.encode(rows, maps), None, SquaredError(), np.zeros(1), [m.degrees for m in maps]
    )
    cores = NearOne().start(problem, 32, [rng] * (n_columns + 1)).cores
    solver = Adam(max_iter=1, batch_size=128)
    block_rows = choose_block_rows(n_columns, 2e9)
    kinds = [Column(name, "numeric") for name in NAMES]
    times: dict[str, list[float]] = {"in memory": [], "in blocks": []}
    with RowStore(kinds, 1, -(-n_rows // block_rows), [True] * n_columns, folder) as store:
        store.add(rows, rng.integers(0, len(store), n_rows))
        store.finish()
        whole = AdamLoop(solver, problem, cores, None)
        shares = np.split(whole.touched_shares()[2:-2], np.cumsum(problem.local.dims)[:-1])
        loop = BlockLoop(solver, problem, cores, None, whole.n_batches, shares)
        for turn in range(4):  # the first turn compiles
            begin = perf_counter()
            whole.train(solver.rates(whole.n_batches), rng)
            middle = perf_counter()
            for block in store.blocks(range(len(store))):
                steps = -(-len(block) // 128)
                loop.train_block(Rows.encode(block, maps), solver.rates(steps), rng)
            if turn:
                times["in memory"].append(middle - begin)
                times["in blocks"].append(perf_counter() - middle)
    speed = {name: n_rows / float(np.median(spent)) for name, spent in times.items()}
    return {"speed": speed, "slower": speed["in memory"] / speed["in blocks"]}


MODELS = {
    "polyadic": fit_ours,
    "lightgbm": fit_lightgbm,
    "xgboost": fit_xgboost,
    "engine": measure_engine,
}


def run_alone(name: str, folder: Path, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fit a model in a process of its own; return what it found, with its peak memory."""
    arguments = ["--model", name, "--folder", str(folder), "--rows", str(n_rows)]
    settings = ["--members", options.members, "--memory", options.memory]
    command = [sys.executable, __file__, *arguments, *settings]
    start, told = perf_counter(), 0.0
    say(f"{name}, {n_rows:,} rows: begins")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        try:
            while process.poll() is None:
                spent = perf_counter() - start
                late = spent - told > TELL_SECONDS
                say(f"{name}, {n_rows:,} rows: {spent:.0f} s", end="\n" if late else "")
                told = spent if late else told
                time.sleep(0.5)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        errors.seek(0)
        say(f"{name}, {n_rows:,} rows: done after {perf_counter() - start:.0f} s")
        if process.returncode:
            return {"failed": (errors.read().strip().splitlines() or ["it was killed"])[-1]}
        return json.loads(out.read().splitlines()[-1])


def answer(options: argparse.Namespace) -> None:
    """Fit one model, and print what was found as JSON."""
    found = MODELS[options.model](Path(options.folder), int(options.rows), options)
    found["memory"] = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(found, default=float))


class Results:
    """What was measured, in a file of one line per model."""

    def __init__(self, path: Path, anew: bool):
        self.path, self.known = path, {}
        if path.exists() and not anew:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.known = {json.dumps(line["what"]): line["found"] for line in lines}

    def measure(
        self, name: str, folder: Path, n_rows: int, options: argparse.Namespace
    ) -> dict[str, Any]:
        """Return what is known of a model, or measure and keep it."""
        own = [options.members, options.memory] if name == "polyadic" else []
        what = [name, n_rows, *own]
        if (known := self.known.get(json.dumps(what))) is not None:
            say(f"{name}, {n_rows:,} rows: as in {self.path}")
            return known
        found = run_alone(name, folder, n_rows, options)
        if "failed" not in found:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({"what": what, "found": found}) + "\n")
        return found


def report(n_rows: int, folder: Path, options: argparse.Namespace, results: Results) -> float:
    """Fit all models on so many rows, print what they took; return our seconds."""
    write_table(folder, n_rows)
    size = sum(os.path.getsize(path) for path in files(folder, n_rows))
    print_title(f"{n_rows:,} rows of {len(NAMES)} columns, {size / 1e9:.2f} GB of Parquet")
    names = options.models.split(",")
    found = {name: results.measure(name, folder, n_rows, options) for name in names}
    lines = []
    for name, one in found.items():
        if "failed" in one:
            lines.append([name, "-", "-", "-", one["failed"][:60]])
        elif name != "engine":
            gigabytes = f"{one['memory'] / 1e9:.2f}"
            lines.append([name, f"{one['error']:.4f}", f"{one['seconds']:.0f}", gigabytes, ""])
    print_table(["model", "test MSE", "fit s", "peak GB", ""], lines)
    print(f"(noise {NOISE**2:.2f})")
    ours = found.get("polyadic", {})
    for name, value in ours.items():
        if name.endswith("rows/s"):
            print(f"{name}: {value:,.0f}")
    if "phases" in ours:
        print(f"seconds of each phase: {ours['phases']}")
        below = ours["memory"] < MOST_MEMORY
        print(f"peak memory below {MOST_MEMORY / 1e9:g} GB: {verdict(below)}")
    if "slower" in found.get("engine", {}):
        speed = {name: round(value) for name, value in found["engine"]["speed"].items()}
        slower = found["engine"]["slower"]
        text = f"one pass of one thread, rows/s: {speed}; blocks take {slower:.2f} times as long"
        print(f"{text} (at most {MOST_SLOWER:g}): {verdict(slower <= MOST_SLOWER)}")
    return ours.get("seconds", np.nan)


def report_growth(rows: list[int], spent: list[float]) -> None:
    """Print how our time grows with the rows."""
    print_title("Time against rows")
    pairs = [[f"{n:,}", f"{t:.0f}", f"{1e6 * t / n:.1f}"] for n, t in zip(rows, spent)]
    print_table(["rows", "fit s", "s per million"], pairs)
    slope = np.polyfit(np.log(rows), np.log(spent), 1)[0]
    holds = verdict(slope <= MOST_GROWTH)
    print(f"exponent of our time over rows: {slope:.2f} (linear: at most {MOST_GROWTH:g}): {holds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="10000000", help="one number or several, by commas")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--members", default="auto", help="n_members of our model")
    parser.add_argument("--memory", default="2GB", help="memory of our model")
    parser.add_argument("--folder", help="where the table is, or is to be written")
    parser.add_argument("--results", type=Path, default=Path("results/stream.jsonl"))
    parser.add_argument("--anew", action="store_true", help="measure what is known again")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        answer(options)
        return
    print(machine())
    results = Results(options.results, options.anew)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.folder or made)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [int(float(n)) for n in options.rows.split(",")]
        spent = [report(n, folder, options, results) for n in rows]
    if len(rows) > 1 and np.all(np.isfinite(spent)):
        report_growth(rows, spent)


if __name__ == "__main__":
    main()
