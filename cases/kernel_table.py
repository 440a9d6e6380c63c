"""The table of kernels as the documentation has it: `python -m cases.kernel_table` writes it there."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PAGE", "table", "written"]

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
BEGIN, END = "<!-- table of kernels -->\n", "<!-- end of the table -->"


def table() -> str:
    """A row for each kernel of each verb, in order of preference."""
    from lunette.kernels.cpu.explain import TABLES

    lines = ["| kernel | what it serves |", "|---|---|"]
    lines += [f"| `{row.name}` | {row.serves} |" for rows in TABLES.values() for row in rows]
    return "\n".join(lines) + "\n"


def written() -> str:
    """The table that is on the page."""
    found = re.search(f"{BEGIN}(.*?){END}", PAGE.read_text(), re.DOTALL)
    return found.group(1) if found else ""


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(BEGIN + written() + END, BEGIN + table() + END))
