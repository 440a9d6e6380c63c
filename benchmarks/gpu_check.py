"""The agreement sweep on a real GPU: every verb against the specification, far offsets, same bits."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "triton")]


def all_cases() -> list[tuple[Any, ...]]:
    """(op, shape, dtype, kind, layout) of every check."""
    import triton_cases as cases

    looks, out = cases.LOOKS, []
    for i, (op, shape) in enumerate(cases.RANKS + cases.GEOMETRIES + cases.LARGER):
        out += [(op, shape, *looks[(i + j) % 6]) for j in range(3)]
        out.append((op, shape, cases.INTEGERS[i % 6], "ties", "first" if i % 2 else "last"))
        for j, reduction in enumerate(cases.REDUCTIONS):
            out.append((cases.with_reduction(op, reduction), shape, *looks[(i + j) % 6]))
    for i, (op, shape) in enumerate(cases.LANED):
        out += [(op, shape, dtype, kind, "last") for dtype, kind, _ in looks]
        for j, reduction in enumerate(cases.REDUCTIONS):
            dtype, kind, _ = looks[(i + j) % 6]
            out.append((cases.with_reduction(op, reduction), shape, dtype, kind, "last"))
    for i, (op, shape) in enumerate(cases.WHOLE):
        out += [(op, shape, *looks[(i + j) % 6]) for j in range(3)]
    return out


def one(case: tuple[Any, ...]) -> str | None:
    """None, or how the kernels differ from the specification."""
    import warnings

    import triton_agreement as agreement

    warnings.simplefilter("ignore")
    try:
        agreement.check(*case, device="cuda", seed=abs(hash(str(case))) % 1000)
    except Exception as error:
        return f"{case}: {type(error).__name__}: {str(error)[:600]}"
    return None


def sweep(every: int = 1, workers: int = 12) -> bool:
    """Check all cases, or one in `every`; print what differs."""
    chosen = all_cases()[::every]
    start = time.perf_counter()
    if workers > 1:
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(workers, os.cpu_count() or 1)) as pool:
            differences = pool.map(one, chosen, chunksize=4)
    else:
        differences = [one(case) for case in chosen]
    wrong = [d for d in differences if d]
    for difference in wrong[:12]:
        print("DIFFERS", difference)
    print(
        f"agreement: {len(chosen) - len(wrong)} of {len(chosen)} cases, every verb, in "
        f"{time.perf_counter() - start:.0f} s",
        flush=True,
    )
    return not wrong


def far_offsets() -> bool:
    """Tensors past 2³¹ elements: their last images must equal the same images on their own."""
    import torch

    import lunette as ln
    from lunette.kernels import triton as kernels

    good = True

    def same(a: Any, b: Any, what: str) -> None:
        nonlocal good
        if not torch.equal(a, b):
            good = False
            print("DIFFERS", what)

    x = torch.randn((16386, 512, 256), device="cuda", dtype=torch.bfloat16)
    for op in (ln.MaxPool((2, 2)), ln.MaxPool((3, 3), 1, 1), ln.AvgPool((3, 3), 2, 1)):
        y = kernels.forward(op, (x,))
        same(y[-2:], kernels.forward(op, (x[-2:].clone(),)), f"{op!r} forward past 2³¹")
        g = torch.randn_like(y)
        if isinstance(op, ln.MaxPool):
            _, offsets = kernels.forward_with_offsets(op, (x,))
            _, few = kernels.forward_with_offsets(op, (x[-2:].clone(),))
            same(offsets[-2:], few, f"{op!r} offsets past 2³¹")
            gx = kernels.vjp_from_offsets(op, x.shape, offsets, g)
        else:
            (gx,) = kernels.vjp(op, (x,), g)
        (expected,) = kernels.vjp(op, (x[-2:].clone(),), g[-2:].clone())
        same(gx[-2:], expected, f"{op!r} vjp past 2³¹")
        del y, g, gx
    op = ln.AdaptiveMaxPool((7, 5))
    y, indices = kernels.forward_with_indices(op, (x,))
    few = kernels.forward_with_indices(op, (x[-2:].clone(),))
    same(y[-2:], few[0], "adaptive past 2³¹")
    same(indices[-2:], few[1], "adaptive indices past 2³¹")
    del x, y, indices
    line = torch.randint(-128, 127, ((1 << 31) + 4098,), device="cuda", dtype=torch.int8)
    for op in (ln.MaxPool((2,)), ln.MaxPool((3,), 1, 1)):
        y = kernels.forward(op, (line,))
        tail = kernels.forward(op, (line[-4096:].clone(),))
        same(y[-1000:], tail[-1000:], f"{op!r} along an axis past 2³¹")
    print(f"offsets at 2³¹ and above: {'agree' if good else 'DIFFER'}", flush=True)
    return good


def same_bits() -> bool:
    """Gradients of large tensors, twice, under torch's deterministic mode: the same bits."""
    import torch

    import lunette as ln
    from lunette.kernels import triton as kernels

    torch.use_deterministic_algorithms(True)
    good = True
    x = torch.randn((64, 64, 113, 111), device="cuda")
    for op in (
        ln.MaxPool((3, 3), 2, 1),
        ln.MaxPool((3, 3), 1, 1, ties="split"),
        ln.AvgPool((3, 3), 2, 1),
        ln.SmoothMaxPool((3, 3), 2.0, 2, 1),
        ln.AdaptiveMaxPool((7, 7)),
        ln.GlobalMaxPool(2),
    ):
        g = torch.randn_like(kernels.forward(op, (x,)))
        (first,) = kernels.vjp(op, (x,), g)
        for _ in range(3):
            if not torch.equal(first, kernels.vjp(op, (x,), g)[0]):
                good = False
                print("DIFFERS between runs", op)
    print(f"the same bits in every run: {good}", flush=True)
    return good
