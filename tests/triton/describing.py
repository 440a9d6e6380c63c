"""What the tests of described arrays run where Triton interprets: a task of JAX's, launch by launch, on torch's memory."""

import numpy as np
import torch

import lunette as ln


def launched(task, arrays, results):
    """The results of a task's launches; arrays are torch's, contiguous, as JAX would have them."""
    from lunette.jax.gpu.described import program

    names = [(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in arrays]
    made = program(task, names, results, ())
    memory = {}

    def tensor(value):
        if not hasattr(value, "memory"):
            return value
        if value.values is not None:
            return torch.from_numpy(value.values)
        here = value.memory
        if id(here) not in memory:  # what nobody filled is no number
            size = here.numel() * here.element_size()
            memory[id(here)] = torch.full((size,), 0x7F, dtype=torch.uint8)
        return memory[id(here)].view(getattr(torch, value.dtype))

    for described, a in zip(made.operands, arrays, strict=True):
        kind = getattr(torch, described.dtype)
        numbers = a if a.dtype in (kind, torch.bool) else a.to(kind)
        memory[id(described)] = numbers.contiguous().reshape(-1).view(torch.uint8)
    for kernel, grid, arguments, constants in made.launches:
        kernel[grid](*map(tensor, arguments), **constants)
    return [tensor(r).reshape(shape) for r, (shape, _) in zip(made.results, results, strict=True)]


def check(op, shape, dtype, last):
    """Every task of an op against the same verbs on torch's tensors, bit for bit."""
    from lunette.jax.verbs import Task, results
    from lunette.kernels import triton

    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)
    whole = dtype in ("bool", "uint8", "int32")

    def drawn(shape):
        x = torch.randint(-3, 4, tuple(shape), generator=generator) / 2
        return (x * 2 % 7).to(kind) if whole else x.to(kind)

    def first(a):
        """As torch has it: axes in order, channels innermost in memory."""
        return a.movedim(-1, a.ndim - 1 - op.rank) if last and a.ndim == len(shape) else a

    def done(verb, *arrays, pooled=None):
        task = Task(verb, op, pooled, last)
        shapes, types = [tuple(a.shape) for a in arrays], [np.dtype(np.float32)] * len(arrays)
        found = results(task, shapes, types, np.dtype(np.int64))
        wanted = [(s, dtype if verb in ("gathered", "spread") else "") for s, _ in found]
        return [first(a) for a in launched(task, arrays, wanted)]

    x = drawn(shape)
    seen = first(x)
    y = triton.forward(op, (seen,))
    _same(done("forward", x)[0], y)
    if isinstance(op.reduction, ln.Max):
        for found, expected in zip(
            done("indices", x), triton.forward_with_indices(op, (seen,)), strict=True
        ):
            _same(found, expected)
    if whole:
        return
    gy, dx = drawn(done("forward", x)[0].shape), drawn(shape)
    gy = (
        gy.movedim(len(shape) - 1 - op.rank, -1).contiguous()
        if last and gy.ndim == len(shape)
        else gy
    )
    seen_gy = first(gy)
    (gx,) = triton.vjp(op, (seen,), seen_gy)
    _same(done("gradients", x, gy)[0], gx)
    _same(done("tangents", x, dx)[0], triton.jvp(op, (seen,), (first(dx),)))
    pooled = tuple(seen.shape[len(shape) - op.rank :])
    if isinstance(op.reduction, ln.Mean):
        _same(done("spread", gy, pooled=pooled)[0], gx)
    if (
        op.reduction == ln.Max("first")
        and triton.refuses(op, "forward_with_offsets", (seen.shape,), ("float32",)) is None
    ):
        value, offsets = done("offsets", x)
        kept = (
            offsets.movedim(len(shape) - 1 - op.rank, -1).contiguous()
            if last and offsets.ndim == len(shape)
            else offsets
        )
        _same(value, y)
        _same(done("gathered", kept, gy, pooled=pooled)[0], gx)
        _same(done("taken", kept, dx)[0], triton.jvp(op, (seen,), (first(dx),)))


def _same(found, expected):
    assert found.shape == expected.shape, (found.shape, expected.shape)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    found, expected = (a.contiguous().view(kind) for a in (found, expected))
    assert torch.equal(found, expected), (found, expected)
