"""The parts of a row kernel's view: rows in flight, column accumulators, sweeps over a row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusec.codegen.accumulators import Accumulator
from fusec.codegen.emit import Emitter
from fusec.codegen.names import Names
from fusec.codegen.views import SharedArray
from fusec.index.instances import Instance

_COLUMN = re.compile(r"\bcolumn\b")


@dataclass(frozen=True)
class Constant:
    """An array of what only columns determine: name and element type."""

    name: str
    type: str


@dataclass(frozen=True)
class Ring:
    """Rows in flight in shared memory."""

    name: str
    array: SharedArray
    instance: Instance


@dataclass(frozen=True)
class Stay:
    """A row at hand: in an array of registers, or taken from its ring again in each phase."""

    name: str
    type: str
    instance: Instance
    again: bool


@dataclass(frozen=True)
class ColumnPart:
    """A column accumulator: name, type and combiner in C, and the workspace of its partial rows."""

    name: str
    type: str
    combiner: str
    partials: str


@dataclass(frozen=True)
class RowReduction:
    """One reduction over the threads of a row, of one value or of several together.

    argument: what each thread has; result: its name; combiner: in C; values: lines that name the
    results.
    """

    result: str
    combiner: str
    argument: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A phase: row statements, then vector by vector, then the reductions along the row.

    updates: column accumulations that only real rows take part in; stores: per vector; the rest as
    in Phase.
    """

    row: tuple[str, ...]
    row_stores: tuple[str, ...]
    vector: tuple[str, ...]
    lane: tuple[str, ...]
    updates: tuple[str, ...]
    stores: tuple[str, ...]
    parts: tuple[Accumulator, ...]
    reductions: tuple[RowReduction, ...]

    @property
    def has_loop(self) -> bool:
        """Return whether the phase goes through the row at all."""
        return bool(self.vector or self.lane or self.updates or self.stores)

    @property
    def has_arrays(self) -> bool:
        """Return whether the loop uses arrays of registers, so that it must be unrolled."""
        return any(
            "[c]" in line for line in (*self.vector, *self.lane, *self.updates, *self.stores)
        )

    @property
    def uses_column(self) -> bool:
        """Return whether the loop needs the number of its column."""
        return _mentions_column((*self.vector, *self.lane, *self.updates, *self.stores))


def _mentions_column(lines: tuple[str, ...]) -> bool:
    return any(_COLUMN.search(line) for line in lines)


def combine_rows(names: Names, accumulators: tuple[Accumulator, ...]) -> tuple[RowReduction, ...]:
    """Return the reductions of a phase; those of one kind share a barrier."""
    kinds: dict[tuple[str, str], list[Accumulator]] = {}
    for each in accumulators:
        kinds.setdefault((each.type, each.combiner), []).append(each)
    found: list[RowReduction] = []
    for (kind, combiner), members in kinds.items():
        if len(members) == 1:
            (one,) = members
            simple = one.finish == "{}"
            result = one.name if simple else names.fresh(f"{one.name}_total", "total")
            values = () if simple else (_named(one, result),)
            found.append(RowReduction(result, combiner, one.part, values))
            continue
        result = names.fresh("row_totals", "totals")
        parts = ", ".join(m.part for m in members)
        argument = f"fusec::Vec<{kind}, {len(members)}>{{{parts}}}"
        values = tuple(_named(m, f"{result}[{k}]") for k, m in enumerate(members))
        found.append(RowReduction(result, combiner, argument, values))
    return tuple(found)


def _named(part: Accumulator, text: str) -> str:
    return f"const {part.type} {part.name} = {part.finish.format(text)};"


def in_vector(name: str, element: str, *, again: bool) -> str:
    """Return where an element of a row at hand is."""
    return f"{name}[{element}]" if again else f"{name}[c][{element}]"


def copy_lines(emitter: Emitter, ring: tuple[Ring, ...], width: int) -> tuple[str, ...]:
    """Emit the asynchronous copies of one vector of each row in flight."""
    for each in ring:
        instance = each.instance
        assert instance.address is not None
        base = emitter.vector_base(instance.address, ())
        base = instance.address if width == 1 else base
        assert base is not None
        size = width * instance.dtype.size
        step = min(size, 16)
        for part in range(size // step):
            first = part * step // instance.dtype.size
            pointer = emitter.pointer(instance.name, base + first, 0)
            place = f"{each.name}[(next_slot * kChunks + c) * kThreads + thread]"
            target = f"&{place}" if size == step else f"&{place}[{first}]"
            call = "copy_async_16" if step == 16 else f"copy_async<{step}>"
            tail = "" if step == 16 else ", true"
            emitter.add(0, "vector", f"fusec::{call}({target}, {pointer}{tail});")
    return emitter.take(0, "vector")
