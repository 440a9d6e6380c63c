"""The convolutions of the right implementation: every verb from one list of taps."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from lunette.check import Call


def convolve(call: Call, wrong: str) -> Any:
    """Every verb from one list of (output, input, weight) triples."""
    arguments, op = call.arguments, call.lunette_op
    x, weight = (a.astype(np.float64) for a in call.operands[:2])
    groups, transposed = arguments["groups"], call.op == "conv-transpose"
    if wrong == "kernel flipped":
        weight = weight[(..., *[slice(None, None, -1)] * call.rank)]
    out_shape = op.out_shape(*(a.shape for a in call.operands))
    bias = call.operands[2].astype(np.float64) if len(call.operands) == 3 else None
    batch = math.prod(call.batch)
    lengths, outs = call.pooled, out_shape[-call.rank :]
    small, large = (lengths, outs) if transposed else (outs, lengths)
    rows = x.reshape(batch, x.shape[-call.rank - 1], *lengths)
    taps = []
    for k in np.ndindex(*arguments["kernel"]):
        index, ok = [], []
        for axis in range(call.rank):
            front = _front(call, axis, lengths[axis], wrong)
            dilation = 1 if wrong == "dilation ignored" else arguments["dilation"][axis]
            p = np.arange(small[axis]) * arguments["stride"][axis] - front + k[axis] * dilation
            index.append(np.clip(p, 0, large[axis] - 1))
            ok.append((p >= 0) & (p < large[axis]))
        mask = np.ones((), bool)
        for m in ok:
            mask = mask[..., None] & m
        taps.append((k, np.ix_(*index), mask))
    per_in = rows.shape[1] // groups
    per_out = out_shape[-call.rank - 1] // groups

    def apply(source: Any, w: Any) -> Any:
        result = np.zeros((batch, out_shape[-call.rank - 1], *outs))
        for g, i, o in product(range(groups), range(per_in), range(per_out)):
            a, b = g * per_in + i, g * per_out + o
            a_read = i if wrong == "groups read the first channels" else a
            for k, ix, mask in taps:
                factor = w[(a, o, *k)] if transposed else w[(b, i, *k)]
                if transposed:
                    np.add.at(
                        result[:, b], (slice(None), *ix), np.where(mask, source[:, a] * factor, 0)
                    )
                else:
                    result[:, b] += np.where(mask, source[(slice(None), a_read, *ix)] * factor, 0)
        return result

    if call.verb == "vjp":
        return gradients(call, rows, weight, taps, transposed, per_in, per_out, batch, wrong)
    if call.verb == "forward":
        y = apply(rows, weight)
        if bias is not None and wrong != "bias forgotten":
            y = y + bias.reshape(-1, *[1] * call.rank)
    else:
        tangents = [t.astype(np.float64) for t in call.tangents]
        y = apply(tangents[0].reshape(rows.shape), weight)
        if wrong != "tangent of the weight forgotten":
            y = y + apply(rows, tangents[1])
        if bias is not None:
            y = y + tangents[2].reshape(-1, *[1] * call.rank)
    return y.reshape(out_shape).astype(call.x.dtype)


def _front(call: Call, axis: int, n: int, wrong: str) -> int:
    padding = call.arguments["padding"]
    if padding != "same":
        return padding[axis][1 if wrong == "padding swapped" else 0]
    extent = call.arguments["dilation"][axis] * (call.arguments["kernel"][axis] - 1) + 1
    s = call.arguments["stride"][axis]
    return max((-(-n // s) - 1) * s + extent - n, 0) // 2


def gradients(call: Call, rows: Any, weight: Any, taps: Any, transposed: bool, per_in: int, per_out: int, batch: int, wrong: str) -> Any:  # fmt: skip
    assert call.gradient is not None
    gy = call.gradient.astype(np.float64)
    gy = gy.reshape(batch, *gy.shape[-call.rank - 1 :])
    gx, gw = np.zeros(rows.shape), np.zeros(weight.shape)
    for g, i, o in product(range(call.arguments["groups"]), range(per_in), range(per_out)):
        a, b = g * per_in + i, g * per_out + o
        for k, ix, mask in taps:
            place = (a, o, *k) if transposed else (b, i, *k)
            mirrored = (
                *place[:2],
                *(n - 1 - j for n, j in zip(call.arguments["kernel"], k, strict=True)),
            )
            kept = mirrored if wrong == "weight gradient flipped" else place
            if transposed:
                seen = np.where(mask, gy[(slice(None), b, *ix)], 0)
                gx[:, a] += seen * weight[place]
                gw[kept] += (seen * rows[:, a]).sum()
            else:
                np.add.at(gx[:, a], (slice(None), *ix), np.where(mask, gy[:, b] * weight[place], 0))
                gw[kept] += np.where(mask, gy[:, b] * rows[(slice(None), a, *ix)], 0).sum()
    results = [gx.reshape(call.x.shape), gw]
    if len(call.operands) == 3:
        total = gy.sum(tuple(range(2, gy.ndim)))
        results.append(total[:1].sum(0) if wrong == "bias gradient of one image" else total.sum(0))
    return [r.astype(call.x.dtype) for r in results]
