"""A checker of gradients that users can run on a program or on a rule of their own."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette.tape import functions as fn

if TYPE_CHECKING:
    from lunette.tape.ids import Id
    from lunette.tape.tape import Tape

__all__ = ["check_gradient"]


def check_gradient(
    program: Callable[..., Id],
    *values: Any,
    tolerance: float = 1e-6,
    step: float = 1e-4,
    hessian: bool = True,
    seed: int = 0,
) -> None:
    """Raise AssertionError unless the derivatives of a tape program hold together.

    `program(tape, *ids)` records ops over leaves of these values and returns one id. Three laws:
    `backward` is the adjoint of `jvp`; `hvp` is symmetric (unless `hessian` is false); and, of
    float64 values, `jvp` and `hvp` agree with central differences of the given step. Over object
    arrays of rationals the first two must hold exactly, otherwise within the tolerance, relative.
    Choose values away from ties and kinks, where no derivative exists.

    Parameters
    ----------
    program : callable
        `program(tape, *ids)`, which returns one id.
    *values : array_like
        The leaves.
    tolerance : float, default 1e-6
        How far apart, relative.
    step : float, default 1e-4
        Of the central differences.
    hessian : bool, default True
        Check `hvp` too.
    seed : int, default 0
        For the directions.

    Raises
    ------
    AssertionError
        With the law that does not hold, and the two sides.

    Examples
    --------
    >>> import lunette as ln
    >>> from lunette.tape import check_gradient
    >>> check_gradient(lambda tape, x: tape.apply(ln.AvgPool((2,)), x * x), [1.0, 2.0, 3.0, 4.0])
    """
    from lunette.tape.tape import Tape

    generator = np.random.default_rng(seed)
    tape = Tape()
    ids = [tape.leaf(value, f"value {i}") for i, value in enumerate(values)]
    output = program(tape, *ids)
    leaves = [i for i in ids if tape._nodes[i].requires_grad]
    if not leaves:
        raise ValueError("no value requires a gradient: expected floats, or objects")
    grad = _random(tape.value(output), generator)
    moves = {i: _random(tape.value(i), generator) for i in leaves}
    other = {i: _random(tape.value(i), generator) for i in leaves}

    gradients = tape.backward(output, grad)
    tangent = tape.jvp(output, moves)
    _compare(
        "backward is not the adjoint of jvp",
        _inner([grad], [tangent]),
        _inner(
            [gradients[i] for i in leaves if i in gradients],
            [moves[i] for i in leaves if i in gradients],
        ),
        tolerance,
    )
    products = tape.hvp(output, moves, grad) if hessian else {}
    if hessian:
        mirrored = tape.hvp(output, other, grad)
        on_path = list(products)
        _compare(
            "hvp is not symmetric",
            _inner([products[i] for i in on_path], [other[i] for i in on_path]),
            _inner([mirrored[i] for i in on_path], [moves[i] for i in on_path]),
            tolerance,
        )
    if all(tape.value(i).dtype == np.float64 for i in leaves):
        _check_differences(
            program,
            tape,
            ids,
            output,
            moves,
            grad=grad,
            tangent=tangent,
            products=products,
            tolerance=tolerance,
            step=step,
        )


def _check_differences(
    program: Callable[..., Id],
    tape: Tape,
    ids: list[Id],
    output: Id,
    moves: dict[Id, Any],
    *,
    grad: Any,
    tangent: Any,
    products: dict[Id, Any],
    tolerance: float,
    step: float,
) -> None:
    """jvp against differences of values, hvp against differences of gradients."""
    sides = []
    for sign in (+1, -1):
        moved = type(tape)()
        leaves = [
            moved.leaf(tape.value(i) + sign * step * moves[i] if i in moves else tape.value(i))
            for i in ids
        ]
        end = program(moved, *leaves)
        gradients = moved.backward(end, grad)
        sides.append((moved.value(end), {int(k): v for k, v in gradients.items()}))
    (above, up), (below, down) = sides
    loose = max(tolerance, 100 * step**2)
    _compare("jvp differs from central differences", tangent, (above - below) / (2 * step), loose)
    for i, product in products.items():
        numbers = [int(k) for k in ids]
        place = numbers.index(int(i))
        slope = (up[place] - down[place]) / (2 * step)
        _compare(f"hvp of {i.name!r} differs from central differences", product, slope, loose)


def _random(like: Any, generator: np.random.Generator) -> Any:
    """Numbers between −1 and 1, in the dtype or number system of an array."""
    numbers = generator.integers(-8, 9, like.shape)
    if fn.is_object(like):
        out = np.empty(like.shape, object)
        for i, n in np.ndenumerate(numbers):
            out[i] = fn.constant(Fraction(int(n), 8), like)[()]
        return out
    return numbers.astype(like.dtype) / like.dtype.type(8)


def _inner(a: list[Any], b: list[Any]) -> Any:
    """The inner product of two lists of arrays."""
    total = None
    for x, y in zip(a, b, strict=True):
        for u, v in zip(x.flat, y.flat, strict=True):
            total = u * v if total is None else total + u * v
    return 0 if total is None else total


def _compare(what: str, a: Any, b: Any, tolerance: float) -> None:
    exact = isinstance(a, Fraction) or type(a).__name__ == "fmpq"
    if exact:
        if a != b:
            raise AssertionError(f"{what}: {a} and {b}")
        return
    a, b = np.asarray(a, float), np.asarray(b, float)
    scale = 1 + np.maximum(abs(a), abs(b))
    if not np.all(abs(a - b) <= tolerance * scale):
        worst = float(np.max(abs(a - b) / scale))
        raise AssertionError(f"{what}: off by {worst:.3g} where {tolerance:.3g} is allowed")
