"""A process of its own for Triton's interpreter, which must be chosen before Triton is imported."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest


def _prepare():
    """Small tiles: the interpreter runs every unrolled step one by one."""
    import warnings

    from lunette.kernels.triton import gradients, values

    warnings.simplefilter("ignore", RuntimeWarning)
    gradients.SHORTEST_ROW, values.LONG_WINDOW = 8, 8
    values.forward_tiles = _small(values.forward_tiles)
    gradients.gradient_tiles = _small(gradients.gradient_tiles)
    gradients.smooth_gradient_tiles = _small(gradients.smooth_gradient_tiles)


def _small(tiles):
    def chosen(*arguments):
        return [tile._replace(rows=min(tile.rows, 2), warps=1) for tile in tiles(*arguments)][:1]

    return chosen


@pytest.fixture(scope="session")
def interpreter():
    """Runs a function in a process where Triton interprets; an exception there is raised here."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context, initializer=_prepare) as pool:
            pool.submit(os.getpid).result(timeout=120)
            yield lambda function, *arguments: pool.submit(function, *arguments).result(timeout=120)
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
