"""Complex tensors in kernels: one access loads or stores both parts of a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Input
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.stores import StorePlan, emit_store, guarded
from fusec.kernel.nodes import Braced, Evaluate, call, vector_of


def parts_of(fusion: Fusion) -> Mapping[str, tuple[str, int]]:
    """Return (the real part's name, part index) of inputs if the kernel has both parts."""
    halves: dict[str, dict[int, Input]] = {}
    for entry in fusion.inputs:
        if entry.part is not None and not entry.value.is_scalar:
            halves.setdefault(entry.part.of, {})[entry.part.index] = entry
    return {
        entry.value.name: (pair[0].value.name, index)
        for pair in halves.values()
        if len(pair) == 2 and pair[0].strides == pair[1].strides
        for index, entry in pair.items()
    }


def second_parts(fusion: Fusion) -> frozenset[str]:
    """Return the tensors that a kernel accesses through the first parts of their numbers."""
    firsts = {o.part.of for o in fusion.outputs if o.part is not None and o.part.index == 0}
    seconds = {name for name, (_, index) in parts_of(fusion).items() if index == 1}
    seconds |= {
        o.value.name
        for o in fusion.effects.fresh
        if o.part is not None and o.part.index == 1 and o.part.of in firsts
    }
    return frozenset(seconds - fusion.effects.overwritten)


def emit_stores(emitter: Emitter, plans: Iterable[StorePlan], phase: int) -> None:
    """Emit all stores; the parts of a complex output are stored as one."""
    waiting: dict[str, StorePlan] = {}
    left = list(plans)
    for plan in left:
        part = plan.output.part
        if part is None:
            emit_store(emitter, plan, phase)
        elif part.of not in waiting:
            waiting[part.of] = plan
        else:
            _emit_pair(emitter, waiting.pop(part.of), plan, phase)
    for plan in waiting.values():
        emit_store(emitter, plan, phase)


def _emit_pair(emitter: Emitter, first: StorePlan, second: StorePlan, phase: int) -> None:
    pair = sorted(
        (first, second), key=lambda plan: plan.output.part.index if plan.output.part else 0
    )
    if (first.address, first.conditions) != (second.address, second.conditions):
        for place, plan in enumerate(pair):
            at = replace(plan, buffer=pair[0].buffer, address=plan.address + place)
            emit_store(emitter, at, phase)
        return
    for plan in pair:
        emitter.check_store(plan.output.value.name, plan.kind)
    dtype = first.output.value.dtype
    values = tuple(emitter.to_storage(plan.instance, dtype, phase) for plan in pair)
    target = emitter.pointer(pair[0].buffer, first.address, phase)
    store = Evaluate(
        call("fusec::store", target, Braced(vector_of(storage_type(dtype), 2), values))
    )
    line = guarded(emitter, first.conditions, store, phase, emitter.guard)
    emitter.add(phase, emitter.scopes[-1].name, line, last=first.overwrites or second.overwrites)
