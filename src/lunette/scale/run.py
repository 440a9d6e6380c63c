"""Doing a job: tiles on threads of this process or on a cluster, with a journal and a progress bar."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lunette.scale import interrupts
from lunette.scale.containers import is_remote
from lunette.scale.errors import ScaleError
from lunette.scale.journal import Journal
from lunette.scale.operators import apply
from lunette.scale.plan import Job
from lunette.scale.stores import chunks_of, open_handles_for

__all__ = ["bytes_left", "run", "run_tile"]

LISTEN = 0.2
"""Seconds after which a wait looks whether it is to stop."""

Report = Callable[[int, int], None]
"""Called with the bytes read and the bytes written of each tile that is done."""


def run_tile(job: Job, number: int, tile: int) -> tuple[int, int]:
    """Read the slab of one tile, do the steps of its pass, write every level; bytes read, written."""
    open_handles_for(job.run)
    p = job.passes[number]
    chain = job.chain(p, tile)
    block = job.below(p.first).read(chain[0], again=True)
    read, written = block.nbytes, 0
    if p.base:
        assert job.base is not None
        if job.base.copied:
            _copy(job, chain[0])
        else:
            _write(job.base, 0, chain[0], block)
        written += block.nbytes
    for k, ranges in zip(range(p.first, p.last), chain[1:], strict=True):
        step = job.steps[k]
        parts = tuple(
            region.part(n, lo, hi)
            for region, n, (lo, hi) in zip(step.regions, step.in_shape, ranges, strict=True)
        )
        block = apply(job.operator, block, parts, job.nodata)
        _write(job.levels[k], k + 1, ranges, block)
        written += block.nbytes
    return read, written


def _copy(job: Job, ranges: Any) -> None:
    """The files of level 0 whose cells these are, as they lie in the input."""
    from lunette.scale.zarr_output import copy_chunks

    base = job.base
    assert base is not None
    assert base.storage is not None
    try:
        target: Any = base.path if is_remote(base.path) else Path(base.path)
        copy_chunks(
            Path(job.source.path, job.source.inner), target, base.storage, ranges, base.linked
        )
    except OSError as error:
        raise ScaleError(
            f"cannot copy chunks of {ranges} to {base.path}: {error}; what was written is kept, go on "
            "with --resume"
        ) from error


def _write(level: Any, number: int, ranges: Any, block: np.ndarray[Any, Any]) -> None:
    try:
        level.write(ranges, block)
    except Exception as error:
        first, *others = chunks_of(ranges, level.chunks)
        more = f" to {others[-1]}" if others else ""
        raise ScaleError(
            f"cannot write chunk {first}{more} of level {number}, {level.path}: {error}; what was "
            "written is kept, go on with --resume"
        ) from error


def run(job: Job, journal: Journal, workers: int, scheduler: str | None, report: Report) -> None:
    """Every tile that the journal does not have, pass after pass."""
    with _executor(workers, scheduler) as (submit, wait, width):
        for number, p in enumerate(job.passes):
            left = (t for t in range(p.count) if (number, t) not in journal.done)
            _run_pass(job, number, left, journal, (submit, wait, width), report)


def _run_pass(
    job: Job, number: int, left: Iterator[int], journal: Journal, executor: Any, report: Report
) -> None:
    submit, wait, width = executor
    flying: dict[Any, int] = {}
    trouble: BaseException | None = None
    while True:
        while trouble is None and len(flying) < width:
            tile = next(left, None)
            if tile is None:
                break
            flying[submit(run_tile, job, number, tile)] = tile
        if not flying:
            break
        try:
            done = wait(list(flying))
        except (
            KeyboardInterrupt
        ) as interrupt:  # tiles in flight may land: the journal has them then
            trouble = trouble or interrupt
            continue
        except Exception as error:  # the cluster is gone
            trouble = trouble or error
            break
        for future in done:
            tile = flying.pop(future)
            try:
                read, written = future.result()
                journal.add(number, tile)
            except Exception as error:
                trouble = trouble or error
            else:
                report(read, written)
    if trouble is None:
        return
    with suppress(OSError):  # the disk may be full
        journal.close()
    if isinstance(trouble, (ScaleError, KeyboardInterrupt)):
        raise trouble
    kind = type(trouble).__name__
    raise ScaleError(
        f"stopped by {kind}: {trouble}; what was written is kept, go on with --resume"
    ) from trouble


class _executor:
    """(submit, wait for some, tiles in flight) on threads here or on the workers of a cluster."""

    def __init__(self, workers: int, scheduler: str | None) -> None:
        self.workers, self.scheduler = workers, scheduler

    def __enter__(self) -> tuple[Any, Any, int]:
        if self.scheduler is None:
            self.pool = concurrent.futures.ThreadPoolExecutor(self.workers, "lunette-tile")
            return self.pool.submit, _wait_threads, self.workers
        import distributed

        try:
            self.client = distributed.Client(self.scheduler, timeout=20)
        except (OSError, ValueError) as error:
            raise ScaleError(f"--scheduler {self.scheduler!r}: {error}") from error
        threads = sum(self.client.nthreads().values())
        if not threads:
            raise ScaleError(f"--scheduler {self.scheduler!r}: the cluster has no workers")

        def submit(function: Any, *arguments: Any) -> Any:
            return self.client.submit(function, *arguments, pure=False)

        def wait(futures: list[Any]) -> Any:
            while True:
                interrupts.check()
                with suppress(TimeoutError):
                    return distributed.wait(
                        futures, timeout=LISTEN, return_when="FIRST_COMPLETED"
                    ).done

        return submit, wait, 2 * threads

    def __exit__(self, *_: Any) -> None:
        if self.scheduler is None:
            self.pool.shutdown(wait=True)
        else:
            self.client.close()


def _wait_threads(futures: list[Any]) -> Any:
    while True:
        interrupts.check()
        first = concurrent.futures.FIRST_COMPLETED
        done = concurrent.futures.wait(futures, LISTEN, first).done
        if done:
            return done


def bytes_left(job: Job, journal: Journal) -> int:
    """Bytes that are still to be read, overlaps aside: the length of the progress bar."""
    total = 0
    for number, p in enumerate(job.passes):
        below = job.below(p.first)
        done = sum(n == number for n, _ in journal.done)
        size = prod(below.shape) * np.dtype(below.dtype).itemsize
        total += size * (p.count - done) // p.count
    return total
