"""The schedule space of a scheduler: free fields of its parameters, records near the default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any, ClassVar

from fusec.dataclasses import asdict, dataclass, fields
from fusec.ir.annotations import Setting

POWERS = tuple(1 << k for k in range(11))
"""Powers of two up to the threads of a block."""
WIDTHS = POWERS[:5]
"""Elements of a vector."""
THREADS = tuple(sorted({*POWERS, *range(32, 1025, 32)}))
"""Threads along one axis of a block: powers of two, or whole warps."""
COUNTS = range(1, 1 << 16)
"""Numbers of blocks, tiles and the like."""
MOST_RECORDS = 64
"""Most records in a space."""
MOST_CHANGES = 2
"""Most fields in which a record of a space differs from the default one."""


def power_below(value: int) -> int:
    """Return the largest power of two that is not above a number, at least 1."""
    return 1 << (max(1, value).bit_length() - 1)


def power_above(value: int) -> int:
    """Return the smallest power of two that is not below a number, at least 1."""
    return 1 << max(0, value - 1).bit_length()


def setting_text(value: Setting) -> str:
    """Return a value as files write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def listing(values: Sequence[Setting]) -> str:
    """Return values as text; many equidistant ones at the end as a range."""
    if isinstance(values, range):
        return f"{values[0]} to {values[-1]}"
    texts = [setting_text(v) for v in values]
    numbers = [v for v in values if type(v) is int]
    steps = [b - a for a, b in pairwise(numbers)]
    alike = 0
    while alike < len(steps) and steps[-1 - alike] == steps[-1]:
        alike += 1
    if alike < 4:
        return ", ".join(texts)
    by = "" if steps[-1] == 1 else f" by {steps[-1]}"
    return ", ".join([*texts[: -1 - alike], f"{texts[-1 - alike]} to {texts[-1]}{by}"])


@dataclass(frozen=True)
class Field:
    """A free field, its valid values, and its meaning; a range is of counts."""

    name: str
    values: Sequence[Setting]
    doc: str

    @property
    def text(self) -> str:
        """Return the values as text."""
        return listing(self.values)

    def nearest(self, value: Setting) -> Sequence[Setting]:
        """Return the other values, nearest first; counts by doubling and halving."""
        if isinstance(self.values, range):
            assert isinstance(value, int)
            doubled = (v for k in range(1, 17) for v in (value << k, value >> k))
            return tuple(v for v in dict.fromkeys(doubled) if v in self.values and v != value)
        if value not in self.values:
            return self.values
        at = self.values.index(value)
        places = sorted(range(len(self.values)), key=lambda k: abs(k - at))
        return tuple(self.values[k] for k in places if k != at)


@dataclass(frozen=True)
class Parameters:
    """The schedule parameters of a segment; fields that are not free are derived."""

    free: ClassVar[tuple[Field, ...]] = ()

    def setting(self, name: str) -> Setting:
        """Return the value of a free field."""
        return getattr(self, name)

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the free fields with their values."""
        return {f.name: self.setting(f.name) for f in self.free}

    @property
    def written(self) -> dict[str, Any]:
        """Return all fields as dumps write them, except defaults of those marked `omitted`."""
        omitted = {
            f.name for f in fields(self)
            if f.metadata.get("omitted") and getattr(self, f.name) == f.default
        }  # fmt: skip
        return {name: value for name, value in asdict(self).items() if name not in omitted}

    @property
    def requested(self) -> frozenset[str]:
        """Return the free fields whose values only `schedules:` selects.

        Values that lose accuracy or determinism: the cost model and `fusec tune` never select
        them.
        """
        return frozenset()


def near(first: Parameters, fixed: Mapping[str, Setting]) -> Iterator[dict[str, Setting]]:
    """Yield settings: the fixed ones, then with one other free field changed, then two."""
    free = [f for f in first.free if f.name not in fixed]
    for count in range(MOST_CHANGES + 1):
        for changed in combinations(free, count):
            names = [f.name for f in changed]
            for values in product(*(f.nearest(first.setting(f.name)) for f in changed)):
                yield {**fixed, **dict(zip(names, values, strict=True))}
