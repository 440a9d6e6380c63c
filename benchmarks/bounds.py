"""How tight bounds are: radii and widths beside CROWN and α-CROWN: `python -m benchmarks.bounds`.

Networks of digits' size (8×8), with random weights of a fixed seed. For each: the largest radius
about an input for which the least margin stays above 0 (bisection), in units of α-CROWN's; and the
mean width of all outputs for smooth max. `--images` more inputs, `--steps` of α-CROWN's Adam.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import lunette as ln
from benchmarks import alpha_crown
from lunette.bounds.outputs import least_of
from lunette.bounds.reading import network_of
from lunette.bounds.tighten import enclose


def numbers(rng: Any, *shape: int) -> np.ndarray:
    fan = max(1, int(np.prod(shape[1:])))
    return (rng.normal(size=shape) * np.sqrt(2 / fan)).astype(np.float32)


def built(kind: str, x: np.ndarray, seed: int) -> Any:
    """The tape, its input and its logits."""
    rng = np.random.default_rng(seed)
    tape = ln.Tape()
    leaf = tape.leaf(x, "x")
    z = tape.conv(numbers(rng, 4, 1, 3, 3), numbers(rng, 4), leaf, padding=1)
    if kind == "smooth":
        z = tape.apply(ln.SmoothMaxPool((2, 2), beta=4.0), z)
    else:
        z = tape.relu(z)
        pool = {"mean": ln.AvgPool((2, 2))}.get(kind, ln.MaxPool((2, 2)))
        z = tape.apply(pool, z)
    if kind in ("two", "global"):
        z = tape.relu(tape.conv(numbers(rng, 6, 4, 3, 3), numbers(rng, 6), z, padding=1))
        last = ln.MaxPool((2, 2)) if kind == "two" else ln.GlobalMaxPool(2)
        z = tape.apply(last, z)
    z = tape.reshape(z, (1, -1))
    return tape, leaf, tape.linear(z, numbers(rng, 10, z.shape[1]), numbers(rng, 10))


def ours(kind: str, x: np.ndarray, seed: int, rows: Any, radius: float, method: str) -> Any:
    tape, leaf, y = built(kind, x, seed)
    network = network_of(tape, y, {leaf: ln.Box(x - radius, x + radius)}, None)
    return least_of(enclose(network, None, method), rows, method)


def theirs(kind: str, x: np.ndarray, seed: int, rows: Any, radius: float, steps: int) -> Any:
    tape, leaf, y = built(kind, x, seed)
    network = network_of(tape, y, {leaf: ln.Box(x - radius, x + radius)}, None)
    return alpha_crown.bounds(alpha_crown.Dense(network), rows.reshape(len(rows), -1), steps)


def radius_of(holds: Any) -> float:
    """The largest radius, to one part in 100, at which a bound holds."""
    low, high = 0.0, 0.01
    while holds(high) and high < 1:
        low, high = high, 2 * high
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def compared(kind: str, seed: int, steps: int) -> tuple[float, float, float, float]:
    """Ours over α-CROWN's and over CROWN's: radii, or widths of a smooth max; CPU seconds of both."""
    x = np.random.default_rng(100 + seed).random((1, 1, 8, 8)).astype(np.float32)
    tape, _, y = built(kind, x, seed)
    logits = tape.value(y)[0]
    best = int(logits.argmax())
    rows = np.zeros((9, 1, 10))
    rows[:, 0, best] = 1
    rows[np.arange(9), 0, [c for c in range(10) if c != best]] = -1
    if kind == "smooth":
        rows = np.concatenate([np.eye(10), -np.eye(10)]).reshape(20, 1, 10)

    def of(who: Any, how: Any) -> tuple[float, float]:
        begin = time.process_time()
        if kind == "smooth":
            least = who(kind, x, seed, rows, 0.1, how)
            found = float(-(least[:10] + least[10:]).mean())
        else:
            found = radius_of(lambda r: who(kind, x, seed, rows, r, how).min() > 0)
        return found, time.process_time() - begin

    (own, own_time), (alpha, alpha_time), (plain, _) = (
        of(ours, "tight"),
        of(theirs, steps),
        of(theirs, 0),
    )
    return own / alpha, own / plain, own_time, alpha_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=["one", "two", "global", "mean", "smooth"])
    options = parser.parse_args()
    for kind in options.kinds:
        found = np.array([compared(kind, seed, options.steps) for seed in range(options.images)])
        alpha, plain, own_time, alpha_time = found.mean(axis=0)
        what = "mean width" if kind == "smooth" else "certified radius"
        print(
            f"{kind:8} {what:17} ours / α-CROWN {alpha:.3f} "
            f"({found[:, 0].min():.3f} … {found[:, 0].max():.3f}), ours / CROWN {plain:.3f}; "
            f"CPU seconds {own_time:.1f} and {alpha_time:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
