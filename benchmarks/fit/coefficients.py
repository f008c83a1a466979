"""The numbers of a target by name, what each rests on, and targets with another value of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, cast

from fusec.commands.calibrate import BASE, PROBES
from fusec.target import Target

LIMITS = ("sms", "l2", "shared", "threads", "registers", "clusters.*")
"""Of the CUDA programming guide, and what the driver reports."""
UNITS = (
    "cost.matmul.cluster_fill.1",
    "cost.matmul.unaligned_reach.0",
    "cost.matmul_gemv.stage_share.2",
    "cost.matmul_gemv.row_share.8",
)
"""The entries of tables to which the others are relative."""
DATA_SHEETS = ("flops", "special", "link")
PROBED = frozenset(path.stem for path in PROBES.glob("*.yaml"))
TABLES = {"rates": "reach", "links": "links", "clusters": "clusters", "cost": "cost"}
"""Fields of a target that hold tables, and what target files call them."""


class Source(Enum):
    """What a number of a target rests on."""

    LIMIT = "limit of the hardware"
    DATA_SHEET = "data sheet"
    PROBE = "probe of `fusec doctor --measure`"
    UNIT = "1 by definition: others of its table are relative to it"
    FITTED = "fitted"


@dataclass(frozen=True)
class Coefficient:
    """A number of a target; name: as in a target file, `cost.matmul.tile_seconds`."""

    name: str
    value: float
    source: Source

    @property
    def is_count(self) -> bool:
        """Return whether only integers are values of it."""
        return isinstance(self.value, int)


def coefficients(target: Target) -> list[Coefficient]:
    """Return all numbers of a target that are not zero, in the order of its fields."""
    return [
        Coefficient(name, value, source_of(name)) for name, value in _numbers("", target) if value
    ]


def chosen(target: Target, only: Sequence[str]) -> list[Coefficient]:
    """Return the numbers that are fitted, of those whose names one of the patterns fits."""
    return [
        c
        for c in coefficients(target)
        if c.source is Source.FITTED and (not only or any(fnmatchcase(c.name, o) for o in only))
    ]


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a record or a table by name; of a curve the values at its places."""
    if isinstance(value, int | float):
        yield prefix, value
        return
    for key, each in _items(value):
        yield from _numbers(f"{prefix}.{key}" if prefix else key, each)


def _items(value: Any) -> list[tuple[str, Any]]:
    if is_dataclass(value):
        return [(TABLES.get(f.name, f.name), getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, Mapping):
        return [(str(k), v) for k, v in cast("Mapping[Any, Any]", value).items()]
    if not isinstance(value, tuple):
        return []
    items = cast("tuple[Any, ...]", value)
    if items and isinstance(items[0], tuple):
        return [(str(at), each) for at, each in cast("tuple[tuple[int, float], ...]", items)]
    return [(str(k), each) for k, each in enumerate(items)]


def source_of(name: str) -> Source:
    """Return what a number of a target rests on, by its name."""
    if any(fnmatchcase(name, pattern) for pattern in LIMITS):
        return Source.LIMIT
    if name in DATA_SHEETS:
        return Source.DATA_SHEET
    if name in BASE or name.removeprefix("reach.") in PROBED:
        return Source.PROBE
    return Source.UNIT if name in UNITS else Source.FITTED


def with_value(target: Target, name: str, value: float) -> Target:
    """Return a target with another value of one of its numbers; KeyError where it has none."""
    return _changed(target, name.split("."), value)


def _changed(of: Any, path: list[str], value: float) -> Any:
    """Return a record or a table in which the number at a path is another."""
    if not path:
        return value
    key, *rest = path
    if is_dataclass(type(of)):
        names = {shown: name for name, shown in TABLES.items() if hasattr(of, name)}
        name = names.get(key, key)
        return replace(of, **{name: _changed(getattr(of, name), rest, value)})
    items = dict(_items(of))
    items[key] = _changed(items[key], rest, value)
    if isinstance(of, Mapping):
        kept = cast("Mapping[Any, Any]", of)
        return {own: items[str(own)] for own in kept}
    if of and isinstance(of[0], tuple):
        return tuple((int(at), each) for at, each in items.items())
    return tuple(items.values())
