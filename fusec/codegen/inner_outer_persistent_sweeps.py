"""The parts of a row kernel's view: rows in flight, column accumulators, sweeps over a row."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.phases import Phase
from fusec.codegen.views import RegisterArray, SharedArray
from fusec.index.instances import Instance
from fusec.kernel.accumulators import Accumulator
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nodes import Statement, Type


@dataclass(frozen=True)
class Ring:
    """Rows in flight in shared memory."""

    name: str
    array: SharedArray
    instance: Instance


@dataclass(frozen=True)
class HeldRow(RegisterArray):
    """A row at hand: in an array of registers, or taken from its ring again in each phase."""

    instance: Instance
    again: bool


@dataclass(frozen=True)
class ColumnPart:
    """A column accumulator: name, type and combiner in C, and the workspace of its partial rows."""

    name: str
    type: str
    combiner: str
    partials: str

    @property
    def sum_of_block(self) -> str:
        """Return the statement that adds the parts of the threads of a column up."""
        reduce = f"fusec::block_reduce_columns<{self.combiner}, kThreadsX, kThreadsY>"
        return f"{self.name}[c] = {reduce}({self.name}[c]);"


@dataclass(frozen=True)
class Sweep:
    """A phase over the rows at hand.

    unroll: the factor of its loop, where not all of it; results: the reductions along the row.
    """

    phase: Phase
    unroll: str
    results: tuple[Statement, ...]


def combine_rows(names: Names, accumulators: tuple[Accumulator, ...]) -> tuple[Statement, ...]:
    """Return the reductions of a phase; those of one kind share a barrier."""
    kinds: dict[tuple[Type, Type], list[Accumulator]] = {}
    for each in accumulators:
        kinds.setdefault((each.type, each.combiner), []).append(each)
    lines: list[str] = []
    for (kind, combiner), members in kinds.items():
        one = members[0]
        values: tuple[Statement, ...] = ()
        if len(members) > 1:
            result = names.fresh("row_totals", "totals")
            argument = f"fusec::Vec<{kind}, {len(members)}>{{{', '.join(m.part for m in members)}}}"
            values = tuple(
                line for k, m in enumerate(members) for line in m.named(f"{result}[{k}]")
            )
        else:
            simple, argument = one.rounds is None, one.part
            result = one.name if simple else names.fresh(f"{one.name}_total", "total")
            values = () if simple else one.named(result)
        reduce = f"fusec::block_reduce_rows_in_turns<{combiner}, kThreadsX, kThreadsY>"
        lines += [f"const auto {result} = {reduce}({argument}, turn);", *values]
    return tuple(lines)


def in_vector(name: str, element: str, *, again: bool) -> str:
    """Return where an element of a row at hand is."""
    return f"{name}[{element}]" if again else f"{name}[c][{element}]"


def copy_lines(emitter: Emitter, ring: tuple[Ring, ...], width: int) -> tuple[Statement, ...]:
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
