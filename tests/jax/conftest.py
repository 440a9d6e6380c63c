"""JAX, with or without 64-bit types."""

import contextlib
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="the adapter of JAX needs JAX")


def in_64_bits(on=True):
    """JAX with float64 and int64, or without, for a while."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import disable_x64, enable_x64

    return enable_x64() if on else disable_x64()


@pytest.fixture(params=[False, True], ids=["32", "64"])
def bits(request):
    """The mode of JAX, and the test within it."""
    with in_64_bits(request.param):
        yield 64 if request.param else 32


@pytest.fixture
def wide():
    """JAX in 64-bit mode."""
    with in_64_bits():
        yield


@contextlib.contextmanager
def nothing():
    """Nothing around a test."""
    yield
