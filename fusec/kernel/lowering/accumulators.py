"""Accumulators: how a kernel accumulates a reduction, combines partial results and finishes it."""

from __future__ import annotations

import math

from fusec.dataclasses import dataclass
from fusec.index.instances import Lowering
from fusec.ir.dim import product
from fusec.ir.dtype import F32, F64, DType
from fusec.ir.expression import Index, contiguous_strides, linearize, of_var
from fusec.ir.graph import Node
from fusec.ir.op import OpDef
from fusec.ir.roles import Combine
from fusec.kernel.ctext import compute_type, literal
from fusec.kernel.lowering.emit import Emitter, convert, rounded
from fusec.kernel.lowering.nest import unrolled
from fusec.kernel.nodes import (
    AUTO,
    INT,
    Assign,
    Braced,
    Call,
    Declare,
    Evaluate,
    Expression,
    Item,
    Let,
    Member,
    Method,
    Name,
    Statement,
    Static,
    Type,
    call,
)
from fusec.ops.reduction.statistics import results_of


@dataclass(frozen=True)
class Accumulator:
    """A reduction in a kernel.

    name: the combined value (or state); part: this thread's part of it (an array over lanes if
    `array`); type: of one part; combiner: of device/combine.cuh or welford.cuh; rounds: the 16-bit
    or narrower float type to which the value is rounded, if any.
    """

    name: str
    part: str
    type: Type
    combiner: Type
    rounds: DType | None = None
    array: bool = False

    @property
    def identity(self) -> Expression:
        """Return the identity element of the combiner."""
        return Static(self.combiner, "identity")

    @property
    def initial(self) -> Expression:
        """Return the initial value of a part."""
        if not self.array:
            return self.identity
        return Call("fusec::splat", (self.identity,), (self.type, Name("kVec")))

    @property
    def start(self) -> Statement:
        """Return the declaration of a part."""
        return Declare(AUTO if self.array else self.type, self.part, (), self.initial)

    @property
    def of_block(self) -> Expression:
        """Return the parts of all threads along the reduction, combined."""
        along = "columns" if self.array else "rows"
        about = self.combiner, "kThreadsX", "kThreadsY"
        return call(f"fusec::block_reduce_{along}", self.part, about=about)

    def combined(self, other: Expression) -> Expression:
        """Return this part combined with a later one."""
        return self._combine(Name(self.part), other)

    def joined(self, earlier: Expression) -> Expression:
        """Return an earlier part combined with this one."""
        return self._combine(earlier, Name(self.part))

    def _combine(self, *parts: Expression) -> Expression:
        if self.array:
            return Call("fusec::combine_each", parts, (self.combiner,))
        return Static(self.combiner, "combine", parts)

    def finished(self, value: Expression) -> Expression:
        """Return the value of the combined part."""
        return value if self.rounds is None else rounded(self.rounds, value)

    def named(self, combined: Expression) -> tuple[Statement, ...]:
        """Return the declaration of the result from its combined parts."""
        if not self.array:
            return (Let(self.type, self.name, self.finished(combined)),)
        lines = (Declare(AUTO, self.name, (), combined),)
        if self.rounds is None:
            return lines
        each = Item(Name(self.name), Name("v"))
        return (*lines, *unrolled("v", "kVec", [Assign(each, self.finished(each))]))


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
    lane = Name("v") if array and emitter.lane is not None else Name("0")
    own, total = (Item(Name(n), lane) if array else Name(n) for n in (part, name))
    kind = combiner(node.op, dtype, wide=emitter.wide)
    if _is_position(node.op):
        at = emitter.index(_position(lowering, node), phase)
        line: Statement = Evaluate(Static(kind, "take", (own, value, at)))
        if not _in_order(lowering, node):
            line = Assign(own, Static(kind, "combine", (own, Braced(None, (value, at)))))
        emitter.add(phase, scope, line)
        emitter.reduced[(node, 0)] = Method(total, "position")
    elif pushes and scope == "lane" and not array and emitter.lane is not None:
        # The lanes of a vector are combined at once: a single division, or rescaling, for all of
        # them.
        number = len(emitter.scopes) - 2
        values = emitter.fresh(f"{node.output.name}_values", "values", phase, number)
        held = Declare(compute_type(dtype), values, (Name(emitter.width_name),))
        emitter.add(phase, emitter.scopes[number].name, held)
        emitter.add(phase, scope, Assign(Item(Name(values), Name(emitter.lane.name)), value))
        emitter.add(phase, "after", Evaluate(Method(Name(part), "push", (Name(values),))))
    else:
        emitter.add(phase, scope, update(node.op, own, value, dtype))
    if pushes:
        for number, result in enumerate(_results(node, total, dtype)):
            emitter.reduced[(node, number)] = result
    elif not _is_position(node.op):
        emitter.reduced[(node, 0)] = total
    state = _state(node.op, compute_type(dtype), wide=emitter.wide)
    return Accumulator(name, part, state, kind, _rounds(node), array)


