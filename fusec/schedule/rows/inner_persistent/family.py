"""Row-persistent kernels: a row is read once, reduced, and read again from where it stayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from fusec.dataclasses import replace
from fusec.ir.annotations import Setting
from fusec.ir.dim import ceildiv, dim, minimum
from fusec.ir.expression import Index
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import (
    access,
    is_empty,
    tensor_arguments,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.family import Family
from fusec.schedule.orders import along_rows, of_all
from fusec.schedule.plan import Kernel, Staged, staged_in_turn
from fusec.schedule.pressure import Pressure, occupancy
from fusec.schedule.redefinitions import exponentials_online, variances_in_two_passes
from fusec.schedule.registers import MOST_THREAD_REGISTERS
from fusec.schedule.requirements import memory_bound
from fusec.schedule.rows.domain import PhasedPlan, Phases, lowered, phases_of
from fusec.schedule.rows.in_steps import outside_first, reach_of_pieces
from fusec.schedule.rows.inner_persistent import ring
from fusec.schedule.rows.inner_persistent.choice import (
    InnerPersistentParameters,
    by_rows,
    by_tiles,
    default_parameters,
    held_with,
    row_bytes,
)
from fusec.schedule.rows.inner_persistent.resident import reach_of_resident
from fusec.schedule.rows.inner_persistent.strides import bytes_across, is_strided
from fusec.schedule.rows.pressure import Loops, phased_pressure
from fusec.schedule.rows.problem import RowsProblem, as_rows, with_any_rows, with_columns
from fusec.schedule.rows.tiles import Tiled, check_tile, tile_bytes, tile_width, tiled_in
from fusec.schedule.rows.two_pass import two_pass
from fusec.schedule.strides import WARP, reach_by_lines
from fusec.schedule.templates import Template
from fusec.segment.price import SECTOR, bytes_read, traffic, work
from fusec.segment.protocol import Estimate, Proposal, Redefinition, Refusal
from fusec.target import Target

UNASKED = 4
"""Vectors for which the compiler unrolls a loop of its own accord."""
InnerPersistentPlan = PhasedPlan[RowsProblem, InnerPersistentParameters]


class InnerPersistent(Family[RowsProblem, InnerPersistentParameters, InnerPersistentPlan]):
    """Accepts reductions over the innermost axes whose input is read again after them."""

    name = "inner_persistent"
    templates: ClassVar = {
        "inner_persistent": Template("rows.inner_persistent"),
        "inner_persistent_ring": Template("rows.ring"),
        "inner_persistent_pushed": Template("rows.pushed"),
    }
    reach = ("inner_persistent",)
    vocabulary = TEMPLATE_NAMES

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment with row lengths put in and variances in two passes, by rows."""
        refusal = memory_bound(segment)
        if refusal is not None:
            return refusal
        fusion = with_columns(segment)
        if isinstance(fusion, Refusal):
            return fusion
        problem = _by_rows(segment, fusion)
        if isinstance(problem, Refusal):
            return problem
        if is_empty(problem.fusion):
            return Refusal("empty", "a tensor has no elements")
        return problem.check_reuse() or problem

    def with_dynamic_sizes(self, problem: RowsProblem) -> RowsProblem:
        """Return the problem for any number of rows."""
        return with_any_rows(problem, lambda f: _by_rows(problem.segment, f))

    def default_parameters(self, problem: RowsProblem, target: Target) -> InnerPersistentParameters:
        """Return the parameters: threads that keep the row in registers, if that goes."""
        return ring.default_parameters(problem, target) or default_parameters(problem, target)

    def candidates(
        self,
        problem: RowsProblem,
        default_parameters: InnerPersistentParameters,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> Iterator[InnerPersistentParameters]:
        """Yield parameters that may be legal, near to the likeliest with a storage that is set."""
        storage = settings.get("storage", default_parameters.storage)
        if (
            "ring" in (storage, default_parameters.storage)
            and storage != default_parameters.storage
        ):
            other = _default_parameters_by(storage, problem, target)
            default_parameters = replace(default_parameters, **settings) if other is None else other
        elif default_parameters.storage != "ring":
            default_parameters = self._with_set_tiles(problem, default_parameters, target, settings)
        yield from super().candidates(problem, default_parameters, target, settings)

    def _with_set_tiles(
        self,
        problem: RowsProblem,
        default_parameters: InnerPersistentParameters,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> InnerPersistentParameters:
        """Return what settings are put into: tiles where they are set, none where these refuse."""
        if settings.get("tile_rows", 0):
            return (
                default_parameters
                if default_parameters.tile_rows
                else by_tiles(problem, target) or default_parameters
            )
        tried = self.with_derived(problem, replace(default_parameters, **settings))
        stay = not default_parameters.tile_rows or self.legal(problem, tried, target) is None
        return (
            default_parameters if stay and "tile_rows" not in settings else by_rows(problem, target)
        )

    def with_derived(
        self, problem: RowsProblem, parameters: InnerPersistentParameters
    ) -> InnerPersistentParameters:
        """Return parameters with the vectors of a row that each thread has."""
        each = parameters.vector_width * parameters.threads_x * parameters.cluster
        columns = problem.rows.columns.value
        if parameters.shifted:
            columns -= columns % parameters.vector_width
        return replace(parameters, chunks=-(-columns // each))

    def why_illegal(
        self, problem: RowsProblem, parameters: InnerPersistentParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        p = parameters
        widest = tile_width(problem) if p.tile_rows else 0
        shape = p.vector_width, p.threads_x, p.threads_y, p.shifted
        found = problem.check_block(*shape, widest)
        if found is not None:
            return found
        if p.online and problem.online is None:
            return Refusal("online", "there is no sum of exponentials with its maximum subtracted")
        problem = _form(problem, p)
        if p.tile_rows and p.storage != "registers":
            return Refusal("tile_rows", "tiled rows must be in registers")
        if p.storage == "ring":
            if p.shifted:
                return Refusal("ring", "bulk copies need rows aligned to 16 bytes")
            kept = "keep_values requires rows in registers"
            found = ring.why_illegal(problem, p, target)
            return found or (Refusal("keep_values", kept) if p.keep_values else None)
        if (p.slots, p.groups, p.cluster, p.keep_columns) != (0, 1, 1, False):
            return Refusal(
                "ring", "slots, groups, clusters and kept columns apply to ring storage only"
            )
        if p.storage == "registers":
            held = held_with(problem, p.vector_width)
            if p.keep_values and not held.again:
                return Refusal("keep_values", "no row has special-function results to keep")
            needed = p.chunks * (held.again if p.keep_values else held.row)
            if needed > MOST_THREAD_REGISTERS:
                because = f"{needed} words of a row do not fit in the registers of a thread"
                return Refusal("registers", because)
            return _check_tile(problem, p, target) if p.tile_rows else None
        if p.keep_values:
            return Refusal("keep_values", "keep_values requires rows in registers")
        if p.storage == "none":
            return problem.hazard(on_chip=False)
        if p.threads_y > 1:
            return Refusal("block", "a block has one row in shared memory: threads_y must be 1")
        row = row_bytes(problem, p.vector_width)
        if row > target.shared:
            return Refusal(
                "shared memory",
                f"a row needs {row} bytes of shared memory, an SM has {target.shared}",
            )
        return None

    def plan(
        self, problem: RowsProblem, parameters: InnerPersistentParameters, target: Target
    ) -> InnerPersistentPlan:
        """Return a plan of one kernel."""
        problem = _form(problem, parameters)
        fusion, rows, width = problem.fusion, problem.rows, parameters.vector_width
        lowering, phases, loops = problem.loops(width, parameters.shifted)
        if parameters.keep_values:
            phases = phases_of(fusion, lowering, loops[1:], keep=True)
        if parameters.storage == "ring":
            kernel, staged = _ring_kernel(problem, parameters, target)
            order = ring.order(problem, parameters)
        else:
            start = problem.start(width) if parameters.shifted else None
            staged = () if parameters.storage == "none" else _staged(problem, phases, width, start)
            if parameters.tile_rows:
                tiles = tiled_in(problem, lowering, phases, loops)
                staged = _staged_of_tiles(tiles, phases)
            kernel = _kernel(problem, parameters, staged)
            about = rows.columns, width, parameters.threads_x
            order = along_rows(*about, shifted=parameters.shifted)
        return PhasedPlan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            (),
            (*problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, order),
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=staged,
        )

    def estimate(self, plan: InnerPersistentPlan, target: Target) -> Proposal:
        """Return a price: one reading of the inputs where a row fits on chip."""
        problem, parameters = plan.problem, plan.parameters
        fusion, domain, rows = problem.fusion, problem.domain, problem.rows
        lowering, phases = lowered(fusion, domain, rows, 1)
        kept = parameters.storage != "none"
        refusal = problem.check_rereading(on_chip=kept)
        if refusal is not None:
            return refusal
        again = 0 if kept else sum(len(p) > 0 for p in phases.loads[1:])
        keeping = phases
        if parameters.keep_values:
            keeping = phases_of(fusion, lowering, rows.variables(1)[1:], keep=True)
        flops, sfu = work(fusion)
        if parameters.storage != "registers":
            # A loop over memory computes anew what the compiler finds again among registers.
            more = problem.repeated_work(keeping)
            flops, sfu = flops + more[0], sfu + more[1]
        return Estimate(
            bytes=traffic(problem.segment) + again * bytes_read(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=self._efficiency(plan, phases.count, target),
            ctas=plan.kernels[0].grid[0].evaluate(fusion.hints),
            waits=ring.waits(problem, parameters, target) if parameters.storage == "ring" else 0.0,
            build=build_time(keeping, _unrolled(parameters), target),
        )

    def pressure(self, plan: InnerPersistentPlan, kernel: Kernel) -> Pressure:
        """Return what a thread holds: of a row in registers all that is its own."""
        p = plan.parameters
        stays = p.storage == "registers"
        loops = Loops(p.vector_width, p.chunks if stays else 1, stays, shifted=p.shifted)
        return phased_pressure(plan, loops)

    def _efficiency(self, plan: InnerPersistentPlan, phases: int, target: Target) -> float:
        """Return the part of the bandwidth that is reached."""
        problem, width = plan.problem, plan.parameters.vector_width
        if plan.parameters.tile_rows:
            return target.cost.rows.tile_share * target.reach(self.name, "vector")
        if is_strided(problem):
            return self._across(plan, target)
        efficiency = reach_of_pieces(problem, target.reach(self.name, access(width)), target)
        if access(width) != "vector" or efficiency < target.reach(self.name, "alone"):
            return efficiency
        kernel = plan.kernels[0]
        resident = occupancy(kernel, self.pressure(plan, kernel), target)
        held = row_bytes(problem, width)
        return reach_of_resident(efficiency, plan.parameters, phases, held, resident, target)

    def _across(self, plan: InnerPersistentPlan, target: Target) -> float:
        """Return the part of the bandwidth where elements of rows do not lie side by side.

        Where those of neighbouring rows do, a warp reads from a line for each of a row's threads.
        """
        problem, p = plan.problem, plan.parameters
        strided = target.reach(self.name, "strided")
        size = bytes_across(problem)
        if size is None or p.storage != "registers":
            return strided
        along = target.reach(self.name, access(p.vector_width))
        whole = min(1.0, p.threads_y * size / SECTOR)
        lines = min(WARP, p.threads_x * p.vector_width)
        return max(strided, whole * reach_by_lines(along, strided, lines, size))

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return variances in two passes, sums of exponentials in one, pieces in two steps."""
        online = exponentials_online(segment) if self._is_online(segment, target) else ()
        return (*variances_in_two_passes(segment), *online, *outside_first(segment, fusion))

    def _is_online(self, segment: Fusion, target: Target) -> bool:
        chosen = self._chosen(segment, target)
        return not isinstance(chosen, Refusal) and chosen.online


def _check_tile(
    problem: RowsProblem, p: InnerPersistentParameters, target: Target
) -> Refusal | None:
    """Return why no block has such tiles of rows, or None."""
    if p.shifted:
        return Refusal("tile_rows", "tiled rows do not support unaligned vectors")
    about = p.vector_width, p.threads_x, p.threads_y, p.tile_rows
    return check_tile(problem, *about, target.shared)


def _default_parameters_by(
    storage: Setting, problem: RowsProblem, target: Target
) -> InnerPersistentParameters | None:
    """Return the likeliest parameters with a ring, or without."""
    if storage == "ring":
        return ring.default_parameters(problem, target, least=0, piece=0)
    return replace(default_parameters(problem, target), storage=str(storage))


def _kernel(
    problem: RowsProblem, parameters: InnerPersistentParameters, staged: tuple[Staged, ...]
) -> Kernel:
    """Return a kernel of a block for each row, or for several."""
    shared = sum(s.bytes for s in staged) if parameters.storage == "shared" else 0
    if parameters.tile_rows:
        shared = tile_bytes(problem, parameters.vector_width, parameters.tile_rows)
    return Kernel(
        name=f"{problem.fusion.name}_inner_persistent",
        template="inner_persistent",
        grid=(
            ceildiv(problem.rows.rows, parameters.tile_rows or parameters.threads_y),
            dim(1),
            dim(1),
        ),
        block=(parameters.threads_x, parameters.threads_y, 1),
        arguments=tensor_arguments(problem.fusion),
        shared_bytes=shared,
    )


def _ring_kernel(
    problem: RowsProblem, p: InnerPersistentParameters, target: Target
) -> tuple[Kernel, tuple[Staged, ...]]:
    """Return a kernel of as many clusters as are resident, and what bulk copies bring."""
    layout = ring.layout(problem, p)
    assert not isinstance(layout, Refusal), layout
    clusters = minimum(problem.rows.rows, target.resident_clusters(p.cluster))
    kernel = Kernel(
        name=f"{problem.fusion.name}_inner_persistent",
        template="inner_persistent_ring",
        grid=(clusters * p.cluster, dim(1), dim(1)),
        block=(p.threads_x * p.groups + 32, 1, 1),
        arguments=tensor_arguments(problem.fusion),
        shared_bytes=layout.bytes,
        cluster=(p.cluster, 1, 1),
        least_blocks=1,
    )
    return kernel, (*layout.rows, *layout.columns)


def _form(problem: RowsProblem, parameters: InnerPersistentParameters) -> RowsProblem:
    """Return the problem as a kernel takes it."""
    return problem.online or problem if parameters.online else problem


def _by_rows(segment: Fusion, fusion: Fusion) -> RowsProblem | Refusal:
    return as_rows(segment, two_pass(fusion), stores=True, inner=True)


def _staged(
    problem: RowsProblem, phases: Phases, width: int, start: Index | None
) -> tuple[Staged, ...]:
    """Return the loads of one row that more than one phase reads, of which whole vectors stay."""
    columns = -(-problem.rows.columns.value // 16) * 16
    whole = (i for i in phases.cached if problem.is_whole(i, width, start))
    return staged_in_turn((i, columns * i.dtype.size) for i in whole)


def _staged_of_tiles(tiles: Tiled | Refusal, phases: Phases) -> tuple[Staged, ...]:
    """Return the loads of rows of tiles that more than one phase reads: they stay in registers."""
    assert not isinstance(tiles, Refusal), tiles
    brought = {i.instance for i in tiles.loads}
    return staged_in_turn((i, 0) for i in phases.cached if i in brought)


def _unrolled(parameters: InnerPersistentParameters) -> int:
    """Return the elements that the loop of a phase computes without a branch."""
    vectors = parameters.chunks if parameters.storage == "registers" else UNASKED
    return parameters.vector_width * vectors
