"""How many digits a small network reads rightly whatever an attacker does: `python examples/certify_digits.py`.

conv, relu, max pool, linear, over scikit-learn's 8×8 digits, trained on the tape against an attacker.
For each ε: the share of held-out digits that are read rightly after an attack, and the share for
which it is proved, of the float32 network in any order of summation, that no change of at most ε in
any pixel changes the answer. The last proof is written as a certificate and replayed by the checker.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from rich.console import Console
from rich.table import Table

import lunette as ln
from lunette.bounds import certificate, check, lower_bounds
from lunette.bounds.attack import attack
from lunette.bounds.reading import network_of

Parameters = dict[str, np.ndarray]


def network(tape: ln.Tape, images: np.ndarray, parameters: Parameters):
    """The ids of the images, of the logits and of the parameters."""
    p = {name: tape.leaf(value, name) for name, value in parameters.items()}
    x = tape.leaf(images, "images")
    z = tape.relu(tape.conv2d(p["kernel"], p["bias1"], x, stride=1, padding=1))
    z = tape.max_pool2d(z, kernel=(2, 2), stride=2)
    return x, tape.linear(tape.flatten(z), p["weight"], p["bias"]), p


def train(images, labels, steps: int, reach: float, seed: int = 0) -> Parameters:
    """Gradient steps on images moved by one step of an attacker."""
    rng = np.random.default_rng(seed)
    parameters = {
        "kernel": (rng.normal(size=(8, 1, 3, 3)) / 2).astype(np.float32),
        "bias1": np.zeros(8, np.float32),
        "weight": (rng.normal(size=(10, 128)) / 16).astype(np.float32),
        "bias": np.zeros(10, np.float32),
    }
    speed = {name: np.zeros_like(value) for name, value in parameters.items()}
    for i in range(steps):
        chosen = rng.integers(len(images), size=48)
        batch = images[chosen]
        for moved in (False, True):
            with ln.Tape() as tape:
                x, logits, ids = network(tape, batch, parameters)
                gradients = tape.backward(tape.softmax_cross_entropy(logits, labels[chosen]))
                if not moved:
                    batch = batch + np.float32(reach) * np.sign(gradients[x])
                    batch = np.clip(batch, 0, 1).astype(np.float32)
        rate = np.float32(0.1 * (1 - i / steps))
        for name, n in ids.items():
            speed[name] = np.float32(0.9) * speed[name] + gradients[n]
            parameters[name] = parameters[name] - rate * speed[name]
    return parameters


def rows_for(label: int) -> np.ndarray:
    """One row for each other class: the label's logit less that one's."""
    others = [c for c in range(10) if c != label]
    rows = np.zeros((9, 1, 10))
    rows[:, 0, label] = 1
    rows[np.arange(9), 0, others] = -1
    return rows


def judged(image, label, parameters: Parameters, reach: float, method: str):
    """Whether an attack leaves the answer right, whether that is proved, and what was bounded."""
    tape = ln.Tape()
    x, logits, _ = network(tape, image[None], parameters)
    lo, hi = np.clip(image[None] - reach, 0, 1), np.clip(image[None] + reach, 0, 1)
    boxes, rows = {x: ln.Box(lo, hi)}, rows_for(label)
    if (np.delete(tape.value(logits)[0], label) >= tape.value(logits)[0, label]).any():
        return False, False, None
    steps = network_of(tape, logits, boxes, ln.Deployment())
    right = all(attack(steps, row, tries=4, rounds=8)[0] > 0 for row in rows)
    proved = right and bool((lower_bounds(tape, logits, boxes, rows, method=method) > 0).all())
    return right, proved, (tape, logits, boxes, rows)


def main(arguments: list[str] | None = None) -> list[tuple[float, float, float]]:
    """Train, attack, prove; (ε, attacked, certified) of each ε."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise SystemExit("the digits come with scikit-learn: pip install scikit-learn") from None

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--images", type=int, default=50, help="how many held-out ones to judge")
    parser.add_argument("--reach", type=float, nargs="+", default=[0.01, 0.03, 0.06, 0.1])
    parser.add_argument("--method", default="tight", choices=("ibp", "crown", "tight"))
    parser.add_argument("--certificate", help="where to write the last proof")
    options = parser.parse_args(arguments)

    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.images))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order]
    parameters = train(images[:1437], labels[:1437], options.steps, max(options.reach))

    console, table = Console(), Table("ε", "right after an attack", "proved")
    results, last = [], None
    for reach in options.reach:
        pairs = []
        for image, label in zip(images[1437:], labels[1437:], strict=True):
            if len(pairs) == options.images:
                break
            right, proved, problem = judged(image, int(label), parameters, reach, options.method)
            pairs.append((right, proved))
            last = problem if proved else last
        attacked, certified = (float(np.mean(side)) for side in zip(*pairs, strict=True))
        results.append((reach, attacked, certified))
        table.add_row(f"{reach}", f"{attacked:.0%}", f"{certified:.0%}")
    console.print(table)
    if last is not None:
        text = json.dumps(certificate(*last))
        console.print(f"a certificate of {len(text) // 1000} kB:", check.check(text))
        if options.certificate:
            with open(options.certificate, "w") as file:
                file.write(text)
    return results


if __name__ == "__main__":
    main()
