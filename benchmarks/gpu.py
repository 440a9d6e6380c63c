"""Pooling on a GPU: the agreement sweep (`--check`), or the table of ratios to a device copy.

PYTHONPATH=src python benchmarks/gpu.py --check
PYTHONPATH=src python benchmarks/gpu.py --json gpu.json --docs docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests" / "triton")]

TITLE = "## Pooling on an H200"
PEERS = ("eager", "compiled", "cudnn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="agree with the specification")
    parser.add_argument("--every", type=int, default=1, help="check one case in so many")
    parser.add_argument("--cases-only", action="store_true", help="no large tensors: for memcheck")
    parser.add_argument("--workers", type=int, default=12, help="processes that check")
    parser.add_argument("--compiled", default="float32,bfloat16", help="dtypes for torch.compile")
    parser.add_argument(
        "--rows", default="", help="measure only rows whose name holds one of these"
    )
    parser.add_argument("--json", type=Path, help="write the measurements here")
    parser.add_argument("--docs", type=Path, help="replace the section of this page")
    arguments = parser.parse_args()
    if arguments.check:
        from benchmarks import gpu_check

        checks = [gpu_check.sweep(arguments.every, arguments.workers)]
        if not arguments.cases_only:
            checks += [gpu_check.same_bits(), gpu_check.far_offsets()]
        sys.exit(0 if all(checks) else 1)
    found = measure(arguments.rows, arguments.compiled.split(","))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    page = section(found)
    print(page)
    if arguments.docs:
        replace_section(arguments.docs, page)


def measure(only: str, compiled: list[str]) -> dict[str, Any]:
    """Medians in milliseconds of every row: ours, the peers, and a copy before and after."""
    import torch
    import triton
    from triton.testing import do_bench

    from benchmarks import gpu_rows

    def median(run: Any) -> float:
        return float(do_bench(run, 15, 80, return_mode="median"))

    def copy() -> float:
        x = gpu_rows.images(torch.float32)
        y = torch.empty_like(x)
        return gpu_rows.size(x, y) / median(lambda: y.copy_(x))

    rates, rows = [copy()], []
    for row in gpu_rows.ROWS:
        if not any(name in row.name for name in only.split(",")):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            name = str(dtype).removeprefix("torch.")
            work = row.make(dtype)
            torch.cuda.synchronize()
            began = time.perf_counter()
            work.ours()
            torch.cuda.synchronize()
            entry = {"name": row.name, "dtype": name, "goal": row.goal.get(name)}
            entry["first_s"] = time.perf_counter() - began
            entry["bytes"] = work.bytes
            runs = {"ours": work.ours}
            for peer in PEERS:
                make = getattr(work, peer)
                if make and (peer != "compiled" or name in compiled):
                    try:
                        runs[peer] = make()
                        runs[peer]()
                    except Exception as error:
                        entry[f"{peer}_error"] = repr(error)[:200]
                        del runs[peer]
            for _ in range(2):
                for who, run in runs.items():
                    entry[who] = min(median(run), entry.get(who, float("inf")))
            rows.append(entry)
            print(entry, flush=True)
            del work, runs
            torch.cuda.empty_cache()
    rates.append(copy())
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "versions": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        },
        "copy_bytes_per_ms": rates,
        "rows": rows,
    }


def section(found: dict[str, Any]) -> str:
    """The measurements as a page's section."""
    rate = max(found["copy_bytes_per_ms"])
    versions = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    lines = [
        TITLE,
        "",
        f"{found['date']}, {found['device']}, {versions}. Ratios of bytes over time to a device copy "
        f"in the same run ({rate / 1e9:.2f} TB/s); bytes are each input read and each output written "
        "once. Medians of `do_bench`, the better of two taken in turns. 256×64×112×112; 3-D 8×32×64×128×128; k13 32×64×112×112. "
        "Peers in the same unit, so a peer that writes int64 indices or reads more pays for it. "
        "Where our gradient starts from the input (adaptive max, global max, smooth), the peer's time "
        "is its forward and backward; elsewhere its backward alone.",
        "",
        "| work | dtype | lunette | goal | torch eager | torch.compile | cuDNN | × best peer | first call, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:

        def ratio(key: str, row: Any = row) -> str:
            return f"{row['bytes'] / row[key] / rate:.2f}" if key in row else "–"

        goal = f"{row['goal']:.2f}" if row["goal"] else "–"
        cells = [row["name"], row["dtype"], f"**{ratio('ours')}**", goal]
        cells += [ratio(peer) for peer in PEERS]
        peers = [row[peer] for peer in PEERS if peer in row]
        cells += [f"{min(peers) / row['ours']:.2f}" if peers else "–", f"{row['first_s']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def replace_section(page: Path, text: str) -> None:
    """Put `text` in place of the section that has its title, or at the end."""
    old = page.read_text() if page.exists() else "# Benchmarks\n\n"
    before, found, rest = old.partition(TITLE)
    after = rest[rest.index("\n## ") + 1 :] if found and "\n## " in rest else ""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(before.rstrip() + "\n\n" + text + ("\n" + after if after else ""))


if __name__ == "__main__":
    main()
