"""From the arguments of a command to a finished output: every check first, then the work."""

from __future__ import annotations

import json
import os
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
from lunette.platform import machine_memory, resident_memory
from lunette.scale import axes, in_place, interrupts, looks, missing, outputs
from lunette.scale.arguments import (
    Options,
    check_lengths,
    check_operator,
    check_out,
    check_paths,
    checked,
    on_axes,
    storage_of,
    version_of,
)
from lunette.scale.containers import Remote, container_of, is_remote
from lunette.scale.errors import ScaleError
from lunette.scale.in_place import Image
from lunette.scale.label_groups import can_copy, labels_of
from lunette.scale.levels import factors_of, steps_of
from lunette.scale.locks import locked
from lunette.scale.looks import looks_like_labels
from lunette.scale.opening import kind_of, open_source
from lunette.scale.operators import apply, check_dtype
from lunette.scale.packages import require, require_for
from lunette.scale.plan import Job, Pass, Step, check_count, check_room, plan_passes, tiles_at_once
from lunette.scale.remote_output import RemoteWorkspace, check_remote
from lunette.scale.run import bytes_left, run
from lunette.scale.storage import Storage
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

Say = Callable[[str], None]
"""Called with a line for the person who waits: what was taken for what, and what may be amiss."""


def pool(
    operator: str,
    source: str | Path,
    out: Path | str,
    kernel: tuple[int, ...],
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """One pooling of the last axes of an array on disk."""
    options = options or Options()
    check_operator(operator)
    opened = open_source(source, options.array, options.axes, options.series)
    if operator == "stride" and padding not in (0, (0,) * len(kernel)):
        raise ScaleError(
            f"padding={padding}: stride takes the first cell of each window; expected 0"
        )
    regions = checked(lambda: sliding(kernel, stride, padding, 1, ceil_mode)["regions"])
    step = Step(on_axes(opened, regions), opened.shape)
    kind = kind_of(out, "OUT")
    require_for(kind, f"OUT={str(out)!r}")
    storage = storage_of(opened, kind, options)
    return _do(
        operator,
        opened,
        out,
        (step,),
        multiscale=False,
        storage=storage,
        options=options,
        progress=progress,
    )


def pyramid(
    operator: str | None,
    source: str | Path,
    out: Path | str | None,
    levels: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    factors: Any = None,
    say: Say | None = None,
) -> Outcome:
    """Level after level, each made from the one before; without an operator the mean, and a word if it is odd.

    Without OUT, levels are added to the image that IN is.
    """
    options, say = options or Options(), say or _silent
    chosen = operator or "mean"
    check_operator(chosen)
    if levels is not None:
        checked(lambda: size(levels, "levels", 1))
    image = None
    if out is None:
        opened, image = _image(str(source), options)
        out, kind = image.folder, "zarr"
    else:
        opened = open_source(source, options.array, options.axes, options.series)
        kind = kind_of(out, "OUT")
    require_for(kind, f"OUT={str(out)!r}")
    if kind in outputs.FOLDERS and image is None:
        opened = opened.reordered(axes.ngff_order(opened.axes))
    storage = storage_of(opened, kind, options)
    letters = "yx" if kind == "tif" else axes.SPACE  # OME-TIFF keeps every plane
    chosen_factors = factors_of(opened, levels, factors, storage.chunks, letters)
    steps = steps_of(chosen_factors, opened.shape, chosen)

    def tell() -> None:
        say(axes.sentence(opened.axes, opened.names, chosen_factors[0], opened.told))
        names = labels_of(opened) if image is None else []
        if names and (
            is_remote(str(out)) or kind != "zarr" or not can_copy(opened, storage.version)
        ):
            say(
                f"warning: label images are not copied: {', '.join(names)}; make pyramids of them with "
                "--op mode"
            )
        if operator is None and looks_like_labels(opened):
            say(looks.warning(opened.path, chosen))

    outcome = _do(
        chosen,
        opened,
        out,
        steps,
        multiscale=True,
        storage=storage,
        options=options,
        progress=progress,
        tell=tell,
        image=image,
    )
    _tell_absent(opened, say)
    return outcome


def _tell_absent(source: Source, say: Say) -> None:
    """A server says 404 of a chunk that was never written, and of one that it has lost."""
    container = container_of(source.path) if is_remote(source.path) else None
    if isinstance(container, Remote) and container.absent:
        first = container.absent[0]
        say(
            f"warning: {container.count} chunks are not there, {first!r} among them, and were taken for the fill "
            f"value {source.kept.fill}"
        )


def _image(place: str, options: Options) -> tuple[Source, Image]:
    """The image that levels are added to, and its level that they are made from."""
    require_for("zarr", f"IN={place!r}")
    for name, given in (("--force", options.force), ("--axes", options.axes)):
        if given:
            raise ScaleError(f"{name}: not with --in-place, which touches nothing that is there")
    image = in_place.find(place, options.array, options.resume)
    opened = open_source(image.folder, image.last)
    if options.format and version_of(options.format, opened) != opened.kept.version:
        raise ScaleError(f"--format {options.format}: IN={place!r} is of the other version")
    places = {"scale": image.scale, "translation": image.translation}
    return replace(opened, **places), image  # type: ignore[arg-type]


def _silent(text: str) -> None:
    """Nobody is told."""


# -- the work --


def _do(
    operator: str,
    source: Source,
    out: Any,
    steps: tuple[Step, ...],
    *,
    multiscale: bool,
    storage: Storage,
    options: Options,
    progress: Progress | None,
    tell: Callable[[], None] = lambda: None,
    image: Image | None = None,
) -> Outcome:
    dtype = np.dtype(source.dtype)
    checked(lambda: check_dtype(operator, dtype))
    mark = options.mark(source.dtype)
    if mark is not None:
        checked(lambda: missing.check(operator, dtype, mark))
    added: tuple[str, ...] = ()
    space: Workspace | None = None
    if image is not None:
        kind, out, added = "zarr", image.folder, image.names(len(steps))
        finals = [out / name for name in added]
    else:
        kind = kind_of(out, "OUT")
        if is_remote(str(out)):
            check_remote(source.path, str(out))
            space = RemoteWorkspace(str(out))
            out, finals = space.out, []
        else:
            out = check_out(Path(out))
            finals = outputs.final_paths(out, kind, multiscale, len(steps))
            if not is_remote(source.path):
                check_paths(Path(source.path), out, finals)
    for step in steps:
        check_lengths(step)
    if options.link:
        _check_link(source, out, kind, storage, image is None and space is None)
    if image is None:
        outputs.check_format(out, kind, source, steps[-1].out_shape, multiscale)
    with locked([out] if added else [out, *finals]):
        space = space or Workspace(out, "zarr" if kind in outputs.FOLDERS else kind, finals)
        begun = space.examine(options.resume, options.force)
        root = space.root(space.journal.token if begun else uuid.uuid4().hex[:12])
        job = _job(operator, source, root, kind, steps, multiscale, storage, options)
        if image is not None:
            job = replace(job, base=None, added=added)
        plan = space.journal.resume(job) if begun else None
        interrupts.check()
        return _work(
            job,
            plan,
            storage.unit,
            kind,
            space,
            root,
            multiscale=multiscale,
            options=options,
            progress=progress,
            tell=tell,
        )


def _check_link(source: Source, out: Path, kind: str, storage: Storage, anew: bool) -> None:
    """Refuse `--link` where level 0 would not be the files of the input."""
    if not (anew and kind == "zarr" and storage.like and source.as_stored):
        raise ScaleError(
            "--link: level 0 would not be stored as IN is; expected a Zarr folder, OUT in Zarr, and no "
            "--chunks, --shards, --codec or other --format"
        )
    if os.stat(source.path).st_dev != os.stat(out.parent).st_dev:
        raise ScaleError(f"--link: {source.path!r} and OUT lie on two file systems")


def _work(
    job: Job,
    plan: Any,
    unit: tuple[int, ...],
    kind: str,
    space: Workspace,
    root: Path,
    *,
    multiscale: bool,
    options: Options,
    progress: Progress | None,
    tell: Callable[[], None],
) -> Outcome:
    """Do the job: as the plan of an earlier run has it, or else as memory allows now."""
    out, source, journal = space.out, job.source, space.journal
    _warm(job, source)
    workers = _workers(options)
    memory = options.memory or machine_memory() // 2
    room = memory - (0 if options.scheduler else resident_memory() + SLACK)
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
    tell()
    started = time.perf_counter()
    interrupts.check()
    _begin(job, kind, space, root, multiscale, plan is not None, options.force)
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
    _finish(job, kind, space, root, multiscale)
    return Outcome(
        tuple(level.shape for level in job.levels),
        source.dtype,
        sum(p.count for p in job.passes),
        totals[0],
        totals[1],
        time.perf_counter() - started,
        getattr(space, "url", str(out)),
    )


def _job(
    operator: str,
    source: Source,
    root: Path,
    kind: str,
    steps: tuple[Step, ...],
    multiscale: bool,
    storage: Storage,
    options: Options,
) -> Job:
    shapes = [source.shape] + [step.out_shape for step in steps]
    zarr, chunked = kind == "zarr", kind in outputs.FOLDERS
    levels = [
        Level(
            str(outputs.level_path(root, kind, multiscale, k)),
            kind if chunked else "npy",
            shape,
            source.dtype,
            storage.chunks,
            storage if zarr else None,
            source.names,
            source.kept.fill if zarr else 0,
            source.kept.array if zarr else "{}",
            letters=source.axes if kind == "precomputed" else "",
        )
        for k, shape in enumerate(shapes)
    ]
    base = None
    if multiscale and chunked:
        copied = zarr and bool(storage.like) and source.as_stored
        base = replace(levels[0], copied=copied, linked=options.link)
    return Job(
        operator,
        source,
        steps,
        base,
        tuple(levels[1:]),
        codec=options.codec,
        nodata=options.mark(source.dtype),
    )


def _begin(
    job: Job,
    kind: str,
    space: Workspace,
    root: Any,
    multiscale: bool,
    resumed: bool,
    force: bool,
) -> None:
    """The journal, then empty levels; a run that was killed in between makes the levels again."""
    journal = space.journal
    try:
        if resumed:
            journal.reopen()
        else:
            space.clear()
            journal.start(
                job, json.loads(json.dumps([asdict(p) for p in job.passes])), space.token, force
            )
        if journal.levels:
            outputs.tidy(root, kind)
            return
        space.make()
        outputs.begin(job, root, kind, multiscale)
        for level in ([job.base] if job.base else []) + list(job.levels):
            create_level(level)
        journal.note("levels")
    except OSError as error:
        if not resumed:
            with suppress(OSError, ScaleError):
                space.remove()
        raise ScaleError(f"cannot make {space.out}: {error}") from error
    except ScaleError:  # a place on the network that takes nothing
        if not resumed:
            with suppress(OSError, ScaleError):
                space.remove()
        raise


def _finish(job: Job, kind: str, space: Workspace, root: Any, multiscale: bool) -> None:
    """Make the output from its levels, give it its name, and take the workspace away."""
    journal = space.journal
    made = outputs.made_paths(root, kind, multiscale, len(job.levels), bool(job.added))
    try:
        if not journal.whole:
            interrupts.check()
            outputs.make(job, space.out, kind, multiscale, made)
            interrupts.check()
            journal.note("whole")
        space.publish(made)
        if job.added:
            in_place.announce(job, space.out)
        space.remove()
    except OSError as error:
        raise ScaleError(
            f"cannot make {space.out}: {error}; its levels are kept, go on with --resume"
        ) from error


def _warm(job: Job, source: Source) -> None:
    """Load and compile what tiles will use, so that it is there before memory is measured."""
    step = job.steps[0]
    ranges = tuple((0, 1) for _ in step.in_shape)
    parts = tuple(
        r.part(n, lo, hi)
        for r, n, (lo, hi) in zip(step.regions, step.in_shape, ranges, strict=True)
    )
    shape = tuple(p.slab_range[1] - p.slab_range[0] for p in parts)
    apply(job.operator, np.zeros(shape, source.dtype), parts, job.nodata)


def _workers(options: Options) -> int:
    if options.threads is not None:
        return int(checked(lambda: size(options.threads, "threads", 1)))
    if options.scheduler is None:
        return get_num_threads()
    require("distributed", "--scheduler")
    import distributed

    try:
        with distributed.Client(options.scheduler, timeout=20) as client:
            return max(client.nthreads().values(), default=1)
    except (OSError, ValueError) as error:
        raise ScaleError(f"--scheduler {options.scheduler!r}: {error}") from error


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
