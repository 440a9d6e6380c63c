"""A run as a file: JSON for programs, one self-contained HTML page for people."""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path
from typing import Any

from lunette.check.calls import Array
from lunette.check.display import SIGNS, gravest
from lunette.check.findings import Finding
from lunette.check.judge import NOT_TRIED, VERDICTS
from lunette.check.picture import call_text, picture
from lunette.check.run import PROPERTIES, Report

__all__ = ["as_data", "as_html", "write_html", "write_json"]

SHADES = {
    "agrees": ("#d9f2d9", "#0b3d0b"), "differs by policy": ("#fff2cc", "#4d3900"),
    "wrong": ("#f4b6b6", "#5c0000"), "refused": ("#d6ecf5", "#07364a"),
    "crashed": ("#a61b1b", "#ffffff"), "not offered": ("#f2f2f2", "#4a4a4a"),
    "not tried": ("#ffffff", "#4a4a4a"),
}  # fmt: skip
"""Behind and in front: every pair has a contrast of seven to one at least."""

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:.25em .5em}
th{font-weight:600;background:#fafafa}pre{background:#f6f6f6;padding:.8em;overflow:auto}
section{border-top:2px solid #ddd;margin-top:1.5em}.d{color:#555}h3{margin-bottom:.3em}
.wide{overflow-x:auto}.wide td{text-align:center}.wide th{font-size:12px;hyphens:auto}.wide svg{max-width:none}
code,p,li{overflow-wrap:anywhere}.key span{padding:.1em .5em;margin-right:.5em;white-space:nowrap}
.turned th:not(:first-child){writing-mode:vertical-rl;transform:rotate(180deg);text-align:left}
@media(prefers-color-scheme:dark){body{background:#fff}}
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
    path.write_text(
        json.dumps(as_data(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def write_html(report: Report, path: Path) -> None:
    """Write the report as one page that needs nothing else."""
    path.write_text(as_html(report), encoding="utf-8")


def as_html(report: Report) -> str:
    """The page."""
    escape = html.escape
    versions = ", ".join(f"{k} {v}" for k, v in report.versions.items())
    kinds = (*VERDICTS, NOT_TRIED)
    sums = " · ".join(f"{report.counts[k]} {k}" for k in kinds if report.counts[k])
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>lunette check {escape(report.target)}</title><style>{STYLE}</style>",
        f"<h1>lunette check {escape(report.target)}</h1>",
        f"<p>{escape(versions)}<br>seed {report.seed}, {report.cases} calls<br>",
        f"reproduce: <code>{escape(report.command)}</code></p><p><b>{escape(sums)}</b></p>",
        f"<p><b>{escape(report.cut)}</b></p>" if report.cut else "",
        f"<p>{escape(report.tried)}</p>",
    ]
    if report.matrix:
        parts += ["<h2>Op × property</h2>", _matrix(report.matrix), _key()]
    if report.findings:
        parts.append(f"<h2>Findings ({len(report.findings)})</h2>")
        parts += [_section(n, f) for n, f in enumerate(report.findings, 1)]
    if report.left_out:
        parts.append(f"<p>{report.left_out} more failed calls, of other kinds</p>")
    items = [
        f"<b>{escape(name)}</b>, {example.count} calls: {escape(where)}<pre>{escape(example.program)}</pre>"
        for name, (where, example) in report.policies.items()
    ]
    parts.append(_listed("Differences by policy", items))
    for title, reasons in (("Refused", report.refusals), ("Not offered", report.not_offered)):
        items = [f"{n} × {escape(reason)}" for reason, n in reasons.most_common()]
        parts.append(_listed(title, items))
    parts.append("</html>\n")
    return "\n".join(part for part in parts if part)


def _listed(title: str, items: list[str]) -> str:
    """A heading and its list; nothing where the list is empty."""
    inside = "".join(f"<li>{item}</li>" for item in items)
    return f"<h2>{title}</h2><ul>{inside}</ul>" if items else ""


def _key() -> str:
    """What the signs of the table mean."""
    parts = (f'<span style="{_style(kind)}">{SIGNS[kind]} {kind}</span>' for kind in SHADES)
    return f"<p class=key>{''.join(parts)}</p>"


def _style(kind: str) -> str:
    behind, front = SHADES[kind]
    return f"background:{behind};color:{front}"


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
            cells.append(
                f'<td style="{_style(kind)}" title="{title}" aria-label="{kind}">{SIGNS[kind]}</td>'
            )
        rows.append(f"<tr><th>{html.escape(op)}</th>{''.join(cells)}</tr>")
    return f"<div class=wide><table><tr class=turned><th>op</th>{head}</tr>{''.join(rows)}</table></div>"


def _section(number: int, finding: Finding) -> str:
    verdict, call = finding.verdict, finding.call
    variant = f", {', '.join(finding.variants)}" if finding.variants else ""
    note = f" ({finding.note})" if finding.note else ""
    return (
        f"<section><h3>{number}. {verdict.kind}: {html.escape(call.op)} {call.verb}{variant}"
        f" <span class=d>({finding.count} calls like it)</span></h3>"
        f"<p>{html.escape(verdict.detail + note)}<br><span class=d>{html.escape(call_text(call))}</span></p>"
        f"<pre>{html.escape(finding.program)}</pre><div class=wide>{picture(finding)}</div></section>"
    )
