"""Kernels that are compiled ahead are found on disk by the calls that need them."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app
from lunette.warmup import Call, make, typical_calls, warm_calls

LATER = """
import sys
import numpy as np
import lunette as ln
x = np.zeros((2, 3, 10, 12), "f4")
op = ln.MaxPool((2, 2))
op(x)
print("numba" in sys.modules)
"""


def test_a_later_process_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def compiles():
        run = subprocess.run(
            [sys.executable, "-c", LATER], capture_output=True, text=True, check=True
        )
        return run.stdout.strip() == "True"

    ln.warm(ln.MaxPool((2, 2)), (2, 3, 10, 12), verbs=["forward"])
    assert list(tmp_path.rglob("*.kernel"))
    assert not compiles()


def test_where_nothing_is_kept_a_call_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    run = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


@pytest.mark.parametrize(
    "arguments, options, error, words",
    [
        (((4, 4),), {"verbs": ["backward"]}, ValueError, "verbs"),
        (((4, 4),), {"verbs": "vjp"}, ValueError, "verbs"),
        (((4, 4),), {"processes": 0}, ValueError, "processes"),
        (((4,),), {}, ValueError, "axes"),
        (((4, -4),), {}, ValueError, "-4"),
        (((4, 4),), {"dtype": "complex64"}, TypeError, "complex"),
    ],
)
def test_what_a_call_would_refuse_is_refused_first(arguments, options, error, words):
    with pytest.raises(error, match=words):
        ln.warm(ln.MaxPool((2, 2)), *arguments, **options)


def test_an_error_comes_back_with_its_call():
    bad = Call(ln.MaxPool((2, 2)), ((1, 1),), "<f4", "forward")
    ((call, error),) = warm_calls([bad])
    assert call == bad and "ValueError" in error


@pytest.mark.parametrize("verb", ["forward", "jvp", "vjp", "autograd"])
@pytest.mark.parametrize("op", [ln.MaxPool((2, 2)), ln.AvgPool((2, 2))], ids=repr)
def test_every_verb_can_be_made(op, verb):
    make(Call(op, ((2, 3, 4, 4),), "<f4", verb, channels_last=True))


def test_the_gradient_of_a_window_whose_taps_no_byte_tells_apart():
    make(Call(ln.GlobalMaxPool(2), ((2, 3, 16, 16),), "<f4", "autograd"))


def test_typical_calls_are_calls():
    calls = typical_calls(["<f4", "<f8"], ["forward", "vjp"])
    assert len(set(calls)) == len(calls) > 60
    for call in calls:
        call.op.check_operands(call.shapes, (np.dtype(call.dtype),) * len(call.shapes))


def test_the_command_names_a_wrong_dtype_or_verb():
    for options in (["--dtype", "int7"], ["--verb", "backward"]):
        result = CliRunner().invoke(app, ["warm", *options])
        assert result.exit_code == 2 and options[0] in result.output


@pytest.mark.parametrize(
    "op, options, error, words",
    [
        (2, {}, TypeError, "op=2"),
        (ln.MaxPool((2, 2)), {"verbs": iter(int, 1)}, ValueError, "verbs"),
        (ln.MaxPool((2, 2)), {"verbs": [[]]}, ValueError, "verbs"),
        (ln.MaxPool((2, 2)), {"dtype": (1, 2, 3)}, TypeError, "dtype"),
        (ln.MaxPool((2, 2)), {"channels_last": 1}, TypeError, "channels_last"),
        (ln.ModePool((2, 2)), {"dtype": "u1"}, TypeError, "verbs='vjp'.*no derivative"),
        (ln.MaxPool((2, 2)), {"dtype": "i4", "verbs": ["jvp"]}, TypeError, "verbs='jvp'"),
    ],
)
def test_arguments_are_refused_by_name(op, options, error, words):
    with pytest.raises(error, match=words):
        ln.warm(op, (4, 4), **options)


def test_the_calls_of_other_dtypes_are_those_that_are_asked_for(monkeypatch):
    """NumPy's word for bfloat16 is that of plain bytes."""
    made = []
    monkeypatch.setattr("lunette.warmup.warm_calls", lambda calls, _: made.extend(calls) or [])
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for dtype, expected in ((bfloat16, bfloat16), (">f4", "f4"), ("f2", "f2")):
        made.clear()
        ln.warm(ln.MaxPool((2, 2)), (4, 4), dtype=dtype, verbs=["forward"])
        assert pickle.loads(pickle.dumps(made[0])).dtype == np.dtype(expected)
