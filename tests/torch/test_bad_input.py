"""What torch alone can get wrong: refused before any work, with a remedy."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import lunette as ln
import lunette.torch as lt
from lunette.adapters.torch import forward_with_beta
from lunette.torch import library

OP = ln.MaxPool((2,))
X = torch.ones(1, 4)


def quantised():
    return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


REFUSED = [
    (lambda: OP(X.to_sparse()), TypeError, "layout torch.sparse_coo; pass x.to_dense"),
    (lambda: OP(quantised()), TypeError, "x is quantised; pass x.dequantize"),
    (lambda: OP(X.to(torch.complex64)), TypeError, "complex64: expected float16, bfloat16"),
    (lambda: OP(X.to(torch.float8_e4m3fn)), TypeError, "float8_e4m3fn: expected float16"),
    (lambda: OP(X, X), TypeError, "takes one operand, got 2"),
    (lambda: OP(torch.tensor(1.0)), ValueError, "pools the last 1 axes"),
    (lambda: ln.MaxPool((5,))(X), ValueError, "longer than the padded input"),
    (lambda: OP.vjp(X, np.ones((1, 2), np.float32)), TypeError, "operands of several kinds"),
    (lambda: OP.vjp(X, torch.ones(1, 2, device="meta")), ValueError, "gradient is on device meta"),
    (lambda: OP.vjp(X, torch.ones(1, 3)), ValueError, r"gradient has shape \(1, 3\)"),
    (lambda: OP.vjp(X, torch.ones(1, 2).double()), TypeError, "gradient has dtype float64"),
    (lambda: OP.jvp(X, torch.ones(1, 4, device="meta")), ValueError, "tangent of x is on device"),
    (lambda: OP.jvp(X, torch.ones(4, 1)), ValueError, "tangent of x has shape"),
    (lambda: OP.jvp(X, (X, X)), ValueError, "1 operands but 2 tangents"),
    (lambda: OP.jvp(X, X.to_sparse()), TypeError, "tangent of x has layout"),
    (lambda: OP.vjp(X.int(), torch.ones(1, 2).int()), TypeError, "integers have no tangent"),
    (lambda: OP.jvp(X.int(), X.int()), TypeError, "integers have no tangent"),
    (lambda: ln.forward(OP, X, backend="gpu"), ValueError, "backend='gpu'"),
    (lambda: ln.dispatch.forward_with_indices(ln.AvgPool((2,)), X), TypeError, "only a max"),
    (lambda: forward_with_beta(OP, X, torch.tensor(1.0)), TypeError, "only a smooth max"),
    (lambda: forward_with_beta(ln.SmoothMaxPool((2,), 1.0), X, 1.0), TypeError, "float tensor"),
    (
        lambda: forward_with_beta(ln.SmoothMaxPool((2,), 1.0), X, torch.ones(2)),
        TypeError,
        "one element",
    ),
    (
        lambda: forward_with_beta(ln.SmoothMaxPool((2,), 1.0), X.int(), torch.tensor(1.0)),
        TypeError,
        "needs a float type",
    ),
    (lambda: lt.nn.Pool("max"), TypeError, "expected a pooling op"),
    (lambda: lt.nn.MaxPool(2), TypeError, r"write kernel=\(2,\)"),
    (lambda: lt.nn.MaxPool((2,))(np.ones((1, 4))), TypeError, "expected a torch tensor"),
    (lambda: lt.nn.SmoothMaxPool((2,), 0.0), ValueError, "beta=0.0"),
    (lambda: ln.conv(X[None], torch.ones(1, 1, 2).double()), TypeError, "one dtype"),
    (lambda: ln.conv(X[None], torch.ones(1, 2, 2)), ValueError, "channels"),
    (
        lambda: ln.conv(X[None], torch.ones(1, 1, 2, device="meta")),
        ValueError,
        "weight is on device",
    ),
    (lambda: ln.conv(X[None].int(), torch.ones(1, 1, 2).int()), TypeError, "integers"),
    (
        lambda: ln.conv(X[None].clone().requires_grad_(), torch.ones(1, 1, 2), backend="spec"),
        ValueError,
        "records its derivative with backend=None",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_integers_never_require_grad():
    with pytest.raises(RuntimeError, match="floating point"):
        X.int().requires_grad_()
    assert not ln.avg_pool(X.int(), (2,)).requires_grad


def test_cuda_without_triton_says_what_to_install(monkeypatch):
    """The kernel that CUDA tensors reach, without a GPU: it looks for Triton before any work."""
    monkeypatch.setitem(sys.modules, "lunette.kernels.triton", None)
    library._choose_triton.cache_clear()
    with pytest.raises(RuntimeError, match=r"pip install triton, or move the tensors with \.cpu"):
        library._pool_cuda(X, None, "MaxPool((2,))", None)


@pytest.mark.parametrize(
    ("triton", "message"),
    [
        (None, r"needs Triton: pip install 'triton>=3\.3'"),
        (SimpleNamespace(__version__="2.1.0"), r"Triton 2\.1\.0 is too old .* 'triton>=3\.3'"),
    ],
    ids=["missing", "too old"],
)
def test_cuda_needs_a_recent_triton(monkeypatch, triton, message):
    for name in [name for name in sys.modules if name.startswith("lunette.kernels.triton")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", triton)
    library._choose_triton.cache_clear()
    with pytest.raises(RuntimeError, match=message):
        library._pool_cuda(X, None, "MaxPool((2,))", None)


def test_a_backend_of_the_cpu_is_refused_on_cuda():
    with pytest.raises(ValueError, match="expected None, 'triton' or 'spec'"):
        library._pool_cuda(X, None, "MaxPool((2,))", "cpu")
