"""The peers: each gives the same work as a call without arguments, or None where it offers none.

A peer that is not installed offers nothing. A peer's answer is compared with ours before it is
timed: one that computes something else is no peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cases.workloads import Workload
from lunette.reductions import Max, Mean, SmoothMax
from lunette.regions import Adaptive, Global, Sliding

__all__ = ["PEERS", "Call", "prepare"]

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]


class NotOffered(Exception):
    """This peer has no such op, dtype or rank."""


def prepare(peer: str, workload: Workload, x: Array, grad: Array, ours: Any) -> Call | None:
    """The peer's call, checked against our result; None where it has nothing to offer."""
    try:
        call, read = PEERS[peer](workload, x, grad)
        result = read(call())
    except (NotOffered, ImportError):
        return None
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        # Frameworks say "not implemented for 'Byte'" in as many ways as there are frameworks.
        print(f"  {peer} does not run {workload.name}: {str(error).splitlines()[0][:100]}")
        return None
    expected = ours[0] if isinstance(ours, tuple) else ours
    a, b = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    if isinstance(workload.op.reduction, SmoothMax):
        # exp, mean, log pads with exp(−inf), not with exp(0): compare away from the border.
        edge = min(workload.op.regions[-1].kernel, (min(a.shape[-2:]) - 1) // 2)
        a, b = (v[..., edge:-edge, edge:-edge] for v in (a, b))
    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-2, atol=1e-3):
        print(f"  {peer} computes something else than {workload.name}; left out")
        return None
    return call


def _sliding(workload: Workload) -> list[Sliding]:
    regions = workload.op.regions
    if not all(isinstance(r, Sliding) and r.dilation == 1 for r in regions):
        raise NotOffered
    return list(regions)


def _all(workload: Workload, kind: type) -> bool:
    return all(isinstance(r, kind) for r in workload.op.regions)


# -- torch --


def _torch_function(workload: Workload) -> Callable[[Any], Any]:
    import torch
    import torch.nn.functional as F

    op, rank = workload.op, workload.op.rank
    if rank > 3:
        raise NotOffered
    reduction = op.reduction
    name = "max" if isinstance(reduction, Max) else "avg"
    if _all(workload, Global):
        axes = tuple(range(-rank, 0))
        if isinstance(reduction, Max):
            return lambda t: torch.amax(t, axes, keepdim=True)
        return lambda t: torch.mean(t, axes, keepdim=True)
    if _all(workload, Adaptive):
        pool = getattr(F, f"adaptive_{name}_pool{rank}d")
        return lambda t: pool(t, op.output_size)
    axes = _sliding(workload)
    sizes = [r.kernel for r in axes], [r.stride for r in axes], [r.margins(0)[0] for r in axes]
    pool = getattr(F, f"{name}_pool{rank}d")
    if isinstance(reduction, SmoothMax):
        beta = reduction.beta
        total = torch.tensor(np.prod(sizes[0]), dtype=torch.float32)
        return lambda t: (torch.log(pool(torch.exp(beta * t), *sizes)) + torch.log(total)) / beta
    if workload.verb == "forward_with_indices":
        return lambda t: pool(t, *sizes, return_indices=True)
    return lambda t: pool(t, *sizes)


def _tensor(x: Array) -> Any:
    import torch

    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _from_torch(result: Any) -> Array:
    result = result[0] if isinstance(result, tuple) else result
    result = result.detach()
    if result.is_mkldnn:
        result = result.to_dense()
    return np.asarray(result.float().numpy())


def _torch(workload: Workload, x: Array, grad: Array, compiled: bool) -> tuple[Call, Any]:
    import torch

    function = _torch_function(workload)
    if compiled:
        # Timing calls backward many times over one graph, so its buffers must stay.
        import torch._dynamo
        import torch._functorch.config

        torch._functorch.config.donated_buffer = False
        torch._dynamo.reset()
        function = torch.compile(function)
    t = _tensor(x)
    if workload.verb in ("forward", "forward_with_indices"):

        def forward() -> Any:
            with torch.no_grad():
                return function(t)

        return forward, _from_torch
    if workload.verb != "vjp":
        raise NotOffered
    t = t.detach().requires_grad_()
    y, g = function(t), _tensor(grad)
    return lambda: torch.autograd.grad(y, t, g, retain_graph=True)[0], _from_torch


