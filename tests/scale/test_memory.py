"""Peak memory, measured in a process of its own."""

import subprocess
import sys

import numpy as np
import pytest

SLABS = """
import resource

import dask
import dask.array as da
import numpy as np

import lunette as ln


class Store:
    '''A volume that is made when it is read: byte z + 3y + 7x at (z, y, x).'''

    dtype, ndim = np.dtype("u1"), 3

    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, index):
        z, y, x = (np.arange(s.start, s.stop).astype("u1") for s in index)
        out = np.empty((len(z), len(y), len(x)), "u1")
        plane = (3 * y)[:, None] + 7 * x
        for i, depth in enumerate(z):
            np.add(plane, depth, out=out[i])
        return out


def pooled(shape, chunk):
    x = da.from_array(Store(shape), chunks=chunk, asarray=True, meta=np.empty((0, 0, 0), "u1"))
    y = ln.max_pool(x, (3, 3, 3), stride=2, padding=1)
    sums = y.map_blocks(lambda b: b.sum(keepdims=True, dtype="i8"), chunks=(1, 1, 1), dtype="i8")
    return sums.sum().compute(scheduler="threads", num_workers=THREADS)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


THREADS = 2
pooled((64, 64, 64), 32)
before = peak()
pooled((1024, 2048, 2048), 256)
slab = 257**3
outputs = 128**3 * 8 * THREADS
print(peak() - before, (2 * THREADS + 2) * slab + outputs)
"""


@pytest.mark.full
def test_a_dask_array_of_4_gb_needs_a_few_slabs():
    run = subprocess.run([sys.executable, "-c", SLABS], capture_output=True, text=True, check=True)
    used, allowed = map(int, run.stdout.split())
    assert used <= allowed


PYRAMID = """
import sys

from lunette.cli import app

try:
    app(sys.argv[1:])
finally:
    with open("/proc/self/status") as status:  # `ru_maxrss` counts the process that started it, too
        print("PEAK", 1024 * int(next(s for s in status if s.startswith("VmHWM")).split()[1]))
"""


@pytest.mark.full
@pytest.mark.parametrize("command", ["pyramid", "pool"])
def test_the_commands_stay_within_the_memory_they_are_given(tmp_path, command):
    source = tmp_path / "in.npy"
    np.lib.format.open_memmap(source, "w+", np.uint16, (512, 2048, 2048))  # 4 GB of holes
    limit = 700_000_000
    if command == "pyramid":
        arguments = [source, tmp_path / "out.zarr", "--levels", "4"]
    else:
        arguments = ["mean", source, tmp_path / "out.zarr", "--kernel", "3,3,3", "--stride", "2"]
    run = subprocess.run(
        [sys.executable, "-c", PYRAMID, command, *map(str, arguments), "--memory", "700MB"],
        capture_output=True,
        text=True,
        check=True,
    )
    peak = int(run.stdout.split("PEAK")[1])
    assert peak <= limit
