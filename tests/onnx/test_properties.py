"""VNN-LIB: what is read, and that everything else is refused with its line."""

import gzip
import os
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lunette as ln
from lunette.onnx import Constraint, ReadError, loads_property

HEAD = """; two inputs, two outputs
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
"""
BOX = "(assert (>= X_0 -1)) (assert (<= X_0 0.1))\n(assert (>= X_1 0)) (assert (<= X_1 1e-1))\n"


def constraint(bound, *coefficients):
    terms = tuple((j, Fraction(c)) for j, c in enumerate(coefficients) if c)
    return Constraint(terms, Fraction(bound))


def test_a_box_and_a_conjunction():
    found = loads_property(HEAD + BOX + "(assert (<= Y_0 Y_1)) (assert (>= Y_0 3.5))")
    (case,) = found.cases
    assert (found.inputs, found.outputs) == (2, 2)
    assert case.lower == (-1, 0) and case.upper == (Fraction(1, 10), Fraction(1, 10))
    assert case.unsafe == ((constraint(0, 1, -1), constraint("-3.5", -1)),)


def test_the_narrowest_side_counts():
    more = "(assert (<= X_0 9)) (assert (>= X_0 -9)) (assert (<= Y_0 1))"
    (case,) = loads_property(HEAD + BOX + more).cases
    assert (case.lower[0], case.upper[0]) == (-1, Fraction(1, 10))
    (case,) = loads_property(
        HEAD + BOX + "(assert (or (and (<= X_0 9) (<= Y_0 1)) (<= Y_1 1)))"
    ).cases[:1]
    assert (case.lower[0], case.upper[0]) == (-1, Fraction(1, 10))


def test_a_disjunction_of_outputs():
    found = loads_property(
        HEAD + BOX + "(assert (or (and (<= Y_0 1) (>= Y_1 2)) (and (<= Y_1 0))))"
    )
    (case,) = found.cases
    assert case.unsafe == ((constraint(1, 1), constraint(-2, 0, -1)), (constraint(0, 0, 1),))


def test_two_disjunctions_multiply():
    text = HEAD + BOX + "(assert (or (<= Y_0 1) (<= Y_0 2))) (assert (or (<= Y_1 3) (<= Y_1 4)))"
    (case,) = loads_property(text).cases
    assert [tuple(c.bound for c in every) for every in case.unsafe] == [
        (1, 3),
        (1, 4),
        (2, 3),
        (2, 4),
    ]


def test_boxes_in_a_disjunction():
    text = (
        HEAD
        + BOX
        + """(assert (or
      (and (<= X_0 0) (<= Y_0 1))
      (and (>= X_0 0) (<= Y_0 2))
      (and (<= X_0 0) (<= Y_1 3))))"""
    )
    first, second = loads_property(text).cases
    assert (first.lower[0], first.upper[0]) == (-1, 0) and len(first.unsafe) == 2
    assert (second.lower[0], second.upper[0]) == (0, Fraction(1, 10)) and len(second.unsafe) == 1


def test_a_box_that_contradicts_itself_is_left_out_of_a_disjunction_alone():
    text = HEAD + BOX + "(assert (or (and (<= X_0 -5) (<= Y_0 1)) (and (<= X_0 0) (<= Y_0 2))))"
    assert len(loads_property(text).cases) == 1
    with pytest.raises(ReadError, match=r"no input satisfies.*X_0"):
        loads_property(HEAD + BOX + "(assert (<= X_0 -5)) (assert (<= Y_0 1))")


def test_linear_forms_are_exact():
    text = HEAD + BOX + "(assert (<= (+ (* 2 Y_0) (- Y_1) (* 0.1 3 Y_1)) (- 1 (* 0.5 Y_0))))"
    (case,) = loads_property(text).cases
    assert case.unsafe == ((constraint(1, "2.5", "-0.7"),),)


def test_equality_is_both():
    (case,) = loads_property(HEAD + BOX + "(assert (= Y_0 2))").cases
    assert case.unsafe == ((constraint(2, 1), constraint(-2, -1)),)


def test_counterexamples_are_judged_exactly():
    (case,) = loads_property(HEAD + BOX + "(assert (<= Y_0 0.1))").cases
    assert case.holds([0.0, 0.0], [Fraction(1, 10), 0])
    assert not case.holds([0.0, 0.0], [0.1, 0])  # the float is a little more than 1/10
    assert not case.holds([0.1, 0.0], [0, 0])
    assert case.holds([Fraction(1, 10), 0.0], [0, 0])


VERSION_2 = """(vnnlib-version <2.0>)
(declare-network f
  (declare-input X float32 [1,2])
  (declare-output Y float32 [1,3]))
(assert (<= X[0,0] 1)) (assert (>= X[0,0] 0)) (assert (<= X[0,1] 3)) (assert (>= X[0,1] 2))
(assert (>= Y[0,2] Y[0,0]))
"""


def test_version_2():
    found = loads_property(VERSION_2)
    (case,) = found.cases
    assert (found.inputs, found.outputs) == (2, 3)
    assert case.lower == (0, 2) and case.unsafe == ((constraint(0, 1, 0, -1),),)
    with pytest.raises(ReadError, match=r"line 7.*X\[0,2\]"):
        loads_property(VERSION_2 + "(assert (<= X[0,2] 1))")


