"""Torch tensors in, torch tensors out: the same numbers as NumPy, no copies, the same layout."""

import ml_dtypes
import numpy as np
import pytest
import torch

import lunette as ln
from lunette.encoding import decode, encode
from lunette.torch.memory import DTYPES, array_of, tensor_of
from tests.torch.cases import IDS, OPS, distinct


def bits(x):
    return (array_of(x) if isinstance(x, torch.Tensor) else x).tobytes()


# One op of each reduction in the other types: kernels compile for each, and agree elsewhere.
TYPED = (
    [(op, shape, torch.float64) for op, shape in OPS]
    + [(OPS[i][0], OPS[i][1], dtype) for i, dtype in enumerate([torch.float32, torch.bfloat16])]
    + [(OPS[0][0], OPS[0][1], torch.float16), (OPS[3][0], OPS[3][1], torch.bfloat16)]
)


@pytest.mark.parametrize(("op", "shape", "dtype"), TYPED)
def test_every_verb_gives_numpys_bits(op, shape, dtype):
    x, dx = distinct(shape, dtype), distinct(shape, dtype, seed=1)
    y = op(x)
    grad = distinct(tuple(y.shape), dtype, seed=2)
    assert y.dtype is dtype and y.device.type == "cpu"
    assert bits(y) == bits(op(array_of(x)))
    assert bits(op.jvp(x, dx)) == bits(op.jvp(array_of(x), array_of(dx)))
    assert bits(op.vjp(x, grad)) == bits(op.vjp(array_of(x), array_of(grad)))
    if isinstance(op.reduction, ln.Max):
        values, indices = ln.dispatch.forward_with_indices(op, x)
        expected = ln.dispatch.forward_with_indices(op, array_of(x))
        assert (bits(values), bits(indices)) == tuple(map(bits, expected))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool], ids=str)
def test_integers_and_bools(dtype):
    x = torch.tensor([[0, 1, 1, 0, 1, 1]]).to(dtype)
    assert ln.max_pool(x, (3,)).dtype is dtype
    assert ln.max_pool(x, (3,)).tolist() == [[1, 1]]
    assert ln.avg_pool(x, (4,), stride=2).dtype is torch.float64
    assert ln.avg_pool(x, (4,), stride=2).tolist() == [[0.5, 0.75]]


def test_the_specification_answers_when_asked():
    x = distinct((1, 4, 4))
    op = ln.AvgPool((2, 2))
    assert torch.equal(ln.forward(op, x, backend="spec"), op(x))
    assert torch.equal(ln.vjp(op, x, op(x), backend="spec"), op.vjp(x, op(x)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_is_shared_both_ways(dtype):
    x = torch.zeros(2, 3, 4).to(dtype).transpose(0, 2)[1:]
    array = array_of(x)
    assert array.__array_interface__["data"][0] == x.data_ptr()
    assert array.shape == x.shape
    assert tuple(s // array.itemsize for s in array.strides) == x.stride()
    back = tensor_of(array)
    assert back.dtype is dtype and back.data_ptr() == x.data_ptr() and back.stride() == x.stride()


def test_bfloat16_keeps_its_values():
    x = torch.tensor([1.5, -2.0, float("nan")], dtype=torch.bfloat16)
    assert array_of(x).dtype == ml_dtypes.bfloat16
    assert str(array_of(x).tolist()) == "[1.5, -2.0, nan]"


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("kind", [ln.MaxPool, ln.AvgPool])
def test_channels_last_stays_channels_last(rank, kind):
    last = torch.channels_last if rank == 2 else torch.channels_last_3d
    op = kind((2,) * rank)
    x = distinct((2, 3) + (4,) * rank)
    y = op(x.to(memory_format=last))
    assert torch.equal(y, op(x))
    assert y.is_contiguous(memory_format=last) and not y.is_contiguous()
    assert op.vjp(x.to(memory_format=last), y).is_contiguous(memory_format=last)
    assert op(x).is_contiguous()


def test_strided_views_are_read_in_place():
    x = distinct((2, 8, 9))
    op = ln.MaxPool((2, 2), padding=1)
    for view in (x[:, ::2, 1::3], x.transpose(1, 2), x[0].expand(3, 8, 9), x.flip(2)):
        assert torch.equal(op(view), op(view.clone(memory_format=torch.contiguous_format)))


def test_an_empty_batch_gives_an_empty_result():
    x = torch.zeros(0, 3, 4, 4, requires_grad=True)
    y = ln.MaxPool((2, 2))(x)
    assert y.shape == (0, 3, 2, 2)
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_subclasses_of_tensor_are_tensors():
    class Mine(torch.Tensor):
        pass

    x = torch.arange(4.0).reshape(1, 4).as_subclass(Mine)
    assert isinstance(ln.max_pool(x, (2,)), Mine)
    assert ln.max_pool(x, (2,)).tolist() == [[1.0, 3.0]]
    assert isinstance(ln.max_pool(torch.nn.Parameter(torch.ones(1, 4)), (2,)), torch.Tensor)


@pytest.mark.parametrize(("op", "shape"), OPS, ids=IDS)
def test_an_op_is_its_text(op, shape):
    assert decode(encode(op)) == op
    made = type(op).__new__(type(op))
    made.__dict__.update(op.__getstate__())
    assert encode(made) == encode(op)


@pytest.mark.parametrize("text", ["", "3", "MaxPool(", "print('no')", "MaxPool(().__class__)"])
def test_text_that_names_no_op_is_refused(text):
    with pytest.raises(ValueError, match="op"):
        decode(text)


def test_numpy_results_stay_numpy():
    assert isinstance(ln.max_pool(np.ones((1, 4)), (2,)), np.ndarray)


def test_unpooling_is_numpys_and_differentiable():
    x = distinct((2, 5, 6)).requires_grad_()
    values, indices = ln.max_pool(x, (3, 3), stride=1, padding=((1, 2), 4), return_indices=True)
    back = ln.max_unpool(values, indices, (5, 6))
    expected = ln.max_unpool(values.detach().numpy(), indices.numpy(), (5, 6))
    assert np.array_equal(back.detach().numpy(), expected) and (indices == -1).any()
    back.sum().backward()
    assert x.grad.unique().tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match=r"indices contain 30; expected −1 … 29"):
        ln.max_unpool(values, indices.clamp(max=0) + 30, (5, 6))
    with pytest.raises(TypeError, match="expected an integer type"):
        ln.max_unpool(values, indices.bool(), (5, 6))
