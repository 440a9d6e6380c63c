"""The commands as a test calls them, and their answers found another way."""

import numpy as np
from typer.testing import CliRunner

import lunette as ln
from lunette.cli import app


def lunette(*arguments, code=0):
    """Run the command in this process; its output. `code` is its exit status, None for any."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert code is None or result.exit_code == code, (result.output, result.exception)
    return result.output


def volume(shape, dtype="u1", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 200, shape).astype(dtype)


def halved(x, axes=None):
    """The rounded mean over pairs, in memory."""
    axes = range(x.ndim) if axes is None else axes
    factors = [2 if a in axes and n > 1 else 1 for a, n in enumerate(x.shape)]
    return ln.avg_pool(x, tuple(factors), dtype="same", ceil_mode=True)
