"""Accumulators: how a kernel gathers a reduction, combines its parts and finishes the value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusec.index.instances import Lowering
from fusec.ir.dim import product
from fusec.ir.dtype import F32, F64, DType
from fusec.ir.expression import Index, contiguous_strides, linearize, of_var
from fusec.ir.graph import Node
from fusec.ir.op import OpDef
from fusec.ir.roles import Combine
from fusec.kernel.ctext import Text, compute_type, literal, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nest import unrolled
from fusec.ops.statistics import results_of


@dataclass(frozen=True)
class Accumulator:
    """A reduction in a kernel.

    name: the combined value (or state); part: this thread's part of it (an array over lanes
    where `array`); type: of one part, in C; combiner: of device/combine.cuh or welford.cuh;
    identity: the start; finish: the format of the value from the combined part, rounded where it is
    a half type.
    """

    name: str
    part: str
    type: str
    combiner: str
    identity: str
    finish: str
    array: bool = False

    @property
    def initial(self) -> str:
        """Return what a part starts with."""
        return f"fusec::splat<{self.type}, kVec>({self.identity})" if self.array else self.identity

    @property
    def start(self) -> str:
        """Return the declaration of a part."""
        return f"{'auto' if self.array else self.type} {self.part} = {self.initial};"

    @property
    def of_block(self) -> str:
        """Return the parts of all threads along the reduction, combined."""
        along = "columns" if self.array else "rows"
        return f"fusec::block_reduce_{along}<{self.combiner}, kThreadsX, kThreadsY>({self.part})"

    def combined(self, other: str) -> str:
        """Return this part combined with a later one."""
        return f"{self._combine}({self.part}, {other})"

    def joined(self, earlier: str) -> str:
        """Return an earlier part combined with this one."""
        return f"{self._combine}({earlier}, {self.part})"

    @property
    def _combine(self) -> str:
        if self.array:
            return f"fusec::combine_each<{self.combiner}>"
        return f"{self.combiner}::combine"

    def named(self, value: str) -> tuple[str, ...]:
        """Return the declaration of the result from its combined parts."""
        if not self.array:
            return (f"const {self.type} {self.name} = {self.finish.format(value)};",)
        lines = (f"auto {self.name} = {value};",)
        if self.finish == "{}":
            return lines
        each = f"{self.name}[v] = {self.finish.format(f'{self.name}[v]')};"
        return (*lines, *unrolled("for (int v = 0; v < kVec; ++v)", [each]))


def accumulate(
    emitter: Emitter,
    lowering: Lowering,
    node: Node,
    phase: int,
    scope: str = "lane",
    *,
    array: bool = False,
) -> Accumulator:
    """Emit the accumulation of a reduction in `phase` and bind its results to a name.

    array: one part per lane, for reductions over an outer loop; the lane variable is `v`.
    """
    tensor = lowering.at_home(node.inputs[0])
    dtype, pushes = accumulator_type(node), _is_state(node.op)
    name = emitter.names.fresh(node.output.name)
    part = emitter.names.fresh(f"{node.output.name}_part", "part")
    value = emitter.convert(tensor, dtype, phase)
    lane = "[v]" if array and emitter.lane is not None else "[0]" if array else ""
    if _is_position(node.op):
        at = emitter.index(_position(lowering, node), phase)
        kind = combiner(node.op, dtype, wide=emitter.wide)
        line = f"{kind}::take({part}{lane}, {value}, {at});"
        if not _in_order(lowering, node):
            line = f"{part}{lane} = {kind}::combine({part}{lane}, {{{value}, {at}}});"
        emitter.add(phase, scope, line)
        emitter.reduced[(node, 0)] = Text(f"{name}{lane}.position()")
    elif pushes and scope == "lane" and not array and emitter.lane is not None:
        # The lanes of a vector are taken together: one division, or rescaling, instead of one for
        # each.
        number = len(emitter.scopes) - 2
        values = emitter.fresh(f"{node.output.name}_values", "values", phase, number)
        kind = compute_type(dtype)
        emitter.add(phase, emitter.scopes[number].name, f"{kind} {values}[{emitter.width_name}];")
        emitter.add(phase, scope, f"{values}[{emitter.lane.name}] = {value};")
        emitter.add(phase, "after", f"{part}.push({values});")
    else:
        emitter.add(phase, scope, update(node.op, part + lane, value, dtype))
    if pushes:
        for number, text in enumerate(_results(node, name + lane, dtype)):
            emitter.reduced[(node, number)] = Text(text)
    elif not _is_position(node.op):
        emitter.reduced[(node, 0)] = Text(name + lane)
    kind = combiner(node.op, dtype, wide=emitter.wide)
    state = _state(node.op, compute_type(dtype), wide=emitter.wide)
    return Accumulator(name, part, state, kind, f"{kind}::identity()", _finish(node), array)


def accumulate_end(
    emitter: Emitter, lowering: Lowering, node: Node, each: Accumulator, phase: int
) -> None:
    """Emit in `phase` what takes an element by itself, a vector's first, into a thread's part."""
    tensor, dtype = emitter.first_lane(lowering.at_home(node.inputs[0])), accumulator_type(node)
    line = update(node.op, each.part, emitter.convert(tensor, dtype, phase), dtype)
    emitter.add(phase, "lane", line)


def _position(lowering: Lowering, node: Node) -> Index:
    """Return the row-major position of an element among those that are reduced with it."""
    coordinates, _ = lowering.home(node.inputs[0])
    dims: tuple[int, ...] = node.attributes["dims"]
    extents = [node.inputs[0].shape[d] for d in dims]
    return linearize((coordinates[d] for d in dims), contiguous_strides(extents))


def _in_order(lowering: Lowering, node: Node) -> bool:
    """Return whether loops over the domain's axes, in order, meet the positions in order."""
    axes = lowering.domain.axes
    met: list[int] = []
    dims: tuple[int, ...] = node.attributes["dims"]
    for d in dims:
        at = lowering.domain.homes[node.inputs[0]].coordinates[d]
        found = [k for k, axis in enumerate(axes) if at == of_var(axis) and at.variables]
        if not found and not at.is_const:
            return False
        met += found
    return met == sorted(met)


