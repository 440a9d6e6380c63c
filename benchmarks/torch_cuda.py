"""The torch operators on a GPU against the specification: `python -m benchmarks torch_cuda`.

Every op of the torch tests, each verb and each mode: the values of max bit for bit, the others
within rounding; gradients the same bits in two runs; torch's checks of every registered operator;
wrong devices and layouts refused.
"""

from __future__ import annotations

import sys
import time

import torch

import lunette as ln
import lunette.torch as lt
from lunette.adapters.torch import forward_with_beta
from lunette.encoding import encode
from lunette.kernels import triton as kernels
from lunette.torch import library, offsets
from tests.torch.cases import OPS, distinct


def check(op: ln.Pool, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Compare one op; the number of comparisons made."""
    x, dx = distinct(shape, dtype), distinct(shape, dtype, seed=1)
    y = ln.forward(op, x, backend="spec")
    grad = distinct(tuple(y.shape), dtype, seed=2)
    exact = isinstance(op.reduction, ln.Max)

    def same(ours: torch.Tensor, theirs: torch.Tensor, what: str, bits: bool = exact) -> None:
        assert ours.is_cuda and ours.dtype is theirs.dtype and ours.shape == theirs.shape, what
        if bits:
            assert torch.equal(ours.cpu(), theirs), f"{op!r} {dtype} {what}"
        else:
            torch.testing.assert_close(
                ours.cpu(), theirs, msg=lambda m: f"{op!r} {dtype} {what}: {m}"
            )

    xg, dxg, gradg = x.cuda(), dx.cuda(), grad.cuda()
    same(op(xg), y, "forward")
    same(op.jvp(xg, dxg), ln.jvp(op, x, dx, backend="spec"), "jvp")
    same(op.vjp(xg, gradg), ln.vjp(op, x, grad, backend="spec"), "vjp", bits=False)
    leaf = xg.clone().requires_grad_()
    op(leaf).backward(gradg)
    assert torch.equal(leaf.grad, op.vjp(xg, gradg)), f"{op!r}: autograd is the vjp, bit for bit"
    _, tangent = torch.func.jvp(op, (xg,), (dxg,))
    assert torch.equal(tangent, op.jvp(xg, dxg)), f"{op!r}: forward mode is the jvp"
    many = torch.stack([xg, dxg])
    assert torch.equal(torch.func.vmap(op)(many)[1], op(dxg)), f"{op!r}: vmap"
    if exact:
        values, indices = ln.dispatch.forward_with_indices(op, xg)
        same(values, y, "values with indices")
        same(indices, ln.dispatch.forward_with_indices(op, x, backend="spec")[1], "indices")
    return 7 + 2 * exact


def check_operators(op: ln.Pool, shape: tuple[int, ...]) -> int:
    """torch's opcheck, gradcheck and gradgradcheck of one op; how many operators were checked."""
    x, dx = (distinct(shape, seed=seed).cuda().requires_grad_() for seed in (0, 1))
    grad = distinct(tuple(op.out_shape(shape)), seed=2).cuda().requires_grad_()
    text = encode(op)
    calls = [
        (library.pool, (x, None, text, None)),
        (library.pool_jvp, (x, dx, None, text, None)),
        (library.pool_vjp, (x, grad, None, text, None)),
    ]
    if isinstance(op.reduction, ln.Max):
        calls.append((library.pool_with_indices, (x, None, text, None)))
    if offsets.serves(x, text, None):
        winners = offsets.max_with_offsets(x.detach(), text)[1]
        calls += [
            (offsets.max_with_offsets, (x, text)),
            (offsets.max_vjp_from_offsets, (winners, grad, shape, text)),
            (offsets.max_jvp_from_offsets, (winners, dx, text)),
        ]
    for operator, operands in calls:
        torch.library.opcheck(operator, operands)
    assert torch.autograd.gradcheck(op, x, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(op, x, check_fwd_over_rev=True, fast_mode=True)
    return len(calls)


def refusals(op: ln.Pool, x: torch.Tensor) -> int:
    """Tensors that no kernel may touch are refused, by the ops and by the kernels themselves."""
    image, weight = torch.ones(1, 1, 3, device="cuda"), torch.ones(1, 1, 2)
    grad = op(x)
    quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    refused = [
        (lambda: op.vjp(x, grad.cpu()), "gradient is on device cpu"),
        (lambda: op.vjp(x.cpu(), grad), "gradient is on device cuda"),
        (lambda: op.jvp(x, x.cpu()), "tangent of x is on device cpu"),
        (lambda: ln.conv(image, weight), "weight is on device cpu"),
        (lambda: ln.forward(op, x, backend="cpu"), "backend='cpu' for CUDA tensors"),
        (lambda: op(x.to_sparse()), "x.to_dense()"),
        (lambda: op(quantised), "x.dequantize()"),
        (lambda: op.vjp(x, grad.to_sparse()), "gradient.to_dense()"),
        (lambda: op.vjp(x.int(), grad.int()), "integers have no tangent"),
        (lambda: kernels.forward(op, (x.cpu(),)), "need a CUDA device"),
        (lambda: kernels.vjp(op, (x,), grad.cpu()), "expected one device"),
        (lambda: kernels.forward(op, (x.to_sparse(),)), "expected a dense tensor"),
        (lambda: kernels.forward(op, (quantised,)), "expected a dense tensor"),
    ]
    for call, message in refused:
        try:
            call()
        except (TypeError, ValueError) as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"not refused: {message}")
    return len(refused)


def main(arguments: list[str]) -> None:
    """Run every comparison; the first that fails is an AssertionError."""
    if not torch.cuda.is_available():
        sys.exit("torch_cuda: no CUDA device")
    start, count = time.perf_counter(), 0
    torch.use_deterministic_algorithms(True)
    for op, shape in OPS:
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            count += check(op, shape, dtype)
    op, x = ln.MaxPool((3, 3), 2, 1), distinct((2, 3, 9, 8), torch.float32).cuda()
    last = op(x.to(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last, op(x))
    compiled = torch.compile(lambda x: op(x.relu()).tanh(), fullgraph=True, dynamic=True)
    leaf = x.clone().requires_grad_()
    compiled(leaf).sum().backward()
    other = x.clone().requires_grad_()
    op(other.relu()).tanh().sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad)
    layer = lt.nn.SmoothMaxPool((2, 2), 2.0, padding=1, learnable=True).cuda().double()
    image = distinct((1, 1, 3, 3)).cuda().requires_grad_()
    torch.use_deterministic_algorithms(False)  # gradcheck itself adds up with atomics

    def learned(x: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        return forward_with_beta(layer.op, x, beta)

    assert torch.autograd.gradcheck(learned, (image, layer.beta), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(learned, (image, layer.beta), check_fwd_over_rev=True)
    pool = ln.MaxPool((3, 3), 2, 1)
    assert "lunette_pool" in type(pool(image).grad_fn).__name__
    assert torch.autograd.gradcheck(pool, image, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(pool, image, check_fwd_over_rev=True)
    weight = torch.ones(2, 1, 2, 2, 2, 2, device="cuda", dtype=torch.float64)
    image = distinct((1, 1, 3, 3, 3, 3)).cuda()
    torch.testing.assert_close(ln.conv(image, weight).cpu(), ln.conv(image.cpu(), weight.cpu()))
    operators = sum(check_operators(op, shape) for op, shape in OPS)
    refused = refusals(op, x)
    print(
        f"{count + 9} comparisons, {operators} operators, {refused} refusals on {torch.cuda.get_device_name()} in "
        f"{time.perf_counter() - start:.1f} s; torch {torch.__version__}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
