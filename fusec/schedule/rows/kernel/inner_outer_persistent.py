"""The statements of kernels that reduce rows and columns in one pass."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import Instance
from fusec.ir.graph import Node
from fusec.kernel.arrays import RegisterArray, SharedArray, shared_array
from fusec.kernel.ctext import compute_type, storage_type
from fusec.kernel.facts import is_indexed_by
from fusec.kernel.lowering.accumulators import (
    Accumulator,
    accumulate,
    accumulator_type,
    combiner,
    update,
)
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, block, named
from fusec.kernel.lowering.phases import (
    COLUMN,
    C,
    emit_outputs,
    once_per_row,
    phase_of,
    vector_of_thread,
)
from fusec.kernel.names import Names, parameter_names
from fusec.kernel.nodes import (
    AUTO,
    THREAD_X,
    THREAD_Y,
    ZERO,
    Assign,
    Binary,
    Expression,
    Let,
    Name,
    Statement,
    either,
    item,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_outer_persistent.choice import InnerOuterParameters
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPlan, partials_of
from fusec.schedule.rows.inner_outer_persistent.work import work_of
from fusec.schedule.rows.kernel.inner_outer_sweeps import (
    ColumnPart,
    HeldRow,
    Ring,
    Sweep,
    combine_rows,
    copy_lines,
    in_ring,
)
from fusec.schedule.rows.kernel.nest import nest_emitter, stored_in, stores_of

SLOT = Name("slot")
"""The slot of a row in the ring."""


@dataclass(frozen=True, kw_only=True)
class InnerOuterNodes:
    """Rows in ranges, each range with its column accumulators.

    column: a vector's first column; exact: whether the threads' vectors cover exactly the row;
    row_bound: whether concurrent rows may pass the end together; kernel: statements once per
    thread; thread, row_of_slot, first_row, row_here: the thread, and its rows: of a slot, the first
    and the current one; constants, constant_statements: per-column constants; shared: rows in
    flight; held: rows in registers; partial_sums: lines that combine the threads of a column;
    unstored: the test for threads that store nothing; copy_row, copy_vector: statements that copy a
    row; sweeps: the phases.
    """

    column: Expression
    exact: bool
    thread: Expression
    row_of_slot: Expression
    first_row: Expression
    row_here: Expression
    partial_sums: tuple[Statement, ...]
    unstored: Expression | None
    row_bound: bool
    kernel: tuple[Statement, ...]
    constants: tuple[RegisterArray, ...]
    constant_statements: tuple[Statement, ...]
    shared: tuple[SharedArray, ...]
    held: tuple[HeldRow, ...]
    copy_row: tuple[Statement, ...]
    copy_vector: tuple[Statement, ...]
    column_parts: tuple[ColumnPart, ...]
    sweeps: tuple[Sweep, ...]


def nodes_of(plan: InnerOuterPlan, kernel: Kernel) -> InnerOuterNodes:
    """Return the statements of a row kernel."""
    return _Making(plan, kernel).nodes()


class _Making:
    """The statements of a row kernel under construction."""

    def __init__(self, plan: InnerOuterPlan, kernel: Kernel) -> None:
        split, parameters = plan.problem, plan.parameters
        self.plan, self.split = plan, split
        self.parameters = parameters
        self.width = parameters.vector_width
        self.row, self.chunk, self.lane = plan.loops
        self.columns = frozenset({self.chunk, self.lane})
        self.lowering = plan.lowering
        self.names = parameter_names(kernel.argument_names)
        self.emitter = self._emitter(self.names, Alias("row"))
        self.work, self.phases = work_of(split, self.width), plan.phases
        self.element = self.emitter.element_of_vector
        workspaces = partials_of(split, parameters.ranges)
        self.parts = {n: self._column_part(n, w.name) for n, w in workspaces.items()}

    def _emitter(self, names: Names, row: Alias) -> Emitter:
        sizes = named(kColumns=self.split.bands.columns)
        return nest_emitter(
            self.plan,
            names,
            of_kernel=(self.split.bands.group,),
            aliases={self.row: row},
            symbols=sizes,
            counts=sizes,
            guard="is_row" if self._row_bound() else "",
        )

    def nodes(self) -> InnerOuterNodes:
        """Return the statements."""
        p, bands, emitter = self.parameters, self.split.bands, self.emitter
        constants = self._constants()
        ring, held = self._rows()
        plans = stores_of(emitter, self.plan)
        copying = self._emitter(self.names, Alias("row_ahead"))
        copy_vector = copy_lines(copying, ring, self.width)
        accumulators: dict[int, tuple[Accumulator, ...]] = {}
        reductions: list[tuple[Statement, ...]] = []
        for number in range(self.phases.count):
            self._take_rows(ring, held, number)
            along = [n for n in self.phases.reductions[number] if n in self.split.row_sums]
            accumulators[number] = tuple(
                accumulate(emitter, self.lowering, n, number) for n in along
            )
            for node in self.phases.reductions[number]:
                if node not in self.split.row_sums:
                    self._update(node, number)
            emit_outputs(emitter, stored_in(plans, number), number, self.columns)
            reductions.append(combine_rows(self.names, accumulators[number]))
        made = tuple(
            self._sweep(number, accumulators[number], reductions[number])
            for number in range(self.phases.count)
        )
        exact = bands.columns.value == p.threads_x * p.chunks * self.width * p.tiles
        together = p.threads_y > 1
        outside = [
            *([Binary("!=", THREAD_Y, ZERO)] if together else []),
            *([] if exact else [Binary(">=", COLUMN, Name("kColumns"))]),
        ]
        first = Name("first")
        return InnerOuterNodes(
            column=_column(p),
            exact=exact,
            thread=THREAD_Y * "kThreadsX" + THREAD_X if together else THREAD_X,
            row_of_slot=first + SLOT * "kThreadsY" + THREAD_Y if together else first + SLOT,
            first_row=first + THREAD_Y if together else first,
            row_here=Name("row_of_thread" if self._row_bound() else "row"),
            partial_sums=tuple(p.sum_of_block for p in self.parts.values()) if together else (),
            unstored=either(outside),
            row_bound=self._row_bound(),
            kernel=(*copying.take(0, "kernel"), *emitter.take(0, "kernel")),
            constants=constants,
            constant_statements=emitter.statements(-1, guarded=False),
            shared=tuple(r.array for r in ring),
            held=tuple(s for s in held if not s.again),
            copy_row=copying.take(0, "row"),
            copy_vector=copy_vector,
            column_parts=tuple(self.parts.values()),
            sweeps=made,
        )

    def _sweep(
        self, number: int, accumulators: tuple[Accumulator, ...], results: tuple[Statement, ...]
    ) -> Sweep:
        emitter = self.emitter
        for line in block(Name(emitter.guard), emitter.take(number, "updates")):
            emitter.add(number, "lane", line, last=True)
        once = once_per_row(emitter, THREAD_X)
        phase = phase_of(emitter, number, (), accumulators, once=once)
        phase = replace(phase, row=emitter.take(number, "row"))  # the kernel has its own at its top
        # Arrays are kept in registers only if all indices are constants.
        rolled = self.parameters.chunks > 2 and not is_indexed_by(phase.statements, "c")
        return Sweep(phase, rolled, results)

    def _row_bound(self) -> bool:
        """Return whether threads of one warp may run out of rows at different times."""
        p = self.parameters
        together = bool(self.split.row_sums) and p.threads_y > 1 and p.threads_x < 32
        return together and self.split.bands.height.value % p.threads_y != 0

    def _constants(self) -> tuple[RegisterArray, ...]:
        """Emit the per-column constants, and define their storage in the emitter."""
        found: list[RegisterArray] = []
        if self.parameters.constants == "values":
            texts: dict[Instance, Expression] = {}
            self.emitter.count(self.work.constants)
            for instance in self.work.constants:
                text = self.emitter.ref(instance, -1)
                name = self.names.fresh(f"{instance.name}_columns", "columns")
                found.append(RegisterArray(name, compute_type(instance.dtype)))
                # Values shared by all elements of a vector are also read outside the loop over
                # them.
                shared = self.emitter.lane not in instance.variables
                place = item(name, C, ZERO if shared else self.element)
                self.emitter.add(-1, "lane", Assign(place, text))
                texts[instance] = place
            self.emitter.given.update(texts)
        elif self.parameters.constants == "vectors":
            for instance in self.work.vectors:
                value = self.emitter.load_vector(instance, -1)
                name = self.names.fresh(f"{instance.name}_columns", "columns")
                found.append(RegisterArray(name, storage_type(instance.dtype)))
                self.emitter.add(-1, "vector", Assign(item(name, C), value))
                self.emitter.cached[instance] = item(name, C, self.element)
        return tuple(found)

    def _rows(self) -> tuple[tuple[Ring, ...], tuple[HeldRow, ...]]:
        """Name the rows in the ring and in registers, and define their storage in the emitter."""
        ring: list[Ring] = []
        held: list[HeldRow] = []
        p = self.parameters
        for each in self.plan.staged:
            name = self.names.fresh(f"{each.instance.name}_ring", "ring")
            array = shared_array(self.names, name, each.instance.dtype, each.offset)
            ring.append(Ring(name, array, each.instance))
        staged = {each.instance for each in self.plan.staged}
        for instance in (*self.work.ring, *self.work.kept):
            name = self.names.fresh(f"{instance.name}_row", "row")
            again = p.row == "ring" and instance in staged
            vector = Name(name) if again else item(name, C)
            self.emitter.cached[instance] = item(vector, self.element)
            held.append(HeldRow(name, storage_type(instance.dtype), instance, again))
        return tuple(ring), tuple(held)

    def _take_rows(self, ring: tuple[Ring, ...], held: tuple[HeldRow, ...], number: int) -> None:
        """Emit the lines that copy rows from the ring, or load them, before they are read."""
        source = {r.instance: r.name for r in ring}
        for each in held:
            readers = [n for n, loads in enumerate(self.phases.loads) if each.instance in loads]
            if number not in (readers if each.again else readers[:1]):
                continue
            if each.instance in source:
                value = in_ring(source[each.instance], SLOT.name)
            else:
                value = self.emitter.load_vector(each.instance, number)
            line = Assign(item(each.name, C), value)
            if each.again:
                line = Let(AUTO, each.name, value)
            self.emitter.add(number, "vector", line)

    def _column_part(self, node: Node, partials: str) -> ColumnPart:
        dtype = accumulator_type(node)
        name = self.names.fresh(f"{node.output.name}_part", "part")
        return ColumnPart(name, compute_type(dtype), combiner(node.op, dtype), partials)

    def _update(self, node: Node, number: int) -> None:
        """Emit the accumulation of a column reduction, for rows in bounds only."""
        dtype = accumulator_type(node)
        value = self.emitter.convert(self.lowering.at_home(node.inputs[0]), dtype, number)
        place = item(self.parts[node].name, C, self.element)
        scope = "updates" if self._row_bound() else "lane"
        self.emitter.add(number, scope, update(node.op, place, value, dtype))


def _column(p: InnerOuterParameters) -> Expression:
    own = vector_of_thread()
    return own if p.tiles == 1 else Name("first_column") + own
