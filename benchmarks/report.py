"""The results as a table in the terminal, a JSON file, a bar chart and a section of the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers import PEERS

__all__ = [
    "HEADING",
    "draw",
    "line",
    "load",
    "markdown",
    "save",
    "show",
    "verdicts",
    "write_section",
]

HEADING = "## Pooling on CPU"
DASH = "–"
SHARED = (
    " The copy's bandwidth varies much between rows: the machine had other work to do at the same "
    "time. Compare within a row, not between rows."
)

Row = dict[str, Any]


def save(results: dict[str, Any], path: Path) -> None:
    """Write the results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read results back."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# -- ratios --


def best_peer(row: Row) -> tuple[str, float] | None:
    """The fastest of the others, and its milliseconds."""
    others = {name: ms for name, ms in row["ms"].items() if name != "lunette"}
    return min(others.items(), key=lambda item: item[1]) if others else None


def verdicts(row: Row) -> list[tuple[str, float, float]]:
    """(what, reached, asked) for every goal of a workload that this run can judge."""
    found = []
    if row["goal"]:
        found.append(("of copy", row["of_copy"]["lunette"], row["goal"]))
    for other, asked in row["times"].items():
        ms = None
        if other == "best":
            best = best_peer(row)
            ms = best[1] if best else None
        elif other in row["ms"]:
            ms = row["ms"][other]
        else:
            ms = row.get("beside", {}).get(other)
        if ms is not None:
            found.append((f"× {other}", ms / row["ms"]["lunette"], asked))
    return found


def _goals(row: Row) -> str:
    return ", ".join(
        f"{reached:.2f} {what} (≥ {asked:.3g}) {'✓' if reached >= asked else '✗'}"
        for what, reached, asked in verdicts(row)
    )


def line(row: Row) -> str:
    """One row in one line, for the progress display."""
    peers = ", ".join(f"{n} {ms:.3g}" for n, ms in row["ms"].items() if n != "lunette")
    return (
        f"{row['name']:<26} {row['ms']['lunette']:8.2f} ms  {row['of_copy']['lunette']:.2f} of copy"
        f"  ({row['copy_gb_s']:.0f} GB/s)  {peers}"
    )


# -- the terminal --


def show(results: dict[str, Any], console: Console) -> None:
    """The table of goals, and start-up below it."""
    rows = results["rows"]
    table = Table(title="Pooling on CPU: medians, and our fraction of a plain copy's bandwidth")
    columns = ("work", "ms", "of copy", "best peer", "× best", "× torch", "goals")
    for column in columns:
        left = column in ("work", "best peer", "goals")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        best, ms = best_peer(row), row["ms"]
        table.add_row(
            row["name"],
            f"{ms['lunette']:.2f}",
            f"{row['of_copy']['lunette']:.2f}",
            f"{best[0]} {best[1]:.1f}" if best else DASH,
            f"{best[1] / ms['lunette']:.1f}" if best else DASH,
            f"{ms['torch eager'] / ms['lunette']:.1f}" if "torch eager" in ms else DASH,
            "".join("✓" if reached >= asked else "✗" for _, reached, asked in verdicts(row)),
        )
    console.print(table)
    for row in rows:
        if any(reached < asked for _, reached, asked in verdicts(row)):
            console.print(f"{row['name']}: {_goals(row)}", highlight=False)
    for text in _startup_lines(results.get("startup", {})):
        console.print(text)


def _startup_lines(startup: dict[str, Any]) -> list[str]:
    if not startup:
        return []
    imports, calls = startup["import_s"], startup["small_call_us"]
    first = startup["first_call_s"]
    threads = ", ".join(f"{n}: {ms:.1f} ms" for n, ms in startup["threads_ms"].items())
    return [
        f"`import lunette`: {imports['lunette']:.3f} s (NumPy alone {imports['numpy']:.3f} s)",
        "first call, cold / cached on disk: "
        + ", ".join(f"{n} {t['cold']:.2f} / {t['cached']:.2f} s" for n, t in first.items()),
        "a call on 1×3×8×8: " + ", ".join(f"{n} {us:.1f} µs" for n, us in calls.items()),
        f"16 times the input takes {startup['scaling']['times']:.1f} times as long",
        f"max k3s2p1 by threads: {threads}",
    ]


# -- the chart --


