"""The agreement of the Triton kernels with the specification, on any device: one case at a time."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import torch

import lunette as ln
from lunette import spec
from lunette.kernels import triton as kernels

TORCH = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def numpy_dtype(name):
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def gradients(dtype, device):
    """The kind of gradients: Triton's interpreter cuts float32 off to bfloat16, so it gets exact ones."""
    return "whole" if device == "cpu" and dtype == "bfloat16" else "normal"


def to_torch(array, device, layout="first", rank=2):
    """The array as a tensor on `device`; layout "last" has the axis before the pooled innermost."""
    if array.dtype == BFLOAT16:
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(np.ascontiguousarray(array).copy())
    tensor = tensor.to(device)
    if layout == "last" and array.ndim > rank:
        at = array.ndim - rank - 1
        tensor = tensor.movedim(at, -1).contiguous().movedim(-1, at)
    elif layout == "strided":
        wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=device)
        wide[..., 0] = tensor
        tensor = wide[..., 0]
    return tensor


def to_numpy(tensor):
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()


def values(rng, shape, dtype, kind):
    """Inputs that can tell a wrong winner: "ties" from few values, "special" with NaN, ±inf, ±0.

    "whole" values are halves of small integers: their sums are exact in every float type.
    """
    dtype = numpy_dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.3
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        few = np.array([info.min, info.max, 0, 1, 2], dtype)
        return few[rng.integers(0, len(few), shape)]
    if kind in ("ties", "whole"):
        x = rng.integers(*((-2, 2) if kind == "ties" else (-9, 10)), shape).astype(np.float64) / 2
        x = np.where(x == 0, np.where(rng.random(shape) < 0.5, -0.0, 0.0), x)
    else:
        x = rng.normal(size=shape) * 3
    if kind == "special":
        specials = np.array([np.nan, np.inf, -np.inf, -np.inf, -np.inf, 0.0, -0.0])
        mask = rng.random(shape) < 0.4
        x = np.where(mask, specials[rng.integers(0, len(specials), shape)], x)
    return x.astype(dtype)


def same_bits(got, expected, what):
    """Equal values, signs of zeros and places of NaNs."""
    assert got.shape == expected.shape, (what, got.shape, expected.shape)
    assert got.dtype == expected.dtype, (what, got.dtype, expected.dtype)
    a, b = got, expected
    if a.dtype == BFLOAT16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    if a.dtype.kind != "f":
        np.testing.assert_array_equal(a, b, err_msg=str(what))
        return
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=f"{what}: NaNs")
    real = ~np.isnan(a)
    np.testing.assert_array_equal(a[real], b[real], err_msg=f"{what}: values")
    np.testing.assert_array_equal(
        np.signbit(a[real]), np.signbit(b[real]), err_msg=f"{what}: signs"
    )


def within(got, expected, bound, what):
    """Finite values within `bound` of the expected ones; infinities and NaNs in the same places."""
    assert got.shape == expected.shape, (what, got.shape, expected.shape)
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=f"{what}: NaNs")
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(got[infinite], expected[infinite], err_msg=f"{what}: infinities")
    error = np.abs(got - expected)[finite]
    limit = np.broadcast_to(bound, expected.shape)[finite]
    assert (error <= limit).all(), (what, float((error - limit).max()), float(error.max()))


def epsilon(dtype):
    """(unit of the arithmetic, unit of the stored result)."""
    arithmetic = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
    stored = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}[dtype]
    return arithmetic, stored


def smallest(dtype):
    """The spacing of the stored type near zero."""
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-126}.get(dtype, 2.0**-1022)


def check(
    op, shape, dtype="float32", kind="normal", layout="first", device="cpu", seed=0, verbs=()
):
    """Every verb of `op` on one input, against the specification."""
    rng = np.random.default_rng(seed)
    x = values(rng, shape, dtype, kind)
    tensor = to_torch(x, device, layout, op.rank)
    what = (op, shape, dtype, kind, layout)
    floating = dtype in TORCH
    for verb in verbs or ("forward", "indices", "offsets", "jvp", "vjp"):
        if verb in ("jvp", "vjp") and not floating:
            continue
        VERBS[verb](op, x, tensor, dtype, layout, device, rng, (*what, verb))


def check_forward(op, x, tensor, dtype, layout, device, rng, what):
    got_tensor = kernels.forward(op, (tensor,))
    assert got_tensor.device == tensor.device, what
    if layout == "last" and op.keepdims and tensor.ndim > op.rank:
        assert got_tensor.movedim(tensor.ndim - op.rank - 1, -1).is_contiguous(), what
    got = to_numpy(got_tensor)
    if isinstance(op.reduction, ln.Max):
        same_bits(got, spec.forward(op, x), what)
        return
    exact = spec.forward(op, x.astype(np.float64))
    within(got, exact, value_bound(op, x, exact, dtype), what)


def value_bound(op, x, exact, dtype):
    unit, stored = epsilon(dtype if dtype in TORCH else "float64")
    size = np.abs(np.where(np.isfinite(x.astype(np.float64)), x.astype(np.float64), 0))
    cells = prod(x.shape[x.ndim - op.rank :])
    if isinstance(op.reduction, ln.Mean):
        scale = spec.forward(op, size)
        return (cells + 3) * unit * scale + 2 * stored * np.abs(exact) + smallest(dtype)
    largest = size.max() if size.size else 0
    beta = abs(op.reduction.beta)
    spread = (cells + 8 * (1 + np.log(cells + 1))) / beta
    return unit * (8 * largest + spread) + 2 * stored * np.abs(exact) + smallest(dtype)


