"""What every op is: a frozen value with a signature, three verbs and a repr that pastes back."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, overload

import numpy as np

from lunette import records
from lunette.annotations import Given, Numbers, Plain
from lunette.arguments import choice, listed, shown, size, sizes, tuple_of_sizes
from lunette.axes import chosen, places
from lunette.regions import Sliding

__all__ = [
    "DIRECT",
    "Op",
    "check_is_op",
    "is_float",
    "kind_of",
    "paddings",
    "shortest",
    "shortest_padding",
    "sliding",
]

Shape = tuple[int, ...]

DIRECT: dict[type, Any] = {}
"""Type of array → a direct way to the value of an op of one operand, past the dispatcher; it may answer NotImplemented."""


def is_float(dtype: np.dtype[Any]) -> bool:
    """The float types with every verb: float16, bfloat16, float32, float64."""
    return dtype.name in ("float16", "bfloat16", "float32", "float64")


def check_is_op(op: Any) -> None:
    """Refuse what is no op, before anything is asked of it."""
    if not isinstance(op, Op):
        raise TypeError(f"op={shown(op)}: expected an op, such as MaxPool((2, 2))")


def kind_of(dtype: np.dtype[Any], name: str = "an operand") -> str:
    """`float`, `integer` (bools too) or `object`; any other dtype is a TypeError."""
    if is_float(dtype):
        return "float"
    if dtype.kind in "iub":
        return "integer"
    if dtype.kind == "O":
        return "object"
    raise TypeError(
        f"{name} has dtype {dtype}: expected float16, bfloat16, float32, float64, an integer type, bool, "
        "or an object array of exact numbers"
    )


class Op:
    """A window operator. Subclasses are frozen dataclasses; equal fields make equal ops.

    An op is called with arrays, and has the verbs `jvp` and `vjp`; `out_shape` and `result_dtype` tell what comes of shapes and
    dtypes before there is an array. It is hashable, holds no array, and its `repr` pastes back.

    Examples
    --------
    >>> import lunette as ln
    >>> op = ln.MaxPool((2, 2))
    >>> isinstance(op, ln.Op), op == ln.MaxPool([2, 2]), op.out_shape((8, 6, 4))
    (True, True, (8, 3, 2))
    """

    _hash: int
    _text: str
    _values: tuple[Any, ...]
    _prepared: dict[Any, Any]
    _over_last: Any
    axes: Any = None
    operand_names: tuple[str, ...] = ("x",)

    @property
    def rank(self) -> int:
        """The number of axes that windows lie on."""
        raise NotImplementedError

    @property
    def over_last(self) -> Any:
        """The same op over the last axes: what kernels know."""
        return self if self.axes is None else self._over_last

    def _set_axes(self) -> None:
        """Check `axes`, and make the op over the last axes once: torch.compile cannot make one."""
        axes = chosen(self.axes, self.rank)
        object.__setattr__(self, "axes", axes)
        if axes is not None:
            object.__setattr__(self, "_over_last", replace(self, axes=None))  # type: ignore[type-var]

    def places(self, ndim: int) -> tuple[int, ...]:
        """The axes of an array of `ndim` axes that windows lie on, counted from 0."""
        return places(self.axes, self.rank, ndim)

    # -- the signature: shapes and dtypes, before any array is touched --

    def out_shape(self, *shapes: Shape) -> Shape:
        """Shape of the result for operands of these shapes; a ValueError where there is none.

        Parameters
        ----------
        *shapes : tuple of int
            The shape of each operand.

        Returns
        -------
        tuple of int
            The shape of the result.

        Raises
        ------
        ValueError, TypeError
            Where there is no result, with the axis and why.

        Examples
        --------
        >>> import lunette as ln
        >>> ln.Conv((3, 3), padding=1).out_shape((8, 3, 32, 32), (16, 3, 3, 3))
        (8, 16, 32, 32)
        """
        raise NotImplementedError

    def result_dtype(self, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
        """dtype of the result for operands of these dtypes.

        Parameters
        ----------
        *dtypes : numpy.dtype
            The dtype of each operand.

        Returns
        -------
        numpy.dtype
            The dtype of the result.

        Raises
        ------
        TypeError
            For a dtype that the op does not take.

        Examples
        --------
        >>> import numpy as np
        >>> import lunette as ln
        >>> ln.AvgPool((2,)).result_dtype(np.dtype("int32"))
        dtype('float64')
        """
        raise NotImplementedError

    def check_operands(self, shapes: tuple[Shape, ...], dtypes: tuple[np.dtype[Any], ...]) -> Shape:
        """Refuse operands that the op cannot take; the shape of the result otherwise."""
        out_shape = self.out_shape(*shapes)
        for name, dtype in zip(self.operand_names, dtypes, strict=False):
            kind_of(dtype, name)
        self.result_dtype(*dtypes)
        return out_shape

    def check_indices(self) -> None:
        """Refuse to tell winners where a window has none."""
        raise TypeError(f"{self!r}: only a max has indices")

    def check_tangents(
        self,
        shapes: tuple[Shape, ...],
        dtypes: tuple[np.dtype[Any], ...],
        tangent_shapes: tuple[Shape, ...],
        tangent_dtypes: tuple[np.dtype[Any], ...],
    ) -> None:
        """A tangent has the shape and dtype of its operand."""
        if len(tangent_shapes) != len(shapes):
            raise ValueError(f"{self!r}: {len(shapes)} operands but {len(tangent_shapes)} tangents")
        self._check_differentiable(dtypes)
        for name, shape, dtype, t_shape, t_dtype in zip(
            self.operand_names, shapes, dtypes, tangent_shapes, tangent_dtypes, strict=False
        ):
            if t_shape != shape:
                raise ValueError(
                    f"tangent of {name} has shape {t_shape}; expected {name}'s shape {shape}"
                )
            if t_dtype != dtype:
                raise TypeError(
                    f"tangent of {name} has dtype {t_dtype}; expected {name}'s dtype {dtype}"
                )

    def check_gradient(
        self,
        shapes: tuple[Shape, ...],
        dtypes: tuple[np.dtype[Any], ...],
        grad_shape: Shape,
        grad_dtype: np.dtype[Any],
    ) -> None:
        """A gradient has the shape and dtype of the result."""
        self._check_differentiable(dtypes)
        expected = self.out_shape(*shapes)
        if grad_shape != expected:
            raise ValueError(f"gradient has shape {grad_shape}; expected the output's {expected}")
        if grad_dtype != self.result_dtype(*dtypes):
            raise TypeError(
                f"gradient has dtype {grad_dtype}; expected the output's {self.result_dtype(*dtypes)}"
            )

    def _check_differentiable(self, dtypes: tuple[np.dtype[Any], ...]) -> None:
        for name, dtype in zip(self.operand_names, dtypes, strict=False):
            if kind_of(dtype) == "integer":
                raise TypeError(
                    f"{name} has dtype {dtype}: integers have no tangent or gradient; "
                    "convert to a float type first"
                )

    # -- the verbs --

    @overload
    def __call__(self, x: Plain, /, *more: Any) -> np.ndarray[Any, Any]: ...
    @overload
    def __call__(self, x: Given, /, *more: Any) -> Given: ...
    def __call__(self, *operands: Any) -> Any:
        """The op's value; the same kind of array out as in.

        Parameters
        ----------
        *operands : array_like
            x of a pooling; x, weight and perhaps bias of a convolution.

        Returns
        -------
        array
            Of the library that the operands are of.

        Raises
        ------
        ValueError, TypeError
            With the argument, its value, the axis and the remedy, before anything is computed.

        Examples
        --------
        >>> import lunette as ln
        >>> ln.MaxPool((2,))([1.0, 5.0, 2.0, 3.0])
        array([5., 3.])
        """
        if len(operands) == 1:
            direct = DIRECT.get(type(operands[0]))
            if direct is not None:
                value = direct(self, operands[0])
                if value is not NotImplemented:
                    return value
        from lunette.dispatch import forward

        return forward(self, *operands)

    @overload
    def jvp(
        self, operands: Numbers, tangents: Any, backend: str | None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def jvp(
        self, operands: tuple[Given, ...], tangents: Any, backend: str | None = None
    ) -> Given: ...
    @overload
    def jvp(self, operands: Given, tangents: Any, backend: str | None = None) -> Given: ...
    def jvp(self, operands: Any, tangents: Any, backend: str | None = None) -> Any:
        """The directional derivative at `operands` along `tangents`.

        Parameters
        ----------
        operands : array or tuple of arrays
            x bare, or all operands of a convolution as a tuple.
        tangents : array or tuple of arrays
            A direction of the shape and dtype of each operand.
        backend : {"cpu", "triton", "spec"}, optional
            Who computes; the fastest that serves the call by default.

        Returns
        -------
        array
            The change of the result, of its shape and dtype.

        Raises
        ------
        ValueError, TypeError
            With the argument, its value, the axis and the remedy, before anything is computed.

        Examples
        --------
        >>> import lunette as ln
        >>> ln.AvgPool((2,)).jvp([1.0, 5.0], [1.0, 0.0])
        array([0.5])
        """
        from lunette.dispatch import jvp

        return jvp(self, operands, tangents, backend)

    @overload
    def vjp(
        self, operands: Numbers, grad: Any, backend: str | None = None
    ) -> np.ndarray[Any, Any]: ...
    @overload
    def vjp(
        self, operands: tuple[Given, ...], grad: Any, backend: str | None = None
    ) -> tuple[Given, ...]: ...
    @overload
    def vjp(self, operands: Given, grad: Any, backend: str | None = None) -> Given: ...
    def vjp(self, operands: Any, grad: Any, backend: str | None = None) -> Any:
        """The gradient in each operand, given the gradient of the result.

        Parameters
        ----------
        operands : array or tuple of arrays
            x bare, or all operands of a convolution as a tuple.
        grad : array
            The gradient of the result, of its shape and dtype.
        backend : {"cpu", "triton", "spec"}, optional
            Who computes; the fastest that serves the call by default.

        Returns
        -------
        array or tuple of arrays
            A gradient for each operand: bare for a bare operand, a tuple otherwise.

        Raises
        ------
        ValueError, TypeError
            With the argument, its value, the axis and the remedy, before anything is computed.

        Examples
        --------
        >>> import lunette as ln
        >>> ln.AvgPool((2,)).vjp([1.0, 5.0], [1.0])
        array([0.5, 0.5])
        """
        from lunette.dispatch import vjp

        return vjp(self, operands, grad, backend)

    # -- a value: equality, hash, repr --

    def _key(self) -> tuple[Any, ...]:
        try:
            return self._values
        except AttributeError:
            values = tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
            object.__setattr__(self, "_values", values)
            return values

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return False
        mine, theirs = self._key(), other._key()
        if mine is theirs:
            return True
        if mine != theirs:
            return False
        # Caches ask this in every call of the equal op of another layer: from now on one look tells.
        object.__setattr__(other, "_values", mine)
        return True

    def __hash__(self) -> int:
        # Kernels look plans up by op on every call, so the hash is computed once.
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self), self._key()))
            object.__setattr__(self, "_hash", value)
            return value

    # Fields alone are pickled: string hashes differ between processes, and a state may be forged.
    __getstate__, __setstate__ = records.state, records.restore

    def __repr__(self) -> str:
        try:
            return self._text
        except AttributeError:
            return self._write()

    def _remember_text(self) -> None:
        # torch.compile can read an attribute of an op, but cannot always write its numbers out.
        object.__setattr__(self, "_text", self._write())

    def _write(self) -> str:
        first, *rest = [*self._arguments(), ("axes", self.axes, None)]
        named = [f"{name}={value!r}" for name, value, default in rest if value != default]
        return f"{type(self).__name__}({', '.join([repr(first[1]), *named])})"

    def _arguments(self) -> list[tuple[str, Any, Any]]:
        """(name, value, default) of each argument, in order; the first is always printed."""
        raise NotImplementedError


def shortest(values: tuple[Any, ...]) -> Any:
    """One number for a tuple of equal ones."""
    return values[0] if len(set(values)) == 1 else values


def shortest_padding(padding: Any) -> Any:
    """The shortest `padding` argument that means these (before, after) pairs."""
    if isinstance(padding, str) or any(before != after for before, after in padding):
        return padding
    return shortest(tuple(before for before, _ in padding))


def sliding(
    kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False
) -> dict[str, Any]:
    """The checked arguments of sliding windows, one per axis, and the `regions` that they make."""
    kernel = tuple_of_sizes(kernel, "kernel")
    ndim = len(kernel)
    stride = kernel if stride is None else sizes(stride, ndim, "stride", 1)
    padding = paddings(padding, ndim)
    dilation = sizes(dilation, ndim, "dilation", 1)
    per_axis = [padding] * ndim if isinstance(padding, str) else padding
    regions = tuple(
        Sliding(k, s, p, d, ceil_mode)
        for k, s, p, d in zip(kernel, stride, per_axis, dilation, strict=True)
    )
    return {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "regions": regions,
    }


def paddings(value: Any, ndim: int) -> tuple[tuple[int, int], ...] | str:
    """(before, after) per axis from an int, one per axis, a pair per axis, "valid" or "same"."""
    if isinstance(value, str):
        if choice(value, "padding", ("valid", "same")) == "same":
            return "same"
        return ((0, 0),) * ndim
    if isinstance(value, (tuple, list)):
        items = listed(value)
        if len(items) != ndim:
            raise ValueError(
                f"padding={shown(items)}: expected an integer, {ndim} of them, or {ndim} "
                f"(before, after) pairs, one per axis; got {len(items)}"
            )
        return tuple(_pair(v, axis) for axis, v in enumerate(items))
    return ((size(value, "padding", 0),) * 2,) * ndim


def _pair(value: Any, axis: int) -> tuple[int, int]:
    if isinstance(value, (tuple, list)):
        pair = listed(value)
        if len(pair) != 2:
            raise ValueError(
                f"padding={shown(pair)} on axis {axis}: expected a (before, after) pair"
            )
        return size(pair[0], "padding", 0, axis), size(pair[1], "padding", 0, axis)
    both = size(value, "padding", 0, axis)
    return both, both
