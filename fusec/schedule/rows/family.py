"""Base classes of the schedulers of kernels over rows of columns: the loop nest, in phases."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from fusec.dataclasses import replace
from fusec.ir.annotations import Setting
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion
from fusec.schedule.blocks import BlockParameters
from fusec.schedule.common import access, tensor_arguments
from fusec.schedule.family import Family
from fusec.schedule.orders import PlannedOrder
from fusec.schedule.plan import Guard, Kernel, Staged, Workspace
from fusec.schedule.problem import Problem
from fusec.schedule.requirements import memory_bound
from fusec.schedule.rows.domain import Nest, PhasedPlan
from fusec.schedule.rows.in_steps import reach_of_pieces
from fusec.schedule.rows.parameters import RowsParameters
from fusec.schedule.rows.problem import RowsProblem, with_any_rows, with_columns
from fusec.schedule.rows.tiles import tile_bytes
from fusec.segment.protocol import Refusal
from fusec.target import Target

Q = TypeVar("Q", bound=Problem)
B = TypeVar("B", bound=BlockParameters)
R = TypeVar("R", bound=RowsParameters)


class NestFamily(Family[Q, B, PhasedPlan[Q, B]]):
    """Kernels with a loop nest over rows and columns, which they iterate over in phases."""

    def kernel(
        self, fusion: Fusion, p: B, blocks: Dim, workspaces: Iterable[Workspace] = ()
    ) -> Kernel:
        """Return the kernel of a fusion with that many blocks, each with its rows or columns."""
        return Kernel(
            name=f"{fusion.name}_{self.name}",
            template=self.name,
            grid=(blocks, dim(1), dim(1)),
            block=p.block,
            arguments=tensor_arguments(fusion, workspaces),
        )

    def planned(
        self,
        problem: Q,
        parameters: B,
        nest: Nest,
        kernels: tuple[Kernel, ...],
        orders: Mapping[str, PlannedOrder],
        *,
        staged: tuple[Staged, ...] = (),
        workspaces: tuple[Workspace, ...] = (),
        guards: tuple[Guard, ...] = (),
    ) -> PhasedPlan[Q, B]:
        """Return the plan of kernels with the given loop nest."""
        lowering, phases, loops = nest
        return PhasedPlan(
            self.name,
            problem.fusion,
            kernels,
            parameters,
            workspaces,
            guards,
            problem.specialised,
            orders=orders,
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=staged,
        )


class RowsFamily(NestFamily[RowsProblem, R]):
    """Kernels whose reductions all reduce the same axes."""

    @abstractmethod
    def rows(
        self, segment: Fusion, fusion: Fusion, inner: bool | None = None
    ) -> RowsProblem | Refusal:
        """Return a segment, specialized as a fusion, as rows, or why it is not supported.

        inner: whether columns are taken as contiguous, regardless of their strides; None: by
        strides.
        """

    @abstractmethod
    def by_rows(self, problem: RowsProblem, target: Target) -> R:
        """Return the parameters with which threads process each row or column separately."""

    def by_tiles(self, problem: RowsProblem, target: Target) -> R | None:
        """Return the parameters with which blocks stage several rows, None if unsupported."""
        return None

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment as rows, with the sizes of reduced axes specialized."""
        fusion = memory_bound(segment) or with_columns(segment)
        return fusion if isinstance(fusion, Refusal) else self.rows(segment, fusion)

    def with_dynamic_sizes(self, problem: RowsProblem) -> RowsProblem:
        """Return the problem with dynamic numbers of rows."""
        return with_any_rows(
            problem,
            lambda fusion: self.rows(problem.segment, fusion, problem.inner),
            any_length=self.takes_any_length(problem),
        )

    def rows_kernel(
        self, problem: RowsProblem, p: R, workspaces: Iterable[Workspace] = ()
    ) -> Kernel:
        """Return the kernel of a problem: a block per row or column, or per several."""
        kernel = self.kernel(problem.fusion, p, problem.blocks(p), workspaces)
        return replace(kernel, shared_bytes=tile_bytes(problem, p))

    def efficiency(self, plan: PhasedPlan[RowsProblem, R], target: Target) -> float:
        """Return the fraction of the bandwidth that is reached, less for short segments."""
        if plan.parameters.tile_rows:
            return target.cost.rows.tile_share * target.reach(self.name, "vector")
        along = target.reach(self.name, access(plan.parameters.vector_width))
        return reach_of_pieces(plan.problem, along, target) if plan.problem.inner else along

    def takes_any_length(self, problem: RowsProblem) -> bool:
        """Return whether a kernel reduces a dynamic number of elements."""
        return False

    def default_parameters(self, problem: RowsProblem, target: Target) -> R | Refusal:
        """Return the parameters for separate rows."""
        return self.by_rows(problem, target)

    def candidates(
        self,
        problem: RowsProblem,
        default_parameters: R,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> Iterator[R]:
        """Yield parameters that may be legal, close to those that settings are applied to."""
        nearest = self.nearest(problem, default_parameters, target, settings)
        yield from super().candidates(problem, nearest, target, settings)

    def nearest(
        self,
        problem: RowsProblem,
        default_parameters: R,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> R:
        """Return the parameters to apply settings to: tiles if they are set, none if excluded."""
        if not default_parameters.tile_rows:
            tiles = self.by_tiles(problem, target) if settings.get("tile_rows", 0) else None
            return tiles or default_parameters
        if settings.get("tile_rows", 0):
            return default_parameters
        tried = self.with_derived(problem, replace(default_parameters, **settings))
        if "tile_rows" in settings or self.legal(problem, tried, target) is not None:
            return self.by_rows(problem, target)
        return default_parameters
