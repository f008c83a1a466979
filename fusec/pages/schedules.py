"""The parameters of schedules, by scheduler: a page, and data for the JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, get_args

from fusec.schedule.registry import PlanningScheduler, families
from fusec.schedule.space import Field, Parameters

_HEAD = """\
# Schedule parameters

`schedules:` in a file, `fd.schedule(y, threads_x=128)` in Python or `--schedule FILE` sets
parameters of a segment's kernel; the cost model selects the others ([Fusion files](files.md)).
This page lists the parameters of each scheduler with all values that exist.
`fusec dump FILE --schedule-space` prints the values that are valid for the segments of a fusion,
and the schedules with predicted times; `fusec tune FILE` measures them ([tuning](tuning.md)).
"""


@cache
def records() -> Mapping[str, tuple[type[Parameters], ...]]:
    """Return the parameter records of each scheduler that has parameters to set."""
    found = {s.name: tuple(r for r in _records(s) if r.free) for s in families()}
    return {name: kinds for name, kinds in found.items() if kinds}


def fields_of(scheduler: str) -> dict[str, Field]:
    """Return the parameters of a scheduler by name; those of several records with all values."""
    found: dict[str, Field] = {}
    for record in records()[scheduler]:
        for field in record.free:
            known = found.get(field.name)
            values = field.values if known is None else sorted({*known.values, *field.values})
            found[field.name] = Field(field.name, values, (known or field).doc)
    return found


def schedules_page() -> str:
    """Return the page as Markdown."""
    sections = [_HEAD]
    for scheduler in families():
        if scheduler.name in records():
            sections.append("\n".join(_section(scheduler)))
    return "\n".join(sections)


def _section(scheduler: PlanningScheduler) -> Iterator[str]:
    yield f"## {scheduler.name}\n\n{(type(scheduler).__doc__ or '').splitlines()[0]}\n"
    kinds = records()[scheduler.name]
    for record in kinds:
        if len(kinds) > 1:
            yield f"{(record.__doc__ or '').splitlines()[0]}\n"
        yield "| parameter | values | meaning |\n| --- | --- | --- |"
        yield from (f"| `{f.name}` | {f.text} | {f.doc} |" for f in record.free)
        yield ""


def _records(scheduler: PlanningScheduler) -> Iterator[type[Parameters]]:
    """Yield the records of a scheduler: those among the type arguments of its base class."""
    bases: tuple[Any, ...] = getattr(type(scheduler), "__orig_bases__", ())
    for kind in (argument for base in bases for argument in get_args(base)):
        for each in get_args(kind) if isinstance(kind, UnionType) else (kind,):
            if isinstance(each, type) and issubclass(each, Parameters):
                yield each
