"""The statements of kernels that write elements at positions that are data."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.access import Coordinates
from fusec.ir.dim import dim
from fusec.ir.dtype import I64, DType
from fusec.ir.expression import Index, Var, contiguous_strides, linearize, of_var
from fusec.ir.expression import index as constant
from fusec.ir.graph import Node
from fusec.kernel.ctext import compute_type, identifier, storage_type
from fusec.kernel.lowering.emit import Emitter, convert
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.stores import StorePlan, emit_store
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import (
    AUTO,
    Assign,
    Binary,
    Declare,
    Element,
    Evaluate,
    Expression,
    If,
    Integer,
    Leave,
    Let,
    Name,
    Operand,
    Pointer,
    Select,
    Statement,
    Type,
    call,
    item,
    vector_of,
)
from fusec.schedule.plan import StepKernel, WorkspaceArgument
from fusec.schedule.scatter.after import After
from fusec.schedule.scatter.family import ScatterPlan
from fusec.schedule.scatter.kernel.siblings import SiblingsBody, siblings_body

TARGET, WRITE = 0, 1
"""Numbers of the phases that compute an element's destination, and its value and store."""

CLAIM = Name("element") + Integer(1, "u")
"""The mark with which an element claims a destination; 0 means unclaimed."""


@dataclass(frozen=True, kw_only=True)
class ScatterNodes:
    """Elements of lines, and their destinations.

    vector_width: adjacent lines that a thread writes; lines: number of lines; line: statements per
    line; target: those that compute an element's destination, `target_text`; won: those that skip
    it if another element wins; source_lines: those that add an element to `sums`; order: the
    element at a sorted position; write: those that write; siblings: the work of further blocks;
    type: in which sums are accumulated.
    """

    vector_width: int
    lines: int
    type: Type
    line: tuple[Statement, ...]
    target: tuple[Statement, ...]
    target_text: Expression
    source_lines: tuple[Statement, ...]
    order: Expression | None
    won: tuple[Statement, ...]
    write: tuple[Statement, ...]
    siblings: SiblingsBody | None


def nodes_of(plan: ScatterPlan, kernel: StepKernel[str]) -> ScatterNodes:
    """Return the statements of a kernel that writes at positions that are data."""
    scatter, algorithm, step = plan.problem, plan.parameters.algorithm, kernel.step
    making = _Making(plan, kernel)
    target_text = making.target()
    in_order = algorithm == "sorted" or (algorithm == "compared" and scatter.adds)
    writes = step not in ("clear", "claim")
    if step == "win":
        making.leave()
    for node in scatter.nodes if writes else ():
        source_text = making.source(node)
        if in_order:
            making.add(source_text)
        if scatter.after is not None:
            making.write_after(scatter.after)
        else:
            making.write(node, making.sum if in_order else source_text)
    if not writes:
        making.claim()
    order = making.order() if algorithm == "sorted" else None
    take = making.emitter.take
    source_lines = making.lines(WRITE)
    written = making.lines(WRITE + 1)
    separate = in_order or not writes
    return ScatterNodes(
        vector_width=making.width,
        lines=1 if making.once else scatter.lines,
        type=making.type,
        line=(*take(0, "kernel"), *take(0, "line")),
        target=take(TARGET, "element"),
        target_text=target_text,
        source_lines=source_lines,
        order=order,
        won=take(TARGET, "won"),
        siblings=siblings_body(scatter, kernel, wide=plan.parameters.wide_index)
        if writes
        else None,
        write=written if separate else making.lines(WRITE, WRITE + 1),
    )


