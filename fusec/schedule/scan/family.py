"""Prefix sums, products and extrema along one axis: across the threads of a row, or per column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Domain, find_domain
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.dtype import U32
from fusec.ir.expression import Index, Var, linearize, of_var
from fusec.ir.graph import Fusion, Node
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.ops.names import fresh_name
from fusec.properties import cached_property
from fusec.schedule.blocks import (
    VECTOR_WIDTH,
    BlockParameters,
    check_access,
    check_shape,
    check_shared,
)
from fusec.schedule.common import (
    access,
    dynamic_symbols,
    is_empty,
    specialise,
    tensor_arguments,
)
from fusec.schedule.family import Family
from fusec.schedule.orders import PlannedOrder, of_all, of_scanned_columns, of_scanned_rows
from fusec.schedule.plan import Guard, Kernel, Plan, Workspace
from fusec.schedule.pressure import Pressure, flat_pressure
from fusec.schedule.problem import Problem, widest_vectors
from fusec.schedule.registers import MOST_THREAD_REGISTERS, part, words
from fusec.schedule.requirements import one_scan
from fusec.schedule.rows.domain import Rows, in_place_hazard
from fusec.schedule.run_time_sizes import Loops, innermost, with_run_time_sizes
from fusec.schedule.space import COUNTS, THREADS, Field, power_above
from fusec.schedule.templates import Template
from fusec.segment.protocol import Estimate, Refusal
from fusec.segment.traffic import traffic, work
from fusec.target import Target

VALUES = 16
"""Values of a tile per thread, in 32-bit registers, if schedules may use all registers of an SM."""
MAX_THREADS = 256
"""Threads per block: with 512, running maxima and sums of columns took 10 % longer on an H200."""
MAX_SUM_BYTES = 64
"""Bytes of a vector of sums."""
MIN_TILES = 4
"""Tiles of a row that are worth a block each if there are fewer rows than SMs."""
TILE_VALUES = 64
"""Values per thread of such a tile: a quarter as many took 1.27 times as long on an H200, since
each tile waits for the totals before it."""
TILE_THREADS = 512
TILES_PER_SM = 4
GROUP = 32
"""Tiles whose totals are combined at once, as in device/scan_tiles.cuh."""


@dataclass(frozen=True, kw_only=True)
class ScanParameters(BlockParameters):
    """The schedule parameters of a scan; inner: whether the scanned axis is the contiguous one."""

    inner: bool
    chunks: int
    tiles: int = 1
    free: ClassVar = (
        VECTOR_WIDTH,
        Field("threads_x", THREADS, "threads along the contiguous dim"),
        Field(
            "threads_y",
            THREADS,
            "rows per block if the scan is over the contiguous dim, else ranges of rows",
        ),
        Field("chunks", range(1, 65), "vectors that a thread holds at a time"),
        Field("tiles", COUNTS, "blocks that share a row"),
    )


@dataclass(frozen=True, eq=False)
class Scan(Problem):
    """A segment around one scan; `fusion` has it as an elementwise operation.

    rows: the scanned axis as the columns of rows.
    """

    domain: Domain
    node: Node
    rows: Rows
    inner: bool

    def bind(self, width: int) -> tuple[Mapping[Var, Index], tuple[Var, Var, Var]]:
        """Return the axes in loop variables, and the variables: row, chunk and lane."""
        along = self.rows.along(inner=self.inner)
        return along.bind(width), along.variables(width)

    @cached_property
    def vectors(self) -> tuple[int, tuple[Guard, ...]]:
        """Return the vectors along the scanned axis or the others, and the guards they need."""
        width, guards = widest_vectors(self, self.domain, self.rows, inner=self.inner)
        # A thread holds several vectors of sums at once: its span, the prefix before it, the carry.
        width = min(width, MAX_SUM_BYTES // self.node.output.dtype.compute.size)
        return width, guards

    def scanned(self, lowering: Lowering, loops: Iterable[Var] = ()) -> Instance:
        """Return the result of the scan where it is computed, as a value of the given loops.

        It must be the first value that is requested from the lowering.
        """
        output = self.node.output
        found = lowering.at_home(output)
        made = replace(found, variables=found.variables | frozenset(loops))
        lowering.made[(output, *lowering.home(output))] = made
        return made


ScanPlan = Plan[Scan, ScanParameters]


class Scans(Family[Scan, ScanParameters, ScanPlan]):
    """Accepts one scan with elementwise and movement operations before and after it."""

    name = "scan"
    templates: ClassVar = {
        "scan_rows": Template("scan"),
        "scan_tiles": Template("scan"),
        "scan_columns": Template("scan"),
    }
    reach = ("scan",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> Scan | Refusal:
        """Return the segment around its scan."""
        return one_scan(segment) or prepare(segment)

    def with_dynamic_sizes(self, problem: Scan) -> Scan:
        """Return the problem with dynamic numbers of rows."""
        return _with_any_rows(problem)

    def default_parameters(self, problem: Scan, target: Target) -> ScanParameters:
        """Return the parameters: a whole row in one tile if it fits, small rows in parallel."""
        fusion, rows = problem.fusion, problem.rows
        width, wide = problem.vectors[0], problem.wide
        others = max(1, rows.rows.evaluate(fusion.hints))
        length = rows.columns.value
        words = max(1, part(VALUES, target.registers))
        values = max(1, words * 4 // max(4, problem.node.output.dtype.compute.size))
        if problem.inner:
            vectors = -(-length // width)
            chunks = max(1, values // width) if vectors > 32 else 1
            threads = min(MAX_THREADS, power_above(-(-vectors // chunks)))
            chunks = min(chunks, -(-vectors // threads))
            tiles = -(-vectors // (threads * chunks))
            if tiles >= MIN_TILES and others < target.sms:
                threads = min(TILE_THREADS, power_above(-(-vectors // chunks)))
                tiles = -(-vectors // (threads * chunks))
                while (
                    2 * chunks * width <= part(TILE_VALUES, target.registers)
                    and tiles * others >= 2 * TILES_PER_SM * target.sms
                ):
                    chunks, tiles = 2 * chunks, -(-vectors // (2 * threads * chunks))
                at_once = 1
            else:
                tiles = 1
                at_once = min(max(1, 128 // threads), max(32 // threads, power_above(others)))
            return ScanParameters(
                inner=True,
                vector_width=width,
                threads_x=threads,
                threads_y=max(1, at_once),
                chunks=chunks,
                wide_index=wide,
                tiles=tiles,
            )
        vectors = -(-others // width)
        threads_x = min(32, power_above(vectors))
        while threads_x > 4 and threads_x * width > 16 and -(-vectors // threads_x) < target.sms:
            threads_x //= 2
        chunks = max(2, 2 * values // width)
        threads_y = min(MAX_THREADS // threads_x, power_above(-(-length // chunks)))
        threads_y = max(threads_y, 32 // threads_x)
        return ScanParameters(
            inner=False,
            vector_width=width,
            threads_x=threads_x,
            threads_y=threads_y,
            chunks=chunks,
            wide_index=wide,
        )

    def with_derived(self, problem: Scan, parameters: ScanParameters) -> ScanParameters:
        """Return parameters with the derived tiles of a row, unless a block has whole rows."""
        p = parameters
        if p.tiles == 1:
            return p
        tile = p.vector_width * p.threads_x * p.chunks
        return replace(p, tiles=-(-problem.rows.columns.value // tile))

    def why_illegal(
        self, problem: Scan, parameters: ScanParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        p, size = parameters, problem.node.output.dtype.compute.size
        found = check_access(p.vector_width, problem.vectors[0])
        found = found or check_shape(p)
        if found is not None:
            return found
        if p.chunks * p.vector_width * size > 4 * MOST_THREAD_REGISTERS:
            because = (
                f"{p.chunks * p.vector_width} partial results do not fit in the registers of a "
                "thread"
            )
            return Refusal("registers", because)
        if p.tiles > 1 and not (p.inner and p.threads_y == 1 and p.threads_x >= 32):
            return Refusal("tiles", "blocks can share contiguous rows only, with warps of one row")
        if p.inner or p.threads_y == 1:
            return None
        return check_shared(p.threads * p.vector_width * size)

    def plan(self, problem: Scan, parameters: ScanParameters, target: Target) -> ScanPlan:
        """Return a plan of one kernel."""
        workspaces = workspaces_of(problem, parameters)
        along = "scan_rows" if parameters.tiles == 1 else "scan_tiles"
        kernel = Kernel(
            name=f"{problem.segment.name}_scan",
            template=along if problem.inner else "scan_columns",
            grid=(blocks_of(problem, parameters), dim(1), dim(1)),
            block=parameters.block,
            arguments=tensor_arguments(problem.fusion, workspaces),
        )
        fusion, _ = specialise(problem.segment, (d.name for d in problem.fusion.dims))
        return Plan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            workspaces,
            (*problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, order_of(problem, parameters)),
            problem=problem,
        )

    def estimate(self, plan: ScanPlan, target: Target) -> Estimate:
        """Return the estimate: the inputs and the outputs once."""
        hints, parameters = plan.problem.hints, plan.parameters
        flops, sfu = work(plan.problem.fusion)
        return Estimate(
            bytes=traffic(plan.problem.segment),
            workspace_bytes=sum(w.size.evaluate(hints) * w.dtype.size for w in plan.workspaces),
            flops=4 * flops,
            sfu=sfu,
            efficiency=target.reach(self.name, access(parameters.vector_width)),
            ctas=max(1, plan.kernels[0].grid[0].evaluate(hints)),
        )

    def pressure(self, plan: ScanPlan, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread's part of its tile."""
        p, problem = plan.parameters, plan.problem
        binding, loops = problem.bind(p.vector_width)
        lowering = Lowering(problem.fusion, problem.domain, binding)
        problem.scanned(lowering, loops)
        held = flat_pressure(lowering, loops, p.vector_width, 4)
        value = problem.node.output.dtype.compute
        return replace(held, staged=p.chunks * words(value, p.vector_width))


