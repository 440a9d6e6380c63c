"""Every test of torch tensors has two ways to go: calls at once, and the registered operators that every mode of torch sees."""

import pytest

from lunette.torch import eager


@pytest.fixture(
    autouse=True,
    scope="module",
    params=["at once", pytest.param("by operators", marks=pytest.mark.full)],
)
def way(request):
    """As calls are made; in the long run once more with the registered operators alone."""
    serves = eager.serves
    if request.param == "by operators":
        eager.serves = lambda x: False
    yield request.param
    eager.serves = serves
