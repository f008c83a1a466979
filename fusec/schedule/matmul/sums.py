"""How the sums of a split product's clusters meet: work buffers, and the kernel that adds them."""

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
"""The kernel that adds the slices of split tiles up."""
SUMMERS = 256
"""Threads of a block of it."""
MOST_GROUPS = 8
"""Groups of threads of a block that share the slices of the same sums: of a warp at least."""
SLICES_EACH = 8
"""Slices that a thread loads at once, where there are threads enough."""


def slice_groups(p: MatmulParameters) -> int:
    """Return the groups of threads that share the slices of a sum."""
    groups = 1
    while groups < MOST_GROUPS and groups * SLICES_EACH < p.splits:
        groups *= 2
    return groups


def slices_each(p: MatmulParameters) -> int:
    """Return the slices that each of those groups adds up, the last one fewer."""
    return -(-p.splits // slice_groups(p))


def summed_words(p: MatmulParameters) -> int:
    """Return the words that a thread holds: four neighbours of each slice."""
    return 4 * (slices_each(p) + 1)


def tiles_of(problem: Product, p: MatmulParameters) -> Dim:
    """Return the tiles, or the pairs of those that a cluster takes together."""
    rows = ceildiv(problem.m, p.tile_m * p.cluster_m)
    if problem.groups is not None and problem.cuts == "rows":
        rows = rows + problem.groups.count  # each group may end with a part of a tile
    columns = ceildiv(problem.n, p.columns * p.cluster_n)
    return problem.batches * rows * columns


def sum_slices(
    first: MatmulKernel, product: Product, p: MatmulParameters, name: str
) -> tuple[MatmulKernel, ...]:
    """Return the kernel that adds up what the clusters of the first have left, if there is one.

    All SMs share the sums, whatever the tiles; it starts beside the end of the first, in which each
    CTA lets it once its products are done.
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
    """Return what the work buffers of a plan are: sums, and who may add to them, or has."""
    if p.splits == 1:
        return ()
    if p.has_second:
        return ("partials",)
    return ("partials", "turns", "tickets") if p.is_serial else ("partials", "arrivals")


def partials_dtype(problem: Product, p: MatmulParameters) -> DType:
    """Return the type of the sums that clusters leave."""
    return problem.node.output.dtype if p.leaves_halves else F32


def work_buffers(
    fusion: Fusion, problem: Product, p: MatmulParameters, target: Target
) -> tuple[Workspace, ...]:
    """Return the sums handed on, whose turn it is and the ticket counter, or who has arrived."""
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
