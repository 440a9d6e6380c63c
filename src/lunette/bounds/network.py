"""A network as steps in order, each after those it reads; the last is the output."""

from __future__ import annotations

from lunette.bounds.affine import Shape, Step
from lunette.bounds.box import Array, Box

__all__ = ["Input", "Network"]


class Input(Step):
    """A leaf with a box."""

    title = "input"

    def __init__(self, shape: Shape, about: str, box: Box) -> None:
        super().__init__((), shape, about)
        self.box = box


class Network:
    """Steps in order, each after those it reads; the last is the output."""

    def __init__(self, steps: list[Step], nodes: dict[int, int]) -> None:
        self.steps, self.nodes = steps, nodes
        self.inputs = [k for k, step in enumerate(steps) if isinstance(step, Input)]

    @property
    def boxes(self) -> dict[int, Box]:
        """The box of every input."""
        return {k: step.box for k, step in enumerate(self.steps) if isinstance(step, Input)}

    def values(self, points: dict[int, Array]) -> list[Array]:
        """The value of every step in float64, of points of the inputs with any axes before."""
        found: list[Array] = []
        for k, step in enumerate(self.steps):
            found.append(
                points[k] if k in points else step.value(*[found[p] for p in step.parents])
            )
        return found

    def boxed(self, boxes: dict[int, tuple[Array, Array]]) -> Network:
        """The same steps over other boxes of the inputs."""
        steps = [
            Input(s.shape, s.about, Box(*boxes[k])) if k in boxes else s
            for k, s in enumerate(self.steps)
        ]
        return Network(steps, self.nodes)
