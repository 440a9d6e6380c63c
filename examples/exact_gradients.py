"""One step of a tiny network over exact rationals: `python examples/exact_gradients.py`.

The same program runs three times. Over Fractions the gradients are exact. Over floats the kernels
compute them. Over `Counted` numbers, a number system of this file's own, each result also knows how
large its terms were and how often a float program may round on the way to it; that gives a bound,
γ_n Σ|terms|, on the error of any order of summation. Every float gradient must lie within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.spec.scalars import Scalars


@dataclass(frozen=True, eq=False)
class Counted:
    """An exact value, the sum of its terms' magnitudes, and the roundings on the longest way to it."""

    value: Fraction
    magnitude: Fraction
    roundings: int = 0

    @property
    def scalars(self) -> Scalars:
        return COUNTED

    def __neg__(self) -> Counted:
        return Counted(-self.value, self.magnitude, self.roundings)

    def __add__(self, other: Counted) -> Counted:
        roundings = max(self.roundings, other.roundings) + 1
        return Counted(self.value + other.value, self.magnitude + other.magnitude, roundings)

    def __sub__(self, other: Counted) -> Counted:
        return self + (-other)

    def __mul__(self, other: Counted) -> Counted:
        roundings = self.roundings + other.roundings + 1
        return Counted(self.value * other.value, self.magnitude * other.magnitude, roundings)

    def __truediv__(self, other: Counted) -> Counted:
        inverse = Counted(1 / other.value, 1 / abs(other.value), other.roundings)
        return self * inverse

    def bound(self, unit: Fraction) -> Fraction:
        """γ_n Σ|terms| with γ_n = n u / (1 − n u): the most a float result may be off."""
        n = self.roundings
        return n * unit / (1 - n * unit) * self.magnitude


class CountedNumbers(Scalars):
    """What the specification and the tape need besides `+ - * /`."""

    name = "Counted"

    def from_int(self, n: int) -> Counted:
        return Counted(Fraction(n), Fraction(abs(n)))

    def from_real(self, value: float | Fraction) -> Counted:
        return Counted(Fraction(value), abs(Fraction(value)))

    def greater(self, a: Counted, b: Counted) -> bool:
        return a.value > b.value


COUNTED = CountedNumbers()


def network(tape: ln.Tape, values: dict[str, np.ndarray]):
    """conv, relu, max pool, linear and a squared error: the ids of the loss and of the leaves."""
    p = {name: tape.leaf(value, name) for name, value in values.items()}
    x = tape.relu(tape.conv(p["kernel"], p["kernel bias"], p["image"], padding=1))
    x = tape.max_pool(x, kernel=(2, 2), stride=2)
    y = tape.linear(tape.reshape(x, (1, -1)), p["weight"], p["bias"])
    return tape.mse(y, p["target"]), p


def gradients(values: dict[str, np.ndarray]) -> tuple[object, dict[str, np.ndarray]]:
    """The loss and the gradient of every leaf, computed with the numbers that were given."""
    with ln.Tape() as tape:
        loss, ids = network(tape, values)
        found = tape.backward(loss)
        return tape.value(loss)[()], {name: found[i] for name, i in ids.items()}


def converted(values: dict[str, np.ndarray], convert) -> dict[str, np.ndarray]:
    """The same values as exact numbers: a float is a rational."""
    out = {name: np.empty(v.shape, object) for name, v in values.items()}
    for name, v in values.items():
        for i, number in np.ndenumerate(v):
            out[name][i] = convert(float(number))
    return out


def main(dtype: str = "float32") -> float:
    """Print the step and the errors; the largest share of a bound that an error reached."""
    console = Console()
    generator = np.random.default_rng(0)
    shapes = {
        "image": (1, 4, 4),
        "kernel": (2, 1, 3, 3),
        "kernel bias": (2,),
        "weight": (2, 8),
        "bias": (2,),
        "target": (1, 2),
    }
    floats = {name: generator.normal(size=s).astype(dtype) for name, s in shapes.items()}
    unit = Fraction(float(np.finfo(dtype).eps)) / 2

    loss, exact = gradients(converted(floats, Fraction))
    _, rounded = gradients(floats)
    _, counted = gradients(converted(floats, COUNTED.from_real))

    table = Table(title=f"Gradients of {dtype} against exact ones")
    for heading in ("leaf", "roundings", "largest error", "its bound", "largest share of a bound"):
        table.add_column(heading, justify="left" if heading == "leaf" else "right")
    worst = 0.0
    for name in shapes:
        errors = [
            (abs(Fraction(float(r)) - e), c.bound(unit), c.roundings)
            for r, e, c in zip(
                rounded[name].flat, exact[name].flat, counted[name].flat, strict=True
            )
        ]
        shares = [float(error / bound) for error, bound, _ in errors if bound]
        if any(error > bound for error, bound, _ in errors):
            raise AssertionError(f"a float gradient of {name} is out of its bound")
        error, bound, _ = max(errors)
        depth = max(n for _, _, n in errors)
        share = max(shares, default=0.0)
        table.add_row(
            name, f"{depth}", f"{float(error):.2e}", f"{float(bound):.2e}", f"{share:.1%}"
        )
        worst = max(worst, share)
    console.print(table)

    rate = Fraction(1, 100)
    values = converted(floats, Fraction)
    for name in ("kernel", "kernel bias", "weight", "bias"):
        values[name] = values[name] - rate * exact[name]
    after, _ = gradients(values)
    console.print(f"loss before the step: {float(loss):.6f}, exactly {_short(loss)}")
    console.print(f"loss after it:        {float(after):.6f}, exactly {_short(after)}")
    if not after < loss:
        raise AssertionError("a small step along the exact gradient must lower the loss")
    return worst


def _short(number: Fraction) -> str:
    return f"a fraction of {len(str(number.numerator))} over {len(str(number.denominator))} digits"


if __name__ == "__main__":
    main("float32")
    main("float64")
