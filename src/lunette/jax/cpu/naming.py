"""A task as attributes of a call in a program: a text, and a digest of it. No address, so programs can be kept and moved."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np

from lunette.encoding import encode
from lunette.jax.verbs import Task

__all__ = ["attributes", "digest", "written"]


def written(task: Task) -> str:
    """The text: verb, layout, backend and op. Lengths of pooled axes are the business of a call's results."""
    layout = "last" if task.channels_last else "first"
    return f"{task.verb} {layout} {task.backend or '-'} {encode(task.op)}"


def digest(text: str) -> int:
    """A number of 64 bits that two texts seldom share; who meets it compares the texts, too."""
    first = hashlib.sha256(text.encode()).digest()[:8]
    return int.from_bytes(first, "little", signed=True)


@lru_cache(maxsize=4096)
def attributes(task: Task) -> dict[str, Any]:
    """The attributes; XLA gives them to a handler in the order of their names."""
    text = written(task)
    return {"digest": np.int64(digest(text)), "task": text}
