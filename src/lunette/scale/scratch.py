"""Memory that a thread uses again for tile after tile: new pages cost as much as to fill them.

What is kept ends with its thread.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

__all__ = ["scratch"]

_KEPT = threading.local()


def scratch(name: str, size: int) -> np.ndarray[Any, Any]:
    """So many bytes of this thread, which hold until it asks for the same name again."""
    kept: Any = getattr(_KEPT, name, None)
    if kept is None or not size <= len(kept) <= 2 * size:
        setattr(_KEPT, name, None)  # gone before there is another
        kept = np.empty(size, np.uint8)
        setattr(_KEPT, name, kept)
    found: np.ndarray[Any, Any] = kept[:size]
    return found