def torch_eager(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """PyTorch, op by op; the gradient alone for a vjp, with what its forward kept."""
    return _torch(workload, x, grad, compiled=False)


def torch_compile(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """PyTorch through torch.compile."""
    return _torch(workload, x, grad, compiled=True)


def onednn(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """oneDNN through torch, on its own channels-blocked memory order, conversions not timed."""
    import torch
    import torch.nn.functional as F

    if (
        workload.verb != "forward"
        or isinstance(workload.op.reduction, SmoothMax)
        or _all(workload, Global)
        or workload.op.rank not in (2, 3)
        or x.dtype.name != "float32"
    ):
        raise NotOffered
    function = _torch_function(workload)
    channels, rank = x.shape[1], workload.op.rank
    identity = torch.eye(channels).reshape(channels, channels, *(1,) * rank)
    convolution = F.conv2d if rank == 2 else F.conv3d
    with torch.no_grad():
        # A convolution leaves its result in blocked order: multiply by one to get there.
        blocked = convolution(_tensor(x).to_mkldnn(), identity)

    def forward() -> Any:
        with torch.no_grad():
            return function(blocked)

    return forward, _from_torch


# -- ONNX Runtime --


def onnx_runtime(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """ONNX Runtime's CPU provider on a model of one node."""
    import onnxruntime
    from onnx import TensorProto, helper

    kinds = {
        "float32": TensorProto.FLOAT,
        "float64": TensorProto.DOUBLE,
        "float16": TensorProto.FLOAT16,
        "uint8": TensorProto.UINT8,
    }
    reduction, indices = workload.op.reduction, workload.verb == "forward_with_indices"
    if (
        not (workload.verb == "forward" or indices)
        or isinstance(reduction, SmoothMax)
        or x.dtype.name not in kinds
        or _all(workload, Adaptive)
        or workload.op.rank > 3
    ):
        raise NotOffered
    name = "MaxPool" if isinstance(reduction, Max) else "AveragePool"
    attributes: dict[str, Any] = {}
    if _all(workload, Global):
        name = f"Global{name}"
    else:
        axes = _sliding(workload)
        pads = [r.margins(0) for r in axes]
        attributes = {
            "kernel_shape": [r.kernel for r in axes],
            "strides": [r.stride for r in axes],
            "pads": [p[0] for p in pads] + [p[1] for p in pads],
        }
        if isinstance(reduction, Mean):
            attributes["count_include_pad"] = int(reduction.count_include_pad)
    outputs = ["y", "i"] if indices else ["y"]
    node = helper.make_node(name, ["x"], outputs, **attributes)
    kind = kinds[x.dtype.name]
    shape = workload.op.out_shape(x.shape)
    results = [helper.make_tensor_value_info("y", kind, shape)]
    if indices:
        results.append(helper.make_tensor_value_info("i", TensorProto.INT64, shape))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, x.shape)], results
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = min(model.ir_version, 10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its exception types are not public
        raise NotOffered from error
    contiguous = np.ascontiguousarray(x)
    return lambda: session.run(None, {"x": contiguous}), lambda r: r[0]


# -- JAX --


def jax_jit(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """JAX under jit, on the CPU; its vjp runs whatever part of the forward it needs."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    op, reduction = workload.op, workload.op.reduction
    if x.dtype == np.float64 or _all(workload, Adaptive):
        raise NotOffered
    batch = x.ndim - op.rank
    if _all(workload, Global):
        axes = tuple(range(-op.rank, 0))
        reduce = jnp.max if isinstance(reduction, Max) else jnp.mean

        def function(t: Any) -> Any:
            return reduce(t, axes, keepdims=True)

    else:
        regions = _sliding(workload)
        window = (1,) * batch + tuple(r.kernel for r in regions)
        strides = (1,) * batch + tuple(r.stride or 1 for r in regions)
        pads = ((0, 0),) * batch + tuple(r.margins(0) for r in regions)
        count = float(np.prod([r.kernel for r in regions]))
        least = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min

        def function(t: Any) -> Any:
            if isinstance(reduction, Max):
                start = np.asarray(least, t.dtype)
                return lax.reduce_window(t, start, lax.max, window, strides, pads)
            if isinstance(reduction, SmoothMax):
                powers = jnp.exp(reduction.beta * t)
                sums = lax.reduce_window(powers, 0.0, lax.add, window, strides, pads)
                return jnp.log(sums) / reduction.beta
            return lax.reduce_window(t, 0.0, lax.add, window, strides, pads) / count

    t = jax.device_put(np.ascontiguousarray(x))
    if workload.verb == "forward":
        forward = jax.jit(function)
        return lambda: forward(t).block_until_ready(), lambda r: np.asarray(r, np.float64)
    if workload.verb not in ("vjp", "jvp"):
        raise NotOffered
    g = jax.device_put(np.ascontiguousarray(grad))
    if workload.verb == "vjp":
        backward = jax.jit(lambda t, g: jax.vjp(function, t)[1](g)[0])
    else:
        backward = jax.jit(lambda t, g: jax.jvp(function, (t,), (g,))[1])
    return lambda: backward(t, g).block_until_ready(), lambda r: np.asarray(r, np.float64)


# -- image libraries: windows that step one cell at a time --


def _stepping_by_one(workload: Workload) -> list[Sliding]:
    axes = _sliding(workload)
    if workload.verb != "forward" or any(r.stride != 1 for r in axes):
        raise NotOffered
    return axes


def _centred(regions: list[Sliding]) -> tuple[slice, ...]:
    """The part of a same-sized filter's result that these regions give."""
    cuts = [r.kernel // 2 - r.margins(0)[0] for r in regions]
    return (..., *(slice(cut, -cut or None) for cut in cuts))


def scipy_ndimage(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """scipy.ndimage's filters, on one thread as they are."""
    from scipy import ndimage

    regions, reduction = _stepping_by_one(workload), workload.op.reduction
    part = _centred(regions)
    if isinstance(reduction, Max):
        size = (1,) * (x.ndim - len(regions)) + tuple(r.kernel for r in regions)
        call = lambda: ndimage.maximum_filter(x, size, mode="constant", cval=-np.inf)  # noqa: E731
    elif isinstance(reduction, Mean) and len(regions) == 1:
        call = lambda: ndimage.uniform_filter1d(x, regions[0].kernel, mode="constant")  # noqa: E731
    else:
        raise NotOffered
    return call, lambda r: r[part]


def opencv(workload: Workload, x: Array, grad: Array) -> tuple[Call, Any]:
    """OpenCV, plane by plane: dilate for max, blur for mean, area resize for mean k2s2."""
    import cv2

    reduction = workload.op.reduction
    if (
        workload.verb != "forward"
        or x.dtype.name not in ("float32", "uint8")
        or _all(workload, Global)
    ):
        raise NotOffered
    sliding = _sliding(workload)
    if isinstance(reduction, Mean) and [(r.kernel, r.stride) for r in sliding] == [(2, 2)] * 2:
        planes = x.reshape(-1, *x.shape[-2:])
        out = np.empty((len(planes), planes.shape[1] // 2, planes.shape[2] // 2), x.dtype)
        shape = workload.op.out_shape(x.shape)

        def resize() -> Any:
            for plane, target in zip(planes, out, strict=True):
                cv2.resize(plane, target.shape[::-1], dst=target, interpolation=cv2.INTER_AREA)
            return out.reshape(shape)

        return resize, lambda r: r
    regions = _stepping_by_one(workload)
    part = _centred(regions)
    planes = x.reshape(-1, *x.shape[-2:]) if len(regions) == 2 else x.reshape(1, -1, x.shape[-1])
    out = np.empty_like(planes)
    sizes = [r.kernel for r in regions]
    if len(sizes) > 2 or not isinstance(reduction, (Max, Mean)):
        raise NotOffered
    shape = (1, sizes[0]) if len(sizes) == 1 else tuple(sizes)
    element = np.ones(shape, np.uint8)

    def filtered() -> Any:
        for plane, target in zip(planes, out, strict=True):
            if isinstance(reduction, Max):
                cv2.dilate(plane, element, dst=target)
            else:
                cv2.blur(plane, shape[::-1], dst=target, borderType=cv2.BORDER_CONSTANT)
        return out.reshape(x.shape)

    return filtered, lambda r: r[part]


PEERS: dict[str, Callable[[Workload, Array, Array], tuple[Call, Any]]] = {
    "torch eager": torch_eager,
    "torch.compile": torch_compile,
    "oneDNN": onednn,
    "ONNX Runtime": onnx_runtime,
    "JAX": jax_jit,
    "scipy": scipy_ndimage,
    "OpenCV": opencv,
}
