"""A tape to look at: a table of its nodes, and its graph in Graphviz's language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lunette.tape.tape import Node

__all__ = ["dot", "in_bytes", "kind_of_node", "node_bytes", "op_name", "table"]


def table(nodes: list[Node], released: bool) -> str:
    """One line per node: number, name, op, parents, shape, dtype, bytes; and the sum of bytes."""
    rows = [("node", "name", "op", "from", "shape", "dtype", "bytes")]
    for number, node in enumerate(nodes):
        rows.append(
            (
                f"{number}",
                node.name + ("" if node.requires_grad else " ·"),
                op_name(node),
                " ".join(map(str, node.parents)),
                "×".join(map(str, node.shape)) or "scalar",
                str(node.dtype),
                "" if released else _bytes_or_view(nodes, node),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    total = sum(node_bytes(nodes, node) for node in nodes)
    saved = "released" if released else f"{in_bytes(total)} saved"
    end = f"{len(nodes)} nodes, {saved}; · needs no gradient"
    rule = "─" * len(lines[0])
    return "\n".join([lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:]), rule, end])


def op_name(node: Node) -> str:
    """The op of a node as it is written."""
    return str(node.op)


def node_bytes(nodes: list[Node], node: Node) -> int:
    """Bytes that this node's value adds: none where it is a view of an operand's value."""
    value = node.value
    if value is None:
        return 0
    if isinstance(value, np.ndarray):
        for parent in node.parents:
            other = nodes[parent].value
            if isinstance(other, np.ndarray) and np.may_share_memory(value, other):
                return 0
    return int(value.nbytes)


def _bytes_or_view(nodes: list[Node], node: Node) -> str:
    own = node_bytes(nodes, node)
    return "view" if own == 0 and node.value.nbytes else in_bytes(own)


def in_bytes(count: int) -> str:
    """A number of bytes with three digits."""
    if count < 1000:
        return f"{count} B"
    power = next((p for p in (1, 2, 3) if count < 999.5 * 1000**p), 4)
    return f"{count / 1000**power:.3g} {' kMGT'[power]}B"


def kind_of_node(node: Node) -> str:
    """`parameter`, `constant` or `op`."""
    if node.rule is not None:
        return "op"
    return "parameter" if node.requires_grad else "constant"


def labels(number: int, node: Node) -> tuple[str, str]:
    """Two lines of text for a node of the graph."""
    shape = "×".join(map(str, node.shape)) or "scalar"
    title = f"{number} {node.name}"
    return title, f"{shape} {node.dtype}"


FILLS: dict[str, str] = {"parameter": "#d8e8f8", "constant": "#ececec", "op": "#fdf3d8"}


def dot(nodes: list[Node]) -> str:
    """The graph for Graphviz: an arrow from every operand to the node it goes into."""
    lines = ["digraph tape {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for number, node in enumerate(nodes):
        text = "\\n".join(map(_escaped, (*labels(number, node), *_tooltip(node))))
        lines.append(f'  {number} [label="{text}", fillcolor="{FILLS[kind_of_node(node)]}"];')
    lines += [f"  {p} -> {n};" for n, node in enumerate(nodes) for p in node.parents]
    return "\n".join([*lines, "}"]) + "\n"


def _tooltip(node: Node) -> tuple[str, ...]:
    return (op_name(node),) if node.rule is not None and op_name(node) != node.name else ()


def _escaped(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
