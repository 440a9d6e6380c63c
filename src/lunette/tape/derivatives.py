"""Walks over a tape: tangents forward, gradients backward, and both at once for curvature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lunette.tape import functions as fn
from lunette.tape.duals import DualArray

if TYPE_CHECKING:
    from lunette.tape.tape import Node, Tape

__all__ = ["backward", "hvp", "pushforward"]


def pushforward(tape: Tape, tangents: dict[int, Any], last: int) -> dict[int, Any]:
    """The tangents of every node up to `last` that moves with the given leaves."""
    tangents = dict(tangents)
    for number, node in enumerate(tape._nodes[: last + 1]):
        if node.rule is None or not any(p in tangents for p in node.parents):
            continue
        inputs = [tape._nodes[p].value for p in node.parents]
        moves = [tangents.get(p) for p in node.parents]
        try:
            tangent = node.rule.push(moves, node.value, inputs, node.options)
        except Exception as error:
            error.add_note(f"in the tangent of node {number} {node.name!r}")
            raise
        if tangent is not None:
            _check_shape(tangent, node, f"jvp of node {number}", node)
            tangents[number] = fn.conform(tangent, node.value)
    return tangents


def backward(tape: Tape, output: int, seed: Any, kept: set[int], release: bool) -> dict[int, Any]:
    """The gradient of each leaf that requires one, and of the kept nodes, by number."""
    nodes = tape._nodes
    values = [node.value for node in nodes[: output + 1]]
    if release:  # from here on the walk alone holds the values, and lets go of each after its use
        tape.release()
    gradients = _walk(nodes, output, seed, kept, values, release)
    return dict(zip(gradients, fn.owned(list(gradients.values()), [seed]), strict=True))


def hvp(tape: Tape, output: int, seed: Any, tangents: dict[int, Any]) -> dict[int, Any]:
    """The tangent of each leaf's gradient: the same walk, over pairs of value and tangent."""
    nodes = tape._nodes
    pushed = pushforward(tape, tangents, output)
    values = [DualArray(node.value, pushed.get(n)) for n, node in enumerate(nodes[: output + 1])]
    gradients = _walk(nodes, output, DualArray(seed), set(), values)
    moves = [
        fn.zeros_like(nodes[n].value) if g.tangent is None else g.tangent
        for n, g in gradients.items()
    ]
    return dict(zip(gradients, fn.owned(moves, [seed, *tangents.values()]), strict=True))


def _walk(
    nodes: list[Node],
    output: int,
    seed: Any,
    kept: set[int],
    values: list[Any],
    release: bool = False,
) -> dict[int, Any]:
    """Gradients from the output back to the leaves. A node's gradient is let go once it is used."""
    pending, results = {output: seed}, {}
    for number in range(output, -1, -1):
        node, out, grad = nodes[number], values[number], pending.pop(number, None)
        if release:
            values[number] = None
        if grad is None:
            continue
        if node.rule is None or number in kept:
            results[number] = grad
        if node.rule is None:
            continue
        if not node.rule.reads_result:
            out = None
        inputs = [values[p] for p in node.parents]
        needs = [nodes[p].requires_grad for p in node.parents]
        try:
            pulled = node.rule.pull(grad, out, inputs, needs, node.options)
        except Exception as error:
            error.add_note(f"in the gradient of node {number} {node.name!r}")
            raise
        del grad, out, inputs
        for i, parent in enumerate(node.parents):
            gradient, pulled[i] = pulled[i], None
            if gradient is not None:
                _check_shape(gradient, nodes[parent], f"vjp of node {number}", node)
                gradient = fn.conform(gradient, fn.primal_of(values[parent]))
                held = pending.pop(parent, None)
                pending[parent] = gradient if held is None else fn.array(held + gradient)
                del held
            del gradient
    return results


def _check_shape(x: Any, of: Node, what: str, node: Node) -> None:
    if tuple(x.shape) != of.shape:
        raise ValueError(
            f"{what} {node.name!r} ({node.op}) gave shape {tuple(x.shape)}; "
            f"expected {of.shape}, the shape of {of.name!r}"
        )
