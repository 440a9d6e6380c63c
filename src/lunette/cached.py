"""An attribute that is computed when it is first read, and holds no lock meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(Generic[T]):
    """As `functools.cached_property` is from Python 3.12 on.

    Before, all instances share a lock while one is computed. What we compute may compile a kernel, which a fork waits for; a
    child that is forked meanwhile would have that lock for ever, without the thread that holds it.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        # Two threads may both compute it; the results are equal, and all get the first.
        return instance.__dict__.setdefault(self.name, self.compute(instance))  # type: ignore[no-any-return]
