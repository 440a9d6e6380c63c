"""Drawn CPU layers: the same for a seed, of every kind, compared with peers that do the same, and summed up rightly."""

import pytest

import lunette as ln
from benchmarks import cpu_draw, scaling
from benchmarks.convolution_layers import CELLS, PRODUCTS, ConvolutionLayer, draw_convolutions


def test_convolutions_are_drawn_of_every_kind_and_the_same_for_a_seed():
    layers = draw_convolutions(3, 60)
    assert layers == draw_convolutions(3, 60) != draw_convolutions(4, 60)
    assert {layer.op.rank for layer in layers} == {1, 2, 3}
    kinds = {
        "strided": lambda layer: max(layer.op.stride) > 1,
        "dilated": lambda layer: max(layer.op.dilation) > 1,
        "depthwise": lambda layer: layer.op.groups == layer.shape[1] > 1,
        "grouped": lambda layer: 1 < layer.op.groups < layer.shape[1],
        "1×1": lambda layer: set(layer.op.kernel) == {1},
        "plain": lambda layer: layer.op.groups == 1 and min(layer.op.kernel) > 1,
    }
    for kind, holds in kinds.items():
        assert any(map(holds, layers)), kind
    for layer in layers:
        out = layer.op.out_shape(layer.shape, layer.weight)
        assert min(out) > 0
        assert PRODUCTS[0] <= layer.products <= PRODUCTS[1]
        assert layer.products >= out[1]
    assert max(layer.shape[0] * layer.shape[1] for layer in layers) <= CELLS


def test_summary_takes_the_best_peer():
    rows = [
        {"layer": "a", "forward": {"numpy": 10.0, "torch": 20.0, "eager": 40.0, "onnx": 20.0}},
        {"layer": "b", "forward": {"numpy": 10.0, "torch": 20.0, "eager": 5.0}},
    ]
    text = cpu_draw.summary("convolution", rows)
    assert "from numpy  geometric mean 1.00, worst 0.50 (b), behind in 1 of 2" in text
    assert "from torch  geometric mean 0.50, worst 0.25 (b), behind in 1 of 2" in text


@pytest.mark.parametrize("only", ["convolution", "pooling"])
def test_a_run_of_one_small_layer(only, monkeypatch, capsys):
    layer = ConvolutionLayer("a", ln.Conv((3, 3), 1, 1), (1, 2, 8, 8), (4, 2, 3, 3))
    monkeypatch.setattr(cpu_draw, "draw_convolutions", lambda seed, count: [layer] * count)
    if only == "pooling":
        small = cpu_draw.draw(1, 1, ("float32",), most_cells=1 << 14)
        monkeypatch.setattr(cpu_draw, "draw", lambda *_: small)
    monkeypatch.setattr(cpu_draw, "_use", lambda threads: None)
    cpu_draw.main(
        ["--op", only, "--layers", "1", "--no-compile", "--rounds", "1", "--threads", "1"]
    )
    text = capsys.readouterr().out
    assert f"{only}, 1 threads, seed 0: 1 layers" in text
    assert "both" in text and "eager" in text


def test_a_wrong_result_of_ours_is_no_time():
    op = ln.Conv((3, 3), 1, 1)
    wrong = ConvolutionLayer("a", ln.Conv((3, 3), 1, 1, (2, 2)), (1, 2, 8, 8), (4, 2, 3, 3))
    torch = pytest.importorskip("torch")
    x, w = torch.ones(wrong.shape), torch.ones(wrong.weight)
    value = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    calls = {"forward": {"numpy": lambda: op(x.numpy(), w.numpy()) + 1, "torch": lambda: op(x, w)}}
    with pytest.raises(AssertionError, match="forward of numpy"):
        cpu_draw._check(wrong, calls, [x, w], value, value)


def test_scaling_compares_with_the_first_number_of_threads():
    times = {"copy": {"copy": [4.0, 2.0]}, "a": {"ours": [8.0, 2.0], "torch": [1.0, 2.0]}}
    text = scaling.markdown(times, [1, 2])
    assert "| copy | copy | 4.000 | 2.00 |" in text
    assert "| a | ours | 8.000 | 4.00 |" in text
    assert "| a | torch | 1.000 | 0.50 |" in text
