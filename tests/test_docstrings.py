"""Every public name says its parameters in numpydoc, and its example runs."""

import doctest
import inspect

import pytest

import lunette as ln
import lunette.drawing
from lunette import dispatch

FUNCTIONS = [
    name for name in ln.__all__ if inspect.isfunction(getattr(ln, name)) and "pool" in name
] + ["conv", "conv_transpose"]
OPS = [
    name
    for name in ln.__all__
    if inspect.isclass(getattr(ln, name)) and issubclass(getattr(ln, name), ln.Op) and name != "Op"
]


@pytest.mark.parametrize("name", FUNCTIONS + OPS)
def test_every_parameter_is_said(name):
    thing = getattr(ln, name)
    text = inspect.getdoc(thing)
    for heading in ("Parameters\n---", "Raises\n---", "Examples\n---"):
        assert heading in text, heading
    assert ("Returns\n---" in text) == (name in FUNCTIONS)
    said = [line.split(" :")[0] for line in text.splitlines() if " : " in line and line[0] != " "]
    assert said == list(inspect.signature(thing).parameters)


@pytest.mark.parametrize("name", [*FUNCTIONS, *OPS, "drawing.draw"])
def test_the_example_runs(name, monkeypatch):
    """By the specification: that kernels agree is shown elsewhere, and they would be compiled first."""
    monkeypatch.setattr(dispatch, "BACKENDS", {})
    dispatch.choose.cache_clear()
    thing = lunette.drawing.draw if name == "drawing.draw" else getattr(ln, name)
    (example,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    assert example.examples
    result = doctest.DocTestRunner().run(example)
    dispatch.choose.cache_clear()
    assert not result.failed
