"""How partial sums of split-K GEMMs are combined: workspaces, and the kernel that adds slices."""

from __future__ import annotations

from fusec.ir.dim import Dim, ceildiv, dim
from fusec.ir.dtype import F32, U32, DType
from fusec.ir.graph import Fusion
from fusec.ops.names import fresh_name
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import MatmulKernel, SharedLayout
from fusec.schedule.plan import Workspace
from fusec.target import Target

SUM_SLICES = "matmul_sum_slices"
"""The kernel that adds the slices of split tiles."""
SUMMERS = 256
"""Threads per block of it."""
MOST_GROUPS = 8
"""Most groups of threads of a block that divide the slices of the same sums; each at least a warp.
"""
SLICES_EACH = 8
"""Slices that a thread loads at once if there are enough threads."""


def slice_groups(p: MatmulParameters) -> int:
    """Return the groups of threads that divide the slices of a sum."""
    groups = 1
    while groups < MOST_GROUPS and groups * SLICES_EACH < p.splits:
        groups *= 2
    return groups


def slices_each(p: MatmulParameters) -> int:
    """Return the slices that each of those groups adds; the last group may have fewer."""
    return -(-p.splits // slice_groups(p))


def summed_words(p: MatmulParameters) -> int:
    """Return the words per thread: four neighbours of each slice."""
    return 4 * (slices_each(p) + 1)


def tiles_of(problem: Product, p: MatmulParameters) -> Dim:
    """Return the number of tiles, or of pairs of tiles if a cluster computes two."""
    rows = ceildiv(problem.m, p.tile_m * p.cluster_m)
    if problem.groups is not None and problem.cuts == "rows":
        rows = rows + problem.groups.count  # each group may end with a partial tile
    columns = ceildiv(problem.n, p.columns * p.cluster_n)
    return problem.batches * rows * columns


def sum_slices(
    first: MatmulKernel, product: Product, p: MatmulParameters, name: str
) -> tuple[MatmulKernel, ...]:
    """Return the kernel that adds the partial sums of the first kernel's clusters, if needed.

    The sums are divided among all SMs, independent of tiles. It overlaps with the end of the first
    kernel (programmatic dependent launch), whose CTAs allow that after their main loop.
    """
    if not p.has_second:
        return ()
    quads = p.tile_m * p.tile_n // 4 // p.cluster_k
    runs = quads * slice_groups(p) // SUMMERS
    return (
        MatmulKernel(
            name=f"{name}_sum",
            template=SUM_SLICES,
            grid=(tiles_of(product, p) * (p.ctas * runs), dim(1), dim(1)),
            block=(SUMMERS, 1, 1),
            arguments=first.arguments,
            layout=SharedLayout(),
            overlapped=True,
        ),
    )


def workspace_roles(p: MatmulParameters) -> tuple[str, ...]:
    """Return the roles of a plan's workspaces: partial sums, and their semaphores or counters."""
    if p.splits == 1:
        return ()
    if p.has_second:
        return ("partials",)
    return ("partials", "turns", "tickets") if p.is_serial else ("partials", "arrivals")


def partials_dtype(problem: Product, p: MatmulParameters) -> DType:
    """Return the type of the partial sums that clusters store."""
    return problem.node.output.dtype if p.leaves_halves else F32


def work_buffers(
    fusion: Fusion, problem: Product, p: MatmulParameters, target: Target
) -> tuple[Workspace, ...]:
    """Return the workspaces: partial sums, and semaphores with tickets or arrival counters."""
    tiles = p.summed_tiles(tiles_of(problem, p) * (p.cluster_m * p.cluster_n), target)
    taken = fusion.names
    is_shared = p.is_serial or p.in_arrival_order
    sums = tiles * (p.tile_m * p.tile_n * (1 if is_shared else p.splits))
    kinds = {
        "partials": (
            partials_dtype(problem, p),
            sums,
            "zeroed once" if p.in_arrival_order else "none",
        ),
        "turns": (U32, tiles * p.cluster_k, "zeroed once"),
        "arrivals": (U32, tiles * p.cluster_k, "zeroed once"),
        "tickets": (U32, dim(1), "zeroed once"),
    }
    return tuple(Workspace(fresh_name(taken, role), *kinds[role]) for role in workspace_roles(p))
