"""The networks and properties of VNN-COMP, where they are: LUNETTE_VNNCOMP names the folder."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

import lunette as ln
from tests.onnx.models import runtime

FOLDER = os.environ.get("LUNETTE_VNNCOMP", "")
INSTANCES = sorted(Path(FOLDER).glob("*/instances.csv")) if FOLDER else []

pytestmark = pytest.mark.skipif(
    not INSTANCES, reason="LUNETTE_VNNCOMP names no folder of VNN-COMP benchmarks"
)


def pairs(table):
    """Each network of a benchmark with the first property that an instance gives it."""
    found = {}
    for line in table.read_text().split():
        network, *rest = line.split(",")
        found.setdefault(network, rest[0])
    return found


@pytest.mark.parametrize("table", INSTANCES, ids=lambda p: p.parent.name)
def test_networks_agree_with_onnxruntime_in_their_boxes(table):
    generator = np.random.default_rng(0)
    for network, name in pairs(table).items():
        path = table.parent / f"{network}.gz"
        if not path.exists():
            continue
        net = ln.onnx.load(path)
        found = ln.onnx.load_property(table.parent / f"{name}.gz")
        (port,) = net.inputs
        shape = [n or 1 for n in port.shape]
        case = found.cases[0]
        lo, hi = (
            np.array([float(v) for v in side]).reshape(shape) for side in (case.lower, case.upper)
        )
        for t in (0.0, 0.5, 1.0, generator.uniform(size=shape)):
            x = (lo + t * (hi - lo)).astype(np.float32)
            y, (expected,) = net(x), runtime(gzip.decompress(path.read_bytes()), x)
            assert y.shape == expected.shape and y.size == found.outputs
            scale = np.abs(expected).max()
            assert np.abs(y - expected).max() <= 1e-4 * scale + 1e-6, network


@pytest.mark.full
@pytest.mark.parametrize("table", INSTANCES, ids=lambda p: p.parent.name)
def test_every_property_is_read(table):
    paths = sorted((table.parent / "vnnlib").glob("*.gz"))
    assert paths
    for path in paths:
        assert ln.onnx.load_property(path).cases
