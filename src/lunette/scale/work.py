"""From the arguments of a command to a finished output: every check first, then the work."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette.arguments import size
from lunette.kernels.threads import get_num_threads, set_num_threads
from lunette.ops.base import sliding
from lunette.regions import Sliding
from lunette.scale import interrupts, outputs
from lunette.scale.arguments import (
    Options,
    check_lengths,
    check_operator,
    check_out,
    check_paths,
    checked,
    chunks_and_unit,
    on_axes,
)
from lunette.scale.errors import ScaleError
from lunette.scale.locks import locked
from lunette.scale.opening import kind_of, open_source
from lunette.scale.operators import apply, check_dtype
from lunette.scale.plan import Job, Pass, Step, check_count, check_room, plan_passes, tiles_at_once
from lunette.scale.run import bytes_left, run
from lunette.scale.stores import Level, Source, create_level, open_handles_for
from lunette.scale.workspace import Workspace

__all__ = ["Options", "Outcome", "pool", "pyramid"]

SLACK = 48 << 20
"""Bytes that tiles do not account for: threads, buffers, the journal."""


@dataclass(frozen=True)
class Outcome:
    """What was done."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    tiles: int
    read: int
    written: int
    seconds: float
    path: str


Progress = Callable[[int, int, int], None]
"""Called with the bytes read and written of a tile, and the bytes to read in all."""


