"""The statements of top-k with rows shared by the lanes of a warp."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.dim import dim
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion, Node, Value
from fusec.kernel.ctext import compute_type, dim_text
from fusec.kernel.lowering.accumulators import accumulate
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.phases import Phase, phase_of, reduction_roots
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import Names, parameter_names
from fusec.kernel.nodes import Expression, Let, Name, Statement
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.sort.kernel.writing import PLACE
from fusec.schedule.sort.parts import Parts, read_results
from fusec.schedule.sort.top import TopParameters, bind


@dataclass(frozen=True, kw_only=True)
class LanesNodes:
    """Rows that adjacent threads hold in registers, from their producers to their consumers.

    rows: their number; phases: reductions over a row before it is sorted; row, vector, lane: the
    statements that compute `value`, the element at `column + v`; gather: those that recompute the
    value at `found`; after: reductions over the results; write: the consumers at `position`.
    """

    rows: Expression
    phases: tuple[Phase, ...]
    row: tuple[Statement, ...]
    vector: tuple[Statement, ...]
    lane: tuple[Statement, ...]
    value: Expression
    gather: tuple[Statement, ...]
    after: tuple[Phase, ...]
    write: tuple[Statement, ...]


def nodes_of(plan: Plan[Parts, TopParameters], kernel: Kernel) -> LanesNodes:
    """Return the statements of a top-k kernel."""
    parts = plan.problem
    making = _Making(parts, plan.parameters, parameter_names(kernel.argument_names))
    phases, (row, vector, lane), value = making.keys()
    gather, (after, write) = making.gather(), making.results()
    return LanesNodes(
        rows=dim_text(parts.rows),
        phases=phases,
        row=row,
        vector=vector,
        lane=lane,
        value=value,
        gather=gather,
        after=after,
        write=write,
    )


class _Making:
    """The statements of a kernel under construction."""

    def __init__(self, parts: Parts, p: TopParameters, names: Names) -> None:
        self.parts, self.p, self.names = parts, p, names
        self.outer = (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("row", frozenset({parts.row}), per_phase=False),
        )
        self.reduced: dict[tuple[object, int], Expression] = {}
        self.given: dict[Value, Expression] = {}

    def _emitter(
        self, *scopes: Scope, chunk: Var | None = None, lane: Var | None = None
    ) -> Emitter:
        width = self.p.vector_width
        emitter = Emitter(
            (*self.outer, *scopes),
            self.names,
            Facts(self.parts.fusion.hints),
            lane=lane if width > 1 else None,
            width=width,
            aliases={chunk: Alias("column", width)} if chunk is not None else {},
            wide=self.p.wide_index,
            symbols=named(kColumns=dim(self.parts.length), kKeep=dim(self.parts.keep)),
            stored_under="own_row < rows && position < kKeep",
        )
        emitter.reduced = self.reduced
        return emitter

    def keys(self) -> tuple[tuple[Phase, ...], tuple[tuple[Statement, ...], ...], Expression]:
        """Return the sums over a row, the statements that compute an element, and its value."""
        parts = self.parts
        binding, (chunk, lane) = bind(parts, self.p.vector_width)
        scopes = Scope("vector", frozenset({chunk})), Scope("lane", frozenset({lane}))
        emitter = self._emitter(*scopes, chunk=chunk, lane=lane)
        lowering = Lowering(parts.before, parts.operand, binding)
        operand = lowering.at_home(parts.node.inputs[0])
        found = _by_depth(parts.before, lowering)
        emitter.count([operand, *reduction_roots(lowering, tuple(n for g in found for n in g))])
        last = len(found)
        sums = [tuple(accumulate(emitter, lowering, n, k) for n in g) for k, g in enumerate(found)]
        value = emitter.ref(operand, last)
        phases = tuple(phase_of(emitter, k, (), each) for k, each in enumerate(sums))
        return (
            phases,
            (emitter.before(last), emitter.take(last, "vector"), emitter.take(last, "lane")),
            value,
        )

    def gather(self) -> tuple[Statement, ...]:
        """Return the statements that recompute the value at `found`, if it is read."""
        parts = self.parts
        results = parts.node.outputs
        if len(results) == 1 or results[0] not in read_results(parts):
            return ()
        found = Var("found", parts.node.inputs[0].shape[parts.axis])
        emitter = self._emitter(Scope("part", frozenset()), Scope("element", frozenset({found})))
        instance = parts.at(found).at_home(parts.node.inputs[0])
        emitter.count([instance])
        phase = instance.depth
        value = emitter.value(instance, phase)
        name = self.names.fresh(results[0].name)
        self.given[results[0]] = Name(name)
        rows = (line for k in range(phase + 1) for line in emitter.before(k))
        found_value = Let(compute_type(results[0].dtype), name, value)
        return (*rows, *emitter.take(phase, "element"), found_value)

    def results(self) -> tuple[tuple[Phase, ...], tuple[Statement, ...]]:
        """Return the sums over the results of a row, and the stores at `position`."""
        parts = self.parts
        position = Var("position", parts.node.output.shape[parts.axis])
        emitter = self._emitter(Scope("part", frozenset()), Scope("lane", frozenset({position})))
        lowering = parts.ordered(position)
        for result in read_results(parts):
            emitter.given[lowering.at_home(result)] = self.given.get(result, PLACE)
        plans = plan_stores(lowering, parts.after.outputs, emitter.store_kind, lambda plan: True)
        groups = _by_depth(parts.after, lowering)
        nodes = tuple(n for g in groups for n in g)
        emitter.count([*(s.instance for s in plans), *reduction_roots(lowering, nodes)])
        sums = [tuple(accumulate(emitter, lowering, n, k) for n in g) for k, g in enumerate(groups)]
        last = len(groups)
        for each in plans:
            emit_store(emitter, each, last)
        phases = tuple(phase_of(emitter, k, (), each) for k, each in enumerate(sums))
        return phases, (*emitter.before(last), *emitter.statements(last))


def _by_depth(fusion: Fusion, lowering: Lowering) -> tuple[tuple[Node, ...], ...]:
    """Return the reductions of a fusion by the phase in which their operands are available."""
    groups: list[list[Node]] = []
    for node in fusion.nodes:
        if node.op.family == "reduction":
            depth = lowering.at_home(node.inputs[0]).depth
            groups += [[] for _ in range(depth + 1 - len(groups))]
            groups[depth].append(node)
    return tuple(tuple(g) for g in groups)
