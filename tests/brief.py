"""Which cases of a long list a brief run has: the long run has them all."""

import pytest


def every(n, cases):
    """Every n-th case always, the others in the long run.

    With `n` prime to the number of values of each parameter, every value is still met.
    """
    return [case if number % n == 0 else _in_full(case) for number, case in enumerate(cases)]


def _in_full(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.full)
