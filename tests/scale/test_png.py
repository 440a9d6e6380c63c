"""PNG of every depth and kind of colour."""

import struct
import zlib

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from lunette.scale import png
from tests.scale.commands import halved, lunette


def cells(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 16, shape).astype("u2")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("into", ["out.npy", "out.png"])
def test_sixteen_bits(tmp_path, channels, into):
    x = cells((9, 13, channels) if channels > 1 else (9, 13))
    (tmp_path / "in.png").write_bytes(imagecodecs.png_encode(x))
    lunette("pyramid", tmp_path / "in.png", tmp_path / into, "--levels", 1, "--op", "mean")
    out = tmp_path / into.replace(".", ".1.")
    data = np.load(out) if into == "out.npy" else imagecodecs.png_decode(out.read_bytes())
    assert data.dtype == np.uint16
    np.testing.assert_array_equal(data, halved(x, (0, 1)))


def filtered(x, bits=16):
    """A PNG whose rows have every filter in turn, written from the specification (9.2)."""
    height, width, channels = x.shape
    step = channels * bits // 8
    raw = x.astype(">u2").reshape(height, -1).view("u1").reshape(height, width * step).astype(int)
    rows, above = b"", np.zeros(width * step, int)
    for number, row in enumerate(raw):
        left = np.concatenate([np.zeros(step, int), row[:-step]])
        corner = np.concatenate([np.zeros(step, int), above[:-step]])
        p = left + above - corner
        distance = np.stack([abs(p - v) for v in (left, above, corner)])
        paeth = np.choose(distance.argmin(0), [left, above, corner])
        guess = [0 * row, left, above, (left + above) // 2, paeth][number % 5]
        rows += bytes([number % 5]) + ((row - guess) % 256).astype("u1").tobytes()
        above = row
    kind = {2: 4, 3: 2, 4: 6}[channels]

    def chunk(name, data):
        crc = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + crc

    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_every_filter_of_sixteen_bits(tmp_path, channels):
    x = cells((11, 7, channels), seed=channels)
    (tmp_path / "in.png").write_bytes(filtered(x))
    np.testing.assert_array_equal(png.read(str(tmp_path / "in.png"), ""), x)


def test_a_palette_is_read_as_its_colours_or_as_its_indices(tmp_path):
    indices = np.random.default_rng(0).integers(0, 3, (8, 8)).astype("u1")
    colours = np.array([[0, 0, 0], [255, 10, 0], [0, 99, 7]], "u1")
    image = Image.fromarray(indices, mode="P")
    image.putpalette(colours.tobytes())
    image.save(tmp_path / "in.png")
    begin = ("pool", "max", "--kernel", "1,1", tmp_path / "in.png", tmp_path / "out.npy", "--force")
    lunette(*begin)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), colours[indices])
    lunette(*begin, "--array", "indices")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), indices)
    assert "--array 'colours'" in lunette(*begin, "--array", "colours", code=1)
