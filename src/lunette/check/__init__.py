"""Does an implementation mean what it says? The specification against any of them."""

from lunette.check.calls import OPS, VERBS, Call, NotOffered

__all__ = ["OPS", "VERBS", "Call", "NotOffered"]
