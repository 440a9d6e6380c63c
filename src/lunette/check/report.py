"""A run as a file: JSON for programs, one self-contained HTML page for people."""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path
from typing import Any

from lunette.check.calls import Array
from lunette.check.display import gravest
from lunette.check.findings import Finding
from lunette.check.judge import NOT_TRIED, VERDICTS
from lunette.check.picture import call_text, picture
from lunette.check.run import PROPERTIES, Report

__all__ = ["as_data", "as_html", "write_html", "write_json"]

SHADES = {
    "agrees": "#d9f2d9", "differs by policy": "#fff2cc", "wrong": "#f4b6b6", "refused": "#d6ecf5",
    "crashed": "#c0392b", "not offered": "#f2f2f2", "not tried": "#ffffff",
}  # fmt: skip

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:.25em .5em}
th{font-weight:600;background:#fafafa}pre{background:#f6f6f6;padding:.8em;overflow:auto}
section{border-top:2px solid #ddd;margin-top:1.5em}.d{color:#555}h3{margin-bottom:.3em}
"""


def as_data(report: Report) -> dict[str, Any]:
    """Plain data; the same for the same run."""
    return {
        "target": report.target,
        "versions": report.versions,
        "seed": report.seed,
        "command": report.command,
        "cases": report.cases,
        "clean": report.clean,
        "cut": report.cut,
        "verdicts": {k: report.counts[k] for k in (*VERDICTS, NOT_TRIED)},
        "matrix": {
            op: {p: dict(sorted(row[p].items())) for p in PROPERTIES if p in row}
            for op, row in report.matrix.items()
        },
        "findings": [_finding(f) for f in report.findings],
        "failed calls of kinds not shown": report.left_out,
        "policies": {
            name: {"documented": where, "count": example.count, "example": example.program}
            for name, (where, example) in report.policies.items()
        },
        "refused": dict(report.refusals),
        "not offered": dict(report.not_offered),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    verdict, call = finding.verdict, finding.call
    return {
        "verdict": verdict.kind,
        "symptom": verdict.symptom,
        "detail": verdict.detail,
        "op": call.op,
        "verb": call.verb,
        "dtype": call.dtype,
        "shape": list(call.x.shape),
        "arguments": {k: _plain(v) for k, v in call.arguments.items()},
        "note": finding.note,
        "variants": list(finding.variants),
        "layout": call.layout,
        "count": finding.count,
        "program": finding.program,
        "expected": [_cells(o.values) for o in finding.expected],
        "actual": [_cells(a) for a in finding.actual],
    }


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _cells(a: Array) -> Any:
    """Nested lists; floats as their shortest text where JSON has no number for them."""
    if a.size > 2000:
        return f"{a.size} cells"
    return json.loads(json.dumps(a.astype(object).tolist(), default=float), parse_constant=str)


def write_json(report: Report, path: Path) -> None:
    """Write the report as JSON."""
    path.write_text(json.dumps(as_data(report), indent=1, ensure_ascii=False) + "\n")


def write_html(report: Report, path: Path) -> None:
    """Write the report as one page that needs nothing else."""
    path.write_text(as_html(report))


def as_html(report: Report) -> str:
    """The page."""
    escape = html.escape
    versions = ", ".join(f"{k} {v}" for k, v in report.versions.items())
    kinds = (*VERDICTS, NOT_TRIED)
    sums = " · ".join(f"{report.counts[k]} {k}" for k in kinds if report.counts[k])
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>lunette check {escape(report.target)}</title><style>{STYLE}</style>",
        f"<h1>lunette check {escape(report.target)}</h1>",
        f"<p>{escape(versions)}<br>seed {report.seed}, {report.cases} calls<br>",
        f"reproduce: <code>{escape(report.command)}</code></p><p><b>{escape(sums)}</b></p>",
        f"<p><b>{escape(report.cut)}</b></p>" if report.cut else "",
        "<h2>Op × property</h2>",
        _matrix(report.matrix),
        f"<h2>Findings ({len(report.findings)})</h2>",
        *(_section(n, f) for n, f in enumerate(report.findings, 1)),
        f"<p>{report.left_out} more failed calls, of other kinds</p>" if report.left_out else "",
        "<h2>Differences by policy</h2><ul>",
    ]
    for name, (where, example) in report.policies.items():
        parts.append(
            f"<li><b>{escape(name)}</b>, {example.count} calls: {escape(where)}"
            f"<pre>{escape(example.program)}</pre></li>"
        )
    parts.append("</ul><h2>Refused</h2><ul>")
    parts += [f"<li>{n} × {escape(reason)}</li>" for reason, n in report.refusals.most_common()]
    parts.append("</ul><h2>Not offered</h2><ul>")
    parts += [f"<li>{n} × {escape(reason)}</li>" for reason, n in report.not_offered.most_common()]
    parts.append("</ul></html>\n")
    return "\n".join(parts)


def _matrix(matrix: dict[str, dict[str, Counter[str]]]) -> str:
    columns = [p for p in PROPERTIES if any(p in row for row in matrix.values())]
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    rows = []
    for op, row in matrix.items():
        cells = []
        for name in columns:
            if name not in row:
                cells.append("<td></td>")
                continue
            kind = gravest(row[name])
            title = ", ".join(f"{n} {k}" for k, n in sorted(row[name].items()))
            cells.append(f'<td style="background:{SHADES[kind]}" title="{title}">{kind}</td>')
        rows.append(f"<tr><th>{html.escape(op)}</th>{''.join(cells)}</tr>")
    return f"<table><tr><th>op</th>{head}</tr>{''.join(rows)}</table>"


def _section(number: int, finding: Finding) -> str:
    verdict, call = finding.verdict, finding.call
    variant = f", {', '.join(finding.variants)}" if finding.variants else ""
    note = f" ({finding.note})" if finding.note else ""
    return (
        f"<section><h3>{number}. {verdict.kind}: {html.escape(call.op)} {call.verb}{variant}"
        f" <span class=d>({finding.count} calls like it)</span></h3>"
        f"<p>{html.escape(verdict.detail + note)}<br><span class=d>{html.escape(call_text(call))}</span></p>"
        f"<pre>{html.escape(finding.program)}</pre>{picture(finding)}</section>"
    )