def pool(
    operator: str,
    source: Path,
    out: Path,
    kernel: tuple[int, ...],
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """One pooling of the last axes of an array on disk."""
    options = options or Options()
    check_operator(operator)
    opened = open_source(source, options.array, options.axes)
    if operator == "stride" and padding not in (0, (0,) * len(kernel)):
        raise ScaleError(
            f"padding={padding}: stride takes the first cell of each window; expected 0"
        )
    regions = checked(lambda: sliding(kernel, stride, padding, 1, ceil_mode)["regions"])
    step = Step(on_axes(opened, regions), opened.shape)
    return _do(operator, opened, out, (step,), False, options, progress)


def pyramid(
    operator: str,
    source: Path,
    out: Path,
    levels: int,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Level after level, each half as long as the one before along z, y and x; in TIFF along y and x."""
    options = options or Options()
    check_operator(operator)
    checked(lambda: size(levels, "levels", 1))
    opened = open_source(source, options.array, options.axes)
    kind = kind_of(out, "OUT")
    if kind == "zarr":
        opened = opened.reordered("tczyx")  # the order that OME-NGFF wants
    letters = "yx" if kind == "tif" else "zyx"  # OME-TIFF keeps every plane
    steps, shape = [], opened.shape
    for level in range(1, levels + 1):
        halved = [a in letters and n > 1 for a, n in zip(opened.axes, shape, strict=True)]
        if not any(halved):
            raise ScaleError(
                f"--levels {levels}: level {level} would be empty, for nothing of {shape} is left to "
                f"halve; expected at most {level - 1}"
            )
        kernel = 1 if operator == "stride" else 2
        regions = tuple(Sliding(kernel if h else 1, 2 if h else 1, ceil_mode=True) for h in halved)
        steps.append(Step(regions, shape))
        shape = steps[-1].out_shape
    return _do(operator, opened, out, tuple(steps), True, options, progress)


# -- the work --


def _do(
    operator: str,
    source: Source,
    out: Path,
    steps: tuple[Step, ...],
    multiscale: bool,
    options: Options,
    progress: Progress | None,
) -> Outcome:
    checked(lambda: check_dtype(operator, np.dtype(source.dtype)))
    kind = kind_of(out, "OUT")
    out = check_out(out)
    finals = outputs.final_paths(out, kind, multiscale, len(steps))
    check_paths(Path(source.path), out, finals)
    for step in steps:
        check_lengths(step)
    outputs.check_format(out, kind, source, steps[-1].out_shape, multiscale)
    chunks, unit = chunks_and_unit(source, steps, options)
    with locked([out, *finals]):
        space = Workspace(out, kind, finals)
        begun = space.examine(options.resume, options.force)
        root = space.root(space.journal.token if begun else uuid.uuid4().hex[:12])
        job = _job(operator, source, root, kind, steps, multiscale, chunks, options)
        plan = space.journal.resume(job) if begun else None
        interrupts.check()
        return _work(job, plan, unit, space, root, multiscale, options, progress)


def _work(
    job: Job,
    plan: Any,
    unit: tuple[int, ...],
    space: Workspace,
    root: Path,
    multiscale: bool,
    options: Options,
    progress: Progress | None,
) -> Outcome:
    """Do the job: as the plan of an earlier run has it, or else as memory allows now."""
    out, kind, source, journal = space.out, space.kind, job.source, space.journal
    _warm(job.operator, source, job.steps[0])
    workers = _workers(options)
    memory = options.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    room = memory - (0 if options.scheduler else _resident() + SLACK)
    passes = plan_passes(job, unit, room, workers, multiscale)
    if kind == "png":  # a PNG is made from the whole level: its cells, and Pillow's copy
        cells = prod(job.steps[0].out_shape)
        check_room(2 * cells * np.dtype(source.dtype).itemsize, room, "a PNG")
    if plan is not None:
        passes = tuple(Pass(**{k: _tuples(v) for k, v in p.items()}) for p in plan)
    job = replace(job, passes=passes, run=uuid.uuid4().hex)
    check_count(job)
    most = tiles_at_once(job, room, workers)
    source.prepare()
    started = time.perf_counter()
    interrupts.check()
    _begin(job, space, root, multiscale, plan is not None, options.force)
    open_handles_for(job.run)
    totals = [0, 0]
    whole = bytes_left(job, journal)

    def report(read: int, written: int) -> None:
        totals[0] += read
        totals[1] += written
        if progress is not None:
            progress(read, written, whole)

    threads = get_num_threads()
    if most > 1:
        set_num_threads(1)  # tiles side by side, rather than threads inside each
    try:
        if not journal.whole:
            run(job, journal, most, options.scheduler, report)
    finally:
        set_num_threads(threads)
    _finish(job, space, root, multiscale)
    return Outcome(
        tuple(level.shape for level in job.levels),
        source.dtype,
        sum(p.count for p in job.passes),
        totals[0],
        totals[1],
        time.perf_counter() - started,
        str(out),
    )


def _job(
    operator: str,
    source: Source,
    root: Path,
    kind: str,
    steps: tuple[Step, ...],
    multiscale: bool,
    chunks: tuple[int, ...],
    options: Options,
) -> Job:
    shapes = [source.shape] + [step.out_shape for step in steps]
    levels = []
    for k, shape in enumerate(shapes):
        stored = tuple(max(1, c) for c in chunks)
        path = outputs.level_path(root, kind, multiscale, k)
        inner = "zarr" if kind == "zarr" else "npy"
        levels.append(
            Level(
                str(path), inner, shape, source.dtype, stored, options.shards, options.compression
            )
        )
    base = levels[0] if multiscale and kind == "zarr" else None
    return Job(operator, source, steps, base, tuple(levels[1:]))


def _begin(
    job: Job, space: Workspace, root: Path, multiscale: bool, resumed: bool, force: bool
) -> None:
    """The journal, then empty levels; a run that was killed in between makes the levels again."""
    journal, kind = space.journal, space.kind
    try:
        if resumed:
            journal.reopen()
        else:
            space.clear()
            journal.start(
                job, json.loads(json.dumps([asdict(p) for p in job.passes])), root.name, force
            )
        if journal.levels:
            outputs.tidy(root, kind)
            return
        space.make()
        outputs.begin(root, kind, multiscale)
        for level in ([job.base] if job.base else []) + list(job.levels):
            create_level(level, job.source.axes)
        journal.note("levels")
    except OSError as error:
        if not resumed:
            with suppress(OSError, ScaleError):
                space.remove()
        raise ScaleError(f"cannot make {space.out}: {error}") from error


def _finish(job: Job, space: Workspace, root: Path, multiscale: bool) -> None:
    """Make the output from its levels, give it its name, and take the workspace away."""
    journal, kind = space.journal, space.kind
    made = outputs.made_paths(root, kind, multiscale, len(job.levels))
    try:
        if not journal.whole:
            interrupts.check()
            outputs.make(job, space.out, kind, multiscale, made)
            interrupts.check()
            journal.note("whole")
        space.publish(made)
        space.remove()
    except OSError as error:
        raise ScaleError(
            f"cannot make {space.out}: {error}; its levels are kept, go on with --resume"
        ) from error


def _warm(operator: str, source: Source, step: Step) -> None:
    """Load and compile what tiles will use, so that it is there before memory is measured."""
    ranges = tuple((0, 1) for _ in step.in_shape)
    parts = tuple(
        r.part(n, lo, hi)
        for r, n, (lo, hi) in zip(step.regions, step.in_shape, ranges, strict=True)
    )
    shape = tuple(p.slab_range[1] - p.slab_range[0] for p in parts)
    apply(operator, np.zeros(shape, source.dtype), parts)


def _workers(options: Options) -> int:
    if options.threads is not None:
        return int(checked(lambda: size(options.threads, "threads", 1)))
    if options.scheduler is None:
        return get_num_threads()
    import distributed

    try:
        with distributed.Client(options.scheduler, timeout=20) as client:
            return max(client.nthreads().values(), default=1)
    except (OSError, ValueError) as error:
        raise ScaleError(f"--scheduler {options.scheduler!r}: {error}") from error


def _resident() -> int:
    """Bytes of memory that this process holds now."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
