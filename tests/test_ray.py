"""Fits on a real local Ray: the same answers, and what happens when processes or files are lost.

One cluster serves all tests of this file.
"""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import needs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from joblib import parallel_config
from sklearn.base import clone
from streams import TINY, make_rows, small_limits

from polyadic import CPRegressor, load
from polyadic.training.pool import Pool

ray = needs.package("ray")
pytestmark = [
    # Ray itself: what it deprecates in its own code, and sockets and files that it leaves to exit.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

from polyadic.scale import ray as on_ray  # noqa: E402

SETTINGS = {"n_members": 1, "max_iter": 20, "batch_size": 50, "random_state": 0}
SETTINGS |= {"trees": False, "memory": TINY}
N_ROWS = 3000
MARK = "POLYADIC_TEST_CLUSTER"
CLUSTER = {
    "RAY_worker_niceness": "0",  # by default other tests, beside these, would be served first
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # until Ray Train sees that a worker has died
    # One process less to start.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def processes():
    """Return the processes of the cluster of this file, with their names.

    They inherit the environment in which it was started.
    """
    found, own = {}, f"{MARK}={os.getpid()}\0".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                is_own = own in (folder / "environ").read_bytes()
            except OSError:  # it has ended, or is not ours
                continue
            if is_own and any(word in name for word in ("ray::", "raylet", "gcs_server")):
                found[int(folder.name)] = name
    return found


@pytest.fixture(scope="module")
def cluster():
    patch = pytest.MonkeyPatch()
    for name, value in {MARK: str(os.getpid()), **CLUSTER}.items():
        patch.setenv(name, value)
    context = ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=200_000_000,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    assert processes()
    yield context.address_info["address"]
    ray.shutdown()
    patch.undo()
    end = time.monotonic() + 20
    while (left := processes()) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left, "Ray has left processes behind"


@pytest.fixture(autouse=True)
def small():
    with small_limits():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a table to three files."""
    out = tmp_path_factory.mktemp("table")
    table = make_rows(N_ROWS).select(["a", "b", "kind", "y"])
    for k, first in enumerate(range(0, N_ROWS, 1000)):
        pq.write_table(table.slice(first, 1000), out / f"{k}.parquet")
    return out


@pytest.fixture(scope="module")
def alone(folder):
    """Fit the table on one machine, without Ray."""
    with small_limits():
        return CPRegressor(**SETTINGS).fit(str(folder), "y")


def features(n=N_ROWS):
    return make_rows(n).select(["a", "b", "kind"])


def assert_same_model(found, expected):
    """Compare up to rounding: gradients are added in another order."""
    a, b = (model.predict(features()) for model in (found, expected))
    np.testing.assert_allclose(a, b, atol=0.02 * b.std())


def wait_for(what, seconds=300):  # a busy machine may have to compile first
    """Return what a function returns, as soon as that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def states(storage):
    """Return the states of streamed members that are kept."""
    found = []
    for path in (storage / "checkpoint").rglob("*.npz"):
        try:
            with np.load(path) as arrays:
                found += [int(arrays["done"])] if "done" in arrays else []
        except (OSError, ValueError, EOFError):
            continue  # replaced by a newer one
    return found


def training_workers():
    return [pid for pid, name in processes().items() if "RayTrainWorker" in name]


def test_a_killed_worker_is_replaced_and_the_model_is_that_of_one_machine(
    cluster, folder, alone, tmp_path
):
    killed = []

    def kill():
        done = wait_for(lambda: states(tmp_path))
        workers = training_workers()
        killed.append((done, workers))
        os.kill(workers[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    usual = signal.getsignal(signal.SIGINT)
    model = CPRegressor(**SETTINGS)
    found = on_ray.fit(model, str(folder), "y", storage=tmp_path, num_workers=2)
    killer.join()
    ((done, workers),) = killed
    assert len(workers) == 2
    assert signal.getsignal(signal.SIGINT) is usual
    assert 0 < done[0] < 100  # of all blocks of all passes, when it was killed
    assert found is model
    assert not list(tmp_path.glob("*/*")), "the fit has left files behind"
    assert_same_model(found, alone)
    found.save(tmp_path / "model.safetensors")  # an ordinary model
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict(features()), found.predict(features()), atol=1e-6)
    check_predictions(found, folder)


def check_predictions(model, folder):
    table = on_ray.predict(model, str(folder), keep=["a"]).to_arrow_refs()
    out = pa.concat_tables(ray.get(table)).sort_by("a")
    expected = model.predict(features())
    np.testing.assert_array_equal(np.sort(out["prediction"].to_numpy()), np.sort(expected))
    assert out.column_names == ["a", "prediction"]


DRIVER = """
import sys
sys.path[:0] = {path!r}
import ray
from streams import small_limits
from polyadic import CPRegressor
from polyadic.scale import ray as on_ray
ray.init(address={address!r}, log_to_driver=False, logging_level="error")
with small_limits():
    on_ray.fit(CPRegressor(**{settings!r}), {folder!r}, "y", storage={storage!r}, num_workers=1)
"""


def test_after_the_driver_was_killed_the_same_call_goes_on(cluster, folder, alone, tmp_path):
    here = [str(Path(__file__).parent)]
    code = DRIVER.format(
        path=here, address=cluster, settings=SETTINGS, folder=str(folder), storage=str(tmp_path)
    )
    driver = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for(lambda: states(tmp_path) or driver.poll() is not None)
        assert driver.poll() is None, "the driver has ended before it could be killed"
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not training_workers())
    before = states(tmp_path)
    assert before
    model = CPRegressor(**SETTINGS)
    found = on_ray.fit(model, str(folder), "y", storage=tmp_path, num_workers=1)
    # One worker takes the same steps as one machine, but the parts of the table round differently.
    assert_same_model(found, alone)


def reserved():
    return [one for one in ray.util.placement_group_table().values() if one["state"] == "CREATED"]


@pytest.mark.parametrize("moment", ["reserved", "training"])
def test_a_killed_controller_is_replaced(moment, cluster, folder, alone, tmp_path):
    def kill():  # before workers are there, Ray keeps what the controller has reserved for them
        wait_for(reserved if moment == "reserved" else lambda: states(tmp_path))
        (pid,) = (pid for pid, name in processes().items() if "TrainController" in name)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    model = CPRegressor(**SETTINGS)
    found = on_ray.fit(model, str(folder), "y", storage=tmp_path, num_workers=1)
    killer.join()
    assert_same_model(found, alone)
    wait_for(lambda: ray.available_resources().get("CPU") == 2, 60)


@contextmanager
def interrupted_when(what):
    """Expect that Ctrl-C ends a block; it is sent as soon as a function returns something true.

    And again after half a minute, as people do: Ray may lose one that comes in its own code.
    """
    ended = threading.Event()

    def work():
        wait_for(what)
        while not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(30)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        thread.join()


def test_ctrl_c_ends_the_training_as_everywhere(cluster, folder, tmp_path):
    # Ray Train's own handler would end the process, with status 0.
    usual = signal.getsignal(signal.SIGINT)
    model = CPRegressor(**SETTINGS | {"max_iter": 2_000})  # not done before a second signal
    with interrupted_when(lambda: states(tmp_path)):
        on_ray.fit(model, str(folder), "y", storage=tmp_path, num_workers=1)
    assert signal.getsignal(signal.SIGINT) is usual
    assert not hasattr(model, "n_features_in_")
    wait_for(lambda: not training_workers(), 60)
    wait_for(lambda: ray.available_resources().get("CPU") == 2, 60)


def test_ctrl_c_ends_tasks_that_run_or_wait(cluster, folder, tmp_path):
    workers = on_ray.RayCluster(str(folder), tmp_path / "storage", 1, 1, None)
    begun = tmp_path / "begun"
    begun.mkdir()

    def wait_long(task):
        (begun / str(task)).touch()
        for _ in range(600):
            time.sleep(0.1)

    with interrupted_when(lambda: any(begun.iterdir())):
        workers.map(wait_long, range(6))
    wait_for(lambda: ray.available_resources().get("CPU") == 2, 60)
    assert len(list(begun.iterdir())) <= 2  # the others have not begun


def test_the_folder_of_a_killed_driver_is_removed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "polyadic-ray-left"
    left.mkdir()
    (left / "lock").touch()
    (left / "rows").touch()
    with on_ray._folder(None) as folder:
        assert list(tmp_path.iterdir()) == [Path(folder)]
    assert not list(tmp_path.iterdir())


def test_a_lost_file_is_named(cluster, folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        on_ray.fit(
            CPRegressor(**SETTINGS),
            [folder / "0.parquet", "nothing.parquet"],
            "y",
            storage=tmp_path,
        )
    path = tmp_path / "lost.parquet"
    pq.write_table(make_rows(100).select(["a", "y"]), path)
    dataset = ray.data.read_parquet(str(path))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"was lost while it was read: .*lost\.parquet"):
        on_ray.fit(CPRegressor(**SETTINGS), dataset, "y", storage=tmp_path)


def test_retries_are_bounded(cluster, folder, tmp_path):
    workers = on_ray.RayCluster(str(folder), tmp_path / "storage", 1, 1, None)
    attempts = tmp_path / "attempts"
    attempts.mkdir()

    def die(exchange):  # inside this function, so that Ray sends its code
        (attempts / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(needs.package("ray.train").TrainingFailedError):
        workers.train(die)
    # Two, and one more where the last worker died while Ray Train was calling it.
    assert 2 <= len(list(attempts.iterdir())) <= 3
    wait_for(lambda: ray.available_resources().get("CPU") == 2, 60)  # nothing stays reserved


def test_joblibs_backend_finds_the_same_bits(cluster):
    from ray.util.joblib import register_ray

    register_ray()
    X, y = features(300), make_rows(300)["y"].to_numpy()
    model = CPRegressor(n_members=3, max_iter=3, trees=False, random_state=0, n_jobs=2)
    expected = clone(model).fit(X, y).predict(X)
    with parallel_config(backend="ray", n_jobs=2):
        with Pool(2) as pool:
            assert pool.spreads
        found = clone(model).fit(X, y).predict(X)
    np.testing.assert_array_equal(found, expected)


def test_the_example_of_ray_tune_runs(cluster, tmp_path, capsys):
    path = Path(__file__).resolve().parents[1] / "examples" / "ray_tune.py"
    example = runpy.run_path(str(path))
    settings = {"storage": str(tmp_path), "max_iter": 2, "trees": False}
    config, model = example["main"](n_rows=200, n_trials=2, **settings)
    assert model.weights_.shape[0] == config["rank"]
    assert "error 0." in capsys.readouterr().out


def test_what_is_wrong_is_said_first(tmp_path):
    with pytest.raises(TypeError, match="int cannot be fitted on Ray"):
        on_ray.fit(3, "x.parquet", "y", storage=tmp_path)
    with pytest.raises(ValueError, match="num_workers must be a whole number of at least 1, got 0"):
        on_ray.fit(CPRegressor(), "x.parquet", "y", storage=tmp_path, num_workers=0)


def test_without_ray_the_error_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from polyadic import CPRegressor\nfrom polyadic.scale import ray\n"
        "try:\n    ray.fit(CPRegressor(), 'x.parquet', 'y', storage='.')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'polyadic[ray]'" in done.stdout
