"""Each row of the table of differences in docs/torch.md: torch's answer, and ours."""

import pytest
import torch
from torch.nn import functional

import lunette as ln

NAN, INF = float("nan"), float("inf")


def winners(pool, x):
    x = torch.tensor(x).requires_grad_()
    pool(x).nan_to_num().sum().backward()
    return x.grad.flatten().tolist()


def test_several_nans_in_a_window():
    x = [[[1.0, NAN, NAN, 0.0]]]
    assert functional.max_pool1d(torch.tensor(x), 4, return_indices=True)[1].item() == 2
    assert ln.max_pool(torch.tensor(x), (4,), return_indices=True)[1].item() == 1


def test_a_max_window_without_a_cell():
    x = torch.ones(1, 1, 2, 2)
    theirs = functional.max_pool2d(x, 2, stride=1, padding=1, dilation=3)
    assert theirs.shape == (1, 1, 1, 1) and theirs.item() == -INF
    assert ln.max_pool(x, (2, 2), stride=1, padding=1, dilation=3).item() == 0


def test_padding_past_half_the_kernel():
    x = torch.ones(1, 1, 4)
    with pytest.raises(RuntimeError, match="half"):
        functional.max_pool1d(x, 2, padding=2)
    assert ln.max_pool(x, (2,), padding=2).tolist() == [[[0.0, 1.0, 1.0, 0.0]]]


def test_gradient_of_ties_in_a_global_max():
    x = [[2.0, 2.0, 1.0]]
    assert winners(lambda x: functional.adaptive_max_pool1d(x, 1), x) == [1, 0, 0]
    assert winners(lambda x: x.amax(-1), x) == [0.5, 0.5, 0]
    assert winners(ln.GlobalMaxPool(1), x) == [1, 1, 0]
    assert winners(ln.GlobalMaxPool(1, ties="first"), x) == [1, 0, 0]
    assert winners(ln.GlobalMaxPool(1, ties="split"), x) == [0.5, 0.5, 0]


def test_mean_of_integers():
    x = torch.tensor([[[1, 2, 4, 4]]])
    assert functional.avg_pool1d(x, 2).dtype is torch.int64
    assert functional.avg_pool1d(x, 2).tolist() == [[[1, 4]]]
    assert ln.avg_pool(x, (2,)).dtype is torch.float64
    assert ln.avg_pool(x, (2,)).tolist() == [[[1.5, 4.0]]]


def test_max_of_bools():
    x = torch.tensor([[[True, False, False, False]]])
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        functional.max_pool2d(x[None], (1, 2))
    assert ln.max_pool(x, (2,)).tolist() == [[[True, False]]]


def test_leading_axes():
    x = torch.ones(2, 3, 4, 5, 6)
    with pytest.raises(RuntimeError):
        functional.max_pool1d(x, 2)
    assert ln.max_pool(x, (2,)).shape == (2, 3, 4, 5, 3)


def test_a_batch_without_channels():
    x = torch.ones(2, 0, 4, 4)
    with pytest.raises(RuntimeError):
        functional.max_pool2d(x, 2)
    assert ln.max_pool(x, (2, 2)).shape == (2, 0, 2, 2)


def test_second_derivative_of_smooth_max():
    """The usual exp–mean–log overflows where smooth max does not."""
    x = torch.tensor([[1000.0, 999.0]])
    theirs = x.exp().sum(-1).log()
    assert theirs.item() == INF
    assert ln.smooth_max_pool(x, (2,), beta=1.0).item() == pytest.approx(1000.3133)


def test_dilation_of_a_mean():
    x = torch.arange(5.0).reshape(1, 1, 5)
    with pytest.raises(TypeError):
        functional.avg_pool1d(x, 2, dilation=2)
    assert ln.avg_pool(x, (2,), stride=1, dilation=2).tolist() == [[[1.0, 2.0, 3.0]]]


def test_an_adaptive_output_of_zero():
    x = torch.ones(1, 1, 4)
    assert functional.adaptive_avg_pool2d(x[None], (0, 1)).numel() == 0
    with pytest.raises(ValueError, match="output_size=0"):
        ln.adaptive_avg_pool(x, (0,))


def test_a_mean_over_three_axes_of_which_one_is_shorter_than_the_kernel():
    x = torch.ones(1, 1, 1, 4, 4)
    with pytest.raises(RuntimeError, match="smaller than kernel size"):
        functional.avg_pool3d(x, 2, ceil_mode=True)
    assert functional.avg_pool2d(x[0], (2, 2), ceil_mode=True).tolist() == [[[[1, 1], [1, 1]]]]
    assert functional.max_pool3d(x, 2, ceil_mode=True).shape == (1, 1, 1, 2, 2)
    assert ln.avg_pool(x, (2, 2, 2), ceil_mode=True).tolist() == [[[[[1, 1], [1, 1]]]]]