class _Making:
    """The statements of a kernel under construction."""

    def __init__(self, plan: ScatterPlan, kernel: StepKernel[str]) -> None:
        scatter = plan.problem
        self.scatter, self.kernel, self.step = scatter, kernel, kernel.step
        self.algorithm = plan.parameters.algorithm
        self.width = 1 if kernel.step in ("clear", "claim") else plan.parameters.vector_width
        self.lane: Operand = "v" if self.width > 1 else 0
        self.sum = item("sums", self.lane)
        self.element = Var("element", dim(scatter.length))
        self.position = Var("position", dim(scatter.length))
        self.place = Var("target", scatter.node.output.shape[scatter.axis])
        vector, lane = scatter.vectors(self.width)
        wide = self.width > 1
        lines = Scope("line", frozenset({vector if wide else scatter.line}), per_phase=False)
        element = Scope("element", frozenset({self.element, self.position, self.place}))
        self.emitter = Emitter(
            (
                Scope("kernel", frozenset(), per_phase=False),
                lines,
                element,
                *([Scope("lane", frozenset({lane}))] if wide else []),
            ),
            parameter_names(kernel.argument_names),
            Facts(scatter.fusion.hints),
            lane=lane if wide else None,
            width=self.width,
            aliases={vector: Alias("line", self.width)} if wide else {},
            wide=plan.parameters.wide_index,
            symbols={} if self.once else self._sizes(),
        )
        self.lowering = scatter.lowering
        self.type = compute_type(scatter.node.output.dtype)

    def _sizes(self) -> Mapping[int, str]:
        """Return the constants of the templates by their values."""
        return named(kLines=dim(self.scatter.lines), kLength=dim(self.scatter.length))

    @property
    def once(self) -> bool:
        """Return whether destinations are computed once for all lines."""
        return self.step in ("clear", "claim") and self.scatter.in_place and self.scatter.of_slices

    def lines(self, *phases: int) -> tuple[Statement, ...]:
        """Return the statements of an element, or of a vector of them."""
        take = self.emitter.take
        lines = tuple(line for p in phases for line in take(p, "element"))
        if self.width == 1:
            return lines
        lanes = tuple(line for p in phases for line in take(p, "lane"))
        return (*lines, *self.emitter.lanes(lanes), *(x for p in phases for x in take(p, "after")))

    def target(self) -> Expression:
        """Emit the computation of an element's destination, and return that."""
        index = self.scatter.node.operands[1]
        at = self.scatter.index_at(of_var(self.element), self.width)
        return self.emitter.convert(self.lowering.operand(index, at, ()), I64, TARGET)

    def source(self, node: Node) -> Expression:
        """Emit the value that a scatter writes, and return it in the compute type."""
        source, dtype = node.operands[2], node.output.dtype.compute
        at = self.scatter.at(of_var(self.element), self.width) if source.shape else ()
        instance = self.lowering.operand(source, at, ())
        return self.emitter.convert(instance, dtype, WRITE)

    def order(self) -> Element:
        """Return the element at a sorted position of the line, or of a vector's first one."""
        shape = self.scatter.node.operands[1].shape
        at = self.scatter.index_at(of_var(self.position), self.width)
        place = linearize(at, contiguous_strides(shape))
        if self.emitter.lane is not None:
            place = place.substitute({self.emitter.lane: constant(0)})
        return Element(self._workspace(), self.emitter.index(place, WRITE + 1))

    def _workspace(self) -> Name:
        found = (a for a in self.kernel.arguments if isinstance(a, WorkspaceArgument))
        return Name(identifier(next(found).name))

    def add(self, value: Expression) -> None:
        """Emit the statement that adds an element of the source; the first one begins the sum."""
        scope, total = self.emitter.scopes[-1].name, self.sum
        line = Assign(total, Select(Name("is_first"), value, total + value))
        self.emitter.add(WRITE, scope, line)

    def claim(self) -> None:
        """Emit the statement that claims an element's destination, or clears the claims on it."""
        claims = Pointer(self._workspace(), self._claim())
        noted = call("fusec::store_relaxed", claims, Integer(0, "u"))
        if self.step == "claim":
            noted = call("fusec::atomic_max", claims, CLAIM)
        self.emitter.add(WRITE + 1, "element", Evaluate(noted))

    def leave(self) -> None:
        """Emit the statement that skips an element unless it has won its destination."""
        lost = Binary("!=", Element(self._workspace(), self._claim()), CLAIM)
        self.emitter.add(TARGET, "won", If(lost, (Leave("return"),), braces=False))

    def _target(self) -> Coordinates:
        """Return the coordinates of an element's destination."""
        coordinates = list(self.scatter.at(of_var(self.element), self.width))
        coordinates[self.scatter.axis] = of_var(self.place)
        return tuple(coordinates)

    def write_after(self, after: After) -> None:
        """Emit the computation of a sum's outputs, and their stores at its destination."""
        emitter, at = self.emitter, self._target()
        lowering, instances = after.at(at, self.place)
        sums = lowering.at(after.sums, at, ())
        emitter.given[sums] = self.sum
        emitter.count(instances)
        for output, instance in zip(after.fusion.outputs, instances, strict=True):
            buffer, to = after.fusion.effects.buffer(output.value), after.address(output, at)
            plan = StorePlan(output, instance, to, (), buffer, False, emitter.store_kind)
            emit_store(emitter, plan, WRITE + 1)

    def write(self, node: Node, value: Expression) -> None:
        """Emit the statement that writes a value at its destination."""
        emitter, scatter = self.emitter, self.scatter
        output = node.output
        to = linearize(self._target(), scatter.fusion.effects.strides(output))
        kind = storage_type(output.dtype)
        buffer = scatter.fusion.effects.buffer(output)
        sums = self.scatter.adds and self.algorithm != "elements"
        if self.width > 1:
            self._store_vector(buffer, to, value, output.dtype, sums)
            return
        name, address = Name(identifier(buffer)), emitter.index(to, WRITE + 1)
        place = Element(name, address)
        if self.scatter.adds and self.algorithm == "elements":
            line = Evaluate(call("fusec::atomic_add", Pointer(name, address), value))
        else:
            value = convert(self.type, place) + value if sums else value
            line = Assign(place, convert(kind, value))
        emitter.add(WRITE + 1, "element", line)

    def _store_vector(
        self, buffer: str, to: Index, value: Expression, dtype: DType, sums: bool
    ) -> None:
        """Emit the statements that write a vector into a buffer, or add it to its elements."""
        emitter = self.emitter
        base = emitter.vector_base(to, ())
        assert base is not None
        pointer, width = emitter.pointer(buffer, base, WRITE + 1), emitter.width_name
        if sums:
            there = emitter.fresh(f"{buffer}_vec", "there", WRITE + 1, 2)
            loaded = call("fusec::load", pointer, about=[width])
            emitter.add(WRITE + 1, "element", Let(AUTO, there, loaded))
            value = convert(self.type, item(there, self.lane)) + value
        written = emitter.fresh(f"{buffer}_new", "written", WRITE + 1, 2)
        emitter.add(WRITE + 1, "element", Declare(vector_of(storage_type(dtype), width), written))
        line = Assign(item(written, self.lane), convert(storage_type(dtype), value))
        emitter.add(WRITE + 1, "lane", line)
        emitter.add(WRITE + 1, "after", Evaluate(call("fusec::store", pointer, written)))

    def _claim(self) -> Expression:
        """Return the index of the claims on a destination: per line, or once for all lines.

        The claims are dense for all strides of the output, such as those of complex parts.
        """
        scatter = self.scatter
        if scatter.in_place and scatter.of_slices:
            return self.emitter.index(of_var(self.place), WRITE + 1)
        dense = contiguous_strides(scatter.node.output.shape)
        return self.emitter.index(linearize(self._target(), dense), WRITE + 1)
