"""Where the cells of each level stand."""

from __future__ import annotations

from lunette.scale.plan import Job

__all__ = ["scales"]


def scales(job: Job) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The scale and translation of level 0 and of every level after it.

    A cell of a pooled level stands at the centre of its window, one that was subsampled at the
    cell that was taken. A window of k cells at stride s centres (k−1)/2 cells after its first.
    """
    found = [(job.source.scale, job.source.translation)]
    for step in job.steps:
        scale, translation = found[-1]
        strides = [r.stride or 1 for r in step.regions]  # type: ignore[attr-defined]
        shifts = [(r.kernel - 1) / 2 for r in step.regions]  # type: ignore[attr-defined]
        found.append(
            (
                tuple(s * k for s, k in zip(scale, strides, strict=True)),
                tuple(t + s * h for t, s, h in zip(translation, scale, shifts, strict=True)),
            )
        )
    return found
