"""Row-persistent kernels: a row is read once, reduced, and read again from on-chip storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fusec.dataclasses import replace
from fusec.ir.annotations import Setting
from fusec.ir.dim import minimum
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import TEMPLATE_NAMES
from fusec.schedule.common import (
    access,
)
from fusec.schedule.orders import along_rows, of_all
from fusec.schedule.plan import Kernel, Staged, staged_in_turn
from fusec.schedule.pressure import occupancy
from fusec.schedule.redefinitions import exponentials_online
from fusec.schedule.registers import MOST_THREAD_REGISTERS
from fusec.schedule.rows.domain import Nest, PhasedPlan, phases_of
from fusec.schedule.rows.in_steps import outside_first
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
from fusec.schedule.rows.persistent import PersistentFamily
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.rows.tiles import check_tile, tile_width, tiled_in
from fusec.schedule.strides import WARP, reach_by_lines
from fusec.schedule.templates import Template
from fusec.segment.protocol import Redefinition, Refusal
from fusec.segment.traffic import SECTOR
from fusec.target import Target

InnerPersistentPlan = PhasedPlan[RowsProblem, InnerPersistentParameters]


class InnerPersistent(PersistentFamily[InnerPersistentParameters]):
    """Accepts reductions over the innermost axes whose input is read again after them."""

    name = "inner_persistent"
    templates: ClassVar = {
        "inner_persistent": Template("rows.inner_persistent"),
        "inner_persistent_ring": Template("rows.ring"),
        "inner_persistent_pushed": Template("rows.pushed"),
    }
    reach = ("inner_persistent",)
    vocabulary = TEMPLATE_NAMES
    inner = True

    def default_parameters(self, problem: RowsProblem, target: Target) -> InnerPersistentParameters:
        """Return the parameters: threads that keep the row in registers, if it fits."""
        return ring.default_parameters(problem, target) or default_parameters(problem, target)

    def by_rows(self, problem: RowsProblem, target: Target) -> InnerPersistentParameters:
        """Return the parameters with which threads process each row separately."""
        return by_rows(problem, target)

    def by_tiles(self, problem: RowsProblem, target: Target) -> InnerPersistentParameters | None:
        """Return the parameters with which blocks stage several rows, None if unsupported."""
        return by_tiles(problem, target)

    def nearest(
        self,
        problem: RowsProblem,
        default_parameters: InnerPersistentParameters,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> InnerPersistentParameters:
        """Return the parameters to apply settings to: with a ring if it is set, or without."""
        own = default_parameters.storage
        storage = settings.get("storage", own)
        if "ring" in (storage, own) and storage != own:
            other = _default_parameters_by(storage, problem, target)
            return other or replace(default_parameters, **settings)
        if own == "ring":
            return default_parameters
        return super().nearest(problem, default_parameters, target, settings)

    def with_derived(
        self, problem: RowsProblem, parameters: InnerPersistentParameters
    ) -> InnerPersistentParameters:
        """Return parameters with the derived vectors of a row per thread."""
        each = parameters.vector_width * parameters.threads_x * parameters.cluster
        columns = problem.rows.columns.value
        if parameters.shifted:
            columns -= columns % parameters.vector_width
        return replace(parameters, chunks=-(-columns // each))

    def why_illegal(
        self, problem: RowsProblem, parameters: InnerPersistentParameters, target: Target
    ) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        p = parameters
        found = problem.check_block(p, tile_width(problem) if p.tile_rows else 0)
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
            if p.tile_rows and p.shifted:
                return Refusal("tile_rows", "tiled rows do not support unaligned vectors")
            return check_tile(problem, p, target.shared) if p.tile_rows else None
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

    def nest(
        self,
        problem: RowsProblem,
        p: InnerPersistentParameters,
        width: int,
        *,
        shifted: bool = False,
    ) -> Nest:
        """Return the loops of a kernel, which may keep values of special functions."""
        lowering, phases, loops = super().nest(problem, p, width, shifted=shifted)
        if p.keep_values:
            phases = phases_of(problem.fusion, lowering, loops[1:], keep=True)
        return lowering, phases, loops

    def plan(
        self, problem: RowsProblem, parameters: InnerPersistentParameters, target: Target
    ) -> InnerPersistentPlan:
        """Return a plan of one kernel."""
        p, problem = parameters, _form(problem, parameters)
        nest = self.nest(problem, p, p.vector_width, shifted=p.shifted)
        if p.storage == "ring":
            kernel, staged = self._ring_kernel(problem, p, target)
            order = ring.order(problem, p)
        else:
            staged, kernel = _staged(problem, p, nest), self.rows_kernel(problem, p)
            if p.storage == "shared":
                kernel = replace(kernel, shared_bytes=sum(s.bytes for s in staged))
            about = problem.rows.columns, p.vector_width, p.threads_x
            order = along_rows(*about, shifted=p.shifted)
        orders = of_all(problem.segment, order)
        return self.planned(
            problem, p, nest, (kernel,), orders, staged=staged, guards=problem.guards
        )

    def _ring_kernel(
        self, problem: RowsProblem, p: InnerPersistentParameters, target: Target
    ) -> tuple[Kernel, tuple[Staged, ...]]:
        """Return a kernel with as many clusters as are resident, and its bulk-copied tensors."""
        layout = ring.layout(problem, p)
        assert not isinstance(layout, Refusal), layout
        clusters = minimum(problem.rows.rows, target.resident_clusters(p.cluster))
        kernel = replace(
            self.kernel(problem.fusion, p, clusters * p.cluster),
            template="inner_persistent_ring",
            block=(p.threads_x * p.groups + 32, 1, 1),
            shared_bytes=layout.bytes,
            cluster=(p.cluster, 1, 1),
            least_blocks=1,
        )
        return kernel, (*layout.rows, *layout.columns)

    def waits(self, plan: InnerPersistentPlan, target: Target) -> float:
        """Return the seconds in which rows of a ring are reduced while no others are loaded."""
        p = plan.parameters
        return ring.waits(plan.problem, p, target) if p.storage == "ring" else 0.0

    def efficiency(self, plan: InnerPersistentPlan, target: Target) -> float:
        """Return the fraction of the bandwidth that is reached."""
        problem, p, kernel = plan.problem, plan.parameters, plan.kernels[0]
        if not p.tile_rows and is_strided(problem):
            return self._across(plan, target)
        reach = super().efficiency(plan, target)
        slow = access(p.vector_width) != "vector" or reach < target.reach(self.name, "alone")
        if p.tile_rows or slow:
            return reach
        resident = occupancy(kernel, self.pressure(plan, kernel), target)
        held = row_bytes(problem, p.vector_width)
        return reach_of_resident(reach, p, plan.phases.count, held, resident, target)

    def _across(self, plan: InnerPersistentPlan, target: Target) -> float:
        """Return the fraction of the bandwidth if elements of rows are not contiguous.

        If neighbouring rows are, each thread of a row makes a warp read one line.
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
        """Return two-pass variances, online sums of exponentials, and two-step reductions."""
        online = exponentials_online(segment) if self._is_online(segment, target) else ()
        variances = super().redefinitions(segment, fusion, target)
        return (*variances, *online, *outside_first(segment, fusion))

    def _is_online(self, segment: Fusion, target: Target) -> bool:
        chosen = self._chosen(segment, target)
        return not isinstance(chosen, Refusal) and chosen.online


