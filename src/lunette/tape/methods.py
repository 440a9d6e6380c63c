"""The tape's ops as methods: what a network needs, and the convolutions and poolings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lunette import inputs
from lunette.arguments import AXES, flag, listed, shown, size
from lunette.ops import AvgPool, Conv, ConvTranspose, MaxPool, SmoothMaxPool

if TYPE_CHECKING:
    from lunette.tape.ids import Id

__all__ = ["Methods"]

Shape = tuple[int, ...]


class Methods:
    """One method per op; each records a node and returns its id."""

    if TYPE_CHECKING:

        def apply(self, op: Any, *operands: Any, name: str | None = None, **options: Any) -> Id:
            """Record a node."""

        def _operand(self, x: Any) -> int: ...

        def _shape(self, number: int) -> Shape: ...

    # -- arithmetic, stretched as NumPy stretches operands --

    def add(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """a + b."""
        return self.apply("add", a, b, name=name)

    def sub(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """a − b."""
        return self.apply("sub", a, b, name=name)

    def mul(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """a · b, element by element."""
        return self.apply("mul", a, b, name=name)

    def div(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """a / b, element by element."""
        return self.apply("div", a, b, name=name)

    def neg(self, x: Any, *, name: str | None = None) -> Id:
        """−x."""
        return self.apply("neg", x, name=name)

    def matmul(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """The product of matrices on the last two axes; one axis is a row or a column."""
        return self.apply("matmul", a, b, name=name)

    def linear(self, x: Any, weight: Any, bias: Any = None, *, name: str | None = None) -> Id:
        """`x weightᵀ + bias` on the last axis; weight is (out, in), bias (out,)."""
        operands = (x, weight) if bias is None else (x, weight, bias)
        return self.apply("linear", *operands, name=name)

    # -- functions of one element --

    def relu(self, x: Any, *, name: str | None = None) -> Id:
        """x where positive, else 0; its derivative at 0 is 0."""
        return self.apply("relu", x, name=name)

    def tanh(self, x: Any, *, name: str | None = None) -> Id:
        """The hyperbolic tangent."""
        return self.apply("tanh", x, name=name)

    def sigmoid(self, x: Any, *, name: str | None = None) -> Id:
        """1 / (1 + e⁻ˣ)."""
        return self.apply("sigmoid", x, name=name)

    def exp(self, x: Any, *, name: str | None = None) -> Id:
        """eˣ."""
        return self.apply("exp", x, name=name)

    def log(self, x: Any, *, name: str | None = None) -> Id:
        """The natural logarithm."""
        return self.apply("log", x, name=name)

    def sign(self, x: Any, *, name: str | None = None) -> Id:
        """−1, 0 or 1; its derivative is 0 everywhere."""
        return self.apply("sign", x, name=name)

    def maximum(self, a: Any, b: Any, *, name: str | None = None) -> Id:
        """The larger, element by element; the first of equals has the gradient."""
        return self.apply("maximum", a, b, name=name)

    def softmax(self, x: Any, *, name: str | None = None) -> Id:
        """eˣ over the sum of eˣ, along the last axis."""
        return self.apply("softmax", x, name=name)

    # -- sums and shapes --

    def sum(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, name: str | None = None
    ) -> Id:
        """The sum over an axis, several, or all (None)."""
        x, axis = self._with_axes(x, axis, keepdims)
        return self.apply("sum", x, axis=axis, keepdims=keepdims, name=name)

    def mean(
        self, x: Any, axis: Any = None, keepdims: bool = False, *, name: str | None = None
    ) -> Id:
        """The mean over an axis, several, or all (None); the mean of nothing is 0."""
        x, axis = self._with_axes(x, axis, keepdims)
        return self.apply("mean", x, axis=axis, keepdims=keepdims, name=name)

    def reshape(self, x: Any, shape: Any, *, name: str | None = None) -> Id:
        """The same elements in another shape; one size may be −1, whatever fits."""
        sizes = listed(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if len(sizes) > AXES:
            raise ValueError(f"shape={shown(sizes)}: expected at most {AXES} axes")
        sizes = tuple(size(n, "shape", -1, axis) for axis, n in enumerate(sizes))
        return self.apply("reshape", x, shape=sizes, name=name)

    def flatten(self, x: Any, start: int = 1, *, name: str | None = None) -> Id:
        """All axes from `start` on as one; the default keeps an axis of batch."""
        x = self._operand(x)
        shape = self._shape(x)
        start = size(start, "start", 0)
        if start > len(shape):
            raise ValueError(f"start={start}: x of shape {shape} has {len(shape)} axes")
        count = 1
        for n in shape[start:]:
            count *= n
        return self.apply(
            "reshape", x, shape=(*shape[:start], count), name="flatten" if name is None else name
        )

    def transpose(self, x: Any, axes: Any = None, *, name: str | None = None) -> Id:
        """The axes in another order; reversed when none is given."""
        x = self._operand(x)
        ndim = len(self._shape(x))
        order = tuple(range(ndim))[::-1] if axes is None else axes
        order = _axes(order, ndim, "axes")
        if len(order) != ndim:
            raise ValueError(
                f"axes={shown(axes)}: expected all {ndim} axes of shape {self._shape(x)}"
            )
        return self.apply("transpose", x, axes=order, name=name)

    def concatenate(self, operands: Sequence[Any], axis: int = 0, *, name: str | None = None) -> Id:
        """Operands end to end along an axis."""
        if not isinstance(operands, (tuple, list)) or not listed(operands):
            raise TypeError(f"operands={shown(operands)}: expected a list of at least one id")
        ids = [self._operand(x) for x in listed(operands)]
        axis = _axis(axis, len(self._shape(ids[0])), "axis")
        return self.apply("concatenate", *ids, axis=axis, name=name)

    def take(self, x: Any, index: Any, *, name: str | None = None) -> Id:
        """The elements at these positions of row-major order, in the shape of `index`."""
        array = inputs.array(index, "index")
        if array.dtype.kind not in "iu":
            raise TypeError(f"index has dtype {array.dtype}: expected integers")
        return self.apply("take", x, index=array.astype(np.int64, copy=False), name=name)

    # -- losses --

    def softmax_cross_entropy(self, logits: Any, target: Any, *, name: str | None = None) -> Id:
        """The mean over the batch of −log of the softmax at the target.

        logits are (*batch, classes). The target is labels, integers of shape (*batch,), or a
        probability for every class, of the shape of logits.
        """
        return self.apply("softmax_cross_entropy", logits, target, name=name)

    def mse(self, prediction: Any, target: Any, *, name: str | None = None) -> Id:
        """The mean of the squared differences; both have one shape."""
        return self.apply("mse", prediction, target, name=name)

    # -- convolutions: x is (*batch, channels, *spatial), bias_id may be None --

    def conv(
        self,
        kernel_id: Any,
        bias_id: Any,
        input_id: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        name: str = "conv",
    ) -> Id:
        """The convolution with weights (out, in/groups, *kernel); any number of axes."""
        kernel_id, kernel = self._weight(kernel_id)
        op = Conv(kernel, stride, padding, dilation, groups)
        return self._convolve(op, kernel_id, bias_id, input_id, name)

    def conv_transpose(
        self,
        kernel_id: Any,
        bias_id: Any,
        input_id: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        name: str = "conv_transpose",
    ) -> Id:
        """The transposed convolution with weights (in, out/groups, *kernel)."""
        kernel_id, kernel = self._weight(kernel_id)
        op = ConvTranspose(kernel, stride, padding, output_padding, dilation, groups)
        return self._convolve(op, kernel_id, bias_id, input_id, name)

    def conv2d(
        self, kernel_id: Any, bias_id: Any, input_id: Any, *, name: str = "conv2d", **options: Any
    ) -> Id:
        """`conv` on images (*batch, channels, height, width), with the options of `conv`."""
        kernel_id = self._weight(kernel_id, rank=2)[0]
        return self.conv(kernel_id, bias_id, input_id, name=name, **options)

    def conv_transpose2d(
        self,
        kernel_id: Any,
        bias_id: Any,
        input_id: Any,
        *,
        name: str = "conv_transpose2d",
        **options: Any,
    ) -> Id:
        """`conv_transpose` on images (*batch, channels, height, width), with its options."""
        kernel_id = self._weight(kernel_id, rank=2)[0]
        return self.conv_transpose(kernel_id, bias_id, input_id, name=name, **options)

    # -- pooling: the last len(kernel) axes --

    def max_pool(self, x_id: Any, *, name: str = "max_pool", **window: Any) -> Id:
        """The largest cell of each window; padding is never seen.

        A window is `kernel`, `stride` (the kernel when not given) and `padding`, as of `MaxPool`.
        """
        return self.apply(MaxPool(**window), x_id, name=name)

    def avg_pool(self, x_id: Any, *, name: str = "avg_pool", **window: Any) -> Id:
        """The mean of each window; padding counts as zeros. A window is that of `AvgPool`."""
        return self.apply(AvgPool(**window), x_id, name=name)

    def smooth_max_pool(
        self, x_id: Any, beta: Any, *, name: str = "smooth_max_pool", **window: Any
    ) -> Id:
        """`(1/beta) log Σ exp(beta·x)` of each window, which is that of `SmoothMaxPool`."""
        return self.apply(SmoothMaxPool(beta=beta, **window), x_id, name=name)

    def max_pool2d(
        self, x_id: Any, *, kernel: Any, stride: Any = None, name: str = "max_pool2d"
    ) -> Id:
        """`max_pool` on the last two axes, without padding."""
        return self.max_pool(x_id, kernel=_two(kernel), stride=stride, name=name)

    def max_pool2d_pad(
        self, x_id: Any, *, kernel: Any, name: str = "max_pool2d_pad", **window: Any
    ) -> Id:
        """`max_pool` on the last two axes."""
        return self.max_pool(x_id, kernel=_two(kernel), name=name, **window)

    def smooth_max_pool2d(
        self,
        x_id: Any,
        beta: Any,
        *,
        kernel: Any,
        stride: Any = None,
        name: str = "smooth_max_pool2d",
    ) -> Id:
        """`smooth_max_pool` on the last two axes, without padding."""
        return self.smooth_max_pool(x_id, beta, kernel=_two(kernel), stride=stride, name=name)

    def avg_pool2d(
        self, x_id: Any, *, kernel: Any, stride: Any = None, name: str = "avg_pool2d"
    ) -> Id:
        """`avg_pool` on the last two axes, without padding."""
        return self.avg_pool(x_id, kernel=_two(kernel), stride=stride, name=name)

    def avg_pool2d_pad(
        self, x_id: Any, *, kernel: Any, name: str = "avg_pool2d_pad", **window: Any
    ) -> Id:
        """`avg_pool` on the last two axes."""
        return self.avg_pool(x_id, kernel=_two(kernel), name=name, **window)

    # -- inside --

    def _convolve(self, op: Any, kernel_id: Any, bias_id: Any, input_id: Any, name: str) -> Id:
        operands = (input_id, kernel_id) if bias_id is None else (input_id, kernel_id, bias_id)
        return self.apply(op, *operands, name=name)

    def _weight(self, kernel_id: Any, rank: int | None = None) -> tuple[int, Shape]:
        """The weights' node, and the kernel that their shape gives."""
        number = self._operand(kernel_id)
        shape = self._shape(number)
        if len(shape) < 3 or (rank is not None and len(shape) != rank + 2):
            axes = "the kernel's axes" if rank is None else f"{rank} axes of the kernel"
            raise ValueError(
                f"weights of node {number} have shape {shape}; expected two axes of channels, "
                f"then {axes}"
            )
        return number, shape[2:]

    def _with_axes(self, x: Any, axis: Any, keepdims: bool) -> tuple[int, Shape]:
        flag(keepdims, "keepdims")
        number = self._operand(x)
        ndim = len(self._shape(number))
        return number, _axes(range(ndim) if axis is None else axis, ndim, "axis")


def _two(kernel: Any) -> Any:
    """A kernel of two axes; one number is a square."""
    if isinstance(kernel, int) and not isinstance(kernel, bool):
        return (kernel, kernel)
    if isinstance(kernel, (tuple, list)) and len(listed(kernel)) != 2:
        raise ValueError(
            f"kernel={shown(kernel)}: expected two sizes, one for each of the last two axes"
        )
    return kernel


def _axes(value: Any, ndim: int, name: str) -> Shape:
    """Axes counted from 0, each once; negative ones count from the end."""
    values: tuple[Any, ...] = (value,)
    if isinstance(value, (tuple, list)):
        values = tuple(listed(value))
    elif isinstance(value, range):
        values = tuple(value[: ndim + 1])  # which has an axis twice, or one that does not exist
    axes = [_axis(v, ndim, name) for v in values]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}={shown(value)}: expected each axis once")
    return tuple(axes)


def _axis(value: Any, ndim: int, name: str) -> int:
    """An axis counted from 0; a negative one counts from the end."""
    axis = size(value, name, -ndim)
    if axis >= ndim:
        raise ValueError(
            f"{name}={shown(value)}: axis {shown(axis)} does not exist; there are {ndim} axes"
        )
    return axis % ndim
