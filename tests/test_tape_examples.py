"""The examples, shortened: they run, and what they claim holds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_digits_are_learned(tmp_path, capsys):
    digits = example("digits")
    picture, network = tmp_path / "loss.png", tmp_path / "net.svg"
    share = digits.main(
        ["--epochs", "6", "--images", "640", "--picture", str(picture), "--network", str(network)]
    )
    assert share > 0.85  # a third of the steps of a full run; guessing gives 0.1
    assert network.read_text().startswith("<svg")
    assert "held-out digits right" in capsys.readouterr().out


def test_the_loss_curve_is_drawn_as_text_without_matplotlib(monkeypatch, capsys):
    from rich.console import Console

    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    example("digits").draw([3.0, 2.0, 1.0, 0.1], "nowhere.png", Console())
    assert "█" in capsys.readouterr().out and not Path("nowhere.png").exists()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_gradients_lie_within_their_bound(dtype, capsys):
    exact_gradients = example("exact_gradients")
    share = exact_gradients.main(dtype)
    assert 0 < share <= 1
    assert "loss after it" in capsys.readouterr().out


def test_the_bound_is_tight_enough_to_find_an_error():
    exact_gradients = example("exact_gradients")
    zero, one = exact_gradients.COUNTED.from_int(0), exact_gradients.COUNTED.from_int(1)
    total = zero
    for _ in range(10):
        total = total + one * one
    unit = exact_gradients.Fraction(1, 2**53)
    assert total.value == total.magnitude == 10 and total.roundings == 11
    assert 0 < total.bound(unit) < exact_gradients.Fraction(np.spacing(10.0)) * 10
