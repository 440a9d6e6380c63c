"""The linear functions below and above a max, a smooth max and a curve, over a box of cells.

A max y of cells x_i in [l_i, u_i], with L = max l, w_i = (u_i − L)⁺ and t_i = (x_i − l_i)/(u_i − l_i):

    Σ p_i x_i ≤ y ≤ L + λ + Σ (w_i − λ)⁺ t_i      for all shares p and every λ ≥ 0.

A cell that is always 0 makes a relu of it; its share is what the others leave. For the best λ and
p the two sides are the hull. What is returned is sound for the floats it consists of: slopes are
rounded freely, then the offset is computed from the slopes as they are, and moved up by a bound on
its own rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lunette.bounds.box import LARGEST, SLACK, TINY, UNIT, Array, gamma, magnitude
from lunette.bounds.windows import Curve, Jump, Maximum, Relaxation, Smooth

__all__ = ["Hull", "SmoothHull", "curve", "grid_of", "sign"]

BITS = 24
"""Slopes of a max are multiples of 2⁻²⁴: short numbers, in certificates too."""


class Hull:
    """The relaxations of a max over one box."""

    def __init__(self, step: Maximum, lo: Array, hi: Array) -> None:
        self.step = step
        self.lo, self.hi = step.gather(lo, 0.0), step.gather(hi, 0.0)
        low = np.where(step.present, self.lo, -np.inf).max(axis=-1, initial=-np.inf)
        self.least = np.where(step.zero, np.maximum(low, 0.0), low)
        self.excess = np.where(step.present, np.maximum(self.hi - self.least[:, None], 0.0), 0.0)
        width = self.hi - self.lo
        self.width = np.where(width > 0, width, 1.0)
        self.size = magnitude(self.lo, self.hi)
        self.order = np.argsort(-self.excess, axis=-1, kind="stable")
        self.sorted = np.take_along_axis(self.excess, self.order, axis=-1)
        self.rows = np.arange(len(step.table))
        self.grid = grid_of(self.size)

    def undecided(self) -> Array:
        """Windows whose winner is open: more than one cell, the zero among them, can be largest."""
        rivals = (self.excess > 0).sum(axis=-1)
        lows = np.where(self.step.present, self.lo, -np.inf).max(axis=-1, initial=-np.inf)
        fixed = self.step.zero & (lows < 0)
        return np.asarray(rivals + fixed > 1)

    def first_guess(self) -> tuple[Array, Array]:
        """λ, the second largest excess; and all to the cell with the highest low end."""
        cells = self.sorted.shape[-1]
        lam = self.sorted[:, 1] if cells > 1 else np.zeros(len(self.sorted))
        lows = np.where(self.step.present, self.lo, -np.inf)
        winner = lows.argmax(axis=-1)
        shares = np.zeros(self.lo.shape)
        shares[self.rows, winner] = 1.0
        low, high = self.lo[self.rows, winner], self.hi[self.rows, winner]
        # Of a relu, y ≥ x or y ≥ 0: whichever leaves less between it and the other end.
        keep = ~self.step.zero | (low >= 0) | (high > -low)
        return lam, shares * (keep & self.step.present.any(axis=-1))[:, None]

    def at(self, cells: Array) -> tuple[Array, Array]:
        """λ and shares that are best where the cells are these, `(rows, windows, cells)`."""
        part = np.clip((cells - self.lo) / self.width, 0.0, 1.0)
        part = np.where(self.step.present, part, 0.0)
        ordered = np.take_along_axis(part, np.broadcast_to(self.order, part.shape), axis=-1)
        # λ + Σ (w − λ)⁺ t falls as λ does, until the t of the larger w add up to 1.
        full = np.cumsum(ordered, axis=-1) >= 1.0
        first = full.argmax(axis=-1)
        chosen = np.take_along_axis(
            np.broadcast_to(self.sorted, full.shape), first[..., None], axis=-1
        )[..., 0]
        lam = np.where(full.any(axis=-1), chosen, 0.0)
        inside = np.where(self.step.present, cells, -np.inf)
        winner = inside.argmax(axis=-1)
        best = inside.max(axis=-1, initial=-np.inf)
        shares = np.zeros(cells.shape)
        np.put_along_axis(shares, winner[..., None], 1.0, axis=-1)
        keep = np.where(self.step.zero, best > 0, True)
        return lam, shares * keep[..., None]

    def relaxation(self, lam: Array, shares: Array) -> Relaxation:
        """The two sides for these λ and shares."""
        slope = np.maximum(self.excess - lam[..., None], 0.0) / self.width
        slope = np.clip(np.round(slope * 2.0**BITS) * 2.0**-BITS, 0.0, 1.0)
        shares = self._whole(shares)
        return Relaxation(shares, np.zeros(shares.shape[:-1]), slope, self.offset(slope))

    def _whole(self, shares: Array) -> Array:
        """Shares as multiples of 2⁻²⁴ that add up to 1 exactly; to no more where 0 has the rest."""
        short = np.floor(np.clip(shares, 0.0, 1.0) * 2.0**BITS) * 2.0**-BITS
        rest = np.where(
            self.step.zero, np.minimum(1.0 - short.sum(axis=-1), 0.0), 1.0 - short.sum(axis=-1)
        )
        largest = short.argmax(axis=-1)[..., None]
        np.put_along_axis(
            short, largest, np.take_along_axis(short, largest, -1) + rest[..., None], -1
        )
        return short

    def offset(self, slope: Array) -> Array:
        """The least constant that keeps `slope·x + constant` above every cell, rounded up.

        It is enough to look at one corner per cell j: x_j at its high end, the others at their low.
        """
        step = self.step
        needs = np.where(step.present, slope * self.lo + (1 - slope) * self.hi, -np.inf)
        need = needs.max(axis=-1, initial=-np.inf)
        need = np.where(step.zero, np.maximum(need, 0.0), need)
        total = (slope * self.lo).sum(axis=-1)
        sizes = (slope * np.abs(self.lo)).sum(axis=-1) + self.size.max(axis=-1, initial=0.0)
        charge = gamma(slope.shape[-1] + 8) * sizes * SLACK + TINY
        # A window that one cell is sure to win is that cell: nothing was rounded.
        sure = (slope.max(axis=-1, initial=0.0) == 1.0) & (slope.sum(axis=-1) == 1.0)
        sure &= need == total
        offset = np.ceil((need - total + charge) / self.grid) * self.grid
        return np.asarray(np.where(sure, 0.0, offset))


def grid_of(sizes: Array) -> float:
    """A power of two, 2⁻⁴⁴ of the largest size: what a box is rounded to where numbers are short."""
    largest = float(sizes.max(initial=0.0))
    return float(2.0 ** (np.frexp(largest)[1] - 44)) if largest else 2.0**-44


# -- smooth max: convex, so a tangent below; above, a chord of log(1 + Σ r) with one λ --

LAMBDAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""The λ that are tried, as shares of the second largest rise of a cell."""

_ROUNDING = 2.0**-40
"""More than the relative error of the few exponentials, logarithms and sums of a relaxation."""


class SmoothHull:
    """The relaxations of a smooth max over one box: a tangent, and chords of several λ.

    Any mean of chords holds as they do, so rounds may mix them. With β < 0 the smooth min of x is
    minus the smooth max of −x, and the sides change places.
    """

    def __init__(self, step: Smooth, lo: Array, hi: Array) -> None:
        self.step = step
        self.low, self.high = step.gather(lo, 0.0), step.gather(hi, 0.0)
        if step.beta < 0:
            self.low, self.high = -self.high, -self.low
        self.chords = _above(step, self.low, self.high)

    def first_guess(self) -> tuple[Array, Array, Array]:
        """The middle of the box, and the chord that is least there."""
        return self._nearest((self.low + self.high) / 2)

    def at(self, cells: Array) -> tuple[Array, Array, Array]:
        """Where the tangent touches, and the slopes and offset of the chord that is least there."""
        point = cells if self.step.beta > 0 else -cells
        return self._nearest(np.clip(point, self.low, self.high))

    def _nearest(self, point: Array) -> tuple[Array, Array, Array]:
        slopes, offsets = self.chords
        value = np.einsum("lwc,...wc->l...w", slopes, point)
        value = value + offsets.reshape(len(offsets), *(1,) * (point.ndim - 2), -1)
        least, windows = value.argmin(axis=0), np.arange(offsets.shape[-1])
        return point, slopes[least, windows], offsets[least, windows]

    def relaxation(self, point: Array, slope: Array, offset: Array) -> Relaxation:
        """The two sides for a point of contact and a chord."""
        under = _tangent(self.step, point, self.low, self.high)
        if self.step.beta < 0:
            return Relaxation(slope, -offset, under[0], -under[1])
        return Relaxation(*under, slope, offset)


def _tangent(step: Smooth, point: Array, low: Array, high: Array) -> tuple[Array, Array]:
    pivot, total = step.logs(point)
    safe = np.where(total > 0, total, 1.0)
    scale = abs(step.beta)
    inside = np.where(step.present, point, -np.inf)
    slope = np.exp(scale * (inside - pivot[..., None])) / safe[..., None]
    value = np.where(total > 0, pivot + np.log(safe) / scale, 0.0)
    offset = value - (slope * point).sum(axis=-1)
    return slope, offset - _charge(step, value, low, high)


def _above(step: Smooth, low: Array, high: Array) -> tuple[Array, Array]:
    """`f(l) + λ + Σ φ_λ(r_i) t_i`, r_i the growth of a cell's term relative to the sum at l; λ by λ."""
    scale = abs(step.beta)
    pivot, total = step.logs(low)
    empty = total <= 0
    safe = np.where(empty, 1.0, total)
    base = np.where(empty, 0.0, pivot + np.log(safe) / scale)
    # log(1 + r) = log(1 + e^(a)·(1 − e^(−β·width))), a = β(u − f(l)): never more than a line in u.
    width = np.where(step.present, high - low, 0.0)
    with np.errstate(divide="ignore"):
        power = scale * (high - base[..., None]) + np.log(-np.expm1(-scale * width))
    power = np.where(step.present & (width > 0), power, -np.inf)  # log r
    rise = np.logaddexp(0.0, power) / scale  # h(r)
    ordered = -np.sort(-rise, axis=-1)
    second = ordered[..., 1] if rise.shape[-1] > 1 else np.zeros(base.shape)
    slopes, offsets = [], []
    for share in LAMBDAS:
        lam = share * second
        gain = _phi(power, rise, lam, scale)
        slope = gain / np.where(width > 0, width, 1.0)
        offset = base + lam - (slope * np.where(step.present, low, 0.0)).sum(axis=-1)
        slopes.append(slope)
        offsets.append(offset + _charge(step, base, low, high, gain.sum(axis=-1) + lam))
    return np.stack(slopes), np.stack(offsets)


def _phi(power: Array, rise: Array, lam: Array, scale: float) -> Array:
    """`h′(r0)·r` up to r0 and `h(r) − λ` after it, where `h(r0) − r0·h′(r0) = λ`.

    With q = 1/(1 + r0), `λβ = −log q − (1 − q)`. A q that is too large is sound: the slope h′(r0) = q/β
    is then too steep; so q comes from above, and what is needed is the larger of the two branches.
    """
    goal = lam * scale
    left, right = np.full(goal.shape, -745.0), np.zeros(goal.shape)  # log q
    for _ in range(60):
        middle = (left + right) / 2
        value = -middle + np.expm1(middle)
        left, right = np.where(value > goal, middle, left), np.where(value > goal, right, middle)
    log_q = right[..., None]
    bend = np.logaddexp(0.0, power) < -log_q  # r < r0: 1 + r < 1/q
    line = np.exp(np.minimum(log_q + power, 700.0)) / scale
    return np.where(
        np.isneginf(power), 0.0, np.where(bend, line, np.maximum(rise - lam[..., None], 0.0))
    )


def _charge(step: Smooth, value: Array, low: Array, high: Array, more: Any = 0.0) -> Array:
    """A bound on the rounding of a relaxation of a smooth max."""
    sizes = np.where(step.present, magnitude(low, high), 0.0).sum(axis=-1)
    count = step.table.shape[-1] + np.log2(1 + np.abs(step.zeros))
    rounding = _ROUNDING + 4 * count * UNIT
    # An exponential's argument is rounded by |β||x|u, and moves the logarithm by that over |β|.
    return np.asarray(
        rounding * (sizes + np.abs(value) + more + (1 + np.log1p(count)) / abs(step.beta))
    )


# -- curves: the slope of both lines is the smaller of those at the ends, which no inner one is below --


def curve(step: Curve, lo: Array, hi: Array) -> Relaxation:
    """Two parallel lines through the ends."""
    low, high = step.gather(lo, 0.0)[:, 0], step.gather(hi, 0.0)[:, 0]
    slope = np.minimum(step.slope(low), step.slope(high)) * (1 - 2.0**-30)
    slope = np.maximum(slope - 2.0**-45, 0.0)
    charge = 2.0**-44 * (1 + magnitude(low, high))
    under = step.function(low) - slope * low - charge
    above = step.function(high) - slope * high + charge
    return Relaxation(slope[:, None], under, slope[:, None], above)


# -- the sign: the lines through the ends that reach over the jump, or the sign of an end --


def sign(step: Jump, lo: Array, hi: Array, at: Array | None = None) -> Relaxation:
    """Both sides of a sign: those that stand nearer to it at `at`, or in the middle of the box."""
    low, high = step.gather(lo, 0.0)[:, 0], step.gather(hi, 0.0)[:, 0]
    point = (low + high) / 2 if at is None else at[..., 0]
    low, high = np.broadcast_arrays(low, high)
    least, most = np.sign(low), np.sign(high)
    across = (low < 0) & (high > 0)
    # 2x/u − 1 is −1 at 0 and 1 at u; 2x/|l| + 1 is 1 at 0 and −1 at l. Gentler slopes hold too.
    rise = np.where(across, 2 / np.where(across, high, 1.0), 0.0) * (1 - 2.0**-40)
    fall = np.where(across, 2 / np.where(across, -low, 1.0), 0.0) * (1 - 2.0**-40)
    steep = across & (rise < LARGEST) & (fall < LARGEST)
    up, down = steep & (rise * point > 0), steep & (fall * point < 0)
    slack = 2.0**-39
    return Relaxation(
        np.where(up, rise, 0.0)[..., None],
        np.where(up, -1.0, least) + np.zeros(point.shape),
        np.where(down, fall, 0.0)[..., None],
        np.where(down, 1.0 + slack, most) + np.zeros(point.shape),
    )
