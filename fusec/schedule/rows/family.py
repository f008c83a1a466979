"""What the families of kernels over rows of columns share: the nest of loops, in phases."""

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
    """Kernels of a nest of loops over rows and columns, which they go through in phases."""

    def kernel(
        self, fusion: Fusion, p: B, blocks: Dim, workspaces: Iterable[Workspace] = ()
    ) -> Kernel:
        """Return the kernel of a fusion: so many blocks, each with its rows or its columns."""
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
        """Return the plan of kernels whose loops are a nest."""
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
        """Return a segment, written as a fusion, as rows, or why the family does not take them.

        inner: as which the columns are taken, wherever they lie.
        """

    @abstractmethod
    def by_rows(self, problem: RowsProblem, target: Target) -> R:
        """Return the parameters with which threads take each row, or column, by itself."""

    def by_tiles(self, problem: RowsProblem, target: Target) -> R | None:
        """Return the parameters with which blocks stage rows together, None of others."""
        return None

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment as rows, with the sizes of what is reduced put in."""
        fusion = memory_bound(segment) or with_columns(segment)
        return fusion if isinstance(fusion, Refusal) else self.rows(segment, fusion)

    def with_dynamic_sizes(self, problem: RowsProblem) -> RowsProblem:
        """Return the problem for any number of rows."""
        return with_any_rows(
            problem,
            lambda fusion: self.rows(problem.segment, fusion, problem.inner),
            any_length=self.takes_any_length(problem),
        )

    def rows_kernel(
        self, problem: RowsProblem, p: R, workspaces: Iterable[Workspace] = ()
    ) -> Kernel:
        """Return the kernel of a problem: a block for each row or column, or for several."""
        kernel = self.kernel(problem.fusion, p, problem.blocks(p), workspaces)
        return replace(kernel, shared_bytes=tile_bytes(problem, p))

    def efficiency(self, plan: PhasedPlan[RowsProblem, R], target: Target) -> float:
        """Return the part of the bandwidth that is reached, less where rows are made of pieces."""
        if plan.parameters.tile_rows:
            return target.cost.rows.tile_share * target.reach(self.name, "vector")
        along = target.reach(self.name, access(plan.parameters.vector_width))
        return reach_of_pieces(plan.problem, along, target) if plan.problem.inner else along

    def takes_any_length(self, problem: RowsProblem) -> bool:
        """Return whether a kernel reduces any number of elements."""
        return False

    def default_parameters(self, problem: RowsProblem, target: Target) -> R | Refusal:
        """Return the parameters of rows by themselves."""
        return self.by_rows(problem, target)

    def candidates(
        self,
        problem: RowsProblem,
        default_parameters: R,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> Iterator[R]:
        """Yield parameters that may be legal, near to those that settings are put into."""
        nearest = self.nearest(problem, default_parameters, target, settings)
        yield from super().candidates(problem, nearest, target, settings)

    def nearest(
        self,
        problem: RowsProblem,
        default_parameters: R,
        target: Target,
        settings: Mapping[str, Setting],
    ) -> R:
        """Return what settings are put into: tiles where they are set, none where these refuse."""
        if not default_parameters.tile_rows:
            tiles = self.by_tiles(problem, target) if settings.get("tile_rows", 0) else None
            return tiles or default_parameters
        if settings.get("tile_rows", 0):
            return default_parameters
        tried = self.with_derived(problem, replace(default_parameters, **settings))
        if "tile_rows" in settings or self.legal(problem, tried, target) is not None:
            return self.by_rows(problem, target)
        return default_parameters
