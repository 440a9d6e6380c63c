"""Test your own implementation of an op against its meaning: `check_op` and `check_adjoint`.

    from lunette.testing import check_op
    check_op(my_max_pool, ln.MaxPool((3, 3), stride=2, padding=1))

Both raise an AssertionError that shows the smallest case that differs, ready to paste.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from lunette import spec
from lunette.arguments import choice, size
from lunette.check.bounds import bound, of_products
from lunette.inputs import result
from lunette.ops.base import Op, Shape, check_is_op, is_float, kind_of
from lunette.ops.pooling import Pooling
from lunette.reductions import Max
from lunette.regions import Region

__all__ = ["check_adjoint", "check_op"]

Array = np.ndarray[Any, Any]
VERBS = ("forward", "jvp", "vjp")


def check_op(
    fn: Callable[..., Any],
    op: Op,
    *,
    verb: str = "forward",
    dtype: Any = np.float64,
    shapes: list[tuple[Shape, ...]] | None = None,
    seed: int = 0,
) -> int:
    """Compare `fn` with a verb of `op`: `fn(*operands)`, `fn(operands, tangents)` or `fn(operands, grad)`.

    As in `op.jvp` and `op.vjp`, a single operand is passed bare. `shapes` lists the shapes of the
    operands to try; for a pooling they are found. A max must match bit for bit; the rest within
    the rounding of any order of summation. Returns the number of cases compared.

    Parameters
    ----------
    fn : callable
        The implementation.
    op : Op
        What it should compute.
    verb : {"forward", "jvp", "vjp"}, default "forward"
        Which verb of the op.
    dtype : dtype-like, default float64
        What the arrays hold; `object` for Fractions.
    shapes : list of tuple of shapes, optional
        The shapes of the operands of each case. Default, for a pooling: found from the op.
    seed : int, default 0
        For the random numbers.

    Returns
    -------
    int
        How many cases were compared.

    Raises
    ------
    AssertionError
        With the smallest case that differs, ready to paste.
    ValueError, TypeError
        For an unknown verb or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> import lunette as ln
    >>> def mine(x):
    ...     return x.reshape(*x.shape[:-1], -1, 2).mean(-1)
    >>> ln.testing.check_op(mine, ln.AvgPool((2,)), shapes=[((4,),), ((3, 6),)]) > 1
    True
    """
    choice(verb, "verb", VERBS)
    dtype = _dtype(dtype)
    count = 0
    for operands, directions, grad in _cases(op, dtype, shapes, seed):
        inputs = _bare(operands)
        extra = {"forward": (), "jvp": (_bare(directions),), "vjp": (grad,)}[verb]
        arguments = operands if verb == "forward" else (inputs, *extra)
        expected = getattr(spec, verb)(op, *arguments)
        actual = fn(*(a.copy() if isinstance(a, np.ndarray) else a for a in arguments))
        allowed = _allowed(op, verb, operands, directions, grad)
        for e, a, t in zip(_tuple(expected), _tuple(actual), _tuple(allowed), strict=True):
            _compare(op, verb, arguments, e, result(a, "the result"), t)
        count += 1
    return count


def check_adjoint(
    jvp: Callable[..., Any],
    vjp: Callable[..., Any],
    op: Op,
    *,
    dtype: Any = object,
    shapes: list[tuple[Shape, ...]] | None = None,
    seed: int = 0,
) -> int:
    """Check ⟨jvp(x, dx), gy⟩ = ⟨dx, vjp(x, gy)⟩ on operands of `op`'s shapes; the number of cases.

    With the default dtype the arrays hold Fractions and the equality is exact. With a float dtype
    it holds within rounding.

    Parameters
    ----------
    jvp : callable
        `jvp(operands, tangents)`, as `op.jvp`.
    vjp : callable
        `vjp(operands, grad)`, as `op.vjp`.
    op : Op
        Which operands and shapes to try.
    dtype : dtype-like, default object
        What the arrays hold.
    shapes : list of tuple of shapes, optional
        The shapes of the operands of each case. Default, for a pooling: found from the op.
    seed : int, default 0
        For the random numbers.

    Returns
    -------
    int
        How many cases were compared.

    Raises
    ------
    AssertionError
        With the two sides and the arrays.
    ValueError, TypeError
        For an unknown dtype.

    Examples
    --------
    >>> import lunette as ln
    >>> op = ln.AvgPool((2,), stride=1)
    >>> ln.testing.check_adjoint(op.jvp, op.vjp, op, shapes=[((3,),), ((2, 5),)]) > 1
    True
    """
    dtype = _dtype(dtype)
    count = 0
    for operands, directions, grad in _cases(op, dtype, shapes, seed, finite=True):
        inputs = _bare(operands)
        pushed = result(jvp(inputs, _bare(directions)), "the result of jvp")
        pulled = [result(g, "a result of vjp") for g in _tuple(vjp(inputs, grad))]
        left = _inner(pushed, grad)
        right = sum(_inner(d, g) for d, g in zip(directions, pulled, strict=True))
        slack = Fraction(0)
        if dtype.kind != "O":
            scale = _inner(abs(pushed), abs(grad)) + sum(
                _inner(abs(d), abs(g)) for d, g in zip(directions, pulled, strict=True)
            )
            cells = sum(x.size for x in operands) + grad.size
            slack = scale * cells * Fraction(_epsilon(dtype)) * 4
        if abs(left - right) > slack:
            raise AssertionError(
                f"vjp is not the adjoint of jvp for {op!r}\n"
                f"  ⟨jvp(x, dx), gy⟩ = {left}\n  ⟨dx, vjp(x, gy)⟩ = {right}\n"
                f"  operands = {operands!r}\n  tangents = {directions!r}\n  gy = {grad!r}"
            )
        count += 1
    return count


# -- cases, from the smallest --


def _cases(
    op: Op, dtype: Any, shapes: list[tuple[Shape, ...]] | None, seed: int, finite: bool = False
) -> Iterator[tuple[tuple[Array, ...], tuple[Array, ...], Array]]:
    """(operands, tangents, gradient) of growing shapes and kinds of values."""
    check_is_op(op)
    if shapes is None:
        if not isinstance(op, Pooling):
            raise TypeError(
                f"shapes=None: {op!r} has several operands; give a list of their shapes"
            )
        shapes = [(shape,) for shape in _pooling_shapes(op)]
    rng = np.random.default_rng(size(seed, "seed", 0))
    kinds: list[Any] = [_ramp, _ties, _equal]
    if is_float(dtype) and not finite:
        kinds += [_nan, _zeros, _infinite]
    for operand_shapes in shapes:
        out_shape = op.out_shape(*operand_shapes)
        for kind in kinds:
            operands = tuple(_cast(kind(rng, shape), dtype) for shape in operand_shapes)
            directions = tuple(_cast(_ramp(rng, shape), dtype) for shape in operand_shapes)
            grad_dtype = op.result_dtype(*(dtype for _ in operand_shapes))
            yield operands, directions, _cast(_ramp(rng, out_shape), grad_dtype)


def _dtype(dtype: Any) -> np.dtype[Any]:
    """A dtype that ops take, in the byte order of this machine."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype={dtype!r}: {error}") from None
    kind_of(found, "the input")
    # A plain void is what newbyteorder makes of bfloat16.
    native: np.dtype[Any] = found if found.isnative else found.newbyteorder("=")
    return native


