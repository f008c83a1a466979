"""Properties that are computed once for each object.

`functools.cached_property` of Python 3.11 takes a lock for each value that it computes, which took
longer than most of the values do. Python 3.12 has removed the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """A property that stores its value as an attribute of the object."""

        def __init__(self, compute: Callable[[Any], object]) -> None:
            """Take the function that computes the value."""
            self.compute = compute
            self.name = compute.__name__
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, owner: object | None, kind: type | None = None) -> object:
            if owner is None:
                return self
            value = owner.__dict__[self.name] = self.compute(owner)
            return value