def order_of(scan: Scan, p: ScanParameters) -> PlannedOrder:
    """Return the order of a kernel's running sums."""
    length = scan.rows.columns
    if p.inner:
        return of_scanned_rows(length, p.vector_width, p.threads_x, p.chunks, p.tiles)
    return of_scanned_columns(length, p.chunks)


def prepare(segment: Fusion) -> Scan | Refusal:
    """Return a segment around its scan, or why it has no kernel."""
    scans = _scans(segment)
    if is_empty(segment):
        return Refusal("empty", "a tensor has no elements")
    axis: int = scans[0].attributes["dim"]
    length = scans[0].inputs[0].shape[axis]
    return _around(segment, specialise(segment, dynamic_symbols(segment) - length.symbols)[0])


def _with_any_rows(strict: Scan) -> Scan:
    """Return the problem with more dynamic sizes, except the scanned one."""

    def loops(found: Scan) -> Loops:
        width = found.vectors[0]
        binding, (row, chunk, lane) = found.bind(width)
        lowering = Lowering(found.fusion, found.domain, binding)
        found.scanned(lowering)
        for output in found.fusion.outputs:
            lowering.at_home(output.value)
        steps = frozenset[Var]() if found.inner else frozenset({row})
        return Loops(lowering, steps | {chunk, lane}, steps, (width, found.inner))

    scanned = _scans(strict.segment)[0]
    shape = scanned.inputs[0].shape
    axis: int = scanned.attributes["dim"]
    fixed = (shape[axis], *innermost(shape))
    return with_run_time_sizes(strict, lambda f: _around(strict.segment, f), loops, fixed)


