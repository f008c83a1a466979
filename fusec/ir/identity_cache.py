"""What was last found of some values, for the next who asks the same of the same object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST = 64
"""Answers that are kept."""


class IdentityCache(Generic[T]):
    """Keeps the last answers by the identity of a value: telling it by structure costs a walk."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: OrderedDict[tuple[int, Hashable], tuple[object, T]] = OrderedDict()

    def of(self, value: object, about: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` returns, asked now or lately; `about`: what else it depends on."""
        key = id(value), about
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = value, find()  # kept, so that no other gets its identity
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return known[1]
