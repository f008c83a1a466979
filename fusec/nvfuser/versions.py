"""The version of nvFuser whose API this is, comparable as nvFuser's own."""

from __future__ import annotations

import re
from typing import Any


class Version(str):
    """A version that compares numerically with strings and other kinds of versions."""

    __slots__ = ()

    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", self.partition("+")[0]))

    def __lt__(self, other: Any) -> bool:
        return self._numbers() < Version(other)._numbers()

    def __le__(self, other: Any) -> bool:
        return self._numbers() <= Version(other)._numbers()

    def __gt__(self, other: Any) -> bool:
        return self._numbers() > Version(other)._numbers()

    def __ge__(self, other: Any) -> bool:
        return self._numbers() >= Version(other)._numbers()

    def __eq__(self, other: object) -> bool:
        return self._numbers() == Version(other)._numbers()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._numbers())


__version__ = Version("0.2.36")
"""The last version with both APIs, the first (`nvfuser`) and the direct one."""


def version() -> Version:
    """Return the version of nvFuser's API that fusec implements."""
    return __version__