def _pooling_shapes(op: Pooling) -> list[Shape]:
    shortest = [_shortest(region) for region in op.regions]
    grown = [tuple(n + g for n in shortest) for g in (0, 1, 2, 3, 6)]
    shapes = [batch + pooled for pooled in grown for batch in ((), (2,))]
    return shapes if op.axes is None else [s for pooled in grown for s in _around(op, pooled)]


def _around(op: Pooling, pooled: Shape) -> list[Shape]:
    """Shapes with these lengths on the op's axes, as few others as there must be, and one more."""
    least = max(op.rank, *(axis + 1 if axis >= 0 else -axis for axis in op.axes))
    found = []
    for ndim in (least, least + 1, least + 2):
        try:
            places = op.places(ndim)
        except ValueError:  # two of its axes are one, where there are so few
            continue
        shape = [2] * ndim
        for axis, n in zip(places, pooled, strict=True):
            shape[axis] = n
        found.append(tuple(shape))
    return found[:2]


def _shortest(region: Region) -> int:
    """The least length that the region takes."""
    for n in range(1, 1 << 16):
        try:
            region.out_length(n)
        except ValueError:
            continue
        return n
    raise ValueError(f"{region!r} takes no axis shorter than {1 << 16}; give shapes=")


def _ramp(rng: Any, shape: Shape) -> Array:
    """Distinct quarters around zero, shuffled: an argmax shows, and small types hold them."""
    count = int(np.prod(shape, dtype=int))
    return np.asarray(rng.permutation(count).reshape(shape) - count // 2) / 4


def _ties(rng: Any, shape: Shape) -> Array:
    return np.asarray(rng.integers(0, 3, shape)).astype(float)


def _equal(rng: Any, shape: Shape) -> Array:
    return np.full(shape, -2.0)


def _nan(rng: Any, shape: Shape) -> Array:
    return np.where(rng.random(shape) < 0.2, np.nan, _ramp(rng, shape))


def _zeros(rng: Any, shape: Shape) -> Array:
    return np.where(rng.random(shape) < 0.5, -0.0, 0.0)


def _infinite(rng: Any, shape: Shape) -> Array:
    return np.asarray(rng.choice([-np.inf, np.inf, 1.0], shape, p=[0.6, 0.1, 0.3]))


def _cast(values: Array, dtype: Any) -> Array:
    if dtype.kind == "O":
        out = np.empty(values.shape, object)
        for place in np.ndindex(values.shape):
            out[place] = Fraction(float(values[place]))
        return out
    if dtype.kind in "ub":
        values = abs(values)
    return np.trunc(values).astype(dtype) if dtype.kind in "iub" else values.astype(dtype)


# -- comparison --


def _allowed(op: Op, verb: str, operands: Any, directions: Any, grad: Any) -> Any:
    """How far each result may lie from the specification's: 0 for a max, rounding for the rest.

    Both lie within their bound of the exact value, so within twice the bound of each other.
    """
    reduction = getattr(op, "reduction", None)
    dtype = operands[0].dtype
    if isinstance(reduction, Max) or kind_of(dtype) == "object":
        shape = op.out_shape(*(x.shape for x in operands))
        zeros = tuple(np.zeros(x.shape) for x in operands)
        return zeros if verb == "vjp" else np.zeros(shape)
    with np.errstate(all="ignore"):
        if isinstance(op, Pooling):
            x = np.nan_to_num(operands[0], posinf=0, neginf=0)
            direction = {"forward": None, "jvp": directions[0], "vjp": grad}[verb]
            return 2 * bound(op, verb, x, direction)
        # The same verb over magnitudes bounds every term; each sum has at most `cells` of them.
        sizes, steps = _magnitudes(operands), _magnitudes(directions)
        extra = {"forward": (), "jvp": (steps,), "vjp": _magnitudes((grad,))}[verb]
        scale = getattr(spec, verb)(op, *(sizes if verb == "forward" else (sizes, *extra)))
        cells = sum(x.size for x in operands) + 2
    return tuple(2 * of_products(cells, s, dtype) for s in _tuple(scale))


def _magnitudes(arrays: Any) -> tuple[Array, ...]:
    return tuple(abs(np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0)) for a in arrays)