def check_indices(op, x, tensor, dtype, layout, device, rng, what):
    if not isinstance(op.reduction, ln.Max):
        return
    y, indices = kernels.forward_with_indices(op, (tensor,))
    expected, expected_indices = spec.forward_with_indices(op, x)
    same_bits(to_numpy(y), expected, what)
    same_bits(to_numpy(indices), expected_indices, what)


def check_offsets(op, x, tensor, dtype, layout, device, rng, what):
    if kernels.refuses(op, "forward_with_offsets", (x.shape,), (x.dtype,)):
        return
    y, offsets = kernels.forward_with_offsets(op, (tensor,))
    expected, indices = spec.forward_with_indices(op, x)
    same_bits(to_numpy(y), expected, what)
    assert offsets.dtype == torch.uint8
    np.testing.assert_array_equal(
        to_numpy(offsets), offsets_of(op, x.shape, indices), err_msg=str(what)
    )
    if dtype in TORCH and op.reduction.ties == "first":
        grad = values(rng, expected.shape, dtype, gradients(dtype, device))
        sent = to_torch(grad, device, layout, op.rank if op.keepdims else 0)
        got = kernels.vjp_from_offsets(op, x.shape, offsets, sent)
        same_bits(to_numpy(got), spec.vjp(op, x, grad), (*what, "vjp_from_offsets"))
        dx = values(rng, x.shape, dtype, "normal")
        got = kernels.jvp_from_offsets(op, offsets, to_torch(dx, device, layout, op.rank))
        same_bits(to_numpy(got), spec.jvp(op, x, dx), (*what, "jvp_from_offsets"))


def offsets_of(op, shape, indices):
    """Indices as offsets in each window's box of taps."""
    pooled = shape[len(shape) - op.rank :]
    kept = np.reshape(indices, (*shape[: len(shape) - op.rank], *lengths(op, pooled)))
    out = np.full(kept.shape, 255, np.uint8)
    windows = [
        [region.window(n, i) for i in range(region.out_length(n))]
        for region, n in zip(op.regions, pooled, strict=True)
    ]
    boxes = [box(region, axis) for region, axis in zip(op.regions, windows, strict=True)]
    for place in np.ndindex(kept.shape):
        if kept[place] < 0:
            continue
        position = np.unravel_index(kept[place], pooled)
        taps = []
        for region, axis, n, i, p in zip(
            op.regions, windows, pooled, place[len(shape) - op.rank :], position, strict=True
        ):
            if isinstance(region, ln.Sliding):
                taps.append((p + region.margins(n)[0] - i * region.stride) // region.dilation)
            else:
                taps.append(p - axis[i].start)
        out[place] = np.ravel_multi_index(taps, boxes)
    return out.reshape(indices.shape)


def box(region, windows):
    return region.kernel if isinstance(region, ln.Sliding) else max(w.real for w in windows)


def lengths(op, pooled):
    return tuple(region.out_length(n) for region, n in zip(op.regions, pooled, strict=True))


def check_jvp(op, x, tensor, dtype, layout, device, rng, what):
    dx = values(rng, x.shape, dtype, "normal")
    dx = np.where(rng.random(x.shape) < 0.1, -0.0, dx.astype(np.float64)).astype(x.dtype)
    got = to_numpy(kernels.jvp(op, (tensor,), (to_torch(dx, device, layout, op.rank),)))
    if isinstance(op.reduction, ln.Max) and op.reduction.ties == "first":
        same_bits(got, spec.jvp(op, x, dx), what)
        return
    exact = spec.jvp(op, x.astype(np.float64), dx.astype(np.float64))
    scale = spec.jvp(op, x.astype(np.float64), np.abs(dx.astype(np.float64)))
    within(got, exact, derivative_bound(op, x, np.abs(scale), exact, dtype), what)


def check_vjp(op, x, tensor, dtype, layout, device, rng, what):
    shape = op.out_shape(x.shape)
    grad = values(rng, shape, dtype, gradients(dtype, device))
    grad = np.where(rng.random(shape) < 0.1, -0.0, grad.astype(np.float64)).astype(x.dtype)
    sent = to_torch(grad, device, layout, op.rank if op.keepdims else 0)
    (got_tensor,) = kernels.vjp(op, (tensor,), sent)
    got = to_numpy(got_tensor)
    (again,) = kernels.vjp(op, (tensor,), sent)
    same_bits(to_numpy(again), got, (*what, "again"))
    if isinstance(op.reduction, ln.Max):
        same_bits(got, spec.vjp(op, x, grad), what)
        return
    exact = spec.vjp(op, x.astype(np.float64), grad.astype(np.float64))
    scale = spec.vjp(op, x.astype(np.float64), np.abs(grad.astype(np.float64)))
    within(got, exact, derivative_bound(op, x, np.abs(scale), exact, dtype), what)


def derivative_bound(op, x, scale, exact, dtype):
    unit, stored = epsilon(dtype)
    cells = prod(x.shape[x.ndim - op.rank :])
    factor = cells + 4
    if isinstance(op.reduction, ln.SmoothMax):
        finite = np.abs(np.where(np.isfinite(x.astype(np.float64)), x.astype(np.float64), 0))
        factor += 16 + 8 * abs(op.reduction.beta) * float(finite.max(initial=0))
    return factor * unit * scale + 2 * stored * np.abs(exact) + smallest(dtype)


VERBS = {
    "forward": check_forward,
    "indices": check_indices,
    "offsets": check_offsets,
    "jvp": check_jvp,
    "vjp": check_vjp,
}