def _around(segment: Fusion, fusion: Fusion) -> Scan | Refusal:
    """Return a segment around its scan, with sizes specialized."""
    fusion, node = as_elementwise(fusion)
    axis: int = node.attributes["dim"]
    domain = find_domain(fusion, node.inputs[0])
    if isinstance(domain, Refusal):
        return domain
    axes = [a for a in domain.axes if a.extent != 1]
    along = domain.axes[axis]
    rows = Rows(tuple(a for a in axes if a != along), tuple(a for a in axes if a == along))
    scan = Scan(segment, fusion, domain, node, rows, _is_inner(fusion, domain, along))
    binding, _ = scan.bind(1)
    lowering = Lowering(fusion, domain, binding)
    return _why_illegal(scan, lowering) or scan


def _scans(fusion: Fusion) -> list[Node]:
    """Return the scans of a fusion."""
    return [n for n in fusion.nodes if n.op.family == "scan"]


def as_elementwise(fusion: Fusion) -> tuple[Fusion, Node]:
    """Return the fusion with its scan as an elementwise operation with the same index maps."""
    at = next(k for k, n in enumerate(fusion.nodes) if n.op.family == "scan")
    old = fusion.nodes[at]
    node = replace(old, op=replace(old.op, family="pointwise"))
    return fusion.with_nodes([*fusion.nodes[:at], node, *fusion.nodes[at + 1 :]]), node


