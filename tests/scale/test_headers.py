"""Headers of `.npy` and TIFF files that lie: one line each and an exit status."""

import struct

import pytest
import tifffile

from tests.scale.commands import volume
from tests.scale.hostile import attempt, no_hang, refused  # noqa: F401


def header(text, version=b"\x01\x00"):
    body = text.encode("latin-1") + b"\n"
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(body).to_bytes(width, "little") + body


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000000,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-4, -4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (True, 4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 4}",
        "{'descr': '|u1', 'fortran_order': 3, 'shape': (4, 4)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4, 4)}",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (4, 4)}",
        "{'descr': '|V4000000000', 'fortran_order': False, 'shape': (4, 4)}",
        "{'descr': 'rubbish', 'fortran_order': False, 'shape': (4, 4)}",
        "{'shape': (4, 4)}",
        "(" * 5000,
        "__import__('os').system('true')",
        "",
    ],
)
def test_npy_headers(tmp_path, text):
    source = tmp_path / "in.npy"
    source.write_bytes(header(text) + bytes(16))
    refused(source, tmp_path)


def test_npy_headers_without_end(tmp_path):
    source = tmp_path / "in.npy"
    with open(source, "wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31))
        file.truncate(1 << 32)
    refused(source, tmp_path, "a header of")
    source.write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))
    refused(source, tmp_path, "version (9, 0)")


def patched(path, tag, value):
    """The same TIFF with another value of a tag, in place."""
    with tifffile.TiffFile(path) as file:
        found = file.pages[0].tags[tag]
        offset, width = found.valueoffset, {3: "<H", 4: "<I"}[int(found.dtype)]
    data = bytearray(path.read_bytes())
    data[offset : offset + struct.calcsize(width)] = struct.pack(width, value)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (256, 0),
        (257, 0),
        (256, 2**31),
        (257, 2**32 - 1),
        (258, 0),
        (258, 65535),
        (259, 7),
        (259, 9999),
        (262, 60000),
        (277, 0),
        (277, 65535),
        (278, 0),
        (273, 2**32 - 1),
        (279, 2**32 - 1),
        (279, 0),
        (258, 3),
    ],
)
def test_tiff_tags(tmp_path, tag, value):
    source = tmp_path / "in.tif"
    tifffile.imwrite(source, volume((40, 40)), photometric="minisblack", metadata=None)
    patched(source, tag, value)
    code, _ = attempt(source, tmp_path)
    assert code == 1 or tag in (262, 277, 278) or value == 3  # imagecodecs reads cells of 3 bits


def test_a_tiff_whose_pages_go_round(tmp_path):
    source = tmp_path / "in.tif"
    tifffile.imwrite(source, volume((3, 8, 8)), photometric="minisblack", metadata=None)
    with tifffile.TiffFile(source) as file:
        offsets = [page.offset for page in file.pages]
    data = bytearray(source.read_bytes())
    for target in offsets:
        spoiled = bytearray(data)
        entries = struct.unpack_from("<H", data, offsets[-1])[0]
        struct.pack_into("<I", spoiled, offsets[-1] + 2 + 12 * entries, target)
        source.write_bytes(spoiled)
        attempt(source, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels '
        'ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="16" SizeY="16" SizeC="1" '
        'SizeZ="1000000000" SizeT="1000000000" BigEndian="false"><TiffData/></Pixels></Image></OME>',
        "ImageJ=1.53\nimages=1000000000000\nslices=1000000000000\nhyperstack=true\n",
        '{"shape": [1000000000000, 16, 16]}',
        '<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><OME>&b;</OME>',
    ],
)
def test_tiff_descriptions_that_lie(tmp_path, text):
    source = tmp_path / "in.tif"
    tifffile.imwrite(source, volume((16, 16)), description=text, metadata=None)
    attempt(source, tmp_path)
