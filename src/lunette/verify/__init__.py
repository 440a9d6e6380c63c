"""Does a network have a property? Bounds that prove it, points that refute it, and certificates."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lunette.verify.certificates import certificate
    from lunette.verify.counterexamples import Counterexample
    from lunette.verify.engine import Progress, Verdict, verify
    from lunette.verify.replay import Rejected, recheck

__all__ = ["Counterexample", "Progress", "Rejected", "Verdict", "certificate", "recheck", "verify"]

_PLACES = {
    "certificate": "certificates",
    "Counterexample": "counterexamples",
    "Progress": "engine",
    "Verdict": "engine",
    "verify": "engine",
    "Rejected": "replay",
    "recheck": "replay",
}


def __getattr__(name: str) -> Any:
    """Loaded on first use: the command line must start fast."""
    if name in _PLACES:
        return getattr(import_module(f"lunette.verify.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'lunette.verify' has no attribute {name!r}")
