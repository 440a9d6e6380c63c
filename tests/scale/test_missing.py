"""Cells that hold nothing have no part in a value: against plain loops."""

import statistics

import numpy as np
import pytest

from lunette.regions import Sliding
from lunette.scale import commands
from lunette.scale.operators import apply
from tests.scale.commands import lunette

REGIONS = (Sliding(2, 2, ceil_mode=True), Sliding(3, 3, ceil_mode=True))


def slowly(operator, x, mark, marked):
    out = np.empty((-(-x.shape[0] // 2), -(-x.shape[1] // 3)), x.dtype)
    for i, j in np.ndindex(out.shape):
        window = x[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
        cells = [v.item() for v in window[~marked[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]]]
        if operator == "sparse-mode":
            cells = [c for c in cells if c != 0] or cells
        if not cells:
            out[i, j] = mark
        elif operator == "mean":
            value = sum(map(float, cells)) / len(cells)
            out[i, j] = value if x.dtype.kind == "f" else round(value)
        elif "mode" in operator:
            out[i, j] = min(statistics.multimode(cells))
        else:
            out[i, j] = getattr(np, operator)(cells)
    return out


OPERATORS = ["mean", "max", "min", "mode", "sparse-mode"]
CASES = [
    *((o, d, m) for o in OPERATORS for d in ("u1", "i2") for m in (0, 3, 5)),
    *((o, "i2", -2) for o in OPERATORS),
    *((o, "u8", m) for o in OPERATORS[1:] for m in (0, 4)),
    *((o, "f4", m) for o in OPERATORS[:3] for m in (0, -2, float("nan"))),
]


@pytest.mark.parametrize(("operator", "dtype", "mark"), CASES)
def test_every_operator(operator, dtype, mark):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 6, (9, 14)).astype(dtype)
    if dtype == "i2":
        x -= 3
    x[rng.random(x.shape) < 0.5] = mark
    marked = np.isnan(x) if np.isnan(mark) else x == mark
    np.testing.assert_array_equal(
        apply(operator, x, REGIONS, mark), slowly(operator, x, mark, marked)
    )


def test_the_command(tmp_path):
    x = np.full((4, 4), np.nan, "f4")
    x[0, 0], x[0, 3], x[1, 2] = 7, 1, 4
    np.save(tmp_path / "in.npy", x)
    begin = ("pyramid", tmp_path / "in.npy", tmp_path / "out.npy", "--levels", 1, "--force")
    for option in (("--skipna",), ("--nodata", "nan")):
        lunette(*begin, *option)
        expected = [[7, 2.5], [np.nan, np.nan]]
        np.testing.assert_array_equal(np.load(tmp_path / "out.1.npy"), expected)


@pytest.mark.parametrize(
    ("dtype", "mark", "words"),
    [
        ("u1", "256", "can hold"),
        ("u1", "nan", "can hold"),
        ("u1", "1.5", "can hold"),
        ("bool", "0", "bools"),
        ("u8", "0", "at most 32 bits"),
    ],
)
def test_marks_that_cannot_be(tmp_path, dtype, mark, words):
    np.save(tmp_path / "in.npy", np.zeros((4, 4), dtype))
    operator = "mean" if dtype != "bool" else "max"
    begin = ("pyramid", tmp_path / "in.npy", tmp_path / "out.npy", "--op", operator)
    assert words in lunette(*begin, "--nodata", mark, code=1)
    assert not list(tmp_path.glob("out*"))


def test_a_line_of_progress_where_nobody_watches(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", np.zeros((64, 64), "u1"))
    begin = ("pool", "max", "--kernel", "2,2", tmp_path / "in.npy", tmp_path / "o.npy", "--force")
    begin += ("--chunks", "8,8")
    assert "MB/s, " not in lunette(*begin)
    monkeypatch.setattr(commands, "EVERY", 0)
    assert lunette(*begin).count("MB/s, ") == 16
    assert lunette(*begin, "--quiet") == ""
