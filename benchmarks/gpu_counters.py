"""One launch of every row, to be read with ncu:

ncu --clock-control none --csv --metrics METRICS python benchmarks/gpu_counters.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]


def main(names: list[str]) -> None:
    import torch

    from benchmarks import gpu_rows
    from lunette.kernels.triton import tiles

    tiles.WORTH_TUNING = 1 << 62  # one launch a row: no trials
    for row in gpu_rows.ROWS:
        if not names or any(name in row.name for name in names):
            for dtype in (torch.float32, torch.bfloat16):
                row.make(dtype).ours()
                torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
