"""The command as a process of its own: in a pipe, in a terminal, and when Ctrl-C is pressed."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from fcntl import ioctl

import numpy as np
import pandas as pd
import pytest
from commands import houses, start

import polyadic

COLUMNS, LINES = 80, 40


class Terminal:
    """A process in a terminal of its own, and all that it has written there."""

    def __init__(self, *arguments, **streams):
        self.text, (self.own, other) = "", pty.openpty()
        ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = start(
            *arguments,
            **{"stdin": other, "stdout": other, "stderr": other, **streams},
            start_new_session=True,
            # Keys such as Ctrl-C become signals only in the terminal that controls a session.
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(other)

    def read_until(self, pattern, seconds=300):
        """Read until a pattern occurs, or until the process has closed the terminal."""
        end = time.monotonic() + seconds
        while pattern is None or not re.search(pattern, self.text):
            assert time.monotonic() < end, self.text
            if not select.select([self.own], [], [], 1.0)[0]:
                continue
            try:
                read = os.read(self.own, 65_536)
            except OSError:  # closed at the other end
                read = b""
            if not read:
                assert pattern is None, self.text
                return
            self.text += read.decode()

    def wait(self):
        self.read_until(None)
        return self.process.wait(300)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.own)


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def open_terminal(*arguments, **streams):
            opened = Terminal(*arguments, **streams)
            stack.callback(opened.close)
            return opened

        yield open_terminal


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("process") / "houses.csv"
    houses(1500).drop(columns=["sold", "id"]).to_csv(path, index=False)
    return path


def test_a_terminal_shows_a_bar_that_never_goes_back_and_fits_its_width(data, terminal):
    asked = ("fit", data.name, "--target", "price", "--max-time", "2", "-o", "m")
    shown = terminal(*asked, cwd=data.parent)
    assert shown.wait() == 0
    bars = re.findall(r"\r(\[[#-]+\] +(\d+)%[^\r\n]*)", shown.text)
    assert len(bars) > 2
    percents = [int(percent) for _, percent in bars]
    assert np.all(np.diff(percents) >= 0)
    assert percents[-1] == 100
    assert max(len(line) for line, _ in bars) < COLUMNS
    text = " ".join(line for line, _ in bars)
    assert re.search(r"(pilot|member) \d+ of \d+  held-out [\d.e-]+", text)
    assert "\x1b[1m" in shown.text  # bold
    assert max(len(line) for line in re.sub(r"\x1b\[[\d;]*m", "", shown.text).splitlines()) <= 80


def test_a_pipe_has_no_colour_and_no_bar_and_may_end_early(data, tmp_path):
    options = ("--target", "price", "--preset", "fast", "-o", tmp_path / "m")
    pipe = subprocess.PIPE
    first = start("fit", "-", *options, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = (text.decode() for text in first.communicate(data.read_bytes(), timeout=300))
    assert first.returncode == 0, err
    assert err == ""
    assert "\x1b" not in out
    assert "\r" not in out
    assert "1,500 rows" in out
    many = tmp_path / "many.csv"
    houses(30_000).to_csv(many, index=False)
    second = start("predict", tmp_path / "m", many, stdout=pipe, stderr=pipe)
    assert second.stdout.readline().strip(b'"\n') == b"prediction"
    float(second.stdout.readline())
    second.stdout.close()  # as `head` does
    assert second.stderr.read() == b""
    second.stderr.close()
    assert second.wait(300) == 0


def test_errors_are_one_line_and_debug_shows_the_traceback(tmp_path):
    for option in ((), ("--debug",)):
        done = start(
            "inspect", tmp_path / "absent", *option, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = (text.decode() for text in done.communicate(timeout=300))
        assert done.returncode == 1
        assert out == ""
        assert "There is no model file" in err.splitlines()[-1]
        assert (len(err.splitlines()) == 1) == (not option)
        assert ("Traceback" in err) == bool(option)


# ---- Ctrl-C --------------------------------------------------------------------------------------

CTRL_C = b"\x03"
TRAINS = r"[1-9]%  \S"  # the bar of a fit that has something to keep


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A table whose default fit takes longer than a test should."""
    path = tmp_path_factory.mktemp("long") / "long.csv"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 8)).round(3)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.1 * rng.normal(size=len(X))
    pd.DataFrame(X).add_prefix("x").assign(y=y).to_csv(path, index=False)
    return path


def test_ctrl_c_keeps_the_best_model_so_far_and_says_so(long, terminal, tmp_path):
    out = tmp_path / "m.safetensors"
    shown = terminal("fit", long, "--target", "y", "-o", out)
    shown.read_until(TRAINS)
    os.write(shown.own, CTRL_C)
    assert shown.wait() == 0
    for text in ("Stopping: the best model so far is kept", "The fit was cut short", "Saved to"):
        assert text in shown.text
    model, table = polyadic.load(out), pd.read_csv(long)
    assert model.score(table.drop(columns="y"), table["y"]) > 0.1


def test_machines_are_told_that_a_fit_was_cut_short(long, terminal, tmp_path):
    asked = ("fit", long, "--target", "y", "--json", "-o", tmp_path / "m.safetensors")
    shown = terminal(*asked, stdout=subprocess.PIPE)
    shown.read_until(TRAINS)
    shown.process.send_signal(signal.SIGINT)
    with shown.process.stdout as stdout:
        said = json.loads(stdout.read())
    assert shown.wait() == 0
    assert said["interrupted"] is True
    assert (tmp_path / "m.safetensors").exists()


def test_without_an_output_ctrl_c_ends_the_fit(long, terminal):
    shown = terminal("fit", long, "--target", "y")
    shown.read_until(TRAINS)
    os.write(shown.own, CTRL_C)
    assert shown.wait() == 130
    assert "Interrupted; nothing was written." in shown.text
    assert "Traceback" not in shown.text


def test_a_second_ctrl_c_ends_at_once(long, terminal, tmp_path):
    shown = terminal("fit", long, "--target", "y", "-o", tmp_path / "m.safetensors")
    shown.read_until(TRAINS)
    os.write(shown.own, CTRL_C)
    shown.read_until("Press Ctrl-C again")
    os.write(shown.own, CTRL_C)
    assert shown.wait() == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []
