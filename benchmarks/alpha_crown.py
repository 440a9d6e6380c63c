"""CROWN and α-CROWN as published, over dense matrices, to compare this library's bounds with.

Zhang et al. 2018 (CROWN): a relu that is undecided on [l, u] lies below the chord and above α·x with
α = 1 where u > −l and 0 elsewhere. Xu et al. 2021 (α-CROWN): every α, of every row, is chosen by
Adam steps on the bound, for the boxes inside too. A max pooling keeps the cell with the highest low
end below it and the largest high end above it, or the winner where one is sure; a smooth max is the
composition of exponentials, a sum and a logarithm, each between chord and tangent.

This is a stand-in for auto_LiRPA where that cannot be installed; it reads the network from the steps
of `lunette.bounds`, so both bound the same real-number function. float64, no outward rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lunette.bounds.affine import Affine
from lunette.bounds.network import Input, Network
from lunette.bounds.tighten import unit_rows
from lunette.bounds.windows import Maximum, Smooth

__all__ = ["Dense", "bounds"]


class Dense:
    """A chain of layers: `("affine", W, b)`, `("relu",)`, `("max", table)`, `("smooth", table, β)`."""

    def __init__(self, network: Network) -> None:
        self.layers: list[tuple[Any, ...]] = []
        for k, step in enumerate(network.steps):
            if isinstance(step, Input):
                self.lo = torch.tensor(step.box.lo.reshape(-1))
                self.hi = torch.tensor(step.box.hi.reshape(-1))
                continue
            if step.parents != (k - 1,):
                raise ValueError(f"{step.about}: expected a chain of steps")
            if isinstance(step, Affine):
                rows = unit_rows(step.shape, np.arange(step.cells), 1.0)
                matrix = torch.tensor(step.pull(rows)[0].reshape(step.cells, -1))
                constant = step.constant()
                shift = np.zeros(step.shape) + (0.0 if constant is None else constant)
                self._affine(matrix, torch.tensor(shift.reshape(-1)))
            elif isinstance(step, Maximum):
                if step.zero.all():  # relu, then the max of what it leaves
                    self.layers.append(("relu",))
                if step.table.shape[1] > 1:
                    self.layers.append(("max", torch.tensor(step.table)))
            elif isinstance(step, Smooth):
                self.layers.append(("smooth", torch.tensor(step.table), step.beta))
            else:
                raise ValueError(f"{step.about}: not compared here")

    def _affine(self, matrix: torch.Tensor, shift: torch.Tensor) -> None:
        if self.layers and self.layers[-1][0] == "affine":
            _, before, constant = self.layers.pop()
            matrix, shift = matrix @ before, matrix @ constant + shift
        self.layers.append(("affine", matrix, shift))


def bounds(dense: Dense, rows: Any, steps: int = 20, rate: float = 0.1) -> np.ndarray:
    """Least values of rows over the output; `steps` of Adam (0: CROWN), inside the network too."""
    known: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    for n, layer in enumerate(dense.layers):
        known.append(None if layer[0] == "affine" else _box(dense, n, known, steps, rate))
    return _least(dense, len(dense.layers), torch.tensor(rows), known, steps, rate).numpy()


def _box(dense: Dense, n: int, known: list[Any], steps: int, rate: float) -> Any:
    """The box that a layer reads."""
    size = len(dense.lo) if n == 0 else _size(dense, n)
    unit = torch.eye(size, dtype=torch.float64)
    both = _least(dense, n, torch.cat([unit, -unit]), known, steps, rate)
    return both[:size], -both[size:]


def _size(dense: Dense, n: int) -> int:
    for layer in reversed(dense.layers[:n]):
        if layer[0] == "affine" or layer[0] in ("max", "smooth"):
            return len(layer[1])
    return len(dense.lo)


def _least(
    dense: Dense, n: int, rows: torch.Tensor, known: list[Any], steps: int, rate: float
) -> torch.Tensor:
    slopes: dict[int, torch.Tensor] = {}
    for k in range(n):
        if dense.layers[k][0] == "relu":
            lo, hi = known[k]
            first = (hi > -lo).double()
            slopes[k] = first.expand(len(rows), -1).clone()
        elif dense.layers[k][0] == "smooth":
            slopes[k] = torch.full((len(rows), len(known[k][0])), 0.5, dtype=torch.float64)
    best = _backward(dense, n, rows, known, slopes).detach()
    if not slopes or not steps:
        return best
    for slope in slopes.values():
        slope.requires_grad_()
    adam = torch.optim.Adam(slopes.values(), lr=rate)
    for _ in range(steps):
        adam.zero_grad()
        value = _backward(dense, n, rows, known, slopes)
        (-value.sum()).backward()
        adam.step()
        for slope in slopes.values():
            slope.data.clamp_(0, 1)
        best = torch.maximum(best, _backward(dense, n, rows, known, slopes).detach())
    return best


def _backward(dense: Dense, n: int, a: torch.Tensor, known: list[Any], slopes: Any) -> Any:
    total = torch.zeros(len(a), dtype=torch.float64)
    for k in range(n - 1, -1, -1):
        layer = dense.layers[k]
        if layer[0] == "affine":
            total, a = total + a @ layer[2], a @ layer[1]
            continue
        lo, hi = known[k]
        up, down = a.clamp(min=0), a.clamp(max=0)
        if layer[0] == "relu":
            chord = hi.clamp(min=0) / (hi.clamp(min=0) - lo.clamp(max=0)).clamp(min=1e-30)
            off = torch.where((lo < 0) & (hi > 0), -chord * lo, torch.zeros_like(lo))
            under = torch.where(lo >= 0, 1.0, torch.where(hi <= 0, 0.0, slopes[k]))
            total, a = total + down @ off, up * under + down * chord
        elif layer[0] == "max":
            total, a = _through_max(layer[1], lo, hi, up, down, total)
        else:
            total, a = _through_smooth(layer, lo, hi, up, down, total, slopes[k])
    return total + a.clamp(min=0) @ dense.lo + a.clamp(max=0) @ dense.hi


def _through_max(table: Any, lo: Any, hi: Any, up: Any, down: Any, total: Any) -> Any:
    there = table >= 0
    low = torch.where(there, lo[table.clamp(min=0)], -torch.inf)
    high = torch.where(there, hi[table.clamp(min=0)], -torch.inf)
    winner = low.argmax(dim=1)
    others = high.scatter(1, winner[:, None], -torch.inf).max(dim=1).values
    sure = low.max(dim=1).values >= others
    cells = table.gather(1, winner[:, None])[:, 0]
    most = torch.where(sure, torch.zeros_like(others), high.max(dim=1).values)
    out = torch.zeros(len(up), len(lo), dtype=torch.float64)
    out = out.index_add(1, cells, up + down * sure)
    return total + down @ most, out


def _through_smooth(
    layer: Any, lo: Any, hi: Any, up: Any, down: Any, total: Any, share: Any
) -> Any:
    """log Σ exp(βx) / β piece by piece; `share` says where each tangent touches."""
    _, table, beta = layer
    place = table.clamp(min=0)
    there = (table >= 0).double()
    pivot = torch.where(table >= 0, hi[place], -torch.inf).max(dim=1, keepdim=True).values
    low, high = (torch.exp(beta * (side[place] - pivot)) * there for side in (lo, hi))
    s_lo, s_hi = low.sum(1), high.sum(1)
    # The logarithm of the sum: a chord below, a tangent above. The exponentials: the other way.
    chord = (s_hi.log() - s_lo.log()) / (s_hi - s_lo).clamp(min=1e-300)
    touch = (s_lo + s_hi) / 2
    below = (chord, s_lo.log() - chord * s_lo + beta * pivot[:, 0])
    above = (1 / touch, touch.log() - 1 + beta * pivot[:, 0])
    a_up, a_down = up * below[0] / beta, down * above[0] / beta
    total = total + up @ below[1] / beta + down @ above[1] / beta
    width = (hi - lo)[place].clamp(min=1e-30)
    rise = (high - low) / width
    at = lo[place] + (hi - lo)[place] * share[:, place]  # of each row its own point
    tangent = torch.exp(beta * (at - pivot)) * there
    slope = a_up[..., None] * beta * tangent + a_down[..., None] * rise
    fixed = a_up[..., None] * tangent * (1 - beta * at)
    fixed = fixed + a_down[..., None] * (low - rise * lo[place]) * there
    out = torch.zeros(len(up), len(lo), dtype=torch.float64)
    out = out.index_add(1, place.reshape(-1), (slope * there).reshape(len(up), -1))
    return total + fixed.sum(dim=(1, 2)), out
