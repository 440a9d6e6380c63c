"""The tape over torch tensors: the same gradients as over NumPy arrays."""

import numpy as np
import torch

import lunette as ln


def network(convert):
    """Loss, gradients and a tangent of a convolution, a relu and three poolings."""
    numbers = np.random.default_rng(0)
    tape = ln.Tape()
    x = tape.leaf(convert(numbers.standard_normal((1, 1, 6, 6))), "x", requires_grad=True)
    weight = tape.leaf(convert(numbers.standard_normal((2, 1, 3, 3))), "w", requires_grad=True)
    y = tape.relu(tape.apply(ln.Conv((3, 3)), x, weight))
    for op in (
        ln.MaxPool((2, 2)),
        ln.SmoothMaxPool((2, 2), 2.0, padding=1),
        ln.AdaptiveAvgPool((1, 2)),
    ):
        y = tape.apply(op, y)
    loss = tape.sum(tape.mul(y, y))
    gradients = tape.backward(loss)
    tangent = tape.jvp(loss, {x: convert(numbers.standard_normal((1, 1, 6, 6)))})
    return tape.value(loss), gradients[x], gradients[weight], tangent


def test_the_tape_takes_torch_tensors():
    for ours, numpys in zip(network(torch.from_numpy), network(np.asarray), strict=True):
        assert isinstance(ours, torch.Tensor)
        np.testing.assert_allclose(ours.numpy(), numpys, rtol=1e-12)
