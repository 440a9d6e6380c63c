"""What the Triton module answers besides numbers: refusals, empty batches, which kernel serves."""

import interpreted
import numpy as np
import pytest

import lunette as ln


def test_empty_batches_give_empty_results(interpreter):
    for op in (ln.MaxPool((3, 3), 2, 1), ln.AvgPool((2, 2)), ln.SmoothMaxPool((2, 2), 1.0)):
        y, gx, dy = interpreter(interpreted.empty_batch, op)
        assert y == dy == op.out_shape((0, 6, 8))
        assert gx == (0, 6, 8)


def test_refusals_say_why(interpreter):
    float32, shape = np.dtype(np.float32), (4, 40, 40)
    questions = [
        (ln.MaxPool((3, 3), 2, 1), "forward", shape, float32),
        (ln.AvgPool((2, 2)), "forward_with_indices", shape, float32),
        (ln.MaxPool((16, 16)), "forward_with_offsets", shape, float32),
        (ln.MaxPool((15, 17)), "forward_with_offsets", shape, float32),
        (ln.MaxPool((2, 2), ties="all"), "vjp_from_offsets", shape, float32),
        (ln.MaxPool((2, 2)), "vjp", shape, np.dtype(np.int32)),
        (ln.MaxPool((2, 2)), "forward", shape, np.dtype(object)),
        (ln.MaxPool((3, 2, 2)), "forward", (1, 3 << 24, 4, 4), float32),
    ]
    answers = interpreter(interpreted.refusals, questions)
    assert answers[0] is None and answers[3] is None
    assert answers[1] == "only a max has winners"
    assert "256 cells" in answers[2]
    assert "ties='first'" in answers[4]
    assert answers[5] == "integers have no tangent or gradient"
    assert "object" in answers[6]
    assert "table of 16777216 × 3 planes is too large" in answers[7]


def test_division_by_a_product(interpreter):
    divisors = [1, 2, 3, 7, 64, 641, 4096, 65537, (1 << 30) + 1, (1 << 31) - 1]
    numbers = [0, 1, 2, 6, 7, 8, 640, 641, 65536, 65537, 99999, 1 << 20, (1 << 30) + 1]
    numbers += [(1 << 31) - 2, (1 << 31) - 1, 12345678]
    assert interpreter(interpreted.divisions, divisors, numbers) == [
        [n // d for n in numbers] for d in divisors
    ]


def test_a_launch_has_a_largest_size(interpreter):
    assert "split the batch" in interpreter(interpreted.too_many_programs)


@pytest.mark.parametrize("op", [ln.MaxPool((3, 2), (2, 1), 1), ln.MaxPool((2,), ceil_mode=True)])
def test_operators_from_offsets(interpreter, op):
    interpreter(interpreted.offsets_as_operators, op, (2, 4, 5)[-op.rank - 1 :])


def test_every_kernel_is_met(interpreter):
    sliding, image, wide = ln.MaxPool((3, 3), 2, 1), (2, 8, 16), (2, 8, 128)
    smooth = ln.SmoothMaxPool((3, 3), 1.0, 2, 1)
    calls = [
        (sliding, image, "forward"),
        (sliding, image, "vjp"),
        (sliding, wide, "forward"),
        (sliding, wide, "vjp"),
        (sliding, image, "indices"),
        (smooth, image, "forward"),
        (smooth, image, "vjp"),
        (ln.AdaptiveMaxPool((3, 5)), image, "forward"),
        (ln.AdaptiveMaxPool((3, 5)), image, "vjp"),
        (ln.AdaptiveMaxPool((3, 5), ties="all"), image, "vjp"),
        (ln.GlobalAvgPool(2), image, "forward"),
        (ln.AdaptiveMaxPool((2, 4)), image, "vjp"),
        (ln.GlobalMaxPool(2), image, "vjp"),
    ]
    met, every = interpreter(interpreted.kernels_met, calls)
    assert met == every


def test_tensors_no_launch_may_touch(interpreter):
    sparse, gradient, tangent, device = interpreter(interpreted.complaints)
    assert sparse[0] == "TypeError" and ".to_dense()" in sparse[1]
    assert gradient == (
        "ValueError",
        "gradient is on meta and x on cpu: expected one device; move it with .to('cpu')",
    )
    assert tangent[1].startswith("tangent is on meta")
    assert "need a CUDA device" in device[1]


def test_offsets_of_no_cell_touch_nothing(interpreter):
    cases = [
        (ln.MaxPool((2, 2), 1, 1), (3, 3), (0, 3, 4, 255)),
        (ln.AdaptiveMaxPool((2, 3)), (3, 4), (1, 3, 254)),
        (ln.MaxPool((2, 1, 2), 2, (1, 0, 1)), (2, 2, 3), (0, 2, 5)),
    ]
    assert interpreter(interpreted.wrong_offsets, cases) == [[]] * len(cases)


def test_a_learned_beta_plans_once(interpreter):
    op = ln.SmoothMaxPool((2, 2), 9.0)
    errors, misses = interpreter(interpreted.learned_betas, op, (2, 4, 6), (0.5, 0.75, 2.0, -1.0))
    assert max(errors) < 1e-12
    assert set(misses[1:]) == {misses[0]}
