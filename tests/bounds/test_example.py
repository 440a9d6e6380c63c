"""The example of the documentation: what is proved is never more than what withstands an attack."""

import importlib.util
import json
from pathlib import Path

import pytest

from lunette.bounds import check

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_are_certified(tmp_path, capsys):
    pytest.importorskip("sklearn")
    path = tmp_path / "proof.json"
    options = ["--steps", "120", "--images", "6", "--reach", "0.005", "0.3", "--method", "crown"]
    small, large = example("certify_digits").main([*options, "--certificate", str(path)])
    assert small[2] <= small[1] and large[2] <= large[1] <= small[1]
    assert small[2] >= 0.5
    assert large[2] == 0
    assert check.check(path.read_text()) == "verified: 9 rows"
    assert json.loads(path.read_text())["arithmetic"] == "float32"
    assert "verified" in capsys.readouterr().out


def test_the_picture_of_a_window_is_drawn(tmp_path):
    target = tmp_path / "hull.svg"
    example("window_hull").main([str(target)])
    assert target.read_text() == (EXAMPLES.parent / "docs" / "window-hull.svg").read_text()
