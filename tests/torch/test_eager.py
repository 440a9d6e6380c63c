"""Calls at once: the bits of the registered operators, in every layout; and every mode of torch still sees operators."""

import copy
import gc
import os
import pickle
import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import lunette as ln
import lunette.torch as lt
from lunette.kernels import threads
from lunette.torch import eager
from tests.strategies import ops, shapes
from tests.torch.cases import IDS, OPS, distinct

MORE = [
    (ln.MaxPool((2, 2)), (2, 3, 8, 8)),
    (ln.MaxPool((3, 3), 2, 1), (1, 3, 8, 8)),
    (ln.MaxPool((3, 3), 2, 1), (1, 17, 40, 33)),
    (ln.AvgPool((2, 2)), (2, 3, 8, 8)),
    (ln.AvgPool((3, 3), 1, 1), (1, 24, 33, 31)),
    (ln.SmoothMaxPool((2, 2), 2.0), (2, 3, 8, 8)),
    (ln.SmoothMaxPool((9, 9), -0.5, 1, 4), (1, 2, 20, 21)),
    (ln.GlobalMaxPool(2, keepdims=False, ties="first"), (2, 3, 8, 8)),
    (ln.AdaptiveMaxPool((3, 3), ties="split"), (2, 3, 8, 8)),
    (ln.MaxPool((2, 2)), (1100, 4, 4)),
    (ln.SmoothMaxPool((2, 2), 1.0), (1100, 4, 4)),
    (ln.MaxPool((2, 2), ties="all"), (40, 6, 6)),
    (ln.AvgPool((2,)), (0, 6)),
]
CASES = [*OPS, *MORE]
NAMES = [*IDS, *(f"{op!r} {shape}" for op, shape in MORE)]


@contextmanager
def by_operators():
    """What calls would be if a mode were on."""
    serves, eager.serves = eager.serves, lambda x: False
    try:
        yield
    finally:
        eager.serves = serves


def layouts(x):
    """The same numbers, laid out in ways that tensors come in."""
    yield "in order", x.clone()
    if x.ndim in (4, 5):
        last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        yield "channels last", x.clone(memory_format=last)
    yield (
        "reversed axes",
        x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim))),
    )
    wide = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    yield "every other", wide[..., ::2]
    if x.numel():
        raw = np.empty(x.numel() * x.element_size() + 1, np.uint8)[1:]
        raw[:] = x.contiguous().reshape(-1).view(torch.uint8).numpy()
        unaligned = torch.from_numpy(raw).untyped_storage()
        yield "unaligned", torch.empty(0, dtype=x.dtype).set_(unaligned, 0, x.shape)
        yield "expanded", x[:1].expand(x.shape[0], *x.shape[1:])


def verbs(op, x):
    """Everything that a training asks for: value, gradient, second derivative, winners."""
    results = [op(x)]
    if isinstance(op.reduction, ln.Max):
        results += ln.dispatch.forward_with_indices(op, x)
    if not x.is_floating_point():
        return results
    x = x.detach().requires_grad_()
    y = op(x)
    grad = distinct(tuple(y.shape), x.dtype, seed=3)
    results.append(y.detach())
    results += torch.autograd.grad(y, x, grad, retain_graph=True)
    results += torch.autograd.grad(y, x, grad.expand(2, *y.shape)[0], retain_graph=True)
    weight = grad.clone().requires_grad_()
    (gx,) = torch.autograd.grad(y, x, weight, create_graph=True)
    results.append(gx.detach())
    results += [
        torch.zeros_like(weight) if r is None else r
        for r in torch.autograd.grad((gx * gx.detach()).sum(), (weight, x), allow_unused=True)
    ]
    return results


def same(ours, theirs, what):
    assert len(ours) == len(theirs)
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        told = (what, number, a.dtype, tuple(a.shape))
        assert (a.dtype, a.shape) == (b.dtype, b.shape), told
        if a.ndim and a.numel():
            assert a.stride() == b.stride() or 1 in a.shape, told
        assert torch.equal(bits(a), bits(b)), told


def bits(x):
    """The bytes of a tensor; one NaN is as good as another."""
    x = torch.where(x.isnan(), torch.nan, x) if x.is_floating_point() else x
    return x.detach().contiguous().reshape(-1).clone().view(torch.uint8)


def check_both(op, shape, dtypes, every_layout):
    for dtype in dtypes:
        x = (distinct(shape, torch.float64) * 16).to(dtype)
        for name, view in list(layouts(x))[: None if every_layout else 2]:
            at_once = verbs(op, view)
            with by_operators():
                same(at_once, verbs(op, view), (name, dtype))


