"""A run in the terminal: a live line while it goes, a coloured table and the findings at its end."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lunette.check.findings import Finding
from lunette.check.judge import NOT_TRIED, VERDICTS
from lunette.check.run import PROPERTIES, Report
from lunette.check.targets.base import numbers

__all__ = ["COLOURS", "SIGNS", "Display", "gravest", "show_report", "show_targets"]

COLOURS = {
    "agrees": "green",
    "differs by policy": "yellow",
    "wrong": "bold red",
    "refused": "cyan",
    "crashed": "bold white on red",
    "not offered": "dim",
    NOT_TRIED: "magenta",
}
SIGNS = {
    "agrees": "✓", "differs by policy": "≈", "wrong": "✗", "refused": "○", "crashed": "☠",
    "not offered": "·", NOT_TRIED: "?",
}  # fmt: skip
SHORT = 24
"""Arrays of so many cells are printed in full."""
ORDER = ("crashed", "wrong", "differs by policy", "agrees", "refused", NOT_TRIED, "not offered")


def gravest(counts: Counter[str]) -> str:
    """The verdict that a cell of the table shows."""
    return next((k for k in ORDER if counts[k]), "not offered")


class Display:
    """The live line; a context manager whose `update` is a run's `progress`."""

    def __init__(self, console: Console, name: str) -> None:
        self._bar = Progress(
            TextColumn(f"[bold]{name}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.description}"), console=console,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=None)
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Display:
        self._live.__enter__()
        self._live.update(self._bar)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def update(self, report: Report, total: int | None, doing: str) -> None:
        """Show how far the run has come."""
        self._bar.update(self._task, completed=report.cases, total=total, description=doing)
        self._live.update(Group(self._bar, counts_line(report)))


def counts_line(report: Report) -> Text:
    """The verdicts so far, coloured."""
    text = Text()
    for kind in (*VERDICTS, NOT_TRIED):
        if report.counts[kind]:
            text.append(f"{report.counts[kind]} {kind}  ", COLOURS[kind])
    return text


def show_report(console: Console, report: Report) -> None:
    """The table, the findings, the policies and the sums."""
    console.print(_table(report))
    shown = [k for k in ORDER if k != NOT_TRIED or report.counts[k]]
    legend = Text("  ".join(f"{SIGNS[k]} {k}" for k in shown))
    console.print(legend, style="dim")
    for number, finding in enumerate(report.findings, 1):
        _show_finding(console, number, finding)
    if report.left_out:
        console.print(f"… and {report.left_out} more failed calls, of other kinds", style="red")
    for name, (where, example) in report.policies.items():
        console.print(Text(f"≈ {name} ({example.count}): {where}", "yellow"))
    for reason, count in report.refusals.most_common(5):
        console.print(Text(f"○ refused {count}: {reason}", "cyan"))
    for reason, count in report.not_offered.most_common(5):
        console.print(Text(f"· not offered {count}: {reason}", "dim"))
    console.print(counts_line(report))
    console.print(Text(report.tried), highlight=False)
    if report.cut:
        console.print(Text(report.cut, COLOURS[NOT_TRIED]), soft_wrap=True)
    versions = ", ".join(f"{k} {v}" for k, v in report.versions.items())
    console.print(f"{report.target} ({versions}), seed {report.seed}", style="dim", highlight=False)


def _table(report: Report) -> Table:
    """Properties down, ops across: that way it fits a terminal."""
    table = Table(
        title=f"lunette check {report.target}", box=SIMPLE_HEAD, padding=0, title_justify="left"
    )
    table.add_column("", max_width=10)
    for op in report.matrix:
        table.add_column(_heading(op), justify="center", no_wrap=True)
    for name in PROPERTIES:
        cells = []
        for row in report.matrix.values():
            kind = gravest(row[name]) if name in row else ""
            cells.append(Text(SIGNS[kind], COLOURS[kind]) if kind else Text(""))
        if any(cell.plain for cell in cells):
            table.add_row(name, *cells)
    return table


def _heading(op: str) -> str:
    """The op's name, a few letters a line."""
    parts = {"adaptive": "adap-\ntive", "transpose": "trans-\npose", "unpool": "un-\npool"}
    return "\n".join(parts.get(word, word) for word in op.split("-"))


def _show_finding(console: Console, number: int, finding: Finding) -> None:
    """The lines to paste stand alone: no frame around them, no line broken."""
    verdict, call = finding.verdict, finding.call
    where = ", ".join([f"{call.op} {call.verb}", *finding.variants])
    title = f"{number}. {verdict.kind}: {where} (× {finding.count})"
    console.rule(Text(title, COLOURS[verdict.kind]), align="left")
    console.print(finding.program, soft_wrap=True, highlight=False, markup=False)
    note = f" ({finding.note})" if finding.note else ""
    for line in values_lines(finding):
        console.print(Text(f"# {line}", "dim"), soft_wrap=True)
    console.print(Text(f"# {verdict.detail}{note}", COLOURS[verdict.kind]), soft_wrap=True)


def values_lines(finding: Finding) -> list[str]:
    """What was expected and what came, in full where it is short."""
    lines = []
    for outcome, actual in zip(finding.expected, finding.actual, strict=False):
        if max(outcome.values.size, actual.size) <= SHORT:
            lines.append(f"expected {outcome.name} = {numbers(outcome.values)}")
            lines.append(f"actual   {outcome.name} = {numbers(actual)}")
    return lines


def show_targets(console: Console) -> None:
    """Which targets are installed, and what each offers."""
    from lunette.check.targets import TARGETS, find_target, offered_ops

    for name in TARGETS:
        target = find_target(name)
        versions = ", ".join(f"{k} {v}" for k, v in target.versions().items())
        state = Text(f"{name:15}", "bold")
        there = target.installed()
        state.append(
            f"installed: {versions}" if there else "not installed", "green" if there else "dim"
        )
        console.print(state)
        console.print(f"    {target.about}", highlight=False)
        console.print(f"    ops: {', '.join(offered_ops(target))}", style="dim", highlight=False)
        console.print(f"    verbs: {', '.join(target.verbs)}", style="dim", highlight=False)
        console.print(f"    dtypes: {', '.join(target.dtypes)}", style="dim", highlight=False)
        if target.variants != ("",):
            console.print(f"    each at {', '.join(target.variants)}", style="dim", highlight=False)
    console.print(Text("module:function", "bold"))
    console.print(
        "    an adapter of your own: https://lunette-ops.github.io/lunette/check.html",
        highlight=False,
    )