def _default_parameters_by(
    storage: Setting, problem: RowsProblem, target: Target
) -> InnerPersistentParameters | None:
    """Return the default parameters with a ring, or without."""
    if storage == "ring":
        return ring.default_parameters(problem, target, least=0, piece=0)
    return replace(default_parameters(problem, target), storage=str(storage))


def _form(problem: RowsProblem, parameters: InnerPersistentParameters) -> RowsProblem:
    """Return the problem in the form that a kernel computes."""
    return problem.online or problem if parameters.online else problem


def _staged(problem: RowsProblem, p: InnerPersistentParameters, nest: Nest) -> tuple[Staged, ...]:
    """Return the loads of a row that more than one phase reads; whole vectors of them stay on chip.

    Those of rows of tiles stay in registers.
    """
    width, phases = p.vector_width, nest[1]
    if p.storage == "none":
        return ()
    if p.tile_rows:
        tiles = tiled_in(problem, *nest)
        assert not isinstance(tiles, Refusal), tiles
        brought = {i.instance for i in tiles.loads}
        return staged_in_turn((i, 0) for i in phases.cached if i in brought)
    start = problem.start(width) if p.shifted else None
    columns = -(-problem.rows.columns.value // 16) * 16
    whole = (i for i in phases.cached if problem.is_whole(i, width, start))
    return staged_in_turn((i, columns * i.dtype.size) for i in whole)
