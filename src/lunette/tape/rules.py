"""What a rule is: a shape, a value and its derivatives, operand by operand; and the table of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lunette.tape import functions as fn

__all__ = ["RULES", "Each", "Rule", "elementwise", "register"]

Shape = tuple[int, ...]


class Each:
    """One function for operands of any number: it is given the operand's position first.

    Parameters
    ----------
    function : callable
        `function(position, tangent or gradient, out, *inputs, **options)`.

    Examples
    --------
    >>> from lunette.tape import Each
    >>> Each(lambda position, g, out, *inputs: (position, g))[2]("g", None)
    (2, 'g')
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __getitem__(self, position: int) -> Callable[..., Any]:
        return partial(self.function, position)


class Rule:
    """How one op is computed and differentiated.

    - `shape(*shapes, **options)`: the shape of the result; raises ValueError where there is none.
    - `forward(*inputs, **options)`: the result.
    - `jvp`: for each operand, a function `(tangent, out, *inputs, **options)`: what a tangent of that
      operand alone adds to the tangent of the result.
    - `vjp`: for each operand, a function `(grad, out, *inputs, **options)`: the gradient of that
      operand. It is the adjoint of the operand's `jvp`.

    `None` in place of a function: that operand has no derivative (labels, for one). Written with
    operators and `lunette.tape.functions`, a rule serves every kind of array, and `hvp` too.
    With `broadcasts`, operands of several shapes meet as NumPy's do, and the rule need not know.
    Integers join the number system of exact operands, unless `labels(*inputs)` says that they are names of things.

    Parameters
    ----------
    shape : callable
        The shape of the result.
    forward : callable
        The result.
    jvp : callable, sequence of callable, or Each
        For each operand, what its tangent adds.
    vjp : callable, sequence of callable, or Each
        For each operand, its gradient.
    broadcasts : bool, default False
        Let operands of several shapes meet as NumPy's do.
    labels : callable, optional
        Whether integers among the operands are names of things.

    Raises
    ------
    TypeError
        For what is no function.

    Examples
    --------
    >>> from lunette.tape import Rule
    >>> double = Rule(
    ...     shape=lambda x: x,
    ...     forward=lambda x: 2.0 * x,
    ...     jvp=lambda t, out, x: 2.0 * t,
    ...     vjp=lambda g, out, x: 2.0 * g,
    ... )
    >>> double.shape((2, 3))
    (2, 3)
    """

    __slots__ = ("broadcasts", "forward", "jvp", "labels", "shape", "vjp")
    reads_result = True
    """Whether `pull` looks at the result; one that does not is let go before."""

    def __init__(
        self,
        shape: Callable[..., Shape],
        forward: Callable[..., Any],
        jvp: Any,
        vjp: Any,
        broadcasts: bool = False,
        labels: Callable[..., bool] | None = None,
    ) -> None:
        self.shape, self.forward, self.broadcasts = shape, forward, broadcasts
        self.labels = labels
        self.jvp, self.vjp = _per_operand(jvp, "jvp"), _per_operand(vjp, "vjp")

    def push(self, tangents: list[Any], out: Any, inputs: list[Any], options: Any) -> Any:
        """The tangent of the result; None stands for a tangent of zeros, in and out."""
        total = None
        for i, tangent in enumerate(tangents):
            function = None if tangent is None else self.jvp[i]
            if function is not None:
                term = fn.array(function(tangent, out, *inputs, **options))
                if self.broadcasts:
                    term = fn.broadcast_to(term, out.shape)
                total = term if total is None else fn.array(total + term)
        return total

    def pull(
        self, grad: Any, out: Any, inputs: list[Any], needs: list[bool], options: Any
    ) -> list[Any]:
        """The gradient of each operand that needs one; None for the others."""
        gradients: list[Any] = []
        for i, needed in enumerate(needs):
            function = self.vjp[i] if needed else None
            gradient = None
            if function is not None:
                gradient = fn.array(function(grad, out, *inputs, **options))
                if self.broadcasts:
                    gradient = fn.sum_to(gradient, tuple(inputs[i].shape))
            gradients.append(gradient)
        return gradients


def _per_operand(functions: Any, name: str) -> Any:
    if callable(functions):
        return (functions,)
    if isinstance(functions, Each):
        return functions
    functions = tuple(functions)
    if not all(f is None or callable(f) for f in functions):
        raise TypeError(f"{name}={functions!r}: expected one function per operand, or None for it")
    return functions


def elementwise(forward: Callable[..., Any], jvp: Any, vjp: Any) -> Rule:
    """A rule whose operands meet element by element, stretched as NumPy stretches them.

    Parameters
    ----------
    forward : callable
        The result.
    jvp : callable, or sequence of callable
        For each operand, what its tangent adds.
    vjp : callable, or sequence of callable
        For each operand, its gradient.

    Returns
    -------
    Rule
        To register.

    Raises
    ------
    TypeError
        For what is no function.

    Examples
    --------
    >>> from lunette.tape import elementwise
    >>> square = elementwise(
    ...     lambda x: x * x,
    ...     jvp=lambda t, out, x: 2 * x * t,
    ...     vjp=lambda g, out, x: 2 * x * g,
    ... )
    >>> square.forward(3.0)
    9.0
    """
    count = len(_per_operand(vjp, "vjp"))

    def shape(*shapes: Shape) -> Shape:
        if len(shapes) != count:
            raise TypeError(f"expected {count} operands, got {len(shapes)}")
        return broadcast_shapes(*shapes)

    return Rule(shape, forward, jvp, vjp, broadcasts=True)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all these shapes stretch to."""
    first, *rest = shapes
    if all(shape == first for shape in rest):
        return first
    ndim = max(map(len, shapes))
    out: list[int] = []
    for axis in range(-ndim, 0):
        lengths = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            raise ValueError(
                f"axis {axis} has lengths {' and '.join(map(str, sorted(lengths)))}, which do not "
                "broadcast; expected equal lengths, or 1"
            )
        out.append(lengths.pop() if lengths else 1)
    return tuple(out)


RULES: dict[str, Rule] = {}
"""Op name → rule. `register` adds to it."""


def register(name: str, rule: Rule) -> None:
    """Add an op to every tape: `tape.apply(name, …)`, or `tape.name(…)`. A name is taken once.

    Parameters
    ----------
    name : str
        A Python name that no tape has.
    rule : Rule
        How it is computed and differentiated.

    Raises
    ------
    ValueError, TypeError
        For a name that is taken, or what is no rule.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.tape import elementwise, register
    >>> register(
    ...     "doubled",
    ...     elementwise(lambda x: x + x, lambda t, out, x: t + t, lambda g, out, x: g + g),
    ... )
    >>> tape = ln.Tape()
    >>> tape.doubled(tape.leaf([1.0, 2.0])).value
    array([2., 4.])
    """
    from lunette.tape.tape import Tape

    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"name={name!r}: expected a Python name")
    if not isinstance(rule, Rule):
        raise TypeError(f"rule={rule!r}: expected a lunette.tape.Rule")
    if name in RULES or hasattr(Tape, name):
        raise ValueError(f"name={name!r}: a tape has an op or a method of that name already")
    RULES[name] = rule
