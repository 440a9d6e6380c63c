"""The table of backends: unknown choices, refusals, double claims, and a light import."""

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import lunette as ln
from lunette import dispatch

OP, X = ln.MaxPool((2,)), np.array([1.0, 3, 2, 0])


def add_backend(monkeypatch, name, refusal):
    """Register a backend that answers with its own name's length, for the length of a test."""
    module = ModuleType(f"fake_{name}")
    module.refuses = lambda *_: refusal
    module.forward = lambda op, operands: np.full(op.out_shape(operands[0].shape), len(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(dispatch, "BACKENDS", dict(dispatch.BACKENDS))
    dispatch.register(dispatch.Backend(name, module.__name__))


@pytest.fixture(autouse=True)
def only_our_backends(monkeypatch):
    monkeypatch.setattr(dispatch, "BACKENDS", {})
    dispatch.choose.cache_clear()
    yield
    dispatch.choose.cache_clear()


def test_without_kernels_the_specification_answers():
    assert ln.backend_for(OP, X) == "spec"
    assert (OP(X) == [3, 2]).all()


def test_a_kernel_serves_and_can_be_named(monkeypatch):
    add_backend(monkeypatch, "fast", None)
    assert ln.backend_for(OP, X) == "fast"
    assert (OP(X) == 4).all()
    assert (ln.forward(OP, X, backend="fast") == 4).all()
    assert (ln.forward(OP, X, backend="spec") == [3, 2]).all()


def test_a_refusal_is_visible_and_the_specification_answers(monkeypatch):
    add_backend(monkeypatch, "fast", "knows no windows of two")
    with pytest.warns(ln.SlowPathWarning, match=r"'fast' knows no windows of two.*backend='spec'"):
        assert (OP(X) == [3, 2]).all()
    with pytest.raises(TypeError, match=r"'fast' cannot serve.*knows no windows of two"):
        ln.forward(OP, X, backend="fast")


def test_object_arrays_go_to_the_specification_without_a_word(monkeypatch):
    add_backend(monkeypatch, "fast", None)
    assert ln.backend_for(OP, np.array([1, 2], object)) == "spec"


def test_two_kernels_claiming_one_call_is_an_error(monkeypatch):
    add_backend(monkeypatch, "fast", None)
    add_backend(monkeypatch, "faster", None)
    with pytest.raises(RuntimeError, match="several backends claim"):
        OP(X)


def test_a_name_is_taken_once(monkeypatch):
    add_backend(monkeypatch, "fast", None)
    for name in ("fast", "spec"):
        with pytest.raises(ValueError, match="registered already"):
            dispatch.register(dispatch.Backend(name, "lunette.spec"))


def test_bare_and_tuple_operands():
    gradient = np.array([1.0, 1.0])
    assert isinstance(ln.vjp(OP, X, gradient), np.ndarray)
    (only,) = ln.vjp(OP, (X,), gradient)
    assert (only == ln.vjp(OP, X, gradient)).all()
    assert (ln.jvp(OP, (X,), (X,)) == ln.jvp(OP, X, X)).all()


@pytest.mark.parametrize(
    "make", [list, lambda x: x.astype(">f8"), np.asfortranarray, lambda x: x[::1]]
)
def test_anything_numpy_takes(make):
    assert (OP(make(X)) == [3, 2]).all()


def test_import_needs_numpy_alone():
    heavy = ["numba", "torch", "triton", "jax", "dask", "flint", "typer", "rich", "hypothesis"]
    program = f"import lunette, sys; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
