"""The loop nest of a kernel over rows and columns: its emitter, its stores, and staged loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.expression import Index, Var
from fusec.kernel.arrays import RegisterArray, SharedArray, shared_array
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.accumulators import Accumulator, accumulate
from fusec.kernel.lowering.edges import first_column
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import FILL, Alias, Scope
from fusec.kernel.lowering.phases import reduction_roots
from fusec.kernel.lowering.stores import StorePlan, plan_stores
from fusec.kernel.names import Names
from fusec.kernel.nodes import Assign, Expression, Statement, item
from fusec.schedule.blocks import BlockParameters
from fusec.schedule.plan import Staged
from fusec.schedule.rows.domain import PhasedPlan

Planned = PhasedPlan[object, BlockParameters]


def nest_emitter(
    plan: Planned,
    names: Names,
    *,
    inner: bool = True,
    start: Index | None = None,
    of_kernel: Iterable[Var] = (),
    of_row: Iterable[Var] = (),
    aliases: Mapping[Var, Alias] | None = None,
    **others: Any,
) -> Emitter:
    """Return the emitter of a plan: rows around vectors of columns, else vectors around rows.

    start: the address of peeled vectors; of_kernel, of_row: further variables that are bound there;
    aliases, others: further names of variables, and fields of the emitter.
    """
    p, fusion, (row, chunk, lane) = plan.parameters, plan.lowering.fusion, plan.loops
    width, rows, columns = p.vector_width, frozenset({row, *of_row}), frozenset({chunk})
    known: dict[str, Any] = {"written": fusion.effects.overwritten, **others}
    loops = Scope("row", rows, per_phase=False), Scope("vector", columns)
    if not inner:
        loops = Scope("column", columns, per_phase=False), Scope("row", rows)
    return Emitter(
        (
            Scope("kernel", frozenset(of_kernel), per_phase=False),
            *loops,
            Scope("lane", frozenset({lane})),
        ),
        names,
        Facts(fusion.hints, start),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", width if start is None else 1), **(aliases or {})},
        wide=p.wide_index,
        **known,
    )


def stores_of(
    emitter: Emitter, plan: Planned, is_looped: Callable[[StorePlan], bool] = lambda _: False
) -> tuple[StorePlan, ...]:
    """Return the stores of outputs, after counting the uses of all their operands."""
    lowering = plan.lowering
    stores = plan_stores(lowering, lowering.fusion.outputs, emitter.store_kind, is_looped)
    emitter.count(roots_of(plan, stores))
    return stores


def roots_of(plan: Planned, stores: Iterable[StorePlan] = ()) -> list[Instance]:
    """Return the stored values and the operands of reductions."""
    nodes = tuple(n for group in plan.phases.reductions for n in group)
    return [*(s.instance for s in stores), *reduction_roots(plan.lowering, nodes)]


def accumulators_of(
    emitter: Emitter, plan: Planned, phase: int, *, array: bool = False
) -> tuple[Accumulator, ...]:
    """Emit a phase's reductions, and return their accumulators; array: one per vector element."""
    nodes = plan.phases.reductions[phase]
    return tuple(accumulate(emitter, plan.lowering, n, phase, array=array) for n in nodes)


def stored_in(stores: Iterable[StorePlan], phase: int) -> tuple[StorePlan, ...]:
    """Return the stores of a phase."""
    return tuple(s for s in stores if s.instance.depth == phase)


def shifted_column(emitter: Emitter, plan: Planned) -> Expression | None:
    """Return the first vector's start in a row if vectors are peeled, else None."""
    start = emitter.facts.start
    return None if start is None else first_column(emitter, start, plan.loops[1])


@dataclass(frozen=True)
class Held:
    """A load that stays on chip: its array, and a thread's vector in that."""

    array: RegisterArray | SharedArray
    instance: Instance
    vector: Expression


def hold(
    emitter: Emitter,
    staged: Iterable[Staged],
    word: str,
    vector: Callable[[str], Expression],
    *,
    shared: bool = False,
) -> list[Held]:
    """Return the loads that stay on chip, which the emitter then reads from there.

    word: the suffix of an array's name after its load; vector: a thread's vector in an array by its
    name.
    """
    held: list[Held] = []
    for each in staged:
        load = each.instance
        name = emitter.names.fresh(f"{load.name}_{word}", word)
        array = RegisterArray(name, storage_type(load.dtype))
        place = shared_array(emitter.names, name, load.dtype, each.offset) if shared else array
        held.append(Held(place, load, vector(name)))
        emitter.cached[load] = item(vector(name), emitter.element_of_vector)
    return held


def fill(
    emitter: Emitter, plan: Planned, held: Iterable[Held], phase: int
) -> tuple[Statement, ...]:
    """Return the lines that load staged data in a phase that is the first to read them."""
    number, scope = FILL + phase, emitter.scopes[-2].name
    for each in held:
        if first_phase(plan.phases.loads, each.instance) == phase:
            loaded = emitter.load_vector(each.instance, number)
            emitter.add(number, scope, Assign(each.vector, loaded))
    return emitter.take(number, scope)


def first_phase(loads: Sequence[frozenset[Instance]], instance: Instance) -> int:
    """Return the first phase that reads a load."""
    return next(n for n, phase in enumerate(loads) if instance in phase)
