"""A LeNet learns to read digits, on the tape alone: `python examples/digits.py`.

conv, relu, max pool, conv, relu, smooth-max pool, linear, over scikit-learn's bundled 8×8 digits.
Needs scikit-learn; draws the loss curve with matplotlib where it is installed, else as text.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.progress import track

import lunette as ln

Parameters = dict[str, np.ndarray]


def network(tape: ln.Tape, images: np.ndarray, parameters: Parameters):
    """The ids of the logits and of the parameters, recorded on the tape."""
    p = {name: tape.leaf(value, name) for name, value in parameters.items()}
    x = tape.leaf(images, "images", requires_grad=False)
    x = tape.relu(tape.conv2d(p["kernel1"], p["bias1"], x, stride=1, padding=1))
    x = tape.max_pool2d(x, kernel=(2, 2), stride=2)
    x = tape.relu(tape.conv2d(p["kernel2"], p["bias2"], x, stride=1, padding=1))
    x = tape.smooth_max_pool2d(x, 4.0, kernel=(2, 2), stride=2)
    return tape.linear(tape.flatten(x), p["weight"], p["bias"]), p


def initial(generator: np.random.Generator) -> Parameters:
    """Random weights, scaled to keep the size of what passes through."""

    def weights(*shape: int) -> np.ndarray:
        fan_in = np.prod(shape[1:])
        return (generator.normal(size=shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    return {
        "kernel1": weights(16, 1, 3, 3),
        "bias1": np.zeros(16, np.float32),
        "kernel2": weights(32, 16, 3, 3),
        "bias2": np.zeros(32, np.float32),
        "weight": weights(10, 128),
        "bias": np.zeros(10, np.float32),
    }


class Adam:
    """Steps along the mean gradient over the root of the mean square."""

    def __init__(self, parameters: Parameters) -> None:
        self.count = 0
        self.mean = {name: np.zeros_like(v) for name, v in parameters.items()}
        self.square = {name: np.zeros_like(v) for name, v in parameters.items()}

    def step(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        self.count += 1
        for name, g in gradients.items():
            self.mean[name] += 0.1 * (g - self.mean[name])
            self.square[name] += 0.001 * (g * g - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.count)
            root = np.sqrt(self.square[name] / (1 - 0.999**self.count))
            parameters[name] = parameters[name] - rate * mean / (root + 1e-8)


def train(images, labels, epochs: int, batch: int = 32, seed: int = 0):
    """The trained parameters, and the loss of every step."""
    generator = np.random.default_rng(seed)
    parameters = initial(generator)
    adam, losses = Adam(parameters), []
    order = np.concatenate([generator.permutation(len(images)) for _ in range(epochs)])
    batches = np.array_split(order, max(1, len(order) // batch))
    for i, chosen in enumerate(track(batches, description="training")):
        with ln.Tape() as tape:
            logits, ids = network(tape, images[chosen], parameters)
            loss = tape.softmax_cross_entropy(logits, labels[chosen])
            gradients = tape.backward(loss)
            losses.append(float(tape.value(loss)))
        rate = 5e-3 * (1 - i / len(batches))  # large steps first, then ever smaller ones
        adam.step(parameters, {name: gradients[n] for name, n in ids.items()}, rate)
    return parameters, losses


def accuracy(images, labels, parameters: Parameters) -> float:
    """The share of images whose largest logit is at the label."""
    with ln.Tape() as tape:
        logits, _ = network(tape, images, parameters)
        return float(np.mean(tape.value(logits).argmax(1) == labels))


def draw(losses: list[float], path: str, console: Console) -> None:
    """The loss curve as a picture, or as a line of blocks."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        means = [np.mean(part) for part in np.array_split(losses, min(60, len(losses)))]
        top = max(means)
        console.print("loss ", "".join(" ▁▂▃▄▅▆▇█"[int(8 * m / top)] for m in means))
        return
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.semilogy(losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="cross entropy", title="A LeNet on 8×8 digits")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    console.print(f"loss curve: {path}")


def main(arguments: list[str] | None = None) -> float:
    """Train, then say how many held-out digits are read rightly."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise SystemExit("the digits come with scikit-learn: pip install scikit-learn") from None

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=1437, help="how many to train on")
    parser.add_argument("--picture", default="digits-loss.png", help="where to draw the loss")
    parser.add_argument("--network", help="where to draw the network, a name that ends in .svg")
    options = parser.parse_args(arguments)

    console = Console()
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.images))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order]
    held_out = images[1437:], labels[1437:]

    start = time.perf_counter()
    parameters, losses = train(images[: options.images], labels[: options.images], options.epochs)
    share = accuracy(*held_out, parameters)
    console.print(
        f"{share:.1%} of {len(held_out[0])} held-out digits right, loss {losses[0]:.2f} → "
        f"{losses[-1]:.4f}, {time.perf_counter() - start:.1f} s"
    )
    draw(losses, options.picture, console)
    if options.network:
        tape = ln.Tape()
        network(tape, images[:1], parameters)
        tape.draw(options.network)
    return share


if __name__ == "__main__":
    main()
