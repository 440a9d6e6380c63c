"""The tape: records nodes as they are computed, and keeps what their derivatives need."""

from __future__ import annotations

from functools import partial
from operator import index
from typing import Any

import numpy as np

from lunette import inputs
from lunette.arguments import flag, listed, shown
from lunette.axes import Turn, order
from lunette.dispatch import adapter_of
from lunette.ops.base import Op, kind_of
from lunette.spec import scalars
from lunette.tape import choosing as _choosing  # noqa: F401 — its rules join the table
from lunette.tape import derivatives, drawing, picture
from lunette.tape import functions as fn
from lunette.tape.ids import Id
from lunette.tape.methods import Methods
from lunette.tape.rules import Rule
from lunette.tape.table import RULES
from lunette.tape.window import rule_of

__all__ = ["Node", "Tape"]

Shape = tuple[int, ...]


class Node:
    """One value of a tape, and how it came about."""

    __slots__ = (
        "dtype",
        "name",
        "op",
        "options",
        "parents",
        "requires_grad",
        "rule",
        "shape",
        "value",
    )

    def __init__(
        self,
        op: Any,
        rule: Rule | None,
        parents: tuple[int, ...],
        options: dict[str, Any],
        value: Any,
        name: str,
        requires_grad: bool,
    ) -> None:
        self.op, self.rule, self.parents, self.options = op, rule, parents, options
        self.value, self.name, self.requires_grad = value, name, requires_grad
        self.shape: Shape = tuple(value.shape)
        self.dtype = value.dtype


