"""Stores that are no folder: Zip files, fsspec's memory, a server on this machine; and other layouts."""

import http.server
import threading
import zipfile

import fsspec
import numpy as np
import pytest
import zarr

from lunette.scale import containers
from lunette.scale.opening import open_source
from tests.scale.commands import halved, lunette, volume
from tests.scale.test_kept import OMERO, image


@pytest.fixture
def store(tmp_path):
    """A folder with an image of one level, and its cells; one chunk is not there."""
    x = volume((12, 14), "u2")
    x[:4, :4] = 0
    folder = tmp_path / "in.zarr"
    image(folder, "0.5", x, {"omero": OMERO})
    assert not (folder / "0" / "c" / "0" / "0").exists()
    return folder, x


def check(source, out, x):
    lunette("pyramid", source, out, "--levels", 1, "--op", "mean")
    group = zarr.open_group(str(out), mode="r")
    np.testing.assert_array_equal(group["0"][...], x)
    np.testing.assert_array_equal(group["1"][...], halved(x))
    assert group.attrs["ome"]["omero"] == OMERO


# -- Zip --


def zipped(folder, path, prefix="", how=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", how) as file:
        for name in sorted(folder.rglob("*")):
            if name.is_file():
                file.write(name, prefix + str(name.relative_to(folder)))
    return path


@pytest.mark.parametrize("prefix", ["", "in.zarr/"])
@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_file(tmp_path, store, prefix, how):
    folder, x = store
    check(zipped(folder, tmp_path / "in.zarr.zip", prefix, how), tmp_path / "out.zarr", x)


def test_zip_files_that_lie(tmp_path, store):
    folder, _ = store
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 rubbish")
    assert "no Zip file" in lunette("pyramid", tmp_path / "a.zip", tmp_path / "out.zarr", code=1)
    chunk = folder / "0" / "c" / "1" / "1"
    chunk.write_bytes(bytes(1 << 26))  # which deflates to next to nothing
    bomb = zipped(folder, tmp_path / "b.zip", how=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 18
    message = lunette("pyramid", bomb, tmp_path / "out.zarr", "--op", "mean", code=1)
    assert "expected at most" in message
    assert "chunk (1, 1)" in message


# -- the network --


def test_memory_of_fsspec(tmp_path, store):
    folder, x = store
    fsspec.filesystem("memory").put(str(folder), "/bucket/in.zarr", recursive=True)
    try:
        check("memory://bucket/in.zarr", tmp_path / "out.zarr", x)
        assert open_source("memory://bucket/in.zarr/0").units == ("micrometer",) * 2
        message = lunette("pyramid", "memory://bucket/no.zarr", tmp_path / "b.zarr", code=1)
        assert "holds none of zarr.json" in message
        assert "not known" in lunette("pyramid", "what://a/b.zarr", tmp_path / "b.zarr", code=1)
    finally:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


class Server(http.server.SimpleHTTPRequestHandler):
    """The files of a folder; `trouble` gives the status that a path is answered with, if not 200."""

    trouble = staticmethod(lambda path: None)

    def send_head(self):
        status = self.trouble(self.path)
        if status is None:
            return super().send_head()
        self.send_error(status)
        return None

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    handler = type("Handler", (Server,), {})
    make = lambda *a: handler(*a, directory=str(tmp_path))  # noqa: E731
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setattr(containers.time, "sleep", lambda seconds: None)
        yield handler, f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_a_server(tmp_path, store, server):
    _, url = server
    check(f"{url}/in.zarr", tmp_path / "out.zarr", store[1])


def test_a_server_that_fails_now_and_then(tmp_path, store, server):
    handler, url = server
    asked = {}

    def trouble(path):
        asked[path] = asked.get(path, 0) + 1
        return 503 if asked[path] < 3 else None

    handler.trouble = staticmethod(trouble)
    check(f"{url}/in.zarr", tmp_path / "out.zarr", store[1])


def test_a_server_that_lacks_chunks(tmp_path, store, server):
    """One that was never written, and one that the server has lost: nobody can tell them apart."""
    handler, url = server
    handler.trouble = staticmethod(lambda path: 404 if path.endswith("/c/2/2") else None)
    begin = ("pyramid", f"{url}/in.zarr", tmp_path / "out.zarr", "--op", "mean", "--levels", 1)
    message = lunette(*begin, "--threads", 1)
    assert "warning: 2 chunks are not there, '0/c/0/0' among them" in message
    assert "fill value 0" in message


@pytest.mark.parametrize("status", [500, 403])
def test_a_server_that_fails_half_way(tmp_path, store, server, status):
    handler, url = server
    handler.trouble = staticmethod(lambda path: status if path.endswith("/c/2/2") else None)
    begin = ("pyramid", f"{url}/in.zarr", tmp_path / "out.zarr", "--op", "mean", "--levels", 1)
    message = lunette(*begin, code=1)
    assert "chunk (2, 2)" in message
    assert "in.zarr/0/c/2/2" in message
    handler.trouble = staticmethod(lambda path: None)
    lunette(*begin, "--resume")
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    np.testing.assert_array_equal(group["0"][...], store[1])
    handler.trouble = staticmethod(lambda path: status)
    message = lunette(*begin[:2], tmp_path / "b.zarr", code=1)
    assert "cannot be read" in message
    assert not list(tmp_path.glob("b.zarr*"))


# -- layouts --


def test_the_layout_of_bioformats2raw(tmp_path):
    root = zarr.create_group(str(tmp_path / "in.zarr"), zarr_format=2)
    root.attrs["bioformats2raw.layout"] = 3
    images = [volume((8, 8), seed=k) for k in range(2)]
    for number, x in enumerate(images):
        image(tmp_path / "in.zarr" / str(number), "0.4", x)
    begin = (
        "pool",
        "max",
        "--kernel",
        "1,1",
        tmp_path / "in.zarr",
        tmp_path / "out.npy",
        "--force",
    )
    for number, option in ((0, ()), (1, ("--series", 1))):
        lunette(*begin, *option)
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), images[number])
    assert "'2' holds none" in lunette(*begin, "--series", 2, code=1)


def test_a_plate_is_named_for_what_it_is(tmp_path):
    root = zarr.create_group(str(tmp_path / "in.zarr"), zarr_format=3)
    root.attrs["ome"] = {"version": "0.5", "plate": {}}
    message = lunette("pyramid", tmp_path / "in.zarr", tmp_path / "out.zarr", code=1)
    assert "is a plate of many images" in message