def _why_illegal(scan: Scan, lowering: Lowering) -> Refusal | None:
    """Return why the prefixes cannot be computed and read at one point of the loops, or None."""
    made = scan.scanned(lowering)
    for output in scan.fusion.outputs:
        lowering.at_home(output.value)
    for instance in lowering.made.values():
        if instance.node is scan.node and instance is not made:
            name = scan.node.output.name
            return Refusal("store_map", f"`{name}` is read at an index map other than its own")
    return in_place_hazard(scan.fusion, lowering)


def _is_inner(fusion: Fusion, domain: Domain, along: Var) -> bool:
    """Return whether most bytes are contiguous along the scanned axis, or along no axis."""
    lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes})
    found: list[tuple[int, bool]] = []
    for output in fusion.outputs:
        lowering.at_home(output.value)
        address = linearize(lowering.home(output.value)[0], fusion.effects.strides(output.value))
        size = product(output.value.shape).evaluate(fusion.hints) * output.value.dtype.size
        found += _directions(address, domain, along, size)
    for load in lowering.made.values():
        if load.kind == "load" and load.address is not None and load.value is not None:
            size = product(load.value.shape).evaluate(fusion.hints) * load.dtype.size
            found += _directions(load.address, domain, along, size)
    inner = sum(size for size, is_inner in found if is_inner)
    return inner >= sum(size for size, is_inner in found if not is_inner)


def _directions(address: Index, domain: Domain, along: Var, size: int) -> list[tuple[int, bool]]:
    unit = (a for a in reversed(domain.axes) if a.extent != 1 and address.coefficient(a) == 1)
    return [(size, axis == along) for axis in unit][:1]


def blocks_of(scan: Scan, parameters: ScanParameters) -> Dim:
    """Return the number of blocks."""
    if parameters.inner:
        return ceildiv(scan.rows.rows, parameters.threads_y) * parameters.tiles
    vectors = ceildiv(scan.rows.rows, parameters.vector_width)
    return ceildiv(vectors, parameters.threads_x)


def workspaces_of(scan: Scan, parameters: ScanParameters) -> tuple[Workspace, ...]:
    """Return the workspaces: totals of a row's tiles, their flags, and the block counters."""
    if parameters.tiles == 1:
        return ()
    groups = -(-parameters.tiles // GROUP)
    totals = scan.rows.rows * (parameters.tiles + groups + -(-groups // GROUP))
    dtype = scan.node.output.dtype.compute
    made = (
        Workspace("tile_totals", dtype, totals),
        Workspace("tile_flags", U32, totals, "zeroed once"),
        Workspace("counters", U32, dim(2), "zeroed once"),
    )
    taken = scan.fusion.names
    return tuple(replace(w, name=fresh_name(taken, w.name)) for w in made)
