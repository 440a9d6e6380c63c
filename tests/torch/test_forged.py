"""A saved program may call the operators with anything: each call is refused or right, and stays inside."""

import copy
import os
import pickle
import warnings

import numpy as np
import pytest
import torch

import lunette as ln
import lunette.torch.offsets
from lunette import dispatch, regions
from lunette.encoding import decode, encode
from lunette.kernels.cpu.schedule.windows import window_table
from lunette.regions import Adaptive, Global, Part, Region, Sliding, Window
from lunette.torch.memory import array_of
from tests.torch import forging
from tests.torch.cases import OPS

CALLS = int(os.environ.get("LUNETTE_FORGED_CALLS", "1000"))
SEED = int(os.environ.get("LUNETTE_FORGED_SEED", "1"))


def survive(seed, count):
    """Make forged calls; the number that were answered."""
    forger, answered = forging.Forger(seed), 0
    for number in range(count):
        name, args = forger.call()
        case = f"seed {seed}, call {number}: {name}{forging.described(args)}"
        try:
            with warnings.catch_warnings(action="ignore"):
                found = getattr(torch.ops.lunette, name)(*args)
        except (ValueError, TypeError):
            found = None
        except BaseException as error:
            raise AssertionError(case) from error
        for buffer, before in forger.buffers:
            assert torch.equal(buffer, before), f"{case} wrote into its arguments"
        if found is None:
            continue
        answered += 1
        judge(name, args, found if isinstance(found, tuple) else (found,), case)
    return answered


def judge(name, args, found, case):
    if any(t.is_meta for t in args if isinstance(t, torch.Tensor)):
        assert all(t.is_meta for t in found), case
        return
    with warnings.catch_warnings(action="ignore"):
        wanted = forging.expected(name, args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for tensor, meant in zip(found, wanted, strict=True):
        assert tuple(tensor.shape) == meant.shape, case
        ours, right = array_of(tensor).astype(np.float64), meant.astype(np.float64)
        near = (
            0 if forging.is_max(name, args) else {2: 0.02, 4: 1e-4}.get(tensor.element_size(), 1e-9)
        )
        scale = np.abs(right[np.isfinite(right)]).max(initial=1)
        assert np.allclose(ours, right, near, near * scale, equal_nan=True), case


def test_forged_calls_are_refused_or_right():
    assert survive(SEED, CALLS) > CALLS // 20


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 110))
def test_more_forged_calls_are_refused_or_right(seed):
    assert survive(seed, 3000) > 100


@pytest.mark.parametrize("text", forging.HOSTILE, ids=lambda text: ascii(text[:30]))
def test_hostile_texts_are_refused_at_every_operator(text):
    x, kept = torch.arange(8.0).reshape(1, 8), torch.zeros(1, 4, dtype=torch.uint8)
    ops = torch.ops.lunette
    for call in (
        lambda: ops.pool(x, None, text, None),
        lambda: ops.pool(x, torch.ones(()), text, None),
        lambda: ops.pool(x.clone().requires_grad_(), None, text, None),
        lambda: ops.pool(x.to("meta"), None, text, None),
        lambda: ops.pool_with_indices(x, None, text, None),
        lambda: ops.pool_jvp(x, x, None, text, None),
        lambda: ops.pool_vjp(x, x[:, :4], None, text, None),
        lambda: ops.max_with_offsets(x, text),
        lambda: ops.max_vjp_from_offsets(kept, x[:, :4], (1, 8), text),
        lambda: ops.max_jvp_from_offsets(kept, x, text),
    ):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        assert len(str(error.value)) < 2000


def test_a_text_cannot_name_a_part():
    memory = torch.full((108,), 1e30)
    memory[:8] = 1
    text = "Pool((Part(Adaptive(10), 100, (1, 2), (0, 8)),), Max())"
    with pytest.raises(ValueError, match="op="):
        torch.ops.lunette.pool(memory[:8], None, text, None)


@pytest.mark.parametrize(("op", "shape"), OPS, ids=[repr(op) for op, _ in OPS])
def test_every_op_of_ours_is_read_back(op, shape):
    assert decode(encode(op)) == op


def test_the_largest_op_is_read_back():
    axis = Sliding(2**60, 2**60, (2**60, 2**60), 2**60, True)
    op = ln.Pool((axis,) * 64, ln.SmoothMax(-1.2345678901234567e-300, False))
    assert decode(encode(op)) == op


# -- tensors whose memory is not what their shape says --


