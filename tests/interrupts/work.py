"""Calls of every kind that threads and memory are used in; each gives the bytes of its results."""

import numpy as np

import lunette as ln

MAX, MEAN = ln.MaxPool((3, 3), stride=2, padding=1), ln.AvgPool((2, 2))
SMOOTH, CONV = ln.SmoothMaxPool((3, 3), 2.0, stride=2, padding=1), ln.Conv((3, 3))


def _arrays():
    random = np.random.default_rng(0)

    def new(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    strange = new(3, 1, 8, 8)
    strange[1, 0, 3, 3] = np.nan  # a small item that is done again
    return {
        "small": new(1, 1, 8, 8),
        "strange": strange,
        "large": new(4, 16, 112, 112),
        "last": np.moveaxis(new(6, 112, 112, 8), -1, 1),  # turned in parts
        "items": new(2048, 8, 8),
        "image": new(2, 16, 40, 40),
        "weight": new(24, 16, 3, 3),
    }


def _bytes(found):
    return tuple(np.asarray(a).tobytes() for a in (found if isinstance(found, tuple) else (found,)))


def numpy_calls():
    """Names and calls through NumPy."""
    arrays = _arrays()
    calls = {}
    for op, name in ((MAX, "max"), (MEAN, "mean"), (SMOOTH, "smooth")):
        for kind in ("small", "strange", "large", "items"):
            calls[f"{name} {kind}"] = lambda op=op, x=arrays[kind]: _bytes(op(x))
        for kind in ("small", "large"):
            x = arrays[kind]
            y = op(x)
            calls[f"{name} {kind} gradient"] = lambda op=op, x=x, y=y: _bytes(op.vjp(x, y))
    calls["smooth last"] = lambda x=arrays["last"]: _bytes(SMOOTH(x))
    x, weight = arrays["image"], arrays["weight"]
    y = CONV(x, weight)
    calls["conv"] = lambda: _bytes(ln.conv(x, weight))
    calls["conv gradient"] = lambda: _bytes(CONV.vjp((x, weight), y))
    half = x.astype(np.float16), weight.astype(np.float16)
    calls["conv half"] = lambda: _bytes(ln.conv(*half))
    return calls


def torch_calls():
    """Names and calls through torch, forward and backward."""
    import torch

    arrays = _arrays()

    def both(function, *tensors):
        tensors = [t.clone().requires_grad_() for t in tensors]
        y = function(*tensors)
        y.backward(torch.ones_like(y))
        return _bytes((y.detach().numpy(), *(t.grad.numpy() for t in tensors)))

    calls = {}
    for op, name in ((MAX, "max"), (MEAN, "mean"), (SMOOTH, "smooth")):
        for kind in ("small", "large"):
            x = torch.from_numpy(arrays[kind])
            calls[f"torch {name} {kind}"] = lambda op=op, x=x: both(op, x)
    x, weight = torch.from_numpy(arrays["image"]), torch.from_numpy(arrays["weight"])
    calls["torch conv"] = lambda: both(ln.conv, x, weight)
    return calls