class Tape(Methods):
    """A list of nodes, each computed when it is added from nodes before it.

    A method takes ids, or node numbers; an array among the operands becomes a constant. The tape
    holds references to the arrays given to it, not copies: do not change them before the last
    derivative is taken. It never looks at the elements, so the arrays decide how gradients are
    computed: exactly for Fractions, soundly for intervals and balls, fast for floats.

    Nodes are added by one thread at a time; several threads may take derivatives of one tape, and
    tapes of different threads share nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> tape = ln.Tape()
    >>> x = tape.leaf(np.array([1.0, 5.0, 2.0, 3.0]), "x")
    >>> y = tape.sum(tape.apply(ln.MaxPool((2,)), x) * 2.0)
    >>> tape.backward(y)[x]
    array([0., 2., 0., 2.])
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._released = False

    # -- nodes --

    def leaf(self, value: Any, name: str | None = None, requires_grad: bool = True) -> Id:
        """A given value. Its gradient is computed unless `requires_grad` is false.

        Integers and bools have no gradient; pass `requires_grad=False` for data and labels.

        Parameters
        ----------
        value : array_like
            Its array, which is kept and not copied.
        name : str, optional
            What tables and pictures call it.
        requires_grad : bool, default True
            Whether `backward` gives its gradient.

        Returns
        -------
        Id
            The node.

        Raises
        ------
        TypeError
            For integers that require a gradient.

        Examples
        --------
        >>> import lunette as ln
        >>> ln.Tape().leaf([1.0, 2.0], "x")
        <0 x: (2,) float64>
        """
        flag(requires_grad, "requires_grad")
        return self._leaf(value, _name(name, "leaf"), requires_grad)

    def apply(self, op: Op | str, *operands: Any, name: str | None = None, **options: Any) -> Id:
        """The node of an op (any `lunette.Op`, or the name of a rule) over these operands.

        Parameters
        ----------
        op : Op or str
            An op, or the name of a rule, such as `"relu"`.
        *operands : Id or array_like
            Ids of this tape; an array becomes a constant.
        name : str, optional
            What tables and pictures call it.
        **options
            What the rule takes by name.

        Returns
        -------
        Id
            The new node; its value is computed already.

        Raises
        ------
        ValueError, TypeError
            With the op, its operands and their shapes; the tape is as it was.

        Examples
        --------
        >>> import lunette as ln
        >>> tape = ln.Tape()
        >>> tape.apply("relu", tape.leaf([-1.0, 2.0])).value
        array([0., 2.])
        """
        self._check_open()
        rule: Rule
        if isinstance(op, Op) and op.axes is not None and not options:
            return self._apply_over_axes(op, operands, name)
        if isinstance(op, Op):
            rule, title = rule_of(op), type(op).__name__
        elif isinstance(op, str) and op in RULES:
            rule, title = RULES[op], op
        else:
            raise ValueError(
                f"op={shown(op)}: expected a lunette.Op or one of {', '.join(sorted(RULES))}; "
                "lunette.tape.register adds more"
            )
        name, before = _name(name, title), len(self._nodes)
        try:
            return self._record(op, rule, operands, options, name)
        except Exception:
            del self._nodes[before:]  # constants that were added for a node that never came
            raise

    def _apply_over_axes(self, op: Op, operands: Any, name: str | None) -> Id:
        """x transposed, the op over the last axes, and the result transposed back: nodes whose rules are known."""
        name, before = _name(name, type(op).__name__), len(self._nodes)

        def moved(node: Any, source: Any, destination: Any) -> Id:
            axes = order(len(self._nodes[node].shape), source, destination)
            return self.apply("transpose", node, axes=axes)

        turn = Turn(op, moved)
        try:
            parents = tuple([self._operand(x) for x in operands])
            try:
                op.out_shape(*[self._nodes[p].shape for p in parents])
            except (ValueError, TypeError) as error:
                raise type(error)(f"{self._about(op, name, parents)}: {error}") from None
            result: Id = turn.result(self.apply(op.over_last, *turn.operands(parents), name=name))
            return result
        except Exception:
            del self._nodes[before:]
            raise

    def _record(self, op: Any, rule: Rule, operands: Any, options: Any, name: str) -> Id:
        """Check the shapes, then compute, then keep."""
        parents = tuple([self._operand(x) for x in operands])
        nodes = [self._nodes[p] for p in parents]
        try:
            shape = rule.shape(*[node.shape for node in nodes], **options)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{self._about(op, name, parents)}: {error}") from None
        if _mixed([node.dtype for node in nodes]):
            raise TypeError(
                f"{self._about(op, name, parents)}: floats among exact numbers would make them "
                "inexact; convert the floats, or use floats throughout"
            )
        self._check_one_system(op, name, parents)
        if any(fn.is_object(node.value) for node in nodes):
            parents = self._joined(rule, parents)
            nodes = [self._nodes[p] for p in parents]
        try:
            value = fn.array(rule.forward(*[node.value for node in nodes], **options))
        except Exception as error:
            error.add_note(f"while computing {self._about(op, name, parents)}")
            raise
        if tuple(value.shape) != tuple(shape):
            raise ValueError(
                f"{self._about(op, name, parents)}: forward gave shape {tuple(value.shape)}; "
                f"the shape rule says {tuple(shape)}"
            )
        requires_grad = any(node.requires_grad for node in nodes)
        requires_grad = requires_grad and fn.is_differentiable(value.dtype)
        return self._add(Node(op, rule, parents, options, value, name, requires_grad))

    def value(self, node: Any) -> Any:
        """The value of a node: the array itself, not a copy.

        Parameters
        ----------
        node : Id or int
            Which.

        Returns
        -------
        array
            What was computed.

        Raises
        ------
        ValueError, TypeError
            For another tape's id; RuntimeError for a tape that is released.

        Examples
        --------
        >>> import lunette as ln
        >>> tape = ln.Tape()
        >>> tape.value(tape.leaf([1.0, 2.0]) * 3.0)
        array([3., 6.])
        """
        self._check_open()
        return self._nodes[self._number(node)].value

    # -- derivatives --

    def backward(
        self, output: Any, grad: Any = None, *, keep: Any = (), release: bool = False
    ) -> dict[Id, Any]:
        """The gradients of every leaf that requires one and that `output` depends on.

        `grad` is the gradient of the output, of its shape; it may be missing where the output has
        one element, and is then 1. `keep` names other nodes whose gradients to return as well. With
        `release` each saved value is freed as soon as it is used, and the tape is released.

        Parameters
        ----------
        output : Id or int
            Of which node.
        grad : array_like, optional
            The gradient of the output. Default: 1, of an output of one element.
        keep : sequence of Id, optional
            Other nodes whose gradients to return.
        release : bool, default False
            Free each value as soon as it is used.

        Returns
        -------
        dict of Id to array
            A gradient for each leaf.

        Raises
        ------
        ValueError, TypeError
            For a gradient of another shape, or another tape's id.

        Examples
        --------
        >>> import lunette as ln
        >>> tape = ln.Tape()
        >>> x = tape.leaf([1.0, 2.0])
        >>> tape.backward(tape.sum(x * x))[x]
        array([2., 4.])
        """
        self._check_open()
        flag(release, "release")
        number = self._number(output)
        if not isinstance(keep, (tuple, list, set, frozenset, dict)):
            raise TypeError(f"keep={shown(keep)}: expected a list of ids")
        nodes = listed(keep) if isinstance(keep, (tuple, list)) else keep
        kept = {self._number(node) for node in nodes}
        gradients = derivatives.backward(self, number, self._seed(number, grad), kept, release)
        return {Id(n, self): g for n, g in gradients.items()}

    def jvp(self, outputs: Any, tangents: dict[Any, Any]) -> Any:
        """The derivative of the outputs along tangents of leaves; other leaves stand still.

        An array for one output, a tuple of arrays for a list of them.

        Parameters
        ----------
        outputs : Id or list of Id
            Of which nodes.
        tangents : dict of Id to array
            A direction for some leaves.

        Returns
        -------
        array or tuple of array
            The change of each output.

        Raises
        ------
        ValueError, TypeError
            For a tangent of another shape, or another tape's id.

        Examples
        --------
        >>> import numpy as np
        >>> import lunette as ln
        >>> tape = ln.Tape()
        >>> x = tape.leaf([1.0, 2.0])
        >>> tape.jvp(x * x, {x: np.array([1.0, 0.0])})
        array([2., 0.])
        """
        self._check_open()
        many = isinstance(outputs, (tuple, list))
        numbers = [self._number(node) for node in (listed(outputs) if many else [outputs])]
        pushed = derivatives.pushforward(self, self._directions(tangents), max(numbers, default=-1))
        results = fn.owned([self._tangent(n, pushed) for n in numbers], list(tangents.values()))
        return tuple(results) if many else results[0]

    def hvp(self, output: Any, tangents: dict[Any, Any], grad: Any = None) -> dict[Id, Any]:
        """The derivative of `backward(output, grad)` along tangents of leaves: Hessian × tangents.

        Exact as the gradients are: every vjp rule is differentiated, nothing is approximated. Max
        and relu are taken as locally linear, which they are wherever they are differentiable.

        Parameters
        ----------
        output : Id or int
            Of which node.
        tangents : dict of Id to array
            A direction for some leaves.
        grad : array_like, optional
            The gradient of the output. Default: 1, of an output of one element.

        Returns
        -------
        dict of Id to array
            A product for each leaf.

        Raises
        ------
        ValueError, TypeError
            For a tangent or gradient of another shape, or another tape's id.

        Examples
        --------
        >>> import numpy as np
        >>> import lunette as ln
        >>> tape = ln.Tape()
        >>> x = tape.leaf([1.0, 2.0])
        >>> tape.hvp(tape.sum(x * x * x), {x: np.array([1.0, 1.0])})[x]
        array([ 6., 12.])
        """
        self._check_open()
        number = self._number(output)
        seed = self._seed(number, grad)
        products = derivatives.hvp(self, number, seed, self._directions(tangents))
        return {Id(n, self): g for n, g in products.items()}

    # -- the saved values --

    def release(self) -> None:
        """Free every saved value. Shapes and the picture remain; values and derivatives do not."""
        for node in self._nodes:
            node.value = None
        self._released = True

    def __enter__(self) -> Tape:
        self._check_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    # -- looking at it --

    def __len__(self) -> int:
        return len(self._nodes)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Tape of {len(self)} nodes, {drawing.in_bytes(self.nbytes)}>"

    def __str__(self) -> str:
        return drawing.table(self._nodes, self._released)

    @property
    def nbytes(self) -> int:
        """Bytes of the saved values; a view of another value, a reshape for one, adds none."""
        return sum(drawing.node_bytes(self._nodes, node) for node in self._nodes)

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        return drawing.dot(self._nodes)

    def _repr_svg_(self) -> str:
        """The graph, for notebooks."""
        self._check_open()
        return picture.svg(self._nodes)

    def draw(self, path: Any) -> None:
        """Write the graph as a picture, an SVG file that needs nothing else."""
        picture.write_svg(self._nodes, path)

    def __getattr__(self, name: str) -> Any:
        """A registered op as a method."""
        if name in RULES:
            return partial(self.apply, name)
        raise AttributeError(f"a tape has no method {name!r}; lunette.tape.register adds ops")

    # -- inside --

    def _add(self, node: Node) -> Id:
        self._nodes.append(node)
        return Id(len(self._nodes) - 1, self)

    def _leaf(self, value: Any, name: str, requires_grad: bool) -> Id:
        self._check_open()
        if isinstance(value, Id):
            raise TypeError(f"value={shown(value)} is a node already; expected an array")
        array = _array(value, "value")
        if isinstance(array, np.ndarray):
            if not fn.is_differentiable(array.dtype):
                kind_of(array.dtype, "value")  # integers and bools pass; other types are refused
            if array.dtype.kind == "O":
                array = scalars.lift(array)  # also refuses elements that are no numbers
        array = fn.array(array)
        requires_grad = requires_grad and fn.is_differentiable(array.dtype)
        return self._add(Node("leaf", None, (), {}, array, name, requires_grad))

    def _operand(self, x: Any) -> int:
        """The number of a node; an array becomes a constant."""
        if type(x) is Id and x.tape is self:
            return int(x)
        if isinstance(x, int):
            return self._number(x)
        if _is_array(x):
            return int(self._leaf(x, "constant", False))
        raise TypeError(
            f"operand {shown(x)}: expected an id or an array; write `id * 2.0` for a number, or tape.leaf"
        )

    def _operate(self, op: str, *operands: Any) -> Id:
        """An operator between ids, arrays and bare numbers; numbers join the ids' number system."""
        like = next(x for x in operands if isinstance(x, Id))
        ids = []
        for x in operands:
            if isinstance(x, Id) or _is_array(x):
                ids.append(x)
                continue
            try:
                value = fn.constant(x, self.value(like))
            except (TypeError, ValueError):
                raise TypeError(f"{op} of {like!r} and {shown(x)}: expected a number") from None
            except OverflowError:
                dtype = self.value(like).dtype
                raise ValueError(
                    f"{op} of {like!r} and a number that {dtype} cannot hold"
                ) from None
            ids.append(self._leaf(value, "constant", False))
        return self.apply(op, *ids)

    def _number(self, node: Any) -> int:
        if isinstance(node, Id) and node.tape is not self:
            raise ValueError(f"{node!r} belongs to another tape; pass its value, {node.name}.value")
        try:
            number = index(node)
        except Exception:  # whatever a foreign __index__ raises
            raise TypeError(f"node {shown(node)}: expected an id of this tape") from None
        if isinstance(node, bool) or not 0 <= number < len(self._nodes):
            raise ValueError(
                f"no node {shown(node)} on this tape; it has {len(self._nodes)} nodes, from 0"
            )
        return number

    def _shape(self, number: int) -> Shape:
        return self._nodes[number].shape

    def _about(self, op: Any, name: str, parents: tuple[int, ...]) -> str:
        """Which node this is: its number and name, the op, and the operands with their shapes."""
        title = repr(op) if isinstance(op, Op) else op
        names = [f"{p} {self._nodes[p].name!r} of shape {self._nodes[p].shape}" for p in parents]
        return f"node {len(self._nodes)} {name!r}, {title} of {' and '.join(names)}"

    def _check_one_system(self, op: Any, name: str, parents: tuple[int, ...]) -> None:
        """Refuse objects of several number systems: Python would make the exact ones inexact."""
        exact = {p: self._nodes[p] for p in parents if fn.is_object(self._nodes[p].value)}
        if len(exact) < 2:
            return
        try:
            scalars.of_elements({f"{p} {n.name!r}": n.value.flat for p, n in exact.items()})
        except TypeError as error:
            raise TypeError(f"{self._about(op, name, parents)}: {error}") from None

    def _joined(self, rule: Any, parents: tuple[int, ...]) -> tuple[int, ...]:
        """The operands, with new constants for integers among exact numbers: their elements in that system."""
        values = [self._nodes[p].value for p in parents]
        if getattr(rule, "labels", None) is not None and rule.labels(*values):
            return parents
        exact = next(v for v in values if fn.is_object(v))
        found = list(parents)
        for i, v in enumerate(values):
            if isinstance(v, np.ndarray) and v.dtype.kind in "iu":
                joined = scalars.joined(v, exact)
                found[i] = int(self._leaf(joined, self._nodes[parents[i]].name, False))
        return tuple(found)

    def _seed(self, number: int, grad: Any) -> Any:
        node = self._nodes[number]
        if not node.requires_grad:
            raise ValueError(
                f"node {number} {node.name!r} depends on no leaf that requires a gradient "
                "(integers never do)"
            )
        if grad is None:
            if any(n != 1 for n in node.shape):
                raise ValueError(
                    f"node {number} {node.name!r} has shape {node.shape}: pass grad, of that shape; "
                    "only an output of one element has a default"
                )
            return fn.constant_like(node.value, 1)
        return self._matching(grad, number, "grad")

    def _directions(self, tangents: Any) -> dict[int, Any]:
        if not isinstance(tangents, dict):
            raise TypeError(f"tangents={shown(tangents)}: expected a dict of leaf → tangent")
        directions = {}
        for key, tangent in tangents.items():
            number = self._number(key)
            node = self._nodes[number]
            if node.rule is not None:
                raise ValueError(f"node {number} {node.name!r} is no leaf; tangents are of leaves")
            if not fn.is_differentiable(node.dtype):
                raise TypeError(f"node {number} {node.name!r} has dtype {node.dtype}: no tangent")
            directions[number] = self._matching(tangent, number, "tangent")
        return directions

    def _matching(self, x: Any, number: int, role: str) -> Any:
        """A gradient or tangent as an array of its node's shape, dtype and number system."""
        node = self._nodes[number]
        title = f"{role} of node {number} {node.name!r}"
        x = _array(x, title)
        if tuple(x.shape) != node.shape:
            raise ValueError(f"{title} has shape {tuple(x.shape)}; expected {node.shape}")
        kind = kind_of(x.dtype, title) if isinstance(x, np.ndarray) else "float"
        if kind == "object" and not fn.is_object(node.value):
            raise TypeError(f"{title} holds objects, not {node.dtype}")
        if kind == "float" and fn.is_object(node.value):
            raise TypeError(
                f"{title} has dtype {x.dtype}, its value holds exact numbers: floats among them would "
                "make them inexact; convert the floats, or use floats throughout"
            )
        if fn.library(x) is np and fn.library(node.value) is not np:
            raise TypeError(f"{title} is NumPy's, its value is not")
        if kind == "object":
            _, x = scalars.lift_all({"its value": node.value, title: x})
        return fn.conform(x, node.value)

    def _tangent(self, number: int, tangents: dict[int, Any]) -> Any:
        tangent = tangents.get(number)
        return fn.zeros_like(self._nodes[number].value) if tangent is None else tangent

    def _check_open(self) -> None:
        if self._released:
            raise RuntimeError("this tape is released: its values are gone; record a new one")


OBJECT = np.dtype(object)


def _mixed(dtypes: list[Any]) -> bool:
    """Whether floats stand among objects."""
    return OBJECT in dtypes and any(d != OBJECT and fn.is_differentiable(d) for d in dtypes)


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _array(x: Any, name: str) -> Any:
    """A plain NumPy array, or the array of a library that can compute with it."""
    if isinstance(x, np.ndarray):
        return inputs.array(x, name)
    adapter = adapter_of((x,))
    if adapter is None and (not _is_array(x) or not hasattr(fn.library(x), "exp")):
        return inputs.array(
            x, name
        )  # lists, a table, a file: they hold numbers and compute nothing
    getattr(adapter, "check_plain", inputs.check_plain)(x, name)
    return fn.array(x)


def _name(name: Any, default: str) -> str:
    if name is None:
        return default
    if not isinstance(name, str):
        raise TypeError(f"name={shown(name)}: expected a string")
    return name