def test_tensors_without_data_do_not_lend_memory():
    """With one tensor on meta, torch asks for a result without data: none of the others has that."""
    x, op = torch.arange(8.0).reshape(1, 8), "SmoothMaxPool((2,), 1.0)"
    meta, ops = x.to("meta"), torch.ops.lunette
    kept = torch.zeros(1, 4, dtype=torch.uint8)
    for call in (
        lambda: ops.pool(x, torch.ones((), device="meta"), op, None),
        lambda: ops.pool_jvp(x, meta, None, op, None),
        lambda: ops.pool_vjp(x, meta[:, :4], None, op, None),
        lambda: ops.max_vjp_from_offsets(kept, meta[:, :4], (1, 8), "MaxPool((2,))"),
        lambda: ops.max_vjp_from_offsets(kept.to("meta"), x[:, :4], (1, 8), "MaxPool((2,))"),
        lambda: ops.max_jvp_from_offsets(kept.to("meta"), x, "MaxPool((2,))"),
    ):
        with pytest.raises(ValueError, match="meta"):
            call()


@pytest.mark.parametrize("size", [0, 4, 48])
def test_a_storage_that_is_too_small_is_refused(size):
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, ::2]):
        x = view(torch.ones(4, 4))
        x.untyped_storage().resize_(size)
        with pytest.raises(ValueError, match="storage"):
            ln.max_pool(x, (2,))


def test_views_of_every_kind_are_still_read():
    x = torch.arange(16.0).reshape(4, 4)
    views = (
        x[2:],
        x[:, ::2],
        x.t(),
        x[:1].expand(4, 4),
        x[4:],
        x[:, 3:4],
        x.as_strided((3, 4), (2, 1)),
    )
    for view in views:
        assert torch.equal(ln.max_pool(view, (1,)), view)


# -- parts --


def test_a_part_reads_no_more_than_its_slab():
    """Every part of a few regions that a caller could ask for: checked, or inside its slab."""
    made = refused = 0
    for region in (Adaptive(3), Sliding(3, 2, 1), Sliding(2, 3, (4, 0), 2), Global()):
        n = 7
        m = region.out_length(n)
        for first in range(-1, m + 2):
            for last in range(first - 1, m + 2):
                for lo in range(-1, n + 1):
                    for hi in range(lo - 1, n + 2):
                        try:
                            part = Part(region, n, (first, last), (lo, hi))
                        except ValueError:
                            refused += 1
                            continue
                        made += 1
                        table = window_table(part, hi - lo, part.out_length(hi - lo))
                        assert (table[:, 0] >= 0).all() and (table[:, 1] <= hi - lo).all(), part
                        whole = [
                            p - lo
                            for i in range(first, last)
                            for p in region.window(n, i).positions
                        ]
                        ours = [
                            p
                            for i in range(last - first)
                            for p in part.window(hi - lo, i).positions
                        ]
                        assert ours == whole, part
    assert made > 100 and refused > 1000


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (("Adaptive(3)", 9, (0, 1), (0, 9)), TypeError),
        ((Adaptive(3), 9.0, (0, 1), (0, 9)), TypeError),
        ((Adaptive(3), 0, (0, 1), (0, 9)), ValueError),
        ((Adaptive(3), 9, (0, 4), (0, 9)), ValueError),
        ((Adaptive(3), 9, (-1, 1), (0, 9)), ValueError),
        ((Adaptive(3), 9, (2, 1), (0, 9)), ValueError),
        ((Adaptive(3), 9, (0, 1, 2), (0, 9)), ValueError),
        ((Adaptive(3), 9, None, (0, 9)), ValueError),
        ((Adaptive(3), 9, (0, 1), (0, 2)), ValueError),
        ((Adaptive(3), 9, (1, 2), (4, 9)), ValueError),
        ((Adaptive(3), 9, (0, 3), (0, 10)), ValueError),
        ((Adaptive(3), 9, (0, 1), (3, 3)), ValueError),
        ((Sliding(12), 9, (0, 1), (0, 9)), ValueError),
    ],
)
def test_parts_that_cannot_be_are_refused(fields, error):
    with pytest.raises(error):
        Part(*fields)


# -- records: pickled, copied, replaced --


RECORDS = [
    Sliding(3, 2, (1, 0), 2, True),
    Adaptive(4),
    Global(),
    Adaptive(10).part(100, 1, 2),
    ln.Max("all"),
    ln.Mean(False, 3),
    ln.SmoothMax(0.5),
    ln.MaxPool((3, 2), 2, 1),
    ln.SmoothMaxPool((2,), 2.0),
    ln.AdaptiveAvgPool((3,)),
    ln.GlobalMaxPool(2, keepdims=False),
    ln.Pool((Sliding(2), Global()), ln.Max()),
    ln.Conv((3,), 2, 1),
    ln.ConvTranspose((3,), 2, 1, 1),
]


