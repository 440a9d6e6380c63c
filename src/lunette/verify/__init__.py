"""Does a network have a property? Bounds that prove it, points that refute it, and certificates."""

from lunette.verify.counterexamples import Counterexample
from lunette.verify.engine import Progress, Verdict, verify

__all__ = ["Counterexample", "Progress", "Verdict", "verify"]