def draw(results: dict[str, Any], path: Path) -> None:
    """Horizontal bars: the fraction of a copy that we and the best peer reach."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # Text stays text and no date goes in, so that the same figures give the same file.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lunette", "font.size": 9})
    rows = list(reversed(results["rows"]))
    figure, axes = plt.subplots(figsize=(8, 0.36 * len(rows) + 1))
    places = range(len(rows))
    ours = [row["of_copy"]["lunette"] for row in rows]
    eager = [row["of_copy"].get("torch eager", 0) for row in rows]
    best = [
        max((v for n, v in row["of_copy"].items() if n != "lunette"), default=0) for row in rows
    ]
    axes.barh([p + 0.27 for p in places], ours, 0.27, label="lunette", color="#2f6f9f")
    axes.barh(list(places), best, 0.27, label="best peer", color="#d9a441")
    axes.barh([p - 0.27 for p in places], eager, 0.27, label="torch eager", color="#b5b5b5")
    goals = [(p, row["goal"]) for p, row in zip(places, rows, strict=True) if row["goal"]]
    axes.plot([g for _, g in goals], [p + 0.27 for p, _ in goals], "k|", markersize=8, label="goal")
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(list(places), [row["name"] for row in rows])
    axes.set_xlabel("of a plain copy's bandwidth (bytes in + bytes out) / time")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


# -- the page --


def markdown(results: dict[str, Any], chart: str) -> str:
    """The section of the page: what was measured, where, and the table."""
    rows, about = results["rows"], results["machine"]
    names = [name for name in PEERS if any(name in row["ms"] for row in rows)]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    copies = sorted(row["copy_gb_s"] for row in rows)
    lines = [
        f"Measured {about['date']} on {about['processor']}, {about['cores']} cores, "
        f"{about['memory_gib']} GiB, {about['system']}, Python {about['python']}; {versions}. "
        f"`python -m benchmarks --write-docs` makes this section anew.",
        "",
        "Milliseconds are medians. Everyone in a row is timed in turns within one run. "
        "*Of copy* is (bytes of the input + bytes of the result) / time, over the bandwidth of a "
        f"plain copy timed in the same turns ({copies[0]:.0f} to {copies[-1]:.0f} GB/s here). For "
        "a vjp these are the bytes of the gradient in and of the gradient out. Arrays are float32 "
        "and channels first where nothing else is said. A dash: the peer does not offer the op. "
        "oneDNN works on its own blocked memory order, conversions not counted. torch's vjp is "
        "its backward alone, with what its forward kept; ours starts from the input but where winners are kept. torch's and "
        "JAX's smooth max is exp, sum, log, which overflows where ours does not."
        + (SHARED if copies[-1] > 1.3 * copies[0] else "")
        + _one_way(rows),
        "",
        f"![Fractions of a plain copy's bandwidth]({chart})",
        "",
        "| work | shape | lunette ms | of copy | goals | " + " | ".join(names) + " |",
        "|---|---|---|---|---|" + "---|" * len(names),
    ]
    for row in rows:
        peers = [f"{row['ms'][n]:.3g}" if n in row["ms"] else DASH for n in names]
        lines.append(
            f"| {row['name']} | {'×'.join(map(str, row['shape']))} | {row['ms']['lunette']:.2f} "
            f"| {row['of_copy']['lunette']:.2f} | {_goals(row) or DASH} | "
            + " | ".join(peers)
            + " |"
        )
    startup = _startup_lines(results.get("startup", {}))
    if startup:
        lines += ["", "Start-up, small calls and growth:", ""]
        lines += [f"- {text}" for text in startup]
    return "\n".join(lines) + "\n"


def _one_way(rows: list[dict[str, Any]]) -> str:
    """What plain loops read and write, beside the copy."""
    both = [row for row in rows if "reading" in row and "writing" in row]
    if not both:
        return ""
    read, written = (median(row[way] for row in both) for way in ("reading", "writing"))
    return (
        f" Reading alone by a plain loop, one page after the other, reached {read:.2f} of the copy's "
        f"bandwidth, filling memory {written:.2f} (medians of the rows); both count the bytes of one array."
    )


def write_section(path: Path, heading: str, body: str) -> None:
    """Put a section into a page: replace the one with this heading, or add it at the end."""
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    section = f"{heading}\n\n{body}"
    pattern = re.compile(rf"^{re.escape(heading)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(text):
        text = pattern.sub(lambda _: section + "\n", text)
    else:
        text = f"{text.rstrip()}\n\n{section}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n")
