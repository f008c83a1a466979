"""What was last found of some fusions, for the next who asks the same of the same object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fusec.ir.graph import Fusion

T = TypeVar("T")
MOST = 64
"""Answers that are kept."""


class Recent(Generic[T]):
    """Keeps the last answers by the identity of a fusion: telling it by structure costs a walk."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: OrderedDict[tuple[int, Hashable], tuple[Fusion, T]] = OrderedDict()

    def of(self, fusion: Fusion, about: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` returns, asked now or lately; `about`: what else it depends on."""
        key = id(fusion), about
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = fusion, find()  # kept, so that no other gets its identity
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return known[1]
