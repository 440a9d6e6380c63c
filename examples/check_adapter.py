"""Ten lines that let `lunette check examples/check_adapter.py:pool` try an implementation of yours."""

from numpy.lib.stride_tricks import sliding_window_view

from lunette.check import Call, NotOffered


def pool(call: Call):
    """One-dimensional max pooling by a strided view of NumPy's."""
    if (call.op, call.verb, call.rank) != ("max", "forward", 1):
        raise NotOffered("anything but the forward of a one-dimensional max")
    kernel, stride, padding, dilation, ceil_mode, *_ = call.arguments.values()
    if padding != ((0, 0),) or dilation != (1,) or ceil_mode:
        raise NotOffered("padding, dilation or ceil_mode")
    if stride[0] < 1:
        raise ValueError(f"stride={stride}: expected at least 1")
    return sliding_window_view(call.x, kernel[0], -1)[..., :: stride[0], :].max(-1)


pool.offers = ("max",)
pool.verbs = ("forward",)
pool.policies = {"sign of zero": "numpy.max takes −0 and +0 for equal"}
