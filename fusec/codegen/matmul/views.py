"""The views of the GEMM templates."""

from __future__ import annotations

from typing import Any

from fusec.codegen.matmul.view import MatmulView, PersistentView, SplitKView, VectorView
from fusec.codegen.views import head
from fusec.kernel.ctext import index_type
from fusec.kernel.lowering.nest import StoreKind
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.family import MatmulPlan
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import PersistentParameters, SplitKParameters, StreamKParameters
from fusec.schedule.matmul.kernel.config import part_type
from fusec.schedule.matmul.kernel.product import MatmulNodes, context_of, nodes_of
from fusec.schedule.matmul.portable import MmaParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import MatmulKernel
from fusec.schedule.matmul.sums import workspace_roles

Fields = dict[str, Any]
"""Fields of a view by name."""


def view(plan: MatmulPlan, kernel: MatmulKernel) -> MatmulView:
    """Return the view of a GEMM kernel."""
    p, context = plan.parameters, context_of(plan, kernel)
    nodes, names = nodes_of(context, kernel), context.names
    fields: Fields = {
        **head(plan, kernel, nodes, names),
        "schedule": _sentence(context.problem, p),
        "has_layout": bool(kernel.layout.constants),
        "index_type": index_type(wide=p.wide_index),
    }
    spaces = zip(workspace_roles(p), plan.workspaces, strict=True)
    fields |= {role: names[space.name] for role, space in spaces}
    match p:
        case PersistentParameters():
            return PersistentView(**fields, **_persistent(kernel, p, nodes))
        case SplitKParameters():
            return SplitKView(**fields, **_split_k(context.problem, p))
        case GemvParameters():
            return VectorView(**fields, has_slices=p.splits > 1)
        case _:
            return MatmulView(**fields)


def _persistent(kernel: MatmulKernel, p: PersistentParameters, nodes: MatmulNodes) -> Fields:
    columns = next((v for name, v, _ in kernel.layout.constants if name == "kStagedColumns"), 1)
    return {
        "consumers": p.consumers,
        "ping_pong": p.ping_pong,
        "swap_ab": p.swap_ab,
        "in_pairs": p.ctas > 1,
        "ctas": p.ctas,
        "splits": p.splits,
        "is_guarded": StoreKind.GUARDED in nodes.epilogue.store_kinds or nodes.cuts_rows,
        "has_rest": p.columns % columns > 0,
    }


def _split_k(problem: Product, p: SplitKParameters) -> Fields:
    return {
        "is_serial": p.is_serial,
        "in_bulk": p.in_bulk,
        "in_arrival_order": p.in_arrival_order,
        "in_clusters": p.cluster_k > 1,
        "in_pairs": p.is_multicast,
        "has_partials": p.splits > 1,
        "has_epilogue": not p.has_second,
        "leaves_fragments": p.leaves_fragments,
        "uses_setmaxnreg": p.uses_setmaxnreg,
        "fetches_factors": p.converted and bool(problem.scales),
        "part": part_type(problem, p),
    }


def _sentence(problem: Product, p: MatmulParameters) -> str:
    batch = "" if problem.batches == 1 else f"{problem.batches} times "
    extents = f"{batch}{problem.m} x {problem.n} x {problem.k}"
    if problem.groups is not None:
        extents += f", {problem.cuts} divided into {problem.groups.count} groups,"
    twice = "a dual GEMM of " if p.products > 1 else ""
    how = _how(problem, p)
    return f"Schedule: {twice}{extents} in tiles of {p.tile_m} x {p.columns}, {how}."


def _how(problem: Product, p: MatmulParameters) -> str:
    """Return a description of the CTAs of a kernel."""
    match p:
        case PersistentParameters():
            return f"one CTA per SM over all tiles{_shared(p)}, bulk copies into wgmma"
        case SplitKParameters():
            return f"bulk copies into wgmma, K split over {_parts(p)}"
        case GemvParameters():
            return f"a stream over {problem.b.buffer.name} into mma.sync{_blocks(p)}"
        case MmaParameters():
            return "one CTA per tile, asynchronous copies into mma.sync"
        case _:
            return "one CTA per tile, multiply-adds"


def _blocks(p: GemvParameters) -> str:
    """Return what K of a GEMV is split over."""
    return f", K split over {p.splits} blocks" if p.splits > 1 else ""


def _shared(p: PersistentParameters) -> str:
    """Return how warpgroups, and neighbouring CTAs, divide tiles."""
    turns = ", warpgroups in turn" if p.ping_pong else ""
    shared = (("A", p.cluster_n), ("B", p.cluster_m))
    count = {2: "two", 4: "four"}
    loaded = [f"{name} loaded for {count[ctas]} CTAs" for name, ctas in shared if ctas > 1]
    return ", ".join((turns, *loaded))


def _parts(p: SplitKParameters) -> str:
    """Return what K of a split-K GEMM is split over."""
    if p.splits == 1:
        return f"{p.cluster_k} CTAs" if p.cluster_k > 1 else "one CTA"
    if isinstance(p, StreamKParameters):
        return "ranges of all tiles' steps, one for each CTA"
    each = f" of {p.cluster_k} CTAs" if p.cluster_k > 1 else ""
    how = "turns" if p.is_serial else "parts" if p.in_arrival_order else "slices"
    halves = ", 16-bit workspace" if p.leaves_halves else ""
    return f"{p.splits} {how}{each}{halves}"
