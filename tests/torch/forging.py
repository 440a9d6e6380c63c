"""Forged calls of the torch operators: texts, tensors and shapes as a hostile saved program has them.

Every tensor is a view into a larger buffer of `POISON`. A call that is answered is answered as the
specification does, without a poisoned number, and leaves its buffers as they were.
"""

import random
from dataclasses import replace
from math import prod

import numpy as np
import torch

from lunette import dispatch, offsets
from lunette.encoding import LONGEST, decode
from lunette.ops.pooling import Pool
from lunette.reductions import Max
from lunette.torch.memory import array_of

POISON = 99
"""Data are small integers; this is not among them, nor a sum of a few, in any dtype."""

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.float32, torch.int8, torch.int64, torch.uint8, torch.bool, torch.complex64)

HOSTILE = (
    "",
    "MaxPool",
    "MaxPool(" * 1000,
    "(" * 100_000,
    "(" * 1000 + ")" * 1000,
    "M" * 10_000_000,
    "MaxPool((2,))" + " " * LONGEST,
    "MaxPool((2,))\0",
    "MaxPool((\u0663,))",
    "MaxPool((\u00b2,))",
    "MaxPool((10**10**10,))",
    "MaxPool((2,)).__class__",
    "().__class__.__bases__",
    "f'{().__class__}'",
    "__import__('os')",
    "MaxPool((2,), ties='first', ties='all')",
    "MaxPool((2,), kernel=(2,))",
    "MaxPool(*(2,))",
    "MaxPool(**{})",
    "MaxPool((" + "9" * 5000 + ",))",
    "AvgPool((2,), divisor_override=" + "9" * 9000 + ")",
    "SmoothMaxPool((2,), 1e999)",
    "SmoothMaxPool((2,), -" + "9" * 400 + ".0)",
    "SmoothMaxPool((2,), nan)",
    "Conv((2,))",
    "ConvTranspose((2,))",
    "Max()",
    "Op()",
    "Pool((Region(),), Max())",
    "Pool((), Max())",
    "Pool((Global(),), Reduction())",
    "Pool((Window(0, 9, 1, 9),), Max())",
    "Pool((Clipped(Global(), 9, (0, 1), (0, 9), True),), Max())",
    "GlobalMaxPool(10000000000)",
    "GlobalMaxPool(-1)",
    "MaxPool((2,) if True else (3,))",
    "MaxPool([2])",
    "MaxPool({2})",
    "MaxPool((0x2,))",
    "MaxPool((2_0,))",
    "MaxPool((1j,))",
    "MaxPool((-2,))",
    "MaxPool((--2,))",
    "lambda: 0",
)


