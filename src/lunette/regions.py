"""Which input positions an output index reads, axis by axis, and which outputs read a position.

This is the only place with output-size arithmetic. It is in Python integers, so no size overflows;
tables for kernels are in int64 where that is safe. A position outside the input is padding: it is counted, never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd
from typing import Any, Literal, NamedTuple

import numpy as np

from lunette.arguments import choice, flag, listed, shown, size
from lunette.records import checked

__all__ = [
    "Adaptive",
    "Global",
    "Part",
    "Region",
    "Sliding",
    "Window",
    "check_windows",
    "transposed_length",
]


SAFE = 1 << 60
"""Positions below which int64 arithmetic on a table cannot overflow."""

MANY = 1 << 12
"""Bins to a position from which those within one are told apart from the others."""


Array = np.ndarray[Any, Any]


class Window(NamedTuple):
    """The cells of one output on one axis: positions `start, start + step, … < stop`.

    `counted` is the number of cells of the window that lie in the padded input: those positions,
    and the padding cells beside them. Cells that `ceil_mode` adds past the padding are not counted.
    """

    start: int
    stop: int
    step: int
    counted: int

    @property
    def positions(self) -> range:
        """The input positions read, in order."""
        return range(self.start, self.stop, self.step)

    @property
    def real(self) -> int:
        """How many input positions are read."""
        return len(self.positions)


class Region:
    """One axis of a window operator: a map from output indices to windows, and its inverse."""

    __slots__ = ()

    def out_length(self, n: int) -> int:
        """Number of outputs for an axis of length `n`; an axis it cannot serve is a ValueError."""
        raise NotImplementedError

    def window(self, n: int, i: int) -> Window:
        """The cells that output `i` reads on an axis of length `n`."""
        raise NotImplementedError

    def table(self, n: int, first: int, last: int) -> np.ndarray[Any, Any]:
        """The windows of outputs `first ≤ i < last` as rows of int64: start, stop, step, counted.

        For kernels: the same windows as `window`, made at once where the axis is long.
        """
        window, others = self.common(n, first, last)
        rows = np.empty((last - first, 4), np.int64)
        if window is not None:
            rows[:] = window
        for i in others:
            rows[i - first] = self.window(n, i)
        return rows

    def cells(self, n: int) -> tuple[Array, Array, Array, Array]:
        """Of every output its first position, how many positions it reads, what is between them, how many cells count.

        The last are Python integers where int64 cannot hold them.
        """
        outputs = self.out_length(n)
        try:
            start, stop, step, counted = self.table(n, 0, outputs).T
        except OverflowError:
            start, stop, step = (np.zeros(outputs, np.int64) for _ in range(3))
            counted = np.empty(outputs, object)
            window, others = self.common(n, 0, outputs)
            if window is not None:
                counted[:] = window.counted
            for i in others:
                start[i], stop[i], between, counted[i] = self.window(n, i)
                step[i] = min(between, n)  # one past n reads one position
        step = np.maximum(step, 1)
        return start, np.maximum(0, -(-(stop - start) // step)), step, counted

    def common(self, n: int, first: int, last: int) -> tuple[Window | None, Iterable[int]]:
        """The window of most outputs `first ≤ i < last`, where they are alike; and the outputs that have another."""
        return None, range(first, last)

    def runs(self, n: int) -> Iterator[tuple[int, int, bool]]:
        """All outputs as ranges, and whether those of a range have one and the same window."""
        yield 0, self.out_length(n), False

    def boxes(self, n: int) -> tuple[np.ndarray[Any, Any], int, int]:
        """Where tap 0 of each window is, on padding or not; what is between taps; taps of the longest.

        Places are int64, or Python integers where that would not be safe.
        """
        table = self.table(n, 0, self.out_length(n))
        return table[:, 0], 1, int((table[:, 1] - table[:, 0]).max(initial=1))

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        """Every output that reads some position of `lo ≤ p < hi`, in increasing order."""
        raise NotImplementedError

    def slab(self, n: int, first: int, last: int) -> tuple[int, int]:
        """The shortest range `[lo, hi)` with every position that outputs `first ≤ i < last` read.

        `(0, 0)` when they read nothing but padding.
        """
        return self._hull(n, range(first, last))

    def _hull(self, n: int, outputs: Iterable[int]) -> tuple[int, int]:
        """The shortest range with every position that some outputs read."""
        windows = [w for i in outputs if (w := self.window(n, i)).real]
        if not windows:
            return (0, 0)
        return min(w.start for w in windows), max(w.stop for w in windows)

    def part(self, n: int, first: int, last: int) -> Part:
        """The region of outputs `first ≤ i < last` alone, over just the slab that they read."""
        lo, hi = self.slab(n, first, last)
        if lo == hi:  # padding alone: an axis may not be empty, so keep one cell that nobody reads
            lo, hi = 0, 1
        return Part(self, n, (first, last), (lo, hi))


@checked
@dataclass(frozen=True, slots=True)
class Sliding(Region):
    """Windows of `kernel` cells, `dilation` apart, that start every `stride` positions.

    `padding` is an int, a `(before, after)` pair, or `"same"`: as much as makes `ceil(n / stride)`
    outputs, the odd cell at the end. With `ceil_mode` a last window may reach past the padding, by less
    than a stride; it is dropped if it starts at or past `n + before`.

    Parameters
    ----------
    kernel : int
        Cells of a window.
    stride : int, optional
        Positions between windows. Default: the kernel.
    padding : int, (int, int) or {"valid", "same"}, default 0
        Cells before and after the axis.
    dilation : int, default 1
        Positions between the cells of a window.
    ceil_mode : bool, default False
        Keep a last window that the edge cuts short.

    Raises
    ------
    ValueError, TypeError
        For a size that no window can have.

    Examples
    --------
    >>> import lunette as ln
    >>> region = ln.Sliding(3, stride=2, padding=1)
    >>> region.out_length(7)
    4
    >>> list(region.window(7, 1).positions)
    [1, 2, 3]
    """

    kernel: int
    stride: int | None = None
    padding: int | tuple[int, int] | Literal["same", "valid"] = 0
    dilation: int = 1
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        kernel = size(self.kernel, "kernel", 1)
        object.__setattr__(self, "kernel", kernel)
        stride = kernel if self.stride is None else size(self.stride, "stride", 1)
        object.__setattr__(self, "stride", stride)
        object.__setattr__(self, "padding", _padding(self.padding))
        object.__setattr__(self, "dilation", size(self.dilation, "dilation", 1))
        flag(self.ceil_mode, "ceil_mode")

    @property
    def extent(self) -> int:
        """Positions from the first cell of a window to its last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def far(self) -> bool:
        """Whether places of taps, on padding too, may be past what int64 can hold."""
        margins = self.padding if isinstance(self.padding, tuple) else ()
        return max(self._stride, self.extent, self.dilation, *margins) > SAFE

    def margins(self, n: int) -> tuple[int, int]:
        """Padding cells before and after an axis of length `n`."""
        if isinstance(self.padding, tuple):
            return self.padding
        outputs = -(-n // self._stride)
        total = max((outputs - 1) * self._stride + self.extent - n, 0)
        return total // 2, total - total // 2

    def out_length(self, n: int) -> int:
        if n < 1:
            raise ValueError(f"length {n}: a pooled axis needs at least one position")
        if self.padding == "same":
            return -(-n // self._stride)
        before, after = self.margins(n)
        room = n + before + after - self.extent
        # Under ceil_mode the edge may cut the only window short too, by less than a stride.
        if room < 0 and not (self.ceil_mode and room > -self._stride):
            raise ValueError(
                f"a window of {self.extent} positions (kernel {self.kernel}, dilation "
                f"{self.dilation}) is longer than the padded input: length {n} with padding "
                f"({before}, {after}) has {n + before + after}"
                + (f", which is short by a stride ({self._stride}) or more" * self.ceil_mode)
                + "; use a smaller kernel or more padding"
            )
        if not self.ceil_mode:
            return room // self._stride + 1
        outputs = -(-room // self._stride) + 1
        return outputs - 1 if (outputs - 1) * self._stride >= n + before else outputs

    def window(self, n: int, i: int) -> Window:
        before, after = self.margins(n)
        origin = i * self._stride - before
        step = self.dilation
        skipped = max(0, -(origin // step))  # cells before position 0
        last = min(self.kernel - 1, (n - 1 - origin) // step)
        counted = min(self.kernel, (n + after - 1 - origin) // step + 1)
        if last < skipped:
            return Window(0, 0, step, counted)
        return Window(origin + skipped * step, origin + last * step + 1, step, counted)

    def table(self, n: int, first: int, last: int) -> np.ndarray[Any, Any]:
        before, after = self.margins(n)
        if max(n + before + after, last * self._stride, self.extent) > SAFE:
            return Region.table(self, n, first, last)
        step = self.dilation
        origin = np.arange(first, last, dtype=np.int64) * self._stride - before
        skipped = np.maximum(0, -(origin // step))
        cell = np.minimum(self.kernel - 1, (n - 1 - origin) // step)
        rows = np.empty((last - first, 4), np.int64)
        rows[:, 0], rows[:, 1] = origin + skipped * step, origin + cell * step + 1
        rows[cell < skipped, :2] = 0
        rows[:, 2] = step
        rows[:, 3] = np.minimum(self.kernel, (n + after - 1 - origin) // step + 1)
        return rows

    def common(self, n: int, first: int, last: int) -> tuple[Window | None, Iterable[int]]:
        reading, cut = self._reaching(n, 0, n), max(first, self._uncounted(n))
        others = range(max(first, reading.start), min(last, reading.stop, cut))
        return Window(0, 0, self.dilation, self.kernel), chain(others, range(cut, last))

    def runs(self, n: int) -> Iterator[tuple[int, int, bool]]:
        outputs, before, reading = self.out_length(n), self.margins(n)[0], self._reaching(n, 0, n)
        cut = min(outputs, self._uncounted(n))
        ends = [reading.start, reading.stop, cut, outputs]
        if self.dilation == 1:  # windows that hold the whole axis
            ends[1:1] = [-((self.extent - n - before) // self._stride), before // self._stride + 1]
        done = 0
        for number, end in enumerate(ends):
            stop = min(max(end, done), cut if number < len(ends) - 1 else outputs)
            yield done, stop, number in ((0, 2, 4) if self.dilation == 1 else (0, 2))
            done = stop

    def _uncounted(self, n: int) -> int:
        """The first output whose last cell is past the padding and does not count."""
        before, after = self.margins(n)
        return max(0, (n + before + after - self.extent) // self._stride + 1)

    def boxes(self, n: int) -> tuple[np.ndarray[Any, Any], int, int]:
        before, after = self.margins(n)
        outputs = self.out_length(n)
        far = max(n + before + after, outputs * self._stride, self.extent, self.dilation) > SAFE
        numbers = np.arange(outputs, dtype=object if far else np.int64)
        return numbers * self._stride - before, self.dilation, self.kernel

    def whole(self, n: int, first: int, last: int) -> tuple[int, int]:
        """Those of outputs `first ≤ i < last` whose windows lie in the axis, as a range."""
        before, _ = self.margins(n)
        begin = min(last, max(first, -(-before // self._stride)))
        end = min(last, (n + before - self.extent) // self._stride + 1)
        return begin, max(begin, end)

    def slab(self, n: int, first: int, last: int) -> tuple[int, int]:
        # Whole windows follow each other, so of those the first and the last decide.
        # Those that read no cell do not count, and of neighbours without gaps the ends decide too.
        begin, end = self.whole(n, first, last)
        reading = self._reaching(n, 0, n)
        first, last = max(first, reading.start), min(last, reading.stop)
        if self.dilation == 1 and first < last:
            return self._hull(n, (first, last - 1))
        if begin == end:
            return self._hull(n, range(first, last))
        return self._hull(n, (*range(first, begin), begin, end - 1, *range(end, last)))

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        lo, hi = max(lo, 0), min(hi, n)
        if hi - lo >= self.dilation:
            # A window whose extent meets the range has a cell in it: cells are `dilation` apart.
            return self._reaching(n, lo, hi)
        return sorted(i for p in range(lo, hi) for i in self._readers_of(n, p))

    def _reaching(self, n: int, lo: int, hi: int) -> range:
        """Outputs whose extent meets `[lo, hi)`."""
        before, _ = self.margins(n)
        first = max(0, -((self.extent - 1 - lo - before) // self._stride))
        last = min(self.out_length(n), (hi + before - 1) // self._stride + 1)
        return range(first, max(first, last))

    def _readers_of(self, n: int, p: int) -> range:
        """Outputs `i` with `p + before − i·stride` a multiple of the dilation: a progression."""
        before, _ = self.margins(n)
        reaching = self._reaching(n, p, p + 1)
        common = gcd(self._stride, self.dilation)
        if (p + before) % common:
            return range(0)
        period = self.dilation // common
        residue = (p + before) // common * pow(self._stride // common, -1, period) % period
        first = reaching.start + (residue - reaching.start) % period
        return range(first, max(first, reaching.stop), period)

    @property
    def _stride(self) -> int:
        assert self.stride is not None
        return self.stride


@checked
@dataclass(frozen=True, slots=True)
class Adaptive(Region):
    """`output_size` bins `[floor(i·n/m), ceil((i+1)·n/m))`: they cover the axis; `m` may exceed `n`.

    Parameters
    ----------
    output_size : int
        How many bins the axis is cut into.

    Raises
    ------
    ValueError, TypeError
        For a number below 1, or no whole number.

    Examples
    --------
    >>> import lunette as ln
    >>> [list(ln.Adaptive(3).window(7, i).positions) for i in range(3)]
    [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    """

    output_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_size", size(self.output_size, "output_size", 1))

    def out_length(self, n: int) -> int:
        if n < 1:
            raise ValueError(f"length {n}: a pooled axis needs at least one position")
        return self.output_size

    def window(self, n: int, i: int) -> Window:
        start = i * n // self.output_size
        stop = -(-(i + 1) * n // self.output_size)
        return Window(start, stop, 1, stop - start)

    def table(self, n: int, first: int, last: int) -> np.ndarray[Any, Any]:
        if (last + 1) * n > SAFE:
            return Region.table(self, n, first, last)
        i = np.arange(first, last, dtype=np.int64)
        start, stop = i * n // self.output_size, -(-(i + 1) * n // self.output_size)
        return np.stack([start, stop, np.ones_like(i), stop - start], axis=1)

    def runs(self, n: int) -> Iterator[tuple[int, int, bool]]:
        m, done = self.output_size, 0
        if m < MANY * n:
            yield 0, m, False
            return
        for p in range(n):  # the bins within one position
            begin, end = -(-p * m // n), (p + 1) * m // n
            yield done, begin, False
            yield begin, end, True
            done = end
        yield done, m, False

    def longest(self, n: int) -> int:
        """Positions of the longest bin: where it begins within the position that it shares with the last decides."""
        least, rest = divmod(n, self.output_size)
        return least + (rest > 0) + (rest > gcd(rest, self.output_size))

    def slab(self, n: int, first: int, last: int) -> tuple[int, int]:
        if first >= last:
            return (0, 0)
        return self.window(n, first).start, self.window(n, last - 1).stop  # bins follow each other

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        lo, hi = max(lo, 0), min(hi, n)
        if lo >= hi:
            return range(0)
        return range(lo * self.output_size // n, -(-hi * self.output_size // n))


@checked
@dataclass(frozen=True, slots=True)
class Global(Region):
    """One output that reads the whole axis.

    Examples
    --------
    >>> import lunette as ln
    >>> ln.Global().out_length(7)
    1
    """

    def out_length(self, n: int) -> int:
        return Adaptive(1).out_length(n)

    def window(self, n: int, i: int) -> Window:
        return Window(0, n, 1, n)

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        return range(1) if max(lo, 0) < min(hi, n) else range(0)


@checked
@dataclass(frozen=True, slots=True)
class Part(Region):
    """Outputs `outputs[0] ≤ i < outputs[1]` of `region` on an axis of `length`, read from a slab.

    The input is the slab `[slab[0], slab[1])` of that axis, with every position that these outputs
    read. Windows and counted cells are those of the whole axis, so a part of an array pools as it
    would inside it.
    """

    region: Region
    length: int
    outputs: tuple[int, int]
    slab_range: tuple[int, int]

    def __post_init__(self) -> None:
        if not isinstance(self.region, Region):
            raise TypeError(f"region={self.region!r}: expected a region, such as Sliding(3)")
        n = size(self.length, "length", 1)
        outputs, slab = _range(self.outputs, "outputs"), _range(self.slab_range, "slab_range")
        for name, value in (("length", n), ("outputs", outputs), ("slab_range", slab)):
            object.__setattr__(self, name, value)
        m = self.region.out_length(n)
        if outputs[1] > m:
            raise ValueError(f"outputs={outputs}: {self.region!r} has {m} outputs for length {n}")
        if slab[0] == slab[1] or slab[1] > n:
            raise ValueError(f"slab_range={slab}: expected positions of an axis of length {n}")
        lo, hi = self.region.slab(n, *outputs)
        if lo < hi and not (slab[0] <= lo and hi <= slab[1]):
            raise ValueError(
                f"slab_range={slab}: outputs {outputs} of {self.region!r} read positions {lo} to "
                f"{hi - 1}; use region.part, which finds the slab"
            )

    def out_length(self, n: int) -> int:
        lo, hi = self.slab_range
        if n != hi - lo:
            raise ValueError(f"length {n}: this part reads a slab of {hi - lo} positions")
        return self.outputs[1] - self.outputs[0]

    def window(self, n: int, i: int) -> Window:
        start, stop, step, counted = self.region.window(self.length, self.outputs[0] + i)
        if start == stop:
            return Window(0, 0, step, counted)
        offset = self.slab_range[0]
        return Window(start - offset, stop - offset, step, counted)

    def table(self, n: int, first: int, last: int) -> np.ndarray[Any, Any]:
        rows = self.region.table(self.length, self.outputs[0] + first, self.outputs[0] + last)
        rows[rows[:, 0] != rows[:, 1], :2] -= self.slab_range[0]
        return rows

    def common(self, n: int, first: int, last: int) -> tuple[Window | None, Iterable[int]]:
        begin = self.outputs[0]
        window, others = self.region.common(self.length, begin + first, begin + last)
        if window is not None and window.real:
            return None, range(first, last)
        return window, (i - begin for i in others)

    def boxes(self, n: int) -> tuple[np.ndarray[Any, Any], int, int]:
        starts, step, taps = self.region.boxes(self.length)
        return starts[slice(*self.outputs)] - self.slab_range[0], step, taps

    def readers(self, n: int, lo: int, hi: int) -> Sequence[int]:
        offset, (first, last) = self.slab_range[0], self.outputs
        whole = self.region.readers(self.length, max(lo, 0) + offset, min(hi, n) + offset)
        if isinstance(whole, range):
            begin, step = whole.start, whole.step
            begin += max(0, -((begin - first) // step)) * step
            return range(begin - first, max(begin, min(whole.stop, last)) - first, step)
        return [i - first for i in whole if first <= i < last]


def check_windows(region: Region, n: int, table: np.ndarray[Any, Any]) -> None:
    """Refuse windows that leave the axis: those of a region that is not one of ours are not known.

    The columns of the table begin with start, stop and step.
    """
    while type(region) is Part:
        region = region.region
    if type(region) in (Sliding, Adaptive, Global):
        return
    start, stop, step = table[:, 0], table[:, 1], table[:, 2]
    wrong = (start < 0) | (stop < start) | (stop > n) | (step < 1)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"{region!r}: the window of output {i} is start {start[i]}, stop {stop[i]}, step {step[i]}; "
            f"expected positions of an axis of length {n}"
        )


def transposed_length(
    n: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int, output_padding: int
) -> int:
    """Outputs of a transposed convolution along one axis; a length below one is a ValueError."""
    before, after = padding
    length = (n - 1) * stride - before - after + dilation * (kernel - 1) + output_padding + 1
    if n < 1 or length < 1:
        raise ValueError(
            f"length {n} gives {length} outputs (kernel {kernel}, stride {stride}, padding "
            f"{padding}, dilation {dilation}, output_padding {output_padding}); expected at least 1"
        )
    return length


def _range(value: Any, name: str) -> tuple[int, int]:
    """A pair `(first, last)` with `0 ≤ first ≤ last`."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name}={value!r}: expected a pair of integers, first and last")
    first = size(value[0], name, 0)
    return first, size(value[1], name, first)


def _padding(value: Any) -> tuple[int, int] | Literal["same"]:
    if isinstance(value, str):
        return "same" if choice(value, "padding", ("valid", "same")) == "same" else (0, 0)
    if isinstance(value, (tuple, list)):
        pair = listed(value)
        if len(pair) != 2:
            raise ValueError(f"padding={shown(pair)}: expected one (before, after) pair per axis")
        return size(pair[0], "padding", 0), size(pair[1], "padding", 0)
    both = size(value, "padding", 0)
    return both, both
