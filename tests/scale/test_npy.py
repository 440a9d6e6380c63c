"""Ranges of a `.npy` file, read and written through mappings of a few bytes."""

import numpy as np
import pytest

from lunette.scale import npy


@pytest.mark.parametrize("band", [1, 200, 1 << 23])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_ranges(tmp_path, monkeypatch, order, band):
    monkeypatch.setattr(npy, "BAND", band)
    rng = np.random.default_rng(0)
    x = np.asarray(rng.integers(0, 99, (4, 5, 6, 7)), order=order)
    path = str(tmp_path / "x.npy")
    np.save(path, x)
    for _ in range(10):
        ranges = tuple(tuple(sorted(rng.choice(n + 1, 2, replace=False).tolist())) for n in x.shape)
        place = tuple(slice(lo, hi) for lo, hi in ranges)
        np.testing.assert_array_equal(npy.read(path, ranges), x[place])
        if order == "C":
            x[place] += 1
            npy.write(path, ranges, x[place])
            np.testing.assert_array_equal(np.load(path), x)
