"""Ten lines that let `lunette check examples/check_adapter.py:pool` try an implementation of yours."""

from numpy.lib.stride_tricks import sliding_window_view

from lunette.check import Call, NotOffered


def pool(call: Call):
    """One-dimensional max pooling by a strided view of NumPy's."""
    if (call.op, call.verb, call.rank) != ("max", "forward", 1):
        raise NotOffered("anything but the forward of a one-dimensional max")
    (kernel,), (stride,) = call.arguments["kernel"], call.arguments["stride"]
    if (
        call.arguments["padding"] != ((0, 0),)
        or call.arguments["ceil_mode"]
        or call.arguments["dilation"] != (1,)
    ):
        raise NotOffered("padding, ceil_mode or dilation")
    if stride < 1:
        raise ValueError(f"stride={stride}: expected at least 1")
    return sliding_window_view(call.x, kernel, -1)[..., ::stride, :].max(-1)


pool.offers = ("max",)
pool.verbs = ("forward",)
pool.policies = {"sign of zero": "numpy.max takes −0 and +0 for equal"}