def _is_position(op: OpDef) -> bool:
    """Return whether the state is a value and where it was found."""
    return op.combine is not None and op.combine.is_position


def _is_state(op: OpDef) -> bool:
    """Return whether elements are pushed into a state of several numbers."""
    return op.combine is not None and op.combine.is_state


def _state(op: OpDef, kind: str, *, wide: bool) -> str:
    """Return the C type of one part."""
    if op.combine is Combine.EXPONENTIALS:
        return f"fusec::ExpSum<{kind}>"
    if op.combine is Combine.MOMENTS:
        return f"fusec::Welford<{kind}>"
    return f"fusec::Indexed<{_indexed(kind, wide=wide)}>" if _is_position(op) else kind


def _indexed(kind: str, *, wide: bool) -> str:
    """Return the C types of a value and of its index."""
    return kind if wide else f"{kind}, int"


def accumulator_type(node: Node) -> DType:
    """Return the type that a reduction accumulates in: f32 for half types, f64 for f64."""
    if node.op.combine is Combine.MOMENTS:
        return F64 if node.inputs[0].dtype == F64 else F32
    if _is_position(node.op):
        return node.inputs[0].dtype.compute
    return node.output.dtype.compute


def combiner(op: OpDef, dtype: DType, *, wide: bool = True) -> str:
    """Return the C type that combines two parts of a reduction.

    `wide`: whether indices are 64 bits wide, as those of elements are.
    """
    kind = compute_type(dtype)
    types = _indexed(kind, wide=wide) if _is_position(op) else kind
    return f"fusec::{op.cuda['default']}<{types}>"


def _finish(node: Node) -> str:
    dtype = node.output.dtype
    if _is_state(node.op) or not dtype.is_half:
        return "{}"
    return f"fusec::round_to<{storage_type(dtype)}>({{}})"


def update(op: OpDef, part: str, value: Text, dtype: DType) -> str:
    """Return the statement that takes one value into a part."""
    if _is_state(op):
        return f"{part}.push({value});"
    if op.combine is Combine.SUM:
        return f"{part} += {value};"
    if op.combine is Combine.PRODUCT:
        return f"{part} *= {value};"
    return f"{part} = {combiner(op, dtype)}::combine({part}, {value});"


def _results(node: Node, state: str, dtype: DType) -> list[str]:
    """Return the results that are made of a state."""
    if node.op.combine is Combine.EXPONENTIALS:
        return [f"{state}.top", f"{state}.sum()"]
    return _variances(node, state, dtype)


def _variances(node: Node, state: str, dtype: DType) -> list[str]:
    """Return the results of a variance from its Welford state, each in its own type."""
    dims: tuple[int, ...] = node.attributes["dims"]
    # The mean of nothing is no number.
    some = product(node.inputs[0].shape[d] for d in dims) != 0
    texts = {
        "mean": f"{state}.mean" if some else literal(math.nan, dtype).text,
        "m2": f"{state}.m2",
        "count": f"{state}.n",
    }
    if "correction" in node.attributes:
        correction = literal(float(node.attributes["correction"]), dtype)
        texts["var"] = f"{state}.variance({correction})"
    results: list[str] = []
    for kind, output in zip(results_of(node), node.outputs, strict=True):
        text = texts[kind]
        if output.dtype.is_half:
            text = f"fusec::round_to<{storage_type(output.dtype)}>({text})"
        elif output.dtype != dtype:
            text = f"fusec::convert<{compute_type(output.dtype)}>({text})"
        results.append(text)
    return results
