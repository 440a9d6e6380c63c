"""The named workloads: what the benchmarks time and, as small twins, what the tests check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

import lunette as ln

__all__ = ["WORKLOADS", "Workload", "by_name", "dtype_named"]


def dtype_named(name: str) -> np.dtype[Any]:
    """A NumPy dtype by name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass(frozen=True)
class Workload:
    """An op and a verb on an array of one shape, dtype and memory order, and what we ask of it.

    `goal` is the least fraction of a plain copy's bandwidth. `times` says how many times faster
    than a peer ("best" for the fastest of them) it should be. `twin_shape` is a shape with the
    same op, small enough for the specification. With `kept` a gradient starts from the offsets that
    the forward pass has kept, as torch's does, not from the input.
    """

    name: str
    op: Any
    shape: tuple[int, ...]
    twin_shape: tuple[int, ...]
    verb: str = "forward"
    dtype: str = "float32"
    channels_last: bool = False
    kept: bool = False
    goal: float | None = None
    times: dict[str, float] = field(default_factory=dict)

    @property
    def bytes_moved(self) -> int:
        """Bytes of the op's input and of its result: what any implementation must touch.

        For `vjp` these are the gradient that comes in and the one that goes out; an input that is
        read once more to find the winners is not counted, and neither is a copy of indices.
        """
        item = dtype_named(self.dtype).itemsize
        out = self.op.result_dtype(dtype_named(self.dtype)).itemsize
        return prod(self.shape) * item + prod(self.op.out_shape(self.shape)) * out

    @property
    def twin(self) -> Workload:
        """The same work on a small array."""
        return replace(self, shape=self.twin_shape)

    def array(self, seed: int = 0) -> np.ndarray[Any, Any]:
        """The input: normal floats, or integers over the whole range, in the memory order asked."""
        return self._filled(self.shape, dtype_named(self.dtype), seed)

    def result_like(self, seed: int = 1) -> np.ndarray[Any, Any]:
        """An array with the shape, dtype and memory order of the result: a gradient."""
        dtype = self.op.result_dtype(dtype_named(self.dtype))
        return self._filled(self.op.out_shape(self.shape), dtype, seed)

    def _filled(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int
    ) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng(seed)
        order = _last(shape) if self.channels_last else shape
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            flat = rng.integers(info.min, info.max, order, dtype, endpoint=True)
        else:
            flat = rng.standard_normal(order, np.float32).astype(dtype, copy=False)
        return np.moveaxis(flat, -1, 1) if self.channels_last else flat


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


IMAGES = (32, 64, 112, 112)
SMALL_IMAGES = (4, 64, 112, 112)
TWIN = (2, 3, 13, 17)

K3S2P1 = ln.MaxPool((3, 3), stride=2, padding=1)

