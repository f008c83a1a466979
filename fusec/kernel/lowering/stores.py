"""Stores of a kernel's outputs: their addresses, and the statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import Instance, Lowering
from fusec.ir.access import Conditions
from fusec.ir.dim import product
from fusec.ir.expression import Index, Var, linearize
from fusec.ir.graph import Output
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import StoreKind
from fusec.kernel.nodes import (
    Assign,
    Declare,
    Element,
    Evaluate,
    If,
    Name,
    Statement,
    both,
    call,
    item,
    vector_of,
)


@dataclass(frozen=True)
class StorePlan:
    """An output, the instance it stores, and its destination: its own buffer, or an input's.

    conditions: hold at one point of the loops for each element; overwrites: whether the buffer is
    an input's, so that all reads of it come before; kind: how the store stays inside.
    """

    output: Output
    instance: Instance
    address: Index
    conditions: Conditions
    buffer: str
    overwrites: bool
    kind: StoreKind

    @property
    def variables(self) -> frozenset[Var]:
        """Return the loop variables on which the store's address and conditions depend."""
        return self.address.variables.union(*(c.position.variables for c in self.conditions))


def plan_stores(
    lowering: Lowering,
    outputs: Iterable[Output],
    kind: StoreKind | Callable[[Output], StoreKind],
    is_looped: Callable[[StorePlan], bool] = lambda plan: False,
) -> tuple[StorePlan, ...]:
    """Return the destination of each output, with the conditions under which one thread stores it.

    Values that are constant along an axis, or repeated, are computed at several points and stored
    at one. kind: `Nest.store_kind` of the emitter of the stores, or STAGED of some outputs;
    is_looped: whether a store is inside the loop over the reduced axes.
    """
    effects, plans = lowering.fusion.effects, list[StorePlan]()
    for output in outputs:
        value = output.value
        if product(value.shape) == 0:
            continue  # there is no element to store
        coordinates, conditions = lowering.home(value)
        address = linearize(coordinates, effects.strides(value))
        instance = lowering.at(value, coordinates, conditions)
        buffer, overwrites = effects.buffer(value), value in effects.into
        own = kind if isinstance(kind, StoreKind) else kind(output)
        plan = StorePlan(output, instance, address, conditions, buffer, overwrites, own)
        where = lowering.stored_where(value, in_loop=is_looped(plan))
        plans.append(replace(plan, conditions=where))
    return tuple(plans)


def emit_store(emitter: Emitter, plan: StorePlan, phase: int) -> None:
    """Emit an element-wise store: through a vector filled by the lanes, or element by element.

    The lines of scope `after` follow the loop over lanes.
    """
    emitter.check_store(plan.output.value.name, plan.kind)
    dtype = plan.output.value.dtype
    value = emitter.to_storage(plan.instance, dtype, phase)
    base = emitter.vector_base(plan.address, plan.conditions)
    if base is not None and emitter.lane is not None:
        number = len(emitter.scopes) - 2
        name = emitter.fresh(f"{plan.output.value.name}_vec", "vec", phase, number)
        held = Declare(vector_of(storage_type(dtype), emitter.width_name), name)
        emitter.add(phase, emitter.scopes[number].name, held)
        emitter.add(phase, "lane", Assign(item(name, emitter.lane.name), value))
        function = "fusec::store_part" if emitter.part else "fusec::store"
        pointer = emitter.pointer(plan.buffer, base, phase)
        line = Evaluate(call(function, pointer, name, *emitter.part))
        tested = emitter.at_lane_zero(plan.conditions)
        emitter.add(phase, "after", guarded(emitter, tested, line, phase), last=plan.overwrites)
        return
    place = Element(Name(identifier(plan.buffer)), emitter.index(plan.address, phase))
    line = guarded(emitter, plan.conditions, Assign(place, value), phase, emitter.guard)
    emitter.add(phase, emitter.scopes[-1].name, line, last=plan.overwrites)


def guarded(
    emitter: Emitter, conditions: Conditions, line: Statement, phase: int, guard: str = ""
) -> Statement:
    """Return a statement that is executed if a guard, a variable, and conditions hold."""
    tests = [Name(guard)] if guard else []
    test = both([*tests, *([emitter.condition(conditions, phase)] if conditions else [])])
    return line if test is None else If(test, (line,), braces=False)
