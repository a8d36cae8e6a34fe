"""Files are written whole or not at all, keep their permissions, and leave no drafts behind."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys

import pytest

from polyadic import ModelFileError, load
from polyadic.io.atomic import drafted, write_whole
from polyadic.io.folders import start_folder

HANGS = """
import sys, time
from polyadic.io.atomic import drafted
with drafted(sys.argv[1]) as draft:
    draft.write_bytes(b"half")
    print("ready", flush=True)
    time.sleep(60)
"""


def start_to_write(path):
    """Start a process that is in the middle of writing a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def end(process, how):
    process.send_signal(how)
    process.wait()
    process.stdout.close()


def test_a_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"before")
    path.chmod(0o640)
    write_whole(path, b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "model", b"data")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "model")}
    assert len(modes) == 1


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused_and_stays(tmp_path, kind):
    path = tmp_path / "place"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path = "/dev/null"
    before = os.stat(path).st_mode
    with pytest.raises(OSError, match="a device, a pipe or a socket, not a file"):
        write_whole(path, b"data")
    assert os.stat(path).st_mode == before


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"before")

    def fail():
        with drafted(path) as draft:
            draft.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(tmp_path) == ["model"]
    assert path.read_bytes() == b"before"


def test_the_draft_of_a_killed_process_is_removed_by_the_next_save(tmp_path):
    process = start_to_write(tmp_path / "model")
    end(process, signal.SIGKILL)
    assert len(os.listdir(tmp_path)) == 1
    write_whole(tmp_path / "other", b"data")
    assert os.listdir(tmp_path) == ["other"]


def test_the_draft_of_a_living_process_stays(tmp_path):
    process = start_to_write(tmp_path / "model")
    try:
        write_whole(tmp_path / "other", b"data")
        assert len(os.listdir(tmp_path)) == 2
    finally:
        end(process, signal.SIGKILL)


def test_a_link_is_kept_and_its_target_written(tmp_path):
    (tmp_path / "target").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"after"


@pytest.fixture
def no_locks(monkeypatch):
    """Be on a file system without locks; fail where a lock is tried again and again."""
    tried = []

    def refuse(file, how):
        tried.append(file)
        assert len(tried) < 20
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_folder_is_made_and_those_of_others_stay(tmp_path):
    other = tmp_path / "rows-other"
    other.mkdir()
    (other / "lock").touch()
    held, folder = start_folder("rows-", tmp_path)
    with held:
        assert {path.name for path in tmp_path.iterdir()} == {other.name, folder.name}
        assert (other / "lock").exists()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_files_are_saved_and_drafts_of_others_stay(tmp_path):
    draft = tmp_path / ".polyadic-0123456789abcdef.tmp"
    draft.write_bytes(b"half")
    write_whole(tmp_path / "model", b"data")
    assert {path.name for path in tmp_path.iterdir()} == {draft.name, "model"}
    assert (tmp_path / "model").read_bytes() == b"data"
    assert draft.read_bytes() == b"half"


def test_only_drafts_of_polyadic_are_removed(tmp_path):
    """A pipe of such a name made every save wait for ever."""
    draft = tmp_path / ".polyadic-0123456789abcdef.tmp"
    draft.write_bytes(b"half")
    others = [tmp_path / name for name in (".polyadic-notes.tmp", ".polyadic-0.tmp")]
    for other in others:
        other.write_bytes(b"mine")
    os.mkfifo(tmp_path / ".polyadic-0000000000000000.tmp")
    (tmp_path / ".polyadic-1111111111111111.tmp").symlink_to(others[0])
    write_whole(tmp_path / "model", b"data")
    assert not draft.exists()
    assert [other.read_bytes() for other in others] == [b"mine"] * 2
    assert len(list(tmp_path.iterdir())) == 5


def test_a_pipe_as_the_lock_of_a_folder_is_left_alone(tmp_path):
    (tmp_path / "rows-other").mkdir()
    os.mkfifo(tmp_path / "rows-other" / "lock")
    held, _ = start_folder("rows-", tmp_path)
    held.close()
    assert (tmp_path / "rows-other").exists()


def test_a_model_is_not_read_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "model")
    with pytest.raises(ModelFileError, match="a device, a pipe or a socket"):
        load(tmp_path / "model")
    with pytest.raises(ModelFileError, match="a device, a pipe or a socket"):
        load(os.devnull)


def test_a_loop_of_links_is_refused_and_stays(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(OSError, match="a link that leads back to itself"):
        write_whole(tmp_path / "one", b"data")
    assert (tmp_path / "one").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2