WORKLOADS: tuple[Workload, ...] = (
    Workload("max k3s2p1", K3S2P1, IMAGES, TWIN, goal=0.85, times={"best": 1.4, "torch eager": 30}),
    Workload("max k2s2", ln.MaxPool((2, 2)), IMAGES, TWIN, goal=0.85),
    Workload("mean k2s2", ln.AvgPool((2, 2)), IMAGES, TWIN, goal=0.85),
    Workload("mean k3s2p1", ln.AvgPool((3, 3), stride=2, padding=1), IMAGES, TWIN, goal=0.75),
    Workload("max k3s1p1", ln.MaxPool((3, 3), stride=1, padding=1), IMAGES, TWIN, goal=0.65),
    Workload(
        "max k3s2p1 vjp, winners kept",
        K3S2P1,
        IMAGES,
        TWIN,
        verb="vjp",
        kept=True,
        goal=0.45,
        times={"torch eager": 5},
    ),
    Workload("max k3s2p1 vjp", K3S2P1, IMAGES, TWIN, verb="vjp"),
    Workload(
        "mean k2s2 vjp",
        ln.AvgPool((2, 2)),
        IMAGES,
        TWIN,
        verb="vjp",
        goal=0.65,
        times={"torch eager": 15},
    ),
    Workload(
        "max k9s1p4",
        ln.MaxPool((9, 9), stride=1, padding=4),
        SMALL_IMAGES,
        (1, 1, 12, 20),
    ),
    Workload(
        "max k13s1p6",
        ln.MaxPool((13, 13), stride=1, padding=6),
        SMALL_IMAGES,
        (1, 1, 9, 29),
        goal=0.30,
        times={"torch eager": 100},
    ),
    Workload(
        "max k65s1p32",
        ln.MaxPool((65, 65), stride=1, padding=32),
        SMALL_IMAGES,
        (1, 1, 3, 70),
        times={"max k9s1p4": 1 / 1.3},
    ),
    Workload("adaptive mean 7", ln.AdaptiveAvgPool((7, 7)), IMAGES, TWIN, goal=0.80),
    Workload("adaptive max 7", ln.AdaptiveMaxPool((7, 7)), IMAGES, TWIN, goal=0.80),
    Workload("global mean", ln.GlobalAvgPool(2), IMAGES, TWIN, goal=0.80),
    Workload("global max", ln.GlobalMaxPool(2), IMAGES, TWIN, goal=0.80),
    Workload(
        "max 3-D k2s2", ln.MaxPool((2, 2, 2)), (2, 32, 64, 96, 96), (1, 2, 5, 6, 9), goal=0.75
    ),
    Workload(
        "max 3-D k3s2p1",
        ln.MaxPool((3, 3, 3), stride=2, padding=1),
        (2, 32, 64, 96, 96),
        (1, 2, 5, 6, 9),
        goal=0.5,
    ),
    Workload(
        "max 4-D k2s2",
        ln.MaxPool((2, 2, 2, 2)),
        (1, 16, 32, 32, 32, 32),
        (1, 2, 4, 3, 5, 6),
        goal=0.65,
        times={"JAX": 3},
    ),
    Workload(
        "mean 1-D k25s1", ln.AvgPool((25,), stride=1), (16, 128, 16384), (1, 2, 60), goal=0.55
    ),
    Workload(
        "smooth k3s2p1",
        ln.SmoothMaxPool((3, 3), beta=2.0, stride=2, padding=1),
        (8, 64, 112, 112),
        (1, 2, 9, 11),
        goal=0.30,
        times={"torch eager": 4},
    ),
    Workload(
        "smooth k3s2p1 vjp",
        ln.SmoothMaxPool((3, 3), beta=2.0, stride=2, padding=1),
        (8, 64, 112, 112),
        (1, 2, 9, 11),
        verb="vjp",
        goal=0.20,
        times={"torch eager": 4},
    ),
    Workload("max k3s2p1 bfloat16", K3S2P1, IMAGES, TWIN, dtype="bfloat16", goal=0.5),
    Workload("max k3s2p1 uint8", K3S2P1, IMAGES, TWIN, dtype="uint8", goal=0.5),
    # Not asked for by a goal, and wanted all the same.
    Workload("max k3s2p1 with indices", K3S2P1, IMAGES, TWIN, verb="forward_with_indices"),
    Workload("max k3s2p1 jvp", K3S2P1, IMAGES, TWIN, verb="jvp"),
    Workload("max k3s2p1 channels last", K3S2P1, IMAGES, TWIN, channels_last=True),
    Workload(
        "max k3s2p1 vjp channels last",
        K3S2P1,
        IMAGES,
        (2, 17, 7, 9),
        verb="vjp",
        channels_last=True,
    ),
    Workload(
        "smooth k3s2p1 channels last",
        ln.SmoothMaxPool((3, 3), 1.0, stride=2, padding=1),
        (8, 64, 112, 112),
        (2, 17, 13, 17),
        channels_last=True,
    ),
    Workload("global mean channels last", ln.GlobalAvgPool(2), IMAGES, TWIN, channels_last=True),
    Workload("mean k3s2p1 vjp", ln.AvgPool((3, 3), stride=2, padding=1), IMAGES, TWIN, verb="vjp"),
    Workload("max k3s2p1 float64", K3S2P1, IMAGES, TWIN, dtype="float64"),
    Workload("max k3s2p1 float16", K3S2P1, IMAGES, TWIN, dtype="float16"),
    Workload("global max vjp", ln.GlobalMaxPool(2), IMAGES, TWIN, verb="vjp"),
    Workload("global mean of 7×7", ln.GlobalAvgPool(2), (64, 2048, 7, 7), (2, 3, 7, 7)),
    Workload("global max of 7×7", ln.GlobalMaxPool(2), (64, 2048, 7, 7), (2, 3, 7, 7)),
    Workload("mean 3-D k2s2", ln.AvgPool((2, 2, 2)), (2, 32, 64, 96, 96), (1, 2, 6, 7, 19)),
    Workload(
        "max 1-D k3s2p1, rows of 64",
        ln.MaxPool((3,), stride=2, padding=1),
        (512, 512, 64),
        (2, 3, 64),
    ),
    Workload("max k2s2 of 224×224", ln.MaxPool((2, 2)), (8, 64, 224, 224), (1, 2, 8, 40)),
    Workload("global mean of 3 MB", ln.GlobalAvgPool(2), (1, 64, 112, 112), (1, 3, 9, 37)),
    Workload(
        "max k13s1p6 with indices",
        ln.MaxPool((13, 13), stride=1, padding=6),
        SMALL_IMAGES,
        (1, 1, 9, 29),
        verb="forward_with_indices",
    ),
    Workload(
        "max k13s1p6 vjp",
        ln.MaxPool((13, 13), stride=1, padding=6),
        SMALL_IMAGES,
        (1, 1, 9, 29),
        verb="vjp",
    ),
    Workload(
        "smooth k13s1",
        ln.SmoothMaxPool((13, 13), beta=2.0, stride=1),
        SMALL_IMAGES,
        (1, 2, 15, 17),
    ),
    Workload(
        "smooth k13s1 vjp",
        ln.SmoothMaxPool((13, 13), beta=2.0, stride=1),
        SMALL_IMAGES,
        (1, 2, 15, 17),
        verb="vjp",
    ),
    Workload(
        "max k3s2p1 vjp, ties split",
        ln.MaxPool((3, 3), stride=2, padding=1, ties="split"),
        IMAGES,
        (4, 16, 7, 9),
        verb="vjp",
    ),
    Workload(
        "global max vjp channels last",
        ln.GlobalMaxPool(2),
        IMAGES,
        (2, 17, 7, 9),
        verb="vjp",
        channels_last=True,
    ),
    Workload(
        "global max vjp of 7×7, ties split",
        ln.GlobalMaxPool(2, ties="split"),
        (64, 2048, 7, 7),
        TWIN,
        verb="vjp",
    ),
    Workload(
        "adaptive max 7 vjp channels last",
        ln.AdaptiveMaxPool((7, 7)),
        IMAGES,
        (1, 19, 14, 21),
        verb="vjp",
        channels_last=True,
    ),
)


def by_name(name: str) -> Workload:
    """The workload of this name; an unknown name is a ValueError that lists them."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    known = ", ".join(w.name for w in WORKLOADS)
    raise ValueError(f"workload {name!r}: expected one of {known}")
