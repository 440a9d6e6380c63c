"""The fixture `lunette_check`: a clean implementation passes; a wrong one fails with lines to paste."""

import pytest

from lunette.check.plugin import _check, lunette_check  # noqa: F401 — wherever the package is not installed
from tests.check import mutants


def test_a_right_implementation_passes(lunette_check):  # noqa: F811
    report = lunette_check("tests.check.mutants:right", cases=15, seconds=None)
    assert report.clean and report.cases == 15
    assert "15 calls tried, 0 not tried" in report._repr_html_()


def test_a_function_is_a_target(lunette_check):  # noqa: F811
    assert lunette_check(mutants.right, ops=["global-mean"], cases=5, seconds=None).cases == 5


def test_a_wrong_one_fails_with_lines_to_paste():
    with pytest.raises(pytest.fail.Exception, match=r"wrong: max forward") as caught:
        _check("tests.check.accidents:slow_and_wrong", ops=["max"], cases=12, seconds=None)
    assert "tests.check.accidents" in str(caught.value)


def test_what_is_no_target_is_refused():
    with pytest.raises(TypeError, match="expected a name"):
        _check(lambda call: call.x)
