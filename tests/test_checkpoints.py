"""A fit that was killed goes on, and ends with the same bits as one that was not."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from streams import TINY, make_rows, small_limits, write_rows

from polyadic import CPClassifier, CPRegressor
from polyadic.cli.interrupt import Interrupt
from polyadic.estimators import cp_base
from polyadic.networks.cp import CPCores
from polyadic.solvers.contract import Solution
from polyadic.training import fits
from polyadic.training.checkpoints import Checkpoint
from polyadic.training.watch import listening

HERE = Path(__file__).parent
FEATURES = ["a", "b", "kind"]

PROGRAM = textwrap.dedent(
    """
    import sys, numpy as np
    sys.path.insert(0, {here!r})
    from streams import make_rows, small_limits
    from polyadic import CPRegressor
    source, kept, out, memory = sys.argv[1:]
    how = dict(n_members=2, max_iter=6, random_state=0, memory=memory)
    with small_limits():
        if source == "memory":
            table = make_rows(1500)
            X, y = table.select(["a", "b", "kind"]), table["y"].to_numpy()
            model = CPRegressor(**how, checkpoint=kept or None).fit(X, y)
        else:
            model = CPRegressor(**how, checkpoint=kept or None).fit(source, "y")
    np.save(out, model.predict(make_rows(200, seed=8).select(["a", "b", "kind"])))
    """
).format(here=str(HERE))


def start(source, kept, out):
    """Start a fit in a process of its own."""
    arguments = [str(source), str(kept), str(out), str(TINY)]
    own = {**os.environ, "TMPDIR": str(Path(out).parent)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], env=own)


def n_kept(folder):
    """Return how many results a folder of checkpoints has, and their latest change.

    A process may take them away meanwhile: what has gone is not counted.
    """
    changed = []
    for own, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                if name.endswith(".npz"):
                    changed.append((Path(own) / name).stat().st_mtime_ns)
    return len(changed), max(changed, default=0)


def kill_after(process, folder, changes):
    """Kill a process when its folder has changed so many times; tell whether it was alive."""
    seen = n_kept(folder)
    while process.poll() is None:
        now = n_kept(folder)
        changes -= now != seen
        seen = now
        if changes <= 0:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("where", ["memory", "files"])
def test_a_killed_fit_goes_on_to_the_same_bits(tmp_path, where):
    source = where if where == "memory" else write_rows(tmp_path / "rows", ["y"])
    kept, out = tmp_path / "kept", tmp_path / "out.npy"
    undisturbed = start(source, "", tmp_path / "whole.npy")
    killed = [kill_after(start(source, kept, out), kept, changes) for changes in (1, 4)]
    assert killed[0]
    assert undisturbed.wait() == 0  # the others have not taken its blocks for those of a dead one
    blocks = list(tmp_path.glob("polyadic-rows-*"))
    assert len(blocks) == (where == "files" and killed[1])  # of the fit that was killed last
    assert start(source, kept, out).wait() == 0
    assert not list(tmp_path.glob("polyadic-rows-*"))
    np.testing.assert_array_equal(np.load(out), np.load(tmp_path / "whole.npy"))
    assert n_kept(kept)[0] == 0  # a fit that ends removes what it kept


def test_finished_fits_are_not_trained_again(tmp_path, monkeypatch):
    table = make_rows(400)
    X, y = table.select(FEATURES), table["y"].to_numpy()
    how = {"n_members": 2, "max_iter": 2, "random_state": 0, "trees": False}
    how["checkpoint"] = tmp_path
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    first = CPRegressor(**how).fit(X, y).predict(X)
    n_files = n_kept(tmp_path)[0]
    monkeypatch.setattr(fits.Fits, "start", lambda *args: pytest.fail("trained again"))
    np.testing.assert_array_equal(CPRegressor(**how).fit(X, y).predict(X), first)
    # Threads and messages change nothing; another seed is another fit.
    CPRegressor(**{**how, "n_jobs": 1}).fit(X, y)
    assert n_kept(tmp_path)[0] == n_files
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        CPRegressor(**{**how, "random_state": 1}).fit(X, y)


class Stopped(Exception):
    """What a fit raises that is to end before its first pilot."""


def identity_of(model, source, y, monkeypatch):
    """Return what the name of a fit's folder is made of."""

    def stop(folder, identity):
        raise Stopped(b"".join(identity))

    monkeypatch.setattr(cp_base, "Checkpoint", stop)
    with small_limits(), pytest.raises(Stopped) as found:
        model.fit(source, y)
    return found.value.args[0]


@pytest.mark.parametrize("estimator", [CPRegressor, CPClassifier])
def test_the_folder_of_a_streamed_fit_depends_on_the_rows_alone(tmp_path, monkeypatch, estimator):
    y = "y" if estimator is CPRegressor else "label"
    model = estimator(memory=TINY, random_state=0, checkpoint=tmp_path, n_members=1)
    table = make_rows(1500).select([*FEATURES, y])
    first = identity_of(model, table.to_batches, y, monkeypatch)
    assert b" at 0x" not in first  # an address, which differs between processes
    assert first == identity_of(model, table.to_batches, y, monkeypatch)
    a = table["a"].to_numpy().copy()
    a[[700, 701]] = a[[701, 700]]
    other = table.set_column(0, "a", pa.array(a))
    assert first != identity_of(model, other.to_batches, y, monkeypatch)


def test_fits_that_were_cut_short_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    interrupt = Interrupt(True)
    interrupt.asked = True
    table = make_rows(400)
    how = {"n_members": 1, "max_iter": 20, "random_state": 0, "trees": False}
    with listening(interrupt):
        CPRegressor(**how, checkpoint=tmp_path).fit(table.select(FEATURES), table["y"].to_numpy())
    assert n_kept(tmp_path)[0] == 0


def test_a_damaged_file_is_trained_again(tmp_path):
    kept = Checkpoint(tmp_path, [b"x"])
    cores = CPCores([np.ones((2, 3))], np.ones((3, 1)), np.zeros(1), [np.ones((2, 1))])
    solution = Solution(cores, {"train_loss": [1.0]}, 1, held_out=np.ones((4, 1)))
    kept.keep_solution("one", solution)
    found = kept.solution("one")
    np.testing.assert_array_equal(found.cores.additive[0], np.ones((2, 1)))
    assert (found.history, found.loss, found.converged) == ({"train_loss": [1.0]}, np.inf, True)
    (path,) = kept.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    assert kept.solution("one") is None
    path.write_bytes(b"")
    assert kept.solution("one") is None


def test_arrays_with_any_damaged_bit_are_trained_again(tmp_path):
    """A changed method of compression stopped every restart."""
    kept = Checkpoint(tmp_path, [b"rows"])
    kept.keep("state", {"x": np.arange(3), "y": np.zeros(2)})
    (path,) = kept.folder.glob("*.npz")
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        assert kept.arrays("state") is None
        path.write_bytes(data[:position])
        assert kept.arrays("state") is None
    path.write_bytes(data)
    assert kept.arrays("state")["x"].tolist() == [0, 1, 2]