@pytest.mark.parametrize("op,shape", CASES, ids=NAMES)
def test_both_ways_give_the_same_bits(op, shape):
    check_both(op, shape, (torch.float32,), True)
    if np.prod(shape) < 10**3:
        check_both(op, shape, (torch.float64, torch.int32), False)


@pytest.mark.full
@pytest.mark.parametrize("op,shape", CASES, ids=NAMES)
def test_both_ways_give_the_same_bits_of_every_dtype(op, shape):
    check_both(op, shape, (torch.float64, torch.float16, torch.bfloat16, torch.uint8), True)


def check_drawn(data):
    shape, rank = data.draw(shapes())
    op = data.draw(ops(shape, rank, smooth=data.draw(st.booleans())))
    lead = data.draw(st.sampled_from([(), (1,), (3,), (2, 17)]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float32, torch.float64]))
    x = distinct((*lead, *shape), dtype, data.draw(st.integers(0, 99)))
    if data.draw(st.booleans()):
        x = x.round()  # ties
    if lead and data.draw(st.integers(0, 3)) == 0:
        x.reshape(-1)[data.draw(st.integers(0, x.numel() - 1))] = torch.nan
    name, view = data.draw(st.sampled_from(list(layouts(x))))
    at_once = verbs(op, view)
    with by_operators():
        same(at_once, verbs(op, view), (op, name, view.shape, dtype))


@given(data=st.data())
@settings(max_examples=int(os.environ.get("LUNETTE_EAGER_CASES", "40")))
def test_drawn_calls(data):
    check_drawn(data)


@pytest.mark.full
@given(data=st.data())
@settings(max_examples=1500)
def test_many_drawn_calls(data):
    check_drawn(data)


def test_numbers_that_kernels_do_not_trust():
    for op in (ln.MaxPool((2, 2)), ln.MaxPool((3, 3), 2, 1), ln.SmoothMaxPool((2, 2), 2.0)):
        x = distinct((2, 3, 8, 8), torch.float32)
        x[0, 1, 3, 2], x[1, 2, 0, 0], x[1, 1] = torch.nan, torch.inf, -0.0
        x[1, 1, ::2] = 0.0
        at_once = verbs(op, x)
        with by_operators():
            same(at_once, verbs(op, x), op)
        # What was flagged once does not stay flagged.
        again = distinct((2, 3, 8, 8), torch.float32)
        at_once = verbs(op, again)
        with by_operators():
            same(at_once, verbs(op, again), op)


def test_it_is_what_serves(way):
    assert eager.serves(torch.ones(2, 2)) == (way == "at once")


# -- what a backward pass keeps --


def kept(op, x):
    """Bytes of the tensors that are saved for the backward pass."""
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        op(x)
    return sorted(t.numel() * t.element_size() for t in saved)


@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (4, 16, 256, 256)])
def test_no_more_is_saved_than_the_gradient_needs(way, shape):
    if way == "by operators":
        pytest.skip(
            "the operators save their arguments, from which torch.compile takes what it needs"
        )
    x = torch.ones(shape, requires_grad=True)
    outputs = x.numel() // 4
    assert kept(ln.MaxPool((2, 2)), x) == [outputs], "one byte for each output"
    assert kept(ln.AvgPool((2, 2)), x) == []
    assert kept(ln.SmoothMaxPool((2, 2), 1.0), x) == [4 * x.numel()]


def test_x_is_free_once_a_max_is_taken(way):
    if way == "by operators":
        pytest.skip("see above")
    leaf = torch.ones(1, 1, 4, 4, requires_grad=True)
    x = leaf * 2
    y, gone = ln.MaxPool((2, 2))(x), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    y.sum().backward()
    assert leaf.grad.sum() == 8


# -- modes: each sees operators --


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Seen, Functions])
def test_modes_see_operators(mode):
    x = distinct((1, 1, 4, 4)).requires_grad_()
    with mode() as seen:
        y = ln.AvgPool((2, 2))(x)
    assert any("lunette" in name and "pool" in name for name in seen.names)
    with Seen() as seen:
        y.sum().backward()
    assert any("pool_vjp" in name for name in seen.names), (
        "a mode that comes later sees the gradient"
    )