class Forger:
    """Calls by number: the same seed gives the same calls."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.buffers = []

    # -- texts --

    def number(self, low=1):
        draw = self.random
        if draw.random() < 0.9:
            return draw.randint(low, 5)
        return draw.choice([0, -1, 7, 40, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**18, 10**30])

    def region(self):
        draw = self.random
        kind = draw.choice(("Sliding", "Sliding", "Adaptive", "Global", "Part", "Part"))
        if kind == "Global":
            return "Global()"
        if kind == "Adaptive":
            return f"Adaptive({self.number()})"
        if kind == "Part":
            ends = sorted((draw.randint(-2, 12), draw.randint(-2, 12)))
            slab = sorted((draw.randint(-5, 20), draw.randint(-5, 20)))
            inner = draw.choice(("Adaptive(10)", "Sliding(3)", "Global()", "Sliding(2, 1, 1)"))
            length = draw.choice((1, 8, 10, 100, 10**6))
            return f"Part({inner}, {length}, ({ends[0]}, {ends[1]}), ({slab[0]}, {slab[1]}))"
        padding = draw.choice(
            (f"{self.number(0)}", f"({self.number(0)}, {self.number(0)})", "'same'")
        )
        ceil = draw.choice(("True", "False"))
        numbers = ", ".join(str(self.number()) for _ in range(2))
        return f"Sliding({numbers}, {padding}, {self.number()}, {ceil})"

    def reduction(self):
        beta = self.random.choice((1.5, -2.0, 1e-30, 1e300, 0.0))
        return self.random.choice(
            ("Max()", "Max('first')", "Max('all')", "Max('split')", "Mean()", "Mean(False)",
             f"Mean(True, {self.number()})", f"SmoothMax({beta})")
        )  # fmt: skip

    def op(self):
        draw = self.random
        rank = draw.randint(1, 2)
        sizes = ", ".join(str(self.number()) for _ in range(rank)) + ","
        form = draw.randrange(6)
        if form == 0:
            return f"MaxPool(({sizes}), stride={self.number()}, padding={self.number(0)})"
        if form == 1:
            return f"AvgPool(({sizes}), count_include_pad=False, dilation={self.number()})"
        if form == 2:
            return f"AdaptiveMaxPool(({sizes}))"
        if form == 3:
            return f"GlobalMaxPool({rank}, keepdims={draw.choice(('True', 'False'))})"
        regions = ", ".join(self.region() for _ in range(rank)) + ","
        return f"Pool(({regions}), {self.reduction()})"

    def text(self):
        draw = self.random
        if draw.random() < 0.05:
            return draw.choice(HOSTILE)
        text = self.op()
        if draw.random() < 0.1:  # one character is another, missing or more
            at = draw.randrange(len(text))
            text = (
                text[:at] + draw.choice(("", *"()',=-.09 eé\0")) + text[at + draw.randint(0, 1) :]
            )
        return text

    # -- tensors --

    def shape(self):
        draw = self.random
        return tuple(
            draw.choice((0, 1, 2, 3, 8, 9)) for _ in range(draw.choice((0, 1, 2, 2, 3, 3, 4)))
        )

    def tensor(self, shape, dtype, high=9):
        """Small integers in some layout, with poison on every side."""
        draw = self.random
        room = 64
        plain = torch.randint(
            0, high, shape, generator=torch.Generator().manual_seed(draw.getrandbits(32))
        )
        data = plain.to(dtype)
        order = list(range(len(shape)))
        if draw.random() < 0.4:
            draw.shuffle(order)
        step = draw.choice((1, 1, 2))
        buffer = torch.full((2 * room + step * max(1, data.numel()),), POISON).to(dtype)
        inside = buffer[room : room + step * data.numel() : step]
        view = inside.view([shape[i] for i in order]).permute(
            [order.index(i) for i in range(len(shape))]
        )
        view.copy_(data)
        self.buffers.append((buffer, buffer.clone()))
        if draw.random() < 0.04:
            return draw.choice((self._meta, self._sparse, self._quantised, self._freed))(view)
        return view

    def _meta(self, x):
        return x.to("meta")

    def _sparse(self, x):
        return x.to_sparse()

    def _quantised(self, x):
        if x.dtype is not torch.float32:
            return x
        return torch.quantize_per_tensor(x.contiguous(), 1.0, 0, torch.quint8)

    def _freed(self, x):
        y = x.clone()
        y.untyped_storage().resize_(y.untyped_storage().nbytes() // 2)
        return y

    def like(self, shape, dtype, high=9):
        """A tensor of this shape and dtype, or now and then of another."""
        draw = self.random
        if draw.random() < 0.1:
            shape = self.shape()
        if draw.random() < 0.05:
            dtype = draw.choice(DTYPES)
        return self.tensor(shape, dtype, high)

    def beta(self):
        draw = self.random
        if draw.random() < 0.75:
            return None
        value = draw.choice((1.0, -0.5, 0.0, float("nan"), float("inf"), [1.0, 2.0], [3.0], 1j, []))
        beta = torch.tensor(value, device=draw.choice(("cpu", "cpu", "cpu", "meta")))
        return (
            beta.to(draw.choice((torch.float32, torch.float64, torch.int32)))
            if value != 1j
            else beta
        )

    # -- calls --

    def call(self):
        """The name of an operator and its arguments."""
        draw = self.random
        self.buffers.clear()
        text, shape, dtype = self.text(), self.shape(), draw.choice(DTYPES)
        backend = draw.choice((None, None, None, "cpu", "spec", "triton", "nobody", ""))
        result = out_shape(text, shape)
        name = draw.choice(
            ("pool", "pool_jvp", "pool_vjp", "pool_with_indices", "max_with_offsets",
             "max_vjp_from_offsets", "max_jvp_from_offsets")
        )  # fmt: skip
        x = self.like(shape, dtype)
        if name in ("pool", "pool_with_indices"):
            return name, (x, self.beta(), text, backend)
        if name == "pool_jvp":
            return name, (x, self.like(shape, dtype), self.beta(), text, backend)
        if name == "pool_vjp":
            return name, (x, self.like(result, dtype), self.beta(), text, backend)
        if name == "max_with_offsets":
            return name, (x, text)
        bytes_of = self.like(result, torch.uint8, draw.choice((1, 2, 9, 256)))
        if name == "max_jvp_from_offsets":
            return name, (bytes_of, x, text)
        if draw.random() < 0.1:
            shape = (*shape[:-1], draw.choice((-1, 0, 2**62, 2**63 - 1, 5)))
        return name, (bytes_of, self.like(result, dtype), shape, text)


def out_shape(text, shape):
    """The shape of the result, where there is one that is not too large to make."""
    try:
        result = decode(text).out_shape(shape)
    except (ValueError, TypeError):
        return shape
    return result if prod(max(1, n) for n in result) < 10_000 else shape


def described(args):
    """The arguments in a line: a forged tensor may not even be printed."""
    words = [
        f"{a.dtype} {tuple(a.shape)} {a.device} {a.layout}"
        if isinstance(a, torch.Tensor)
        else repr(a)[:300]
        for a in args
    ]
    return f"({', '.join(words)})"


def expected(name, args):
    """What the specification says of a call on dense tensors with data."""
    arrays = [array_of(a).copy() for a in args if isinstance(a, torch.Tensor)]
    op = decode(next(a for a in args[-2:] if isinstance(a, str) and "(" in a))
    if name.startswith("max_") and name != "max_with_offsets":
        kept = arrays[0]
        if name == "max_jvp_from_offsets":
            indices = offsets.indices_of(op, arrays[1].shape, kept)
            return taken(op, indices, arrays[1])
        return sent(op, kept, arrays[1], tuple(args[2]))
    if name == "max_with_offsets":
        values, indices = dispatch.forward_with_indices(op, arrays[0], backend="spec")
        return values, offsets.offsets_of(op, arrays[0].shape, indices)
    beta = args[-3]
    if beta is not None:
        op = Pool(op.regions, replace(op.reduction, beta=float(beta)), op.keepdims)
        arrays.pop()
    if name == "pool":
        return dispatch.forward(op, arrays[0], backend="spec")
    if name == "pool_with_indices":
        return dispatch.forward_with_indices(op, arrays[0], backend="spec")
    verb = dispatch.jvp if name == "pool_jvp" else dispatch.vjp
    return verb(op, arrays[0], arrays[1], backend="spec")


def taken(op, indices, dx):
    """The tangent of each winner, by plain indexing."""
    batch = dx.shape[: dx.ndim - op.rank]
    if not dx.size or not indices.size:
        return np.zeros(indices.shape)
    flat, places = dx.reshape(*batch, -1).astype(np.float64), indices.reshape(*batch, -1)
    found = np.take_along_axis(flat, np.maximum(places, 0), -1)
    return np.where(places < 0, 0, found).reshape(indices.shape)


def sent(op, kept, grad, shape):
    """The gradient of each cell; an offset that is no cell of its window sends nothing."""
    out = np.zeros(shape)
    axes = [region.boxes(n) for region, n in zip(op.regions, shape[-op.rank :], strict=True)]
    whole = (*shape[: -op.rank], *(len(starts) for starts, *_ in axes))
    kept, grad = kept.reshape(whole), grad.reshape(whole).astype(np.float64)
    for place in np.ndindex(whole):
        tap, position = int(kept[place]), []
        for (starts, step, box), i in zip(axes[::-1], place[: -op.rank - 1 : -1], strict=True):
            position.insert(0, int(starts[i]) + tap % box * step)
            tap //= box
        windows = zip(op.regions, shape[-op.rank :], place[-op.rank :], position, strict=True)
        inside = all(p in region.window(n, i).positions for region, n, i, p in windows)
        if kept[place] != offsets.NOWHERE and tap == 0 and inside:
            out[(*place[: -op.rank], *position)] += grad[place]
    return out


def is_max(name, args):
    return name.startswith("max") or isinstance(decode(args[-2]).reduction, Max)
