"""A real cluster of two worker processes: the same bits, also when one of them is killed."""

import os
import signal
import time

import dask.array as da
import distributed
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import lunette as ln
from tests.scale.commands import halved, lunette, volume


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as running:
        yield running


def slowly(block):
    time.sleep(0.05)
    return block


def test_a_killed_worker_does_not_change_a_bit(cluster):
    x = np.random.default_rng(0).normal(size=(96, 96)).astype("f4")
    op = ln.MaxPool((3, 3), stride=2, padding=1)
    lazy = da.from_array(x, chunks=16).map_blocks(slowly, dtype="f4", meta=x[:0, :0])
    with Client(cluster) as client:
        client.wait_for_workers(2)
        future = client.compute(op(lazy))
        victim = next(iter(cluster.workers.values())).pid
        while not any(client.has_what().values()):  # until the run is under way
            time.sleep(0.01)
        assert not future.done()
        os.kill(victim, signal.SIGKILL)
        assert future.result(timeout=90).tobytes() == op(x).tobytes()
        gradient = op.vjp(lazy, op(lazy))
        assert client.compute(gradient).result(timeout=90).tobytes() == op.vjp(x, op(x)).tobytes()


def test_the_commands_use_an_existing_cluster(cluster, tmp_path):
    x = volume((30, 40, 20))
    np.save(tmp_path / "in.npy", x)
    lunette(
        *("pyramid", tmp_path / "in.npy", tmp_path / "out.zarr", "--levels", 2),
        *("--chunks", "8,8,8", "--scheduler", cluster.scheduler_address),
    )
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    np.testing.assert_array_equal(group["2"][...], halved(halved(x)))


def test_workers_see_what_the_files_are_now(cluster, tmp_path, monkeypatch):
    """The same paths, relative to where the command runs, twice: the second time other arrays."""
    monkeypatch.chdir(tmp_path)
    for shape, chunks in (((30, 40), "8,8"), ((50, 21), "16,4")):
        x = volume(shape)
        np.save("in.npy", x)
        arguments = ["pyramid", "in.npy", "out.zarr", "--levels", 1, "--chunks", chunks, "--force"]
        lunette(*arguments, "--scheduler", cluster.scheduler_address)
        group = zarr.open_group("out.zarr", mode="r")
        np.testing.assert_array_equal(group["0"][...], x)
        np.testing.assert_array_equal(group["1"][...], halved(x))


def test_a_cluster_that_goes_away(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", volume((64, 64)))
    arguments = ["pool", "max", "--kernel", "2,2", "--chunks", "4,4"]
    arguments += [tmp_path / "in.npy", tmp_path / "out.npy"]

    def gone(futures, **options):
        raise OSError("the scheduler is gone")

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as running,
        monkeypatch.context() as patch,
    ):
        patch.setattr(distributed, "wait", gone)
        message = lunette(*arguments, "--scheduler", running.scheduler_address, code=1)
    assert "the scheduler is gone" in message
    assert "--resume" in message
    lunette(*arguments, "--resume")


def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", volume((8, 8)))
    original = distributed.Client
    monkeypatch.setattr(
        distributed, "Client", lambda address, timeout: original(address, timeout=1)
    )
    output = lunette(
        *("pool", "max", "--kernel", "2,2", tmp_path / "in.npy", tmp_path / "out.npy"),
        *("--scheduler", "tcp://127.0.0.1:9"),
        code=1,
    )
    assert "--scheduler 'tcp://127.0.0.1:9'" in output
    assert not (tmp_path / "out.npy").exists()
