"""A plugin of pytest: the fixture `lunette_check`, which holds an implementation to the exact meaning.

pytest finds it by itself once `lunette-ops` is installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

__all__ = ["lunette_check"]


@pytest.fixture
def lunette_check() -> Callable[..., Any]:
    """Check an implementation in a test, and fail with lines to paste where it is wrong.

    Returns
    -------
    callable
        `lunette_check(target, ops=None, verbs=None, seconds=20.0, cases=None, seed=0)`. The target is a name of
        `lunette check --list`, a text such as `"kernels.py:pool"`, or a function of one call at the top of a
        module. It returns the report of a clean run.

    Examples
    --------
    In a file of tests::

        from kernels import pool

        def test_pool(lunette_check):
            lunette_check(pool, ops=["max"], seconds=20)
    """
    return _check


def _check(
    target: Any,
    ops: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    seconds: float | None = 20.0,
    cases: int | None = None,
    seed: int = 0,
) -> Any:
    from lunette.check.run import run
    from lunette.check.targets import find_target

    __tracebackhide__ = True
    chosen = find_target(target if isinstance(target, str) else _name(target))
    if not chosen.installed():
        pytest.fail(chosen.missing())
    report = run(chosen, ops, verbs, cases, seed, seconds)
    if not report.cases:
        pytest.fail(f"nothing was tried: {report.cut or 'the target offers nothing of this'}")
    if not report.clean:
        pytest.fail(_words(report), pytrace=False)
    return report


def _name(function: Any) -> str:
    """What the checker's process finds the function by."""
    name, file = getattr(function, "__qualname__", ""), ""
    if callable(function) and name.isidentifier():
        file = inspect.getsourcefile(function) or ""
    if not file:
        raise TypeError(
            f"target={function!r}: expected a name, 'module:function', or a function at the top of a module"
        )
    return f"{file}:{name}"


def _words(report: Any) -> str:
    """The findings, each with the lines that show it."""
    parts = [f"lunette check {report.target}: {report.tried}, seed {report.seed}"]
    for number, finding in enumerate(report.findings, 1):
        verdict, call = finding.verdict, finding.call
        parts.append(
            f"{number}. {verdict.kind}: {call.op} {call.verb} (× {finding.count}): {verdict.detail}\n"
            f"{finding.program}"
        )
    return "\n\n".join(parts)
