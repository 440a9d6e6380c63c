"""Every test of torch tensors has two ways to go: calls at once, and the registered operators that every mode of torch sees."""

import pytest

from lunette.torch import eager, speed


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


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """What was replaced is served by ours, however few its cells are; gives the bounds that hold elsewhere."""
    bounds = {name: getattr(speed, name) for name in ("FEW", "FEW_IN_ANOTHER_ORDER")}
    for name in bounds:
        monkeypatch.setattr(speed, name, 0)
    return bounds
