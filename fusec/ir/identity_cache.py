"""A cache of the latest results of functions of values, by object identity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 64
"""Number of results that are kept."""


class IdentityCache(Generic[T]):
    """Keeps the latest results by the identity of a value: comparing structures is slow."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: OrderedDict[tuple[int, Hashable], tuple[object, T]] = OrderedDict()

    def of(self, value: object, about: Hashable, find: Callable[[], T]) -> T:
        """Return the result of `find`, possibly cached; `about`: what else it depends on."""
        key = id(value), about
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = value, find()  # kept alive, so that its id is not reused
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return known[1]
