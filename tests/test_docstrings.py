"""Every public name says its parameters in numpydoc, its example runs, and the reference lists it."""

import ast
import doctest
import importlib
import inspect
import re

import pytest

import lunette as ln
from lunette import dispatch, functional, warmup
from tests.test_front import ROOT

OPTIONAL = {"torch": "torch", "torch.nn": "torch", "jax": "jax", "onnx": "onnx", "verify": "onnx"}
PARTS = ["", "testing", "offsets", "tape", "spec", "bounds", "drawing", "check", *OPTIONAL]
REFERENCE = (ROOT / "docs" / "reference.rst").read_text(encoding="utf-8")
OPS = [
    name
    for name in ln.__all__
    if inspect.isclass(getattr(ln, name)) and issubclass(getattr(ln, name), ln.Op) and name != "Op"
]
DATA = {"NOWHERE", "CURVATURES", "RULES", "OPS", "VERBS", "primitive"}
"""Public names that are neither functions nor classes."""


def module_of(part):
    if part in OPTIONAL:
        pytest.importorskip(OPTIONAL[part])
    return importlib.import_module(f"lunette.{part}".rstrip("."))


def names_of(part):
    """Read from the file, so that a library that is missing hides no name."""
    path = ROOT / "src" / "lunette" / part.replace(".", "/")
    file = (
        path.with_suffix(".py")
        if part and path.with_suffix(".py").exists()
        else path / "__init__.py"
    )
    text = re.search(r"^__all__ = \[(.*?)\]", file.read_text(encoding="utf-8"), re.M | re.S)
    return re.findall(r'"(\w+)"', text[1])


NAMES = [(part, name) for part in PARTS for name in names_of(part)]


@pytest.mark.parametrize(("part", "name"), [n for n in NAMES if n[1] not in DATA], ids=str)
def test_a_public_name_says_what_it_takes_and_shows_it(part, name, monkeypatch, tmp_path):
    """By the specification: that kernels agree is shown elsewhere, and they would be compiled first."""
    found = getattr(module_of(part), name)
    if inspect.ismodule(found):
        assert found.__doc__
        return
    text = inspect.getdoc(found)
    error = inspect.isclass(found) and issubclass(found, Exception)
    if not error:
        parameters = inspect.signature(found).parameters if name not in ("Op", "Tape") else {}
        assert ("Parameters\n---" in text) == bool(parameters)
        section = text.partition("Parameters\n---")[2].partition("\n\n")[0]
        said = [
            line.split(" :")[0] for line in section.splitlines()[1:] if line[:1] not in ("", " ")
        ]
        assert [word.lstrip("*") for word in ", ".join(said).split(", ") if word] == list(
            parameters
        )
    if inspect.isfunction(found):
        gives = inspect.signature(found).return_annotation not in (None, "None")
        assert ("Returns\n---" in text) == gives
    assert "Examples\n---" in text
    if name != "explain":
        for backend in list(
            dispatch.BACKENDS
        ):  # in place: what is prepared is kept by how many there are
            monkeypatch.delitem(dispatch.BACKENDS, backend)
    monkeypatch.setattr(warmup, "_in_a_process", lambda call: "")
    monkeypatch.chdir(tmp_path)
    dispatch.choose.cache_clear()
    (example,) = doctest.DocTestFinder(recurse=False).find(found, name, globs={})
    assert example.examples
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    dispatch.choose.cache_clear()
    assert not result.failed


@pytest.mark.parametrize("part", PARTS)
def test_the_reference_lists_every_public_name(part):
    """By this name, or by the module that has it."""
    listed = set(re.findall(r"auto\w+:: ([\w.]+)$", REFERENCE, re.M))
    inside = {name.rpartition(".")[2] for name in listed}
    for name in names_of(part):
        full = f"lunette.{part}.{name}".replace("..", ".")
        assert full in listed or (not part and name in inside), full


def test_type_checkers_are_told_the_same_arguments():
    """The stub beside `functional.py` has each function's arguments, in their order, with the same ones optional."""
    source = ROOT / "src" / "lunette" / "functional"
    told = ast.parse(source.with_suffix(".pyi").read_text(encoding="utf-8"))
    stubs = [node for node in told.body if isinstance(node, ast.FunctionDef)]
    assert {stub.name for stub in stubs} == set(functional.__all__)
    for stub in stubs:
        real = inspect.signature(getattr(functional, stub.name)).parameters
        named = stub.args.args + stub.args.kwonlyargs
        assert [argument.arg for argument in named] == list(real), stub.name
        needed = {a.arg for a in stub.args.args[: len(stub.args.args) - len(stub.args.defaults)]}
        required = {name for name, p in real.items() if p.default is p.empty}
        assert needed == required, stub.name


@pytest.mark.parametrize("name", [*functional.__all__, *OPS])
def test_a_signature_says_what_is_known(name):
    """`Any` stands for arrays alone."""
    arrays = {"x", "weight", "bias", "values", "indices"}
    for parameter in inspect.signature(getattr(ln, name)).parameters.values():
        assert parameter.name in arrays or "Any" not in str(parameter.annotation), parameter
