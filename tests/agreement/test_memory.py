"""Calls allocate their result and a little scratch memory, never a copy of the input."""

import gc
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

import lunette as ln
from cases import values
from cases.agreement import direction, run
from lunette.kernels import threads
from lunette.kernels.cpu.memory import block_cache, scratchpad

SHAPE = (8, 64, 96, 96)
SCRATCH = 4 << 20
"""Bytes that one thread needs besides the result: some planes."""

OPS = (
    ln.MaxPool((3, 3), stride=2, padding=1),
    ln.MaxPool((13, 13), stride=1, padding=6),
    ln.AvgPool((2, 2)),
    ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1),
    ln.GlobalAvgPool(2),
    ln.GlobalMaxPool(2),
    ln.AdaptiveMaxPool((3, 3), ties="split"),
)


def views(x):
    yield "contiguous", x
    yield "channels last", np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    yield "reversed", np.ascontiguousarray(x[..., ::-1])[..., ::-1]


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_no_hidden_copy(backend, op, monkeypatch):
    monkeypatch.setattr(block_cache._kept, "limit", 0)  # else results lie in blocks of earlier ones
    monkeypatch.setattr(threads, "_threads", 1)
    block_cache._kept.blocks.clear()
    x = values.filled("random", SHAPE, "float32")
    grad = direction(op.out_shape(SHAPE), x.dtype)
    for name, view in views(x):
        for verb, along in (("forward", None), ("vjp", grad)):
            run(
                op, verb, view, along, backend
            )  # plans and compiled code stay; they are not scratch
            monkeypatch.setattr(scratchpad, "_own", scratchpad._OfThread())
            tracemalloc.start()
            result = run(op, verb, view, along, backend)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # The gradient of a smooth max keeps three numbers for each output while it runs.
            more = 3 * grad.nbytes if verb == "vjp" and isinstance(op, ln.SmoothMaxPool) else 0
            assert result.nbytes <= peak < result.nbytes + SCRATCH + more, (name, verb, peak)
            assert x.nbytes / 2 > SCRATCH


def test_memory_of_results_is_used_again_within_its_bound(monkeypatch):
    monkeypatch.setattr(block_cache._kept, "limit", 3 << 20)
    block_cache._kept.blocks.clear()
    dtype = np.dtype(np.float32)
    one = block_cache.new_array((1 << 19,), dtype)
    at, view = one.ctypes.data, one[3:5]
    one[3:5] = 7, 8
    del one
    other = block_cache.new_array((1 << 19,), dtype)
    assert other.ctypes.data != at and view.tolist() == [7, 8]  # a view keeps its memory
    del view
    again = block_cache.new_array((1 << 10, 1 << 9), dtype)
    assert again.ctypes.data == at and again.ctypes.data % 64 == 0
    del again, other
    assert sum(block.nbytes for block in block_cache._kept.blocks) <= 3 << 20
    assert block_cache.new_array((4,), dtype).base is None  # small ones are ordinary


def test_a_bound_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("LUNETTE_KEEP_BYTES", "plenty")
    with pytest.raises(ValueError, match="LUNETTE_KEEP_BYTES='plenty': expected a number of bytes"):
        block_cache._limit()


@pytest.fixture
def unraisable(monkeypatch):
    """Errors that nobody could be told of: raised in a destructor."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    monkeypatch.setattr(block_cache, "_kept", block_cache.BlockCache())
    return found


@pytest.mark.parametrize("text", ["1GB", "-1", "1e9", "²"])
def test_a_wrong_bound_is_refused_by_the_call_that_asks_for_memory(monkeypatch, unraisable, text):
    monkeypatch.setenv("LUNETTE_KEEP_BYTES", text)
    x = np.ones((4, 512, 512), np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"LUNETTE_KEEP_BYTES='{text}': expected a number"):
            ln.max_pool(x, (2, 2), stride=1)
    assert ln.max_pool(x[0, :9], (2, 2)).shape == (4, 256)  # a small result lies in no block
    gc.collect()
    assert not unraisable


def test_a_result_that_memory_has_no_room_for_leaves_nothing_behind(unraisable):
    with pytest.raises(MemoryError):
        block_cache.new_array((1 << 50,), np.dtype(np.float32))
    gc.collect()
    assert not unraisable and not block_cache._kept.blocks


def test_what_threads_work_in_lies_apart():
    memories = [scratchpad.Scratchpad() for _ in range(4)]
    spans = [(m.scratch(200_000), 200_000) for m in memories]
    spans += [(m.stage(5000), 5000) for m in memories]
    for (at, size), (after, _) in pairwise(sorted(spans)):
        assert at % scratchpad.PAGE == 0
        assert after - (at + size) >= scratchpad.GUARD_BYTES
