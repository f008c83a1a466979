"""The views of the matrix product templates."""

from __future__ import annotations

from fusec.codegen.matmul.view import MatmulView, PersistentView, SplitKView, VectorView
from fusec.codegen.views import head
from fusec.kernel.ctext import index_type
from fusec.kernel.lowering.nest import StoreKind
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.family import MatmulPlan
from fusec.schedule.matmul.kernel.config import part_type
from fusec.schedule.matmul.kernel.product import context_of, nodes_of
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import MatmulKernel
from fusec.schedule.matmul.sums import workspace_roles


def view(plan: MatmulPlan, kernel: MatmulKernel) -> MatmulView:
    """Return the view of a matrix product kernel."""
    p, context = plan.parameters, context_of(plan, kernel)
    nodes, names = nodes_of(context, kernel), context.names
    fields = {
        **head(plan, kernel, nodes, names),
        "schedule": _sentence(context.problem, p),
        "has_layout": bool(kernel.layout.constants),
        "index_type": index_type(wide=p.wide_index),
    }
    spaces = zip(workspace_roles(p), plan.workspaces, strict=True)
    roles = {role: names[space.name] for role, space in spaces}
    if p.kernel == "wgmma":
        return PersistentView(
            **fields,  # pyright: ignore[reportArgumentType]
            consumers=p.consumers,
            ping_pong=p.ping_pong,
            swapped=p.swapped,
            in_pairs=p.ctas > 1,
            ctas=p.ctas,
            splits=p.splits,
            is_guarded=StoreKind.GUARDED in nodes.epilogue.store_kinds or nodes.cuts_rows,
            has_rest=_has_rest(kernel, p),
            **roles,
        )
    if p.kernel == "vector":
        return VectorView(
            **fields,  # pyright: ignore[reportArgumentType]
            has_slices=p.splits > 1,
            **roles,
        )
    if p.kernel != "split_k":
        return MatmulView(**fields)  # pyright: ignore[reportArgumentType]
    return SplitKView(
        **fields,  # pyright: ignore[reportArgumentType]
        takes_turns=p.takes_turns,
        in_bulk=p.in_bulk,
        in_arrival_order=p.in_arrival_order,
        in_clusters=p.cluster > 1,
        in_pairs=p.multicast != "none",
        has_partials=p.splits > 1,
        has_epilogue=not p.has_second,
        leaves_fragments=p.leaves_fragments,
        moves_registers=p.moves_registers,
        fetches_factors=p.converted and bool(context.problem.scales),
        part=part_type(context.problem, p),
        **roles,
    )


def _has_rest(kernel: MatmulKernel, p: MatmulParameters) -> bool:
    """Return whether the last columns of a tile that are staged are fewer than others."""
    columns = next((v for name, v, _ in kernel.layout.constants if name == "kStagedColumns"), 1)
    return p.columns % columns > 0


def _sentence(problem: Product, p: MatmulParameters) -> str:
    how = {
        "wgmma": f"one CTA per SM over all tiles{_shared(p)}, bulk copies into wgmma",
        "split_k": f"bulk copies into wgmma, K split over {_parts(p)}",
        "vector": f"a stream over {problem.b.buffer.name} into mma.sync{_blocks(p)}",
        "mma": "one CTA per tile, asynchronous copies into mma.sync",
        "simt": "one CTA per tile, multiply-adds",
    }[p.kernel]
    batch = "" if problem.batches == 1 else f"{problem.batches} times "
    extents = f"{batch}{problem.m} x {problem.n} x {problem.k}"
    if problem.groups is not None:
        extents += f", {problem.cuts} divided into {problem.groups.count} groups,"
    twice = "a dual GEMM of " if p.joined else ""
    return f"Schedule: {twice}{extents} in tiles of {p.tile_m} x {p.columns}, {how}."


def _blocks(p: MatmulParameters) -> str:
    """Return what a streamed product's K is split over."""
    return f", K split over {p.splits} blocks" if p.splits > 1 else ""


def _shared(p: MatmulParameters) -> str:
    """Return what warpgroups, and neighbouring CTAs, do with tiles of their own."""
    turns = ", warpgroups in turn" if p.ping_pong else ""
    shared = (("A", p.pair_columns), ("B", p.pair_rows))
    count = {2: "two", 4: "four"}
    loaded = [f"{name} loaded for {count[ctas]} CTAs" for name, ctas in shared if ctas > 1]
    return ", ".join((turns, *loaded))


def _parts(p: MatmulParameters) -> str:
    """Return what a split product's K is split over."""
    if p.splits == 1:
        return f"{p.cluster} CTAs" if p.cluster > 1 else "one CTA"
    if p.in_ranges:
        return "ranges of all tiles' steps, one for each CTA"
    each = f" of {p.cluster} CTAs" if p.cluster > 1 else ""
    how = "turns" if p.takes_turns else "parts" if p.in_arrival_order else "slices"
    halves = ", 16-bit workspace" if p.leaves_halves else ""
    return f"{p.splits} {how}{each}{halves}"
