"""The stores of sorted elements, one element of a row at a time."""

from __future__ import annotations

from fusec.index.instances import Instance
from fusec.ir.expression import Var
from fusec.kernel.ctext import compute_type
from fusec.kernel.lowering.emit import Emitter, convert
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.nodes import I64, Let, Name, Statement
from fusec.schedule.sort.parts import Parts, read_results

READ, WRITE = 0, 1
"""Numbers of the loops that compute keys, and that store sorted elements."""


PLACE = convert(I64, Name("found"))
"""The position of an element, as a result."""


class Writing:
    """The consumers at `position` of a row of the element at `found`."""

    def __init__(self, parts: Parts, emitter: Emitter, found: Var, position: Var) -> None:
        """Find the stores; the emitter knows the position, and the value is read again."""
        self.emitter = emitter
        self.gathered = parts.at(found).at_home(parts.node.inputs[0])
        self.after = parts.ordered(position)
        self.plans = plan_stores(self.after, parts.after.outputs, emitter.store_kind)
        results = parts.node.outputs
        used = read_results(parts)
        self.value = results[0] if len(results) > 1 and results[0] in used else None
        for result in used:
            if result is not self.value:
                emitter.given[self.after.at_home(result)] = PLACE

    @property
    def roots(self) -> list[Instance]:
        """Return the computed values."""
        stored = [s.instance for s in self.plans]
        return stored if self.value is None else [*stored, self.gathered]

    def emit(self) -> tuple[Statement, ...]:
        """Return the statements."""
        emitter, scope = self.emitter, self.emitter.scopes[-1].name
        if self.value is not None:
            name = emitter.names.fresh(self.value.name)
            found = emitter.value(self.gathered, WRITE)
            emitter.add(WRITE, scope, Let(compute_type(self.value.dtype), name, found))
            emitter.given[self.after.at_home(self.value)] = Name(name)
        for each in self.plans:
            emit_store(emitter, each, WRITE)
        return (*emitter.take(WRITE, scope), *emitter.take(WRITE, "after"))
