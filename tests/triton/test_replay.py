"""Recorded launches: what is replayed, and what is not because nobody would make it again."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from lunette.kernels.triton import replay  # noqa: E402


class Kernel:
    """Stands in for a compiled kernel: notes what the driver would be given."""

    arg_names = ("x", "y", "table", "n", "BLOCK")

    def __init__(self):
        self.launched = []
        self.run = self._run
        self.function, self.packed_metadata = "function", "metadata"

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self

    def _run(self, *arguments):
        self.launched.append(arguments)


@pytest.fixture
def on_cpu(monkeypatch):
    """Replays on CPU memory: the allocator and the stream are torch's CPU ones."""
    monkeypatch.setattr(replay, "replays", lambda: True)
    monkeypatch.setattr(
        replay,
        "allocate",
        lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype),
    )
    monkeypatch.setattr(replay, "raw_stream", lambda device: "stream")


def call(kernel, table, view=lambda y: y, between=lambda x: x):
    def verb(x):
        y = replay.new((4, 2), torch.float32, "cpu")
        replay.launch(kernel, (3,), between(x), y, table, 8, BLOCK=16)
        return view(y)

    return verb


def test_a_replay_gives_new_memory_and_the_same_launch(on_cpu):
    kernel, table, x = Kernel(), replay.table([1, 2], "cpu"), torch.zeros(8)
    first, made = replay.record(call(kernel, table, lambda y: y.T), x)
    assert first.shape == (2, 4) and not kernel.launched
    other = torch.ones(8)
    y = made(other)
    assert y.shape == (2, 4) and y.stride() == first.stride() and y.data_ptr() != first.data_ptr()
    (arguments,) = kernel.launched
    assert arguments[:3] == (3, 1, 1) and arguments[3] == "stream" and "function" in arguments
    assert arguments[-5:] == (other.data_ptr(), y.data_ptr(), table.data_ptr(), 8, 16)


def test_what_the_verb_copied_is_not_replayed(on_cpu):
    kernel, table, x = Kernel(), replay.table([1], "cpu"), torch.zeros(8)
    assert replay.record(call(kernel, table, between=lambda x: x + 1), x)[1] is None
    assert replay.record(call(kernel, table, view=lambda y: y + 1), x)[1] is None
    assert replay.record(call(kernel, torch.zeros(4), lambda y: y), x)[1] is None


def test_inputs_that_cannot_be_told_apart_are_not_replayed(on_cpu):
    kernel, x = Kernel(), torch.zeros(8)

    def verb(x, other):
        y = replay.new((8,), torch.float32, "cpu")
        replay.launch(kernel, (1,), x, y, other, 8, BLOCK=16)
        return y

    assert replay.record(verb, x, x)[1] is None
    assert replay.record(verb, x, torch.zeros(8))[1] is not None


def test_only_aligned_memory_is_replayed(on_cpu):
    kernel, table, x = Kernel(), replay.table([1], "cpu"), torch.zeros(9)
    assert replay.record(call(kernel, table), x[1:])[1] is None
    _, made = replay.record(call(kernel, table), x[:8])
    assert made(x[1:]) is None and made(x[:8]) is not None


def test_what_is_tried_out_is_not_recorded(on_cpu):
    kernel, table, x = Kernel(), replay.table([1], "cpu"), torch.zeros(8)
    inner = call(kernel, table)

    def verb(x, final=True):
        with replay.paused(final):
            inner(x)
        return inner(x)

    _, made = replay.record(verb, x)
    made(x)
    assert len(kernel.launched) == 1
    assert replay.record(lambda x: verb(x, final=False), x)[1] is None


def test_listeners_to_launches_turn_replays_off():
    import triton

    hook = triton.knobs.runtime.launch_enter_hook
    if not hasattr(hook, "add"):
        pytest.skip("this Triton has a single hook")
    assert not replay._listened_to(triton.knobs.runtime)

    def listener(*_):
        pass

    hook.add(listener)
    try:
        assert replay._listened_to(triton.knobs.runtime)
    finally:
        hook.remove(listener)
