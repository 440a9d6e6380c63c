"""Every test of agreement runs on every interpreter of NumPy arrays."""

import pytest

INTERPRETERS = ("cpu",)


@pytest.fixture(params=INTERPRETERS)
def backend(request):
    """The name of an interpreter that must agree with the specification."""
    return request.param