def accumulate_edge(
    emitter: Emitter, lowering: Lowering, node: Node, each: Accumulator, phase: int
) -> None:
    """Emit in `phase` the accumulation of a vector's first element into a thread's part."""
    tensor, dtype = emitter.first_lane(lowering.at_home(node.inputs[0])), accumulator_type(node)
    line = update(node.op, Name(each.part), emitter.convert(tensor, dtype, phase), dtype)
    emitter.add(phase, "lane", line)


def _position(lowering: Lowering, node: Node) -> Index:
    """Return the row-major position of an element among those reduced with it."""
    coordinates, _ = lowering.home(node.inputs[0])
    dims: tuple[int, ...] = node.attributes["dims"]
    extents = [node.inputs[0].shape[d] for d in dims]
    return linearize((coordinates[d] for d in dims), contiguous_strides(extents))


def _in_order(lowering: Lowering, node: Node) -> bool:
    """Return whether loops over the domain's axes, in order, visit the positions in order."""
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
    """Return whether the state is a value and its position."""
    return op.combine is not None and op.combine.is_position


def _is_state(op: OpDef) -> bool:
    """Return whether elements are pushed into a state of several numbers."""
    return op.combine is not None and op.combine.is_state


def _state(op: OpDef, kind: Type, *, wide: bool) -> Type:
    """Return the C type of one part."""
    if op.combine is Combine.EXPONENTIALS:
        return Type("fusec::ExpSum", (kind,))
    if op.combine is Combine.MOMENTS:
        return Type("fusec::Welford", (kind,))
    return Type("fusec::Indexed", _indexed(kind, wide=wide)) if _is_position(op) else kind


def _indexed(kind: Type, *, wide: bool) -> tuple[Type, ...]:
    """Return the C types of a value and of its index."""
    return (kind,) if wide else (kind, INT)


def accumulator_type(node: Node) -> DType:
    """Return the type that a reduction accumulates in: f32 for 16-bit floats, f64 for f64."""
    if node.op.combine is Combine.MOMENTS:
        return F64 if node.inputs[0].dtype == F64 else F32
    if _is_position(node.op):
        return node.inputs[0].dtype.compute
    return node.output.dtype.compute


def combiner(op: OpDef, dtype: DType, *, wide: bool = True) -> Type:
    """Return the C type that combines two parts of a reduction.

    `wide`: whether indices are 64 bits wide, as those of elements are.
    """
    kind = compute_type(dtype)
    types = _indexed(kind, wide=wide) if _is_position(op) else (kind,)
    return Type(f"fusec::{op.cuda['default']}", types)


def _rounds(node: Node) -> DType | None:
    """Return the 16-bit or narrower float type to which a reduction's value is rounded."""
    dtype = node.output.dtype
    return dtype if dtype.is_half and not _is_state(node.op) else None


def update(op: OpDef, part: Expression, value: Expression, dtype: DType) -> Statement:
    """Return the statement that accumulates one value into a part."""
    if _is_state(op):
        return Evaluate(Method(part, "push", (value,)))
    if op.combine is Combine.SUM:
        return Assign(part, value, "+=")
    if op.combine is Combine.PRODUCT:
        return Assign(part, value, "*=")
    return Assign(part, Static(combiner(op, dtype), "combine", (part, value)))


def _results(node: Node, state: Expression, dtype: DType) -> list[Expression]:
    """Return the results that are computed from a state."""
    if node.op.combine is Combine.EXPONENTIALS:
        return [Member(state, "top"), Method(state, "sum")]
    return _variances(node, state, dtype)


def _variances(node: Node, state: Expression, dtype: DType) -> list[Expression]:
    """Return the results of a variance from its Welford state, each in its own type."""
    dims: tuple[int, ...] = node.attributes["dims"]
    # The mean of an empty set is NaN.
    some = product(node.inputs[0].shape[d] for d in dims) != 0
    found: dict[str, Expression] = {
        "mean": Member(state, "mean") if some else literal(math.nan, dtype),
        "m2": Member(state, "m2"),
        "count": Member(state, "n"),
    }
    if "correction" in node.attributes:
        correction = literal(float(node.attributes["correction"]), dtype)
        found["var"] = Method(state, "variance", (correction,))
    results: list[Expression] = []
    for kind, output in zip(results_of(node), node.outputs, strict=True):
        result = found[kind]
        if output.dtype.is_half:
            result = rounded(output.dtype, result)
        elif output.dtype != dtype:
            result = convert(compute_type(output.dtype), result)
        results.append(result)
    return results