@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_records_survive_copies_and_pickles(record):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(record, protocol)) == record
    for made in (copy.copy(record), copy.deepcopy(record)):
        assert made == record and repr(made) == repr(record) and hash(made) == hash(record)


def unpickled(kind, state):
    """What a pickle that was written by hand makes."""
    made = object.__new__(kind)
    made.__setstate__(state)
    return made


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Sliding, {"kernel": -5, "stride": 1, "padding": 0, "dilation": 1, "ceil_mode": False}),
        (Sliding, [3, 0, (0, 0), 1, False]),
        (Sliding, {"kernel": 3}),
        (Sliding, [3]),
        (Sliding, None),
        (Adaptive, [0]),
        (Part, [Adaptive(10), 100, (1, 2), (0, 8)]),
        (ln.Max, ["none"]),
        (ln.Mean, {"count_include_pad": True, "divisor_override": 0}),
        (ln.SmoothMax, [float("nan"), True]),
        (ln.AdaptiveMaxPool, {"output_size": (0,), "ties": "first"}),
        (ln.Pool, {"regions": (Window(0, 9, 1, 9),), "reduction": ln.Max(), "keepdims": True}),
        (ln.Conv, {"kernel": (3,), "stride": 1, "padding": 0, "dilation": 1, "groups": 0}),
    ],
)
def test_a_forged_pickle_is_checked(kind, state):
    with pytest.raises((ValueError, TypeError)):
        unpickled(kind, state)


def test_a_pickle_cannot_name_an_op_as_another():
    """What an op derives from its fields is derived again: its regions, its text, its hash."""
    forged = dict.fromkeys(("kernel", "stride"), (2,))
    forged |= {"padding": 0, "dilation": 1, "ceil_mode": False, "ties": "first", "axes": None}
    forged |= {"regions": (Global(),), "reduction": ln.Mean(), "_text": "AvgPool((9,))", "_hash": 1}
    op = unpickled(ln.MaxPool, forged)
    assert (
        op == ln.MaxPool((2,))
        and repr(op) == "MaxPool((2,))"
        and hash(op) == hash(ln.MaxPool((2,)))
    )
    assert op.regions == (Sliding(2),) and op.reduction == ln.Max()


# -- regions of the user's own --


class Anywhere(Region):
    """Windows wherever they are said to be."""

    def __init__(self, *windows):
        self.windows = windows

    def __repr__(self):
        return f"Anywhere{self.windows}"

    def out_length(self, n):
        return len(self.windows)

    def window(self, n, i):
        return Window(*self.windows[i], 1)

    def readers(self, n, lo, hi):
        return [
            i
            for i, (a, b, s) in enumerate(self.windows)
            if set(range(a, b, s)) & set(range(lo, hi))
        ]


class Shifted(Sliding):
    """A subclass of a region of ours whose windows are not where those are."""

    def window(self, n, i):
        return Window(90, 92, 1, 2)

    def table(self, n, first, last):
        return Region.table(self, n, first, last)


@pytest.mark.parametrize(
    "region",
    [
        Anywhere((0, 2, 1), (100, 101, 1)),
        Anywhere((-1, 1, 1)),
        Anywhere((0, 9, 1)),
        Anywhere((3, 2, 1)),
        Anywhere((0, 2, 0)),
        Anywhere((0, 2, -1)),
        Shifted(2),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "reduction", [ln.Max(), ln.Max("all"), ln.Mean(), ln.SmoothMax(1.0)], ids=repr
)
def test_a_region_that_leaves_the_axis_is_refused_by_the_kernels(region, reduction):
    x = np.zeros((2, 8), np.float32)
    for wrapped in ((region,), (region, Global()), (Global(), region)):
        op = ln.Pool(wrapped, reduction)
        operand = x if len(wrapped) == 1 else np.zeros((2, 8, 8), np.float32)
        with pytest.raises(ValueError, match="window of output"):
            dispatch.forward(op, operand, backend="cpu")
        grad = np.zeros(op.out_shape(operand.shape), np.float32)
        with pytest.raises(ValueError, match="window of output"):
            dispatch.vjp(op, operand, grad, backend="cpu")


def test_a_region_of_the_users_own_is_served():
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    op = ln.Pool((Anywhere((0, 2, 1), (1, 8, 3), (5, 6, 1)),), ln.Max())
    assert dispatch.forward(op, x, backend="cpu").tolist() == [[1, 7, 5], [9, 15, 13]]
    assert (
        regions.check_windows(Sliding(2), 8, np.array([[9, 9, 9]])) is None
    )  # ours are not looked at