@pytest.mark.parametrize(
    "text, match",
    [
        ("", "line 1: no input"),
        ("(declare-const X_0 Real)", "no output"),
        (HEAD + BOX, "nothing is asserted of the outputs"),
        (HEAD + "(assert (<= Y_0 1))", r"X_0\) has no lower bound"),
        (HEAD + BOX + "(assert (<= Y_2 1))", "line 8: 'Y_2' is neither"),
        (HEAD + BOX + "(assert (< Y_0 1))", "line 8: < is strict"),
        (HEAD + BOX + "(assert (<= Y_0 X_0))", "line 8.*inputs with outputs"),
        (HEAD + BOX + "(assert (<= (+ X_0 X_1) 1))", "line 8.*several inputs"),
        (HEAD + BOX + "(assert (<= (* Y_0 Y_1) 1))", "line 8.*not linear"),
        (HEAD + BOX + "(assert (<= (/ Y_0 2) 1))", "line 8: '/' is not known"),
        (HEAD + BOX + "(assert (not (<= Y_0 1)))", "line 8: 'not' is not known"),
        (HEAD + BOX + "(assert (=> (<= Y_0 1) (<= Y_1 1)))", "line 8: '=>' is not known"),
        (HEAD + BOX + "(assert (<= Y_0 1 2))", "line 8.*3"),
        (HEAD + BOX + "(assert (<= Y_0))", "line 8"),
        (HEAD + BOX + "(assert (<= 1 2))", "line 8: a comparison without variables"),
        (HEAD + BOX + "(assert (and))", "line 8"),
        (HEAD + BOX + "(assert Y_0)", "line 8"),
        (HEAD + BOX + "(assert ())", "line 8"),
        (HEAD + BOX + "(assert)", "line 8"),
        (HEAD + BOX + "(check-sat)", "line 8: 'check-sat' is not known"),
        (HEAD + BOX + "(assert (<= Y_0 1)", "line 8.*never closed"),
        (HEAD + BOX + "(assert (<= Y_0 1)))", "line 8.*never opened"),
        (HEAD + BOX + "assert", "line 8: 'assert' stands outside"),
        (HEAD + BOX + "(assert (<= Y_0 0x10))", "line 8: '0x10'"),
        (HEAD + BOX + "(assert (<= Y_0 nan))", "line 8: 'nan'"),
        (HEAD + BOX + "(assert (<= Y_0 inf))", "line 8: 'inf'"),
        (HEAD + BOX + "(assert (<= Y_0 1/2))", "line 8: '1/2'"),
        (HEAD + BOX + "(assert (<= Y_0 1e999999999))", "line 8.*power of ten"),
        (HEAD + BOX + f"(assert (<= Y_0 {'1' * 10**6}))", "line 8: a word of 1000000 characters"),
        (HEAD + BOX + "(" * 10**6, "line 8: more than 100 parentheses"),
        (HEAD + "(declare-const X_0 Real)", "line 6: X_0 is declared twice"),
        (HEAD + "(declare-const X_3 Real)", "X_2 is not declared"),
        (HEAD + "(declare-const Z_0 Real)", "line 6: 'Z_0'"),
        (HEAD + "(declare-const X_2 Int)", "line 6: X_2 has type 'Int'"),
        ("(vnnlib-version <3.0>)", "line 1"),
        (VERSION_2 + "(declare-network g (declare-input Z Real [1]) (declare-output W Real [1]))", "line 7.*second"),
        ("\0\x01", "line 1"),
    ],
    ids=lambda v: v[-30:] if isinstance(v, str) else "",
)  # fmt: skip
def test_refused_with_its_line(text, match):
    with pytest.raises(ReadError, match=match):
        loads_property(text)


def test_formulas_that_multiply_out_are_bounded():
    either = "(or " + " ".join(f"(<= Y_0 {n})" for n in range(100)) + ")"
    begin = time.monotonic()
    for text in ("(assert " + either + ")\n", ""):
        nested = text * 5 or "(assert (and " + either * 5 + "))"
        with pytest.raises(ReadError, match="multiplied out"):
            loads_property(HEAD + BOX + nested)
    assert time.monotonic() - begin < 60


def test_files(tmp_path):
    text = HEAD + BOX + "(assert (<= Y_0 1))"
    (tmp_path / "p.vnnlib").write_text(text)
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    assert ln.onnx.load_property(tmp_path / "p.vnnlib") == ln.onnx.load_property(
        tmp_path / "p.vnnlib.gz"
    )
    with pytest.raises(ReadError, match="max_bytes=9"):
        ln.onnx.load_property(tmp_path / "p.vnnlib", max_bytes=9)
    (tmp_path / "p.vnnlib").write_bytes(b"\xff\xfe")
    with pytest.raises(ReadError, match=r"p\.vnnlib.*UTF-8"):
        ln.onnx.load_property(tmp_path / "p.vnnlib")


WORDS = [
    "(",
    ")",
    "assert",
    "and",
    "or",
    "<=",
    ">=",
    "=",
    "X_0",
    "Y_0",
    "Y_1",
    "1",
    "-.5",
    "+",
    "-",
    "*",
    ";",
    "\n",
    "[0]",
]
COUNT = int(os.environ.get("LUNETTE_ONNX_CASES", "150"))


@settings(max_examples=COUNT, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)))
def test_any_text_is_read_or_refused(text):
    try:
        found = loads_property(HEAD + BOX + text)
    except ReadError as error:
        assert "line " in str(error)
    else:
        assert all(every for case in found.cases for every in case.unsafe)
