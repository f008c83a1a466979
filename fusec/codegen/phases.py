"""The statements of kernels that work in phases: accumulate, reduce, and go on with the results."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.ctext import Text, compute_type, identifier, storage_type
from fusec.codegen.emit import Emitter
from fusec.codegen.views import StorePlan, emit_store
from fusec.index.expression import Var
from fusec.index.instances import Instance, Lowering
from fusec.ir.dtype import DType
from fusec.ir.graph import Node

COMBINERS = {"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "any": "Any", "all": "All"}
"""Reductions that a combiner of device/combine.cuh computes."""


@dataclass(frozen=True)
class Accumulator:
    """A reduction in a kernel.

    name: the reduced value; part: this thread's part of it; type, combiner: in C; identity: the start;
    finish: the expression of the value from the combined part (rounded where it is a half type).
    """

    name: str
    part: str
    type: str
    combiner: str
    identity: str
    finish: str


@dataclass(frozen=True)
class Phase:
    """One sweep over the columns.

    row: statements before it, once per row; row_stores: stores of row values; loads: vectors that stay
    on chip, once per vector; vector, lane, stores: as in Body; accumulators: reductions that it ends with.
    """

    number: int
    row: tuple[str, ...]
    row_stores: tuple[str, ...]
    loads: tuple[str, ...]
    vector: tuple[str, ...]
    lane: tuple[str, ...]
    stores: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]

    @property
    def has_loop(self) -> bool:
        """Return whether the phase sweeps over the columns at all."""
        return bool(self.vector or self.lane or self.stores or self.loads)


def accumulate(
    emitter: Emitter, lowering: Lowering, node: Node, phase: int, scope: str = "lane"
) -> Accumulator:
    """Emit the accumulation of a reduction in `phase` and bind its result to a name."""
    tensor = lowering.at_home(node.inputs[0])
    dtype = accumulator_type(node)
    name = emitter.names.fresh(node.output.name)
    part = emitter.names.fresh(f"{node.output.name}_part", "part")
    value = emitter.convert(tensor, dtype, phase)
    emitter.add(phase, scope, update(node.op.name, part, value, dtype))
    emitter.reduced[(node, 0)] = Text(name)
    return Accumulator(
        name,
        part,
        compute_type(dtype),
        combiner(node.op.name, dtype),
        f"{combiner(node.op.name, dtype)}::identity()",
        finished(node),
    )


def accumulator_type(node: Node) -> DType:
    """Return the type that a reduction accumulates in: f32 for half types, else the result's."""
    return node.output.dtype.compute


def finished(node: Node) -> str:
    """Return the format of the reduced value: rounded to the result's type where that is a half."""
    dtype = node.output.dtype
    return f"fusec::round_to<{storage_type(dtype)}>({{}})" if dtype.is_half else "{}"


def update(op: str, part: str, value: Text, dtype: DType) -> str:
    """Return the statement that takes one value into a part."""
    if op == "sum":
        return f"{part} += {value};"
    if op == "prod":
        return f"{part} *= {value};"
    return f"{part} = {combiner(op, dtype)}::combine({part}, {value});"


def combiner(op: str, dtype: DType) -> str:
    """Return the C type that combines two parts of a reduction."""
    return f"fusec::{COMBINERS[op]}<{compute_type(dtype)}>"


def emit_outputs(
    emitter: Emitter, plans: tuple[StorePlan, ...], phase: int, columns: frozenset[Var]
) -> None:
    """Emit the stores of a phase: per element, or per row into scope `row_stores`."""
    for plan in plans:
        if plan.address.variables & columns or any(
            c.position.variables & columns for c in plan.conditions
        ):
            emit_store(emitter, plan, phase)
            continue
        value = emitter.to_storage(plan.instance, plan.output.value.dtype, phase)
        address = emitter.index(plan.address, phase)
        line = f"{identifier(plan.buffer)}[{address}] = {value};"
        if plan.conditions:
            line = f"if ({emitter.condition(plan.conditions, phase)}) {line}"
        emitter.add(phase, "row_stores", line)


def reduction_roots(lowering: Lowering, nodes: tuple[Node, ...]) -> list[Instance]:
    """Return the instances that reductions read."""
    return [lowering.at_home(n.inputs[0]) for n in nodes]


def phase_of(
    emitter: Emitter, number: int, loads: tuple[str, ...], accumulators: tuple[Accumulator, ...]
) -> Phase:
    """Return a phase's lines, once every phase has been emitted."""
    return Phase(
        number,
        emitter.take(number, "kernel") + emitter.take(number, "row"),
        emitter.take(number, "row_stores"),
        loads,
        emitter.take(number, "vector"),
        emitter.take(number, "lane"),
        emitter.take(number, "after"),
        accumulators,
    )
