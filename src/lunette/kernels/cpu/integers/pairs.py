"""Which poolings take pairs of cells on up to three axes, the last among them, and leave all others alone."""

from __future__ import annotations

from typing import Any

from lunette.regions import Part, Region, Sliding

__all__ = ["factor", "paired"]


def factor(region: Region) -> int | None:
    """2 where a region pools pairs, the last alone if the length is odd; 1 where it changes nothing; else None."""
    if isinstance(region, Part):
        step = factor(region.region)
        return step if step and region.slab_range[0] == step * region.outputs[0] else None
    if not isinstance(region, Sliding) or region.kernel != region.stride or region.kernel > 2:
        return None
    plain = region.padding == (0, 0) and region.dilation == 1
    return region.kernel if plain else None


def paired(regions: tuple[Any, ...], pooled: tuple[int, ...]) -> Any:
    """((nz, ny, nx), (fz, fy)) of the last axes, with ones before them; None where pairs do not serve."""
    factors = [factor(r) for r in regions]
    lengths = [r.out_length(n) for r, n in zip(regions, pooled, strict=True)]
    for f, n, m in zip(factors, pooled, lengths, strict=True):
        if f is None or m != -(-n // f):  # a last cell that no window reads
            return None
    if factors[-1] != 2 or pooled[-1] < 2 or any(f != 1 for f in factors[:-3]):
        return None
    missing = max(0, 3 - len(pooled))
    shape = (1,) * missing + tuple(pooled[-3:])
    steps = (1,) * missing + tuple(factors[-3:])
    return shape, steps[:2]