def test_jit_tracing_records_the_operator():
    traced = torch.jit.trace(lt.nn.MaxPool((2, 2)), torch.randn(1, 1, 4, 4))
    x = distinct((1, 1, 6, 6), torch.float32)
    assert torch.equal(traced(x), ln.MaxPool((2, 2))(x))
    assert "lunette::pool" in str(traced.graph)


def test_a_tensor_that_knows_more_than_its_memory():
    op, x = ln.MaxPool((2,)), torch.randn(2, 6, dtype=torch.complex64)
    negative = x.conj().imag
    assert negative.is_neg()
    assert torch.equal(op(negative), op(negative.clone().resolve_neg()))
    zeros = torch._efficientzerotensor((2, 6))
    assert torch.equal(op(zeros), torch.zeros(2, 3))

    class Own(torch.Tensor):
        pass

    own = torch.randn(2, 6).as_subclass(Own)
    assert type(op(own)) is Own
    parameter = torch.nn.Parameter(torch.randn(2, 6))
    assert type(op(parameter)) is torch.Tensor and op(parameter).requires_grad


def test_forward_mode_functorch_and_batched_gradients():
    for op in (ln.MaxPool((2, 2)), ln.AvgPool((2, 2)), ln.SmoothMaxPool((2, 2), 2.0)):
        x, dx = distinct((2, 4, 4)), distinct((2, 4, 4), seed=1)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, dx)
            tangent = torch.autograd.forward_ad.unpack_dual(op(dual)).tangent
        assert torch.equal(tangent, op.jvp(x, dx))
        assert torch.equal(torch.func.vmap(op)(x), op(x))
        leaf = x.clone().requires_grad_()
        grads = distinct((3, 2, 2, 2), seed=2)
        (together,) = torch.autograd.grad(op(leaf), leaf, grads, is_grads_batched=True)
        for one, grad in zip(together, grads, strict=True):
            assert torch.equal(one, op.vjp(x, grad))
        # The graph is made at once; a level is there when it is run.
        y = op(leaf)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(grads[0], grads[1])
            (gx,) = torch.autograd.grad(y, leaf, dual)
            tangent = torch.autograd.forward_ad.unpack_dual(gx).tangent
        assert torch.allclose(tangent, op.vjp(x, grads[1]))