def _compare(
    op: Op, verb: str, arguments: Any, expected: Array, actual: Array, allowed: Any
) -> None:
    if actual.shape != expected.shape:
        _fail(op, verb, arguments, f"shape {expected.shape}", f"shape {actual.shape}")
    if actual.dtype != expected.dtype:
        _fail(op, verb, arguments, f"dtype {expected.dtype}", f"dtype {actual.dtype}")
    for place in np.ndindex(expected.shape):
        e, a = expected[place], actual[place]
        if not _close(e, a, float(allowed[place])):
            _fail(op, verb, arguments, f"{e!r} at {place}", f"{a!r}")


def _close(expected: Any, actual: Any, allowed: float) -> bool:
    if allowed == 0 or isinstance(expected, Fraction):
        if expected != expected:  # noqa: PLR0124 - NaN
            return bool(actual != actual)  # noqa: PLR0124
        return bool(expected == actual and np.signbit(float(expected)) == np.signbit(float(actual)))
    expected, actual = float(expected), float(actual)
    if not np.isfinite(expected):
        return bool(expected == actual or (np.isnan(expected) and np.isnan(actual)))
    return bool(abs(expected - actual) <= allowed)


def _fail(op: Op, verb: str, arguments: Any, expected: str, actual: str) -> None:
    lines = "\n".join(
        f"  {name} = {value!r}" for name, value in zip("xyz", arguments, strict=False)
    )
    raise AssertionError(f"{verb} of {op!r}\n{lines}\n  expected {expected}\n  got      {actual}")


def _inner(a: Array, b: Array) -> Fraction:
    return sum((Fraction(p) * Fraction(q) for p, q in _pairs(a, b)), Fraction(0))


def _pairs(a: Array, b: Array) -> Iterator[tuple[Any, Any]]:
    exact = (lambda v: v) if a.dtype.kind == "O" else float
    return ((exact(p), exact(q)) for p, q in zip(a.flat, b.flat, strict=True))


def _epsilon(dtype: Any) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(dtype.name, 2.0**-52)


def _bare(operands: tuple[Any, ...]) -> Any:
    return operands[0] if len(operands) == 1 else operands


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
