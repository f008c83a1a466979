"""The parts of a row kernel's view: rows in flight, column accumulators, sweeps over a row."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance
from fusec.kernel.arrays import RegisterArray, SharedArray
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.phases import C, Phase
from fusec.kernel.names import Names
from fusec.kernel.nodes import (
    AUTO,
    Assign,
    Braced,
    Element,
    Evaluate,
    Expression,
    Let,
    Name,
    Statement,
    Type,
    Unary,
    call,
    item,
    vector_of,
)


@dataclass(frozen=True)
class Ring:
    """Rows in flight in shared memory."""

    name: str
    array: SharedArray
    instance: Instance


@dataclass(frozen=True)
class HeldRow(RegisterArray):
    """A current row: in an array of registers, or read from its ring again in each phase."""

    instance: Instance
    again: bool


@dataclass(frozen=True)
class ColumnPart:
    """A column accumulator: name, type and combiner in C, and the workspace of its partial rows."""

    name: str
    type: Type
    combiner: Type
    partials: str

    @property
    def sum_of_block(self) -> Statement:
        """Return the statement that adds the parts of a column's threads."""
        own = item(self.name, C)
        about = self.combiner, "kThreadsX", "kThreadsY"
        return Assign(own, call("fusec::block_reduce_columns", own, about=about))


@dataclass(frozen=True)
class Sweep:
    """A phase over the current rows.

    rolled: whether its loop is not unrolled; results: the reductions along the row.
    """

    phase: Phase
    rolled: bool
    results: tuple[Statement, ...]


def combine_rows(names: Names, accumulators: tuple[Accumulator, ...]) -> tuple[Statement, ...]:
    """Return the reductions of a phase; those of one kind share a barrier."""
    kinds: dict[tuple[Type, Type], list[Accumulator]] = {}
    for each in accumulators:
        kinds.setdefault((each.type, each.combiner), []).append(each)
    lines: list[Statement] = []
    for (kind, combiner), members in kinds.items():
        one, parts = members[0], tuple(Name(m.part) for m in members)
        argument: Expression = parts[0]
        values: tuple[Statement, ...] = ()
        if len(members) > 1:
            result = names.fresh("row_totals", "totals")
            argument = Braced(vector_of(kind, len(members)), parts)
            each = (m.named(item(result, k)) for k, m in enumerate(members))
            values = tuple(line for named in each for line in named)
        elif one.rounds is None:
            result = one.name
        else:
            result = names.fresh(f"{one.name}_total", "total")
            values = one.named(Name(result))
        about = combiner, "kThreadsX", "kThreadsY"
        reduced = call("fusec::block_reduce_rows_in_turns", argument, "turn", about=about)
        lines += [Let(AUTO, result, reduced), *values]
    return tuple(lines)


def in_ring(name: str, slot: str) -> Expression:
    """Return a thread's vector of a row in a ring."""
    return Element(Name(name), (Name(slot) * "kChunks" + C) * "kThreads" + "thread")


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
            vector = in_ring(each.name, "next_slot")
            target = Unary("&", vector if size == step else item(vector, first))
            copy = call("fusec::copy_async_16", target, pointer)
            if step < 16:
                copy = call("fusec::copy_async", target, pointer, True, about=(step,))
            emitter.add(0, "vector", Evaluate(copy))
    return emitter.take(0, "vector")
