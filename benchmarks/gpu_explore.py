"""Times of every tile on every row: how the tiles of `lunette.kernels.triton.tiles` were chosen."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)]

import torch
from triton.testing import do_bench

from benchmarks import gpu_rows
from lunette.kernels.triton import launch


def main() -> None:
    torch.compile = lambda f: f  # peers are not measured here
    x = gpu_rows.images(torch.float32)
    y = torch.empty_like(x)
    copy = do_bench(lambda: y.copy_(x), return_mode="median")
    rate = gpu_rows.size(x, y) / copy
    print(f"copy {copy:.3f} ms, {rate / 1e9:.2f} TB/s", flush=True)
    del x, y
    seen = {}

    def every(key, tiles, run, size):
        run(tiles[0])
        if key not in seen:
            seen[key] = {}
            for tile in tiles + extra(tiles):
                start = time.perf_counter()
                try:
                    run(tile)
                    torch.cuda.synchronize()
                    first = time.perf_counter() - start
                    seen[key][tile] = (
                        do_bench(lambda tile=tile: run(tile), 5, 25, return_mode="median"),
                        first,
                    )
                except Exception as error:
                    print("  failed", tile, repr(error)[:200])

    def extra(tiles):
        return []

    launch.best_tile = every
    for row in gpu_rows.ROWS:
        if len(sys.argv) > 1 and not any(a in row.name for a in sys.argv[1:]):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            seen.clear()
            try:
                work = row.make(dtype)
                t = do_bench(work.ours, 10, 60, return_mode="median")
            except Exception as error:
                print(row.name, dtype, "FAILED", repr(error)[:500], flush=True)
                continue
            goal = row.goal.get(str(dtype)[6:], 0)
            ratio = work.bytes / t / rate
            print(
                f"{'MISS' if ratio < goal else 'ok  '} {row.name:30s} {str(dtype)[6:]:9s} {t:.3f} ms {ratio:.2f} (goal {goal})",
                flush=True,
            )
            for key, times in seen.items():
                for tile, (ms, first) in sorted(times.items(), key=lambda kv: kv[1][0]):
                    print(
                        f"      {key[1:3] if key[1] == 'spread' else key[1]} {tuple(tile)} {ms:.3f} ms = {work.bytes / ms / rate:.2f}  first {first:.1f} s"
                    )
            del work


if __name__ == "__main__":
    main()