def test_ways_to_run_a_training_step():
    for op in (ln.MaxPool((2, 2)), ln.AvgPool((2, 2)), ln.SmoothMaxPool((2, 2), 2.0)):
        x = distinct((2, 3, 8, 8), torch.float32).requires_grad_()
        (expected,) = torch.autograd.grad(op(x * 2).sum(), x)
        for reentrant in (True, False):
            x.grad = None
            checkpoint(lambda x, op=op: op(x * 2), x, use_reentrant=reentrant).sum().backward()
            assert torch.equal(x.grad, expected)
        with torch.autograd.detect_anomaly(check_nan=True):
            assert torch.equal(torch.autograd.grad(op(x * 2).sum(), x)[0], expected)
        with torch.autograd.graph.save_on_cpu():
            y = op(x * 2)
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], expected)
        y = op(x * 2).sum()
        for _ in range(3):
            assert torch.equal(torch.autograd.grad(y, x, retain_graph=True)[0], expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert op(x).dtype is torch.float32
        with torch.inference_mode():
            assert op(x.detach()).is_inference()
        with torch.no_grad():
            assert not op(x).requires_grad
        assert not op(x.detach()).requires_grad


def test_what_hooks_give_back_is_looked_at():
    """A hook may give back another layout, or nonsense: neither may be read as what it is not."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    for op in (ln.MaxPool((2, 2)), ln.SmoothMaxPool((2, 2), 2.0)):
        x = distinct((2, 3, 8, 8), torch.float32).requires_grad_()
        (expected,) = torch.autograd.grad(op(x).sum(), x)
        with hooks(lambda t: t, lambda t: t.to(memory_format=torch.channels_last)):
            y = op(x)
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], expected)
        with hooks(lambda t: t, lambda t: t[:1, :, :2]):
            y = op(x)
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            torch.autograd.grad(y.sum(), x)
        with hooks(lambda t: t, lambda t: t.double()):
            y = op(x)
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            torch.autograd.grad(y.sum(), x)


def test_a_change_of_what_was_saved_is_noticed():
    x = distinct((1, 1, 4, 4)).requires_grad_()
    inner = x * 1
    y = ln.SmoothMaxPool((2, 2), 1.0)(inner)
    inner.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# -- ops keep their calls --


def test_ops_that_were_called_are_the_values_they_were():
    op, x = ln.MaxPool((2, 2)), torch.randn(1, 1, 4, 4)
    op(x)
    for copied in (copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert copied == op and hash(copied) == hash(op)
        assert "_prepared" not in vars(copied)
        assert torch.equal(copied(x), op(x))


def test_equal_ops_share_their_calls(way):
    if way == "by operators":
        pytest.skip("the operators keep nothing with an op")
    x, first, second = torch.ones(1, 6), ln.MaxPool((3,), 2, 1), ln.MaxPool((3,), 2, 1)
    first(x)
    second(x)
    assert first._prepared is second._prepared and len(first._prepared) >= 1


def test_ever_new_shapes_do_not_pile_up(monkeypatch, way):
    if way == "by operators":
        pytest.skip("the operators keep nothing with an op")
    monkeypatch.setattr(eager, "MOST", 4)
    op = ln.AvgPool((2,))
    for n in range(2, 20):
        assert op(torch.ones(1, n)).shape == (1, n // 2)
    assert len(op._prepared) <= 4


def test_errors_are_those_of_the_operators():
    for op, x in (
        (ln.MaxPool((5, 5)), torch.ones(1, 4, 4)),
        (ln.MaxPool((2, 2)), torch.ones(4)),
        (ln.AvgPool((2,)), torch.ones(2, 4, dtype=torch.complex64)),
        (ln.SmoothMaxPool((2,), 1e-60), torch.ones(2, 4)),
    ):
        told = []
        for _ in range(2):
            with pytest.raises((ValueError, TypeError)) as error:
                op(x)
            told.append(str(error.value))
        with by_operators(), pytest.raises((ValueError, TypeError)) as error:
            op(x)
        assert told == [str(error.value)] * 2


def test_many_threads_at_once():
    op, learned = ln.MaxPool((3, 3), 2, 1), lt.nn.SmoothMaxPool((2, 2), 2.0, learnable=True)
    inputs = [distinct((2, 3, 8 + i, 9), torch.float32, i) for i in range(4)]
    expected = [(op(x), learned(x).detach()) for x in inputs]
    wrong = []

    def work(number):
        for step in range(60):
            i = (number + step) % 4
            x = inputs[i].clone().requires_grad_()
            y, z = op(x), learned(x)
            (y.sum() + z.sum()).backward(inputs=[x])
            if not (torch.equal(y, expected[i][0]) and torch.equal(z, expected[i][1])):
                wrong.append((number, step))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# -- threads --


@pytest.fixture
def counted(monkeypatch):
    """How many threads each call was allowed, and the numbers of both libraries put back afterwards."""
    allowed, ours, theirs = [], threads.get_num_threads(), torch.get_num_threads()
    asked = threads.get_num_threads

    def noted():
        allowed.append(asked())
        return allowed[-1]

    monkeypatch.setattr(threads, "get_num_threads", noted)
    yield allowed
    torch.set_num_threads(theirs)
    threads.set_num_threads(ours)


@pytest.mark.parametrize(("ours", "theirs"), [(4, 1), (4, 2), (2, 4)])
def test_calls_on_tensors_use_no_more_threads_than_torch(counted, ours, theirs):
    threads.set_num_threads(ours)
    torch.set_num_threads(theirs)
    x = torch.randn(4, 32, 64, 64, requires_grad=True)
    learned = lt.nn.SmoothMaxPool((2, 2), 2.0, learnable=True)
    for op in (
        ln.MaxPool((2, 2)),
        ln.AvgPool((3, 3), 1, 1),
        ln.SmoothMaxPool((2, 2), 1.0),
        learned,
    ):
        op(x).sum().backward()
        with by_operators():
            op(x).sum().backward()
    ln.dispatch.forward_with_indices(ln.MaxPool((2, 2)), x)
    assert counted and set(counted) == {min(ours, theirs)}
    counted.clear()
    ln.MaxPool((2, 2))(x.detach().numpy())
    assert set(counted) == {ours}, "arrays are not torch's"


# -- a beta that is learned --


def taught(op, x, beta):
    x, beta = x.detach().requires_grad_(), beta.detach().requires_grad_()
    from lunette.adapters import torch as adapter

    y = adapter.forward_with_beta(op, x, beta)
    grad = distinct(tuple(y.shape), x.dtype, seed=3)
    first = torch.autograd.grad(y, (x, beta), grad, retain_graph=True)
    again = torch.autograd.grad(y, (x, beta), grad, create_graph=True)
    second = torch.autograd.grad(again[0].square().sum() + again[1].square().sum(), (x, beta))
    with torch.no_grad():
        plain = adapter.forward_with_beta(op, x, beta)
    return [y.detach(), plain, *first, *(t.detach() for t in again), *second]


SMOOTH = [
    (ln.SmoothMaxPool((2, 2), 1.0, stride=1, padding=1), (2, 3, 5, 6)),
    (ln.SmoothMaxPool((2, 2), 1.0), (1100, 4, 4)),
    (ln.SmoothMaxPool((2, 3), 1.0), (2, 32, 16, 18)),
    (ln.SmoothMaxPool((9, 9), 1.0, 1, 4, count_include_pad=False), (1, 2, 20, 21)),
    (ln.SmoothMaxPool((3,), 1.0, 4, 3), (2, 6)),
    (ln.Pool((ln.Global(), ln.Global()), ln.SmoothMax(1.0), keepdims=False), (3, 6, 7)),
]


def check_told(op, shape, dtypes, every_layout):
    for dtype in dtypes:
        for number in (2.5, -0.3, 7.0):
            x = distinct(shape, dtype)
            if number > 5:  # kernels do such items again
                x.reshape(-1)[3] = torch.inf
            beta = torch.tensor(number)
            reduction = ln.SmoothMax(beta.item(), op.reduction.count_include_pad)
            fixed = ln.Pool(op.regions, reduction, op.keepdims)
            for name, view in list(layouts(x))[: None if every_layout else 2]:
                at_once = taught(op, view, beta)
                assert torch.equal(bits(at_once[1]), bits(fixed(view)))
                with by_operators():
                    same(at_once, taught(op, view, beta), (name, dtype, number))


@pytest.mark.parametrize("op,shape", SMOOTH, ids=[f"{op!r} {shape}" for op, shape in SMOOTH])
def test_a_told_beta_gives_the_bits_of_a_fixed_one(op, shape):
    check_told(op, shape, (torch.float32,), np.prod(shape) < 10**3)


@pytest.mark.full
@pytest.mark.parametrize("op,shape", SMOOTH, ids=[f"{op!r} {shape}" for op, shape in SMOOTH])
def test_a_told_beta_of_every_dtype(op, shape):
    check_told(op, shape, (torch.float32, torch.float64, torch.float16, torch.bfloat16), True)


@pytest.mark.full
def test_a_told_beta_where_results_are_large():
    check_told(ln.SmoothMaxPool((2, 2), 1.0), (3, 16, 256, 260), (torch.float32,), True)


def test_steps_of_a_training_share_their_plans(way):
    if way == "by operators":
        pytest.skip("operators are given an op, with its beta in it")
    from lunette.kernels.cpu.select import argmax, forward, vjp

    layer = lt.nn.SmoothMaxPool((2, 2), 1.0, learnable=True)
    x = distinct((2, 3, 8, 8), torch.float32)
    caches = forward.forward_call, vjp.gradient_call, argmax.tangent_call
    for step in range(6):
        layer.beta.data.fill_(1 + step / 7)
        layer(x).sum().backward()
        if step == 0:
            before = [c.cache_info().misses for c in caches]
    assert [c.cache_info().misses for c in caches] == before


@pytest.mark.parametrize("number", [0.0, float("inf"), float("nan"), 1e-60])
def test_betas_without_a_meaning(number):
    layer = lt.nn.SmoothMaxPool((2,), 1.0, learnable=True).double()
    layer.beta.data.fill_(number)
    with pytest.raises(ValueError, match="beta="):
        layer(torch.ones(1, 4, dtype=torch.float32))


@pytest.mark.parametrize("items", [70, 327, 1024])
@pytest.mark.parametrize(
    "op", [ln.MaxPool((2, 2)), ln.MaxPool((3, 3), 2, 1), ln.SmoothMaxPool((2, 2), 1.0)], ids=repr
)
def test_many_small_items_with_a_few_that_are_done_again(op, items):
    """They lie side by side, a part at a time, and each part that is flagged is done again by itself."""
    x = distinct((items, 6, 7), torch.float32)
    x[[3, items // 2, items - 1], 2, 2] = (
        torch.nan if isinstance(op.reduction, ln.Max) else torch.inf
    )
    x.requires_grad_()
    y = op(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    array = x.detach().numpy()
    assert y.detach().numpy().tobytes() == op(array).tobytes()
    assert gradient.numpy().tobytes() == op.vjp(array, np.ones(y.shape, np.float32)).tobytes()
    with torch.no_grad():
        assert torch.equal(bits(op(x)), bits(y.detach()))
