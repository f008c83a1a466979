"""One measured schedule, and its block of text in a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import inf
from typing import Any, cast

from fusec.dataclasses import MISSING, dataclass, fields
from fusec.diagnostics import FusecError, Span
from fusec.foreign import Undecodable, decode_toml
from fusec.ir.annotations import Setting
from fusec.tuned.key import Key
from fusec.tuned.templates import are_current

_AT = r"\s*\(at line (\d+), column (\d+)\)|\s*\(at end of document\)"
_SIZES = r"(?:(?:\d{1,18}(?:x\d{1,18})*|scalar) )*->(?: (?:\d{1,18}(?:x\d{1,18})*|scalar))*"
_NAME = r"\w{1,80}"


@dataclass(frozen=True)
class Entry:
    """The fastest measured schedule of a segment on one device.

    structure, sizes: the key of the segment; of: its display name. parameters: the free fields of
    its record. us: its time in microseconds; default_us: that of the cost model's choice; next_us:
    of the second fastest; predicted_us: its predicted time. records: how many were measured; rank:
    the rank correlation of predicted and measured times, from 1 to -1. templates: digests of the
    templates of its kernels. summation: the digest of the summation trees of all outputs; empty
    where there are none, or where it was measured before there were digests.
    """

    structure: str
    sizes: str
    scheduler: str
    of: str
    parameters: Mapping[str, Setting]
    us: float
    default_us: float
    next_us: float
    predicted_us: float
    records: int
    rank: float
    templates: Mapping[str, str]
    device: str
    driver: str
    date: str
    summation: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Return what identifies an entry: scheduler, structure and sizes."""
        return self.scheduler, self.structure, self.sizes

    @property
    def is_current(self) -> bool:
        """Return whether its templates are unchanged since it was measured."""
        return are_current(self.templates)

    def is_of(self, key: Key) -> bool:
        """Return whether it was measured at exactly the sizes of a segment."""
        return (self.structure, self.sizes) == (key.structure, key.sizes)

    def text(self) -> str:
        """Return the block of a file, without a blank line at its end."""
        named = ((f.name, getattr(self, f.name)) for f in fields(self))
        lines = [f"{n} = {_toml(value)}" for n, value in named if value != ""]
        return "\n".join(["[[entry]]", *lines]) + "\n"


@dataclass(frozen=True)
class Tuned:
    """The entry that a segment's schedule is taken from; exact: it was measured at its sizes.

    source: the file, or `fusec` for those that come with it. reordered: the sums that are added in
    another order than by the schedule which the cost model selects, so that their last bits differ.
    """

    entry: Entry
    exact: bool
    source: str
    reordered: tuple[str, ...] = ()


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{name} = {_toml(v)}" for name, v in pairs) + "}"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def read_entry(text: str, path: str, line: int) -> Entry:
    """Return the entry of a block that starts at a line of a file; FusecError points there."""
    try:
        data = decode_toml(text, path)["entry"][0]
    except Undecodable as error:
        found = re.search(_AT, error.reason)
        at = int(found[1]) if found and found[1] else text.rstrip("\n").count("\n") + 1
        raise damaged(path, line + at - 1, text, re.sub(_AT, "", error.reason)) from None
    for name, problem in _problems(data):
        at = next((k for k, each in enumerate(text.split("\n")) if each.startswith(name)), 0)
        raise damaged(path, line + at, text, problem, at)
    return Entry(**data)


def damaged(path: str, line: int, text: str, problem: str, at: int | None = None) -> FusecError:
    """Return the error for a line of a file of tuned schedules."""
    shown = text.split("\n")[at] if at is not None else ""
    return FusecError(
        f"tuned schedules: {problem}",
        span=Span(path, line, 1, max(1, len(shown)), shown),
        help="remove the entry, from its `[[entry]]` to the next; `fusec tune` measures it again",
    )


def _problems(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the errors of a block's fields, with the names of the fields."""
    kinds = {f.name: str(f.type) for f in fields(Entry)}
    found = [(n, f"unknown field `{n}`") for n in data if n not in kinds]
    needed = (f.name for f in fields(Entry) if f.default is MISSING)
    found += [("[[entry]]", f"the entry has no `{n}`") for n in needed if n not in data]
    for name, kind in kinds.items():
        if not found and name in data and not _fits(data[name], kind):
            found.append((name, f"`{name}` is no {_KINDS[kind]}"))
    if not found and not re.fullmatch(_SIZES, data["sizes"]):
        found.append(("sizes", "`sizes` are extents of inputs and outputs, as `64x32 32 -> 64x32`"))
    return found


_KINDS = {
    "str": "text",
    "int": "number of records",
    "float": "finite number",
    "Mapping[str, Setting]": "table of integers, words and booleans",
    "Mapping[str, str]": "table of texts",
}


def _fits(value: object, kind: str) -> bool:
    if kind == "str":
        return isinstance(value, str)
    if kind == "int":
        return type(value) is int and value > 0
    if kind == "float":
        return isinstance(value, (int, float)) and type(value) is not bool and -inf < value < inf
    if not isinstance(value, dict):
        return False
    known = cast("dict[str, object]", value)
    allowed = (str,) if kind.endswith("str]") else (bool, int, str)
    return all(re.fullmatch(_NAME, k) and isinstance(v, allowed) for k, v in known.items())
