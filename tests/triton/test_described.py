"""Calls that are only described, as programs of JAX need them: the launches that they note have the bits of torch's."""

import describing
import pytest

pytest.importorskip("jax", reason="tasks are JAX's")

import lunette as ln

CASES = [
    (ln.MaxPool((3, 3), 2, 1), (2, 3, 7, 6), "float32", False),
    (ln.MaxPool((3, 3), 2, 1), (2, 5, 6, 3), "float32", True),
    (ln.MaxPool((2, 2), 1, ties="split"), (2, 4, 5), "float16", False),
    (ln.MaxPool((2,), ties="all"), (3, 9, 4), "float32", True),
    (ln.MaxPool((8, 8), 1, 1), (1, 7, 7), "float32", False),
    (ln.AvgPool((2, 3), 2, 1, count_include_pad=False), (2, 3, 6, 7), "bfloat16", False),
    (ln.AvgPool((2, 2)), (2, 6, 4, 3), "float32", True),
    (ln.AdaptiveMaxPool((3, 2)), (2, 7, 5), "float64", False),
    (ln.GlobalMaxPool(2, keepdims=False), (2, 3, 4, 5), "float32", False),
    (ln.GlobalAvgPool(2, keepdims=False), (2, 4, 5, 3), "float32", True),
    (ln.GlobalMaxPool(2, ties="first"), (1, 2, 3, 2), "float32", True),
    (ln.SmoothMaxPool((2, 2), 1.5, 1, 1), (2, 5, 4), "float32", False),
    (ln.SmoothMaxPool((3, 3), -2.0, 2, 1), (1, 5, 5, 2), "float32", True),
    (ln.MaxPool((2, 2, 2)), (2, 4, 5, 4), "float32", False),
    (ln.MaxPool((2, 2)), (2, 4, 4), "bool", False),
    (ln.AvgPool((2, 2)), (2, 4, 4), "int32", False),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_every_task_has_the_bits_of_torch(interpreter, case):
    interpreter(describing.check, *case)
