"""What limits every row of the GPU table: hardware counters of one launch each, read by ncu.

PYTHONPATH=src python benchmarks/gpu_counters.py --json counters.json

The same command without ncu on the path says so. `--launch` is what runs below ncu.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

METRICS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "read",
    "dram__bytes_write.sum": "written",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "smsp__inst_executed.sum": "instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps",
    "launch__registers_per_thread": "registers",
}
KERNELS = "regex:^(band.*|window|gather|whole_gradient|disjoint|locate)$"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", type=Path, help="launch every row, and write which here")
    parser.add_argument("--rows", default="", help="only rows whose name holds this")
    parser.add_argument("--json", type=Path, help="write the counters here")
    arguments = parser.parse_args()
    if arguments.launch:
        arguments.launch.write_text(json.dumps(launch(arguments.rows)))
        return
    found = read(arguments.rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    print(table(found))


def launch(only: str) -> list[list[Any]]:
    """Run every row once; (name, dtype, bytes, launches before it, launches of it)."""
    import torch
    from triton import knobs

    from benchmarks import gpu_rows
    from lunette.kernels.triton import tiles

    tiles.WORTH_TUNING = 1 << 62  # one launch a row: no trials
    count = 0

    def launched(*_: Any) -> None:
        nonlocal count
        count += 1

    knobs.runtime.launch_enter_hook.add(launched)
    rows = []
    for row in gpu_rows.ROWS:
        for dtype in (torch.float32, torch.bfloat16) if only in row.name else ():
            start = count
            work = row.make(dtype)
            made = count - start
            work.ours()
            torch.cuda.synchronize()
            name = str(dtype).removeprefix("torch.")
            rows.append([row.name, name, work.bytes, made, count - start - made])
            del work
            torch.cuda.empty_cache()
    return rows


def read(only: str) -> list[dict[str, Any]]:
    """The counters of every launch of every row."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--csv"]
        command += ["--target-processes", "all", "-k", KERNELS, "--metrics", ",".join(METRICS)]
        command += [sys.executable, __file__, "--launch", str(rows), "--rows", only]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if not rows.exists():
            sys.exit(f"ncu did not run: {run.stdout[-2000:]}{run.stderr[-2000:]}")
        wanted = json.loads(rows.read_text())
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    launches: dict[int, dict[str, Any]] = {}
    for line in csv.DictReader(lines):
        entry = launches.setdefault(int(line["ID"]), {"kernel": line["Kernel Name"]})
        entry[METRICS[line["Metric Name"]]] = float(line["Metric Value"].replace(",", ""))
    order, found = [launches[i] for i in sorted(launches)], []
    for name, dtype, least, before, own in wanted:
        order = order[before:]
        for entry in order[:own]:
            found.append({"name": name, "dtype": dtype, "bytes": least, **entry})
        order = order[own:]
    return found


def table(found: list[dict[str, Any]]) -> str:
    """A line a launch: the busier of memory and instruction issue is what limits it."""
    lines = [
        "| work | dtype | kernel | µs | DRAM busy | issue slots busy | warps | registers | limit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        limit = "bytes" if row["dram"] >= row["issue"] else "instructions"
        lines.append(
            f"| {row['name']} | {row['dtype']} | {row['kernel']} | {row['ns'] / 1000:.0f} "
            f"| {row['dram']:.0f} % | {row['issue']:.0f} % | {row['warps']:.0f} % "
            f"| {row['registers']:.0f} | {limit} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
