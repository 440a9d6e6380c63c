"""Every family of kernels against the specification on this processor; `make test-arm` runs it on an emulated aarch64.

It needs NumPy, Numba and ml_dtypes alone, so it is a script and no test module.
"""

import platform
import sys
import time

import numpy as np

import lunette as ln
from lunette.testing import check_op

POOLINGS = [
    ln.MaxPool((2, 2)),
    ln.MaxPool((3, 3), stride=2, padding=1),
    ln.MaxPool((9, 9), stride=1, padding=4),
    ln.MaxPool((2, 2), stride=1, dilation=2),
    ln.AvgPool((2, 2)),
    ln.AvgPool((3, 3), stride=1, padding=1, count_include_pad=False),
    ln.AvgPool((17,), stride=1),
    ln.SmoothMaxPool((2, 2), beta=4.0),
    ln.AdaptiveAvgPool((3, 2)),
    ln.AdaptiveMaxPool((3, 2)),
    ln.GlobalAvgPool(2),
    ln.GlobalMaxPool(2),
]
DTYPES = [np.float32, np.float64, np.float16]
CONVOLUTIONS = [(ln.Conv((3, 3), padding=1), ((2, 3, 9, 33), (4, 3, 3, 3)))]


def agree(op: ln.Op, verb: str, dtype: type, **options: object) -> None:
    """One verb of an op against the specification, within its bound."""
    call = {"forward": op, "jvp": op.jvp, "vjp": op.vjp}[verb]
    check_op(call, op, verb=verb, dtype=dtype, **options)
    print(f"{time.perf_counter() - START:6.1f} s  {verb} of {op!r}, {np.dtype(dtype)}", flush=True)


def same_bits_by_threads() -> None:
    """The thread pool under the processor's own memory ordering: many calls, one answer."""
    x = np.random.default_rng(0).standard_normal((8, 16, 112, 112)).astype(np.float32)
    for op in (ln.MaxPool((2, 2)), ln.AvgPool((3, 3), stride=2, padding=1)):
        ln.set_num_threads(1)
        alone = op(x).tobytes()
        ln.set_num_threads(4)
        assert all(op(x).tobytes() == alone for _ in range(50)), f"{op!r} has other bits on threads"
        print(
            f"{time.perf_counter() - START:6.1f} s  {op!r}: the same bits on four threads, 50 times"
        )


def brief() -> None:
    """What differs most from processor to processor: short lanes and partial rows; fused multiply-adds."""
    agree(ln.MaxPool((3, 3), stride=2, padding=1), "forward", np.uint8)
    agree(ln.SmoothMaxPool((2, 2), beta=4.0), "forward", np.float32)


def main() -> None:
    """All of it; an AssertionError names what disagrees."""
    if "--here" not in sys.argv:
        assert platform.machine() == "aarch64", (
            f"this is {platform.machine()}: give --here to run it all the same"
        )
    if "--brief" in sys.argv:
        return brief()
    for op in POOLINGS:
        for verb in ("forward", "vjp"):
            agree(op, verb, np.float32)
    for dtype in DTYPES[1:]:
        agree(POOLINGS[1], "forward", dtype)
        agree(POOLINGS[4], "vjp", dtype)
    agree(POOLINGS[1], "jvp", np.float32)
    agree(POOLINGS[1], "forward", np.uint8)
    for op, shapes in CONVOLUTIONS:
        for verb in ("forward", "vjp"):
            agree(op, verb, np.float32, shapes=[shapes])
    same_bits_by_threads()
    print(f"agreed on {platform.machine()} in {time.perf_counter() - START:.0f} s")
    return None


START = time.perf_counter()

if __name__ == "__main__":
    main()
