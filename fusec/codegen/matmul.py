"""The views of the matrix product templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fusec.codegen.matmul_arguments import apart, further, loop, pipeline, scaled_by
from fusec.codegen.matmul_computed import computed_view
from fusec.codegen.matmul_config import config, part_type, sums_type
from fusec.codegen.matmul_names import COMPUTED, RESERVED, STREAMED, c_names, renamed
from fusec.codegen.matmul_scales import scales_of, zero_points
from fusec.codegen.matmul_staged import emit_staged, stage
from fusec.codegen.matmul_totals import GATHERED, emit_totals
from fusec.codegen.matmul_view import (
    EpilogueView,
    GroupsView,
    MatmulView,
    OperandView,
    PersistentView,
    SplitKView,
    VectorView,
)
from fusec.codegen.product_text import (
    COLUMN,
    COLUMNS,
    GROUP_INDEX,
    ROW,
    ROWS,
    TILE_BATCH,
    constant,
    coordinates,
    element,
)
from fusec.codegen.render import Parameter
from fusec.codegen.views import head
from fusec.index.access import Facts
from fusec.index.instances import Lowering, instances_under
from fusec.ir.dim import Dim, dim
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, identifier, index_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nest import Alias, Scope, StoreKind, named
from fusec.kernel.nodes import (
    INT,
    ZERO,
    Binary,
    Constexpr,
    Expression,
    Let,
    Member,
    Name,
    Noted,
    Pointer,
    Statement,
    Type,
    item,
    operand,
)
from fusec.kernel.stores import emit_store, plan_stores
from fusec.schedule.matmul.family import MatmulPlan
from fusec.schedule.matmul_choice import MatmulParameters
from fusec.schedule.matmul_epilogue import SECOND_SUMS, SUMS
from fusec.schedule.matmul_joined import find_products
from fusec.schedule.matmul_operand import BATCH, Operand
from fusec.schedule.matmul_problem import Product, bind
from fusec.schedule.matmul_shared import MatmulKernel
from fusec.schedule.matmul_sums import SUM_SLICES, workspace_roles


@dataclass(frozen=True)
class _Context:
    """A plan's problem in C names."""

    fusion: Fusion
    problem: Product
    parameters: MatmulParameters
    names: Mapping[str, str]
    facts: Facts


def view(plan: MatmulPlan, kernel: MatmulKernel) -> MatmulView:
    """Return the view of a matrix product kernel."""
    parameters = plan.parameters
    streams = parameters.kernel == "vector"
    gathered = GATHERED if plan.problem.product.totals else frozenset[str]()
    computes = plan.problem.product.computed is not None
    reserved = RESERVED | gathered | (STREAMED if streams else frozenset[str]())
    names = c_names(kernel, reserved | (COMPUTED if computes else frozenset[str]()))
    fusion = renamed(plan.fusion, names)
    problem = find_products(fusion)
    assert isinstance(problem, Product)
    context = _Context(fusion, problem, parameters, names, Facts(fusion.hints))
    hopper = parameters.kernel in ("wgmma", "split_k")
    multiplies = kernel.template != SUM_SLICES
    maps = [names[m] for m in kernel.map_names] if hopper else ["", ""]
    maps = ["", *maps] if computes else maps
    second_map = "".join(maps[2:])
    stages = pipeline(problem, parameters, kernel.once) if hopper and multiplies else ()
    fields = {
        **head(plan, kernel),
        "parameters": tuple(Parameter(a, identifier(names[a.name])) for a in kernel.arguments),
        "schedule": _sentence(problem, parameters),
        "loop": loop(problem, parameters),
        "pipeline": stages,
        "policy": further("Pipeline") if stages else further(),
        "zero_points": zero_points(problem),
        "scales": scales_of(problem),
        "scaled": scaled_by(problem, parameters),
        "apart": apart(problem, parameters),
        "columns": "kColumns" if parameters.joined else "kTileN",
        "config": config(parameters, problem, kernel, context.facts),
        "has_layout": bool(kernel.layout.constants),
        "constants": _constants(context, hopper=hopper, multiplies=multiplies),
        "offsets": () if hopper else _offsets(context),
        "computed": computed_view(problem, parameters, context.facts, names.values()),
        "index_type": index_type(wide=parameters.wide_index),
        "sums_type": sums_type(problem),
        "a": _operand(problem, problem.a, maps[0]),
        "b": _operand(problem, problem.b, maps[1]),
        "epilogue": _epilogue(context),
        "has_batches": _has_batches(problem),
        "groups": _groups(problem),
        "cuts_rows": problem.cuts == "rows",
        "cuts_depth": problem.cuts == "depth",
    }
    spaces = dict(zip(workspace_roles(parameters), plan.workspaces, strict=True))
    if parameters.kernel == "wgmma":
        epilogue = fields["epilogue"]
        assert isinstance(epilogue, EpilogueView)
        return PersistentView(
            **fields,  # pyright: ignore[reportArgumentType]
            second_map=second_map,
            consumers=parameters.consumers,
            ping_pong=parameters.ping_pong,
            swapped=parameters.swapped,
            in_pairs=parameters.ctas > 1,
            ctas=parameters.ctas,
            splits=parameters.splits,
            is_guarded=StoreKind.GUARDED in epilogue.store_kinds or problem.cuts == "rows",
            has_rest=_has_rest(kernel, parameters),
            **{role: names[space.name] for role, space in spaces.items()},
        )
    if streams:
        return VectorView(
            **fields,  # pyright: ignore[reportArgumentType]
            has_slices=parameters.splits > 1,
            **{role: names[space.name] for role, space in spaces.items()},
        )
    if parameters.kernel != "split_k":
        return MatmulView(**fields)  # pyright: ignore[reportArgumentType]
    return SplitKView(
        **fields,  # pyright: ignore[reportArgumentType]
        takes_turns=parameters.takes_turns,
        in_bulk=parameters.in_bulk,
        in_arrival_order=parameters.in_arrival_order,
        in_clusters=parameters.cluster > 1,
        in_pairs=parameters.multicast != "none",
        second_map=second_map,
        has_partials=parameters.splits > 1,
        has_epilogue=not parameters.has_second,
        leaves_fragments=parameters.leaves_fragments,
        moves_registers=parameters.moves_registers,
        fetches_factors=parameters.converted and bool(problem.scales),
        part=part_type(problem, parameters),
        **{role: names[space.name] for role, space in spaces.items()},
    )


def _has_rest(kernel: MatmulKernel, p: MatmulParameters) -> bool:
    """Return whether the last columns of a tile that are staged are fewer than others."""
    columns = next((v for name, v, _ in kernel.layout.constants if name == "kStagedColumns"), 1)
    return p.columns % columns > 0


def _has_batches(problem: Product) -> bool:
    """Return whether an epilogue runs for several products."""
    return problem.batches != 1


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


def _groups(problem: Product) -> GroupsView | None:
    """Return the view of the groups, the ends as a pointer to the first."""
    groups = problem.groups
    if groups is None:
        return None
    ends = Pointer(Name(groups.ends.name), dim_text(groups.base, wide=True))
    return GroupsView(ends, dim_text(groups.stride, wide=True))


def _operand(problem: Product, operand: Operand, map_name: str) -> OperandView:
    terms = operand.batch.terms
    axis = terms[0][0] if map_name and terms else None
    return OperandView(operand.buffer.name, map_name, coordinates([axis], _batch(problem)))


def _batch(problem: Product) -> Expression:
    """Return the number of the product that a tile is of."""
    return GROUP_INDEX if problem.cuts == "rows" else TILE_BATCH


def _constants(context: _Context, *, hopper: bool, multiplies: bool) -> tuple[Statement, ...]:
    problem, p = context.problem, context.parameters
    kind = index_type(wide=p.wide_index)
    m = "all_rows" if problem.cuts == "rows" else "M"
    k = "all_depth" if problem.cuts else "K"
    lines = [
        constant(kind, name, value)
        for name, value in ((m, problem.m), ("N", problem.n), (k, problem.k))
        if multiplies or name != k
    ]
    if problem.groups is not None and problem.cuts == "rows":
        lines.append(constant(INT, "groups", problem.groups.count))
    if p.kernel == "wgmma":
        lines.append(constant(INT, "batches", problem.batches))
    if p.kernel == "split_k" and not p.in_ranges:
        lines.append(_splits(p, "clusters"))
    if p.kernel == "vector" and p.splits > 1:
        lines.append(_splits(p, "blocks"))
    if not hopper:
        lines += [
            _stride(kind, name, dim(0) if value is None else value, across)
            for name, value, across in (
                ("a_stride_m", problem.a.row, (k, problem.k)),
                ("a_stride_k", problem.a.depth, (m, problem.m)),
                ("b_stride_k", problem.b.depth, ("N", problem.n)),
                ("b_stride_n", problem.b.row, (k, problem.k)),
            )
            if problem.computed is None or name[0] == "b"
        ]
    return tuple(lines)


def _stride(kind: Type, name: str, value: Dim, across: tuple[str, Dim]) -> Statement:
    """Return the definition of a stride; of contiguous rows it is the extent that they have."""
    spelled = named(**{across[0]: across[1]})
    if value.is_const and value.value in spelled:
        return Constexpr(kind, name, Name(spelled[value.value]))
    return constant(kind, name, value)


def _splits(p: MatmulParameters, what: str) -> Statement:
    return Noted(Constexpr(INT, "splits", operand(p.splits)), f"{what} that sum a tile")


def _emitter(context: _Context, chunk: Var, lane: Var) -> Emitter:
    problem, p = context.problem, context.parameters
    scopes = (
        Scope("kernel", frozenset()),
        Scope(
            "batch", frozenset(Var(BATCH, n) for n in (problem.batches, problem.operand_batches))
        ),
        Scope("row", frozenset({Var("m", problem.m)})),
        Scope("vector", frozenset({chunk})),
        Scope("lane", frozenset({lane})),
    )
    return Emitter(
        scopes,
        Names([*context.names.values(), *RESERVED]),
        context.facts,
        lane=lane if p.vector_width > 1 else None,
        width=p.vector_width,
        aliases={chunk: Alias("n", p.vector_width)},
        written=context.fusion.effects.overwritten,
        wide=p.wide_index,
        width_name="kWidth",
        symbols=named(N=problem.n, M=problem.m) if problem.cuts != "rows" else named(N=problem.n),
        stored_under=_store_test(context),
    )


def _offsets(context: _Context) -> tuple[Statement, ...]:
    """Return the statements that define where the operands of a batch begin."""
    problem = context.problem
    _, chunk, lane = bind(problem, context.parameters.vector_width)
    emitter = _emitter(context, chunk, lane)
    kind = emitter.index_type
    sides = (("a", problem.a), ("b", problem.b))
    in_memory = sides if problem.computed is None else sides[1:]
    offsets = {n: emitter.index(o.batch, 0) for n, o in in_memory}
    lines = [*emitter.take(0, "kernel"), *emitter.take(0, "batch")]
    if problem.a.batch.variables or problem.b.batch.variables:
        lines.insert(0, Let(kind, "batch", _batch(problem)))
    if problem.cuts == "depth":
        first = Member(Name("group"), "first")
        offsets = {n: offset + first * f"{n}_stride_k" for n, offset in offsets.items()}
    return (*lines, *(Let(kind, f"{name}_offset", offset) for name, offset in offsets.items()))


def _epilogue(context: _Context) -> EpilogueView:
    problem, width = context.problem, context.parameters.vector_width
    binding, chunk, lane = bind(problem, width)
    fusion = problem.epilogue.fusion
    sums = dict(zip((s.name for s in problem.epilogue.all_sums), (SUMS, SECOND_SUMS), strict=False))
    lowering = Lowering(fusion, problem.domain, binding)
    emitter = _emitter(context, chunk, lane)
    tensors = problem.staged(context.facts) if context.parameters.staged else ()
    in_rows = {t.output: StoreKind.STAGED for t in tensors if t.output is not None}
    plans = plan_stores(
        lowering, fusion.outputs, lambda output: in_rows.get(output, emitter.store_kind)
    )
    reduced = [lowering.at_home(t.value) for t in problem.totals]
    roots = [*(p.instance for p in plans), *reduced]
    fresh = partial(_emitter, context, chunk, lane)
    staged, stored = stage(tensors, emitter, roots, fresh)
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.name in sums:
            emitter.cached[instance] = item(sums[instance.name], emitter.element_of_vector)
    emitter.count(roots)
    has_batches = _has_batches(problem)
    found = zip(problem.totals, reduced, strict=True)
    totals = emit_totals(emitter, found, has_batches=has_batches)
    for plan in plans:
        if plan.kind is StoreKind.STAGED:
            batch = (Name("batch"),) if has_batches else ()
            emit_staged(emitter, plan, stored[plan.output], (*batch, ROW, ZERO))
        else:
            emit_store(emitter, plan, 0)
    loads = [line for s in ("kernel", "batch", "row", "vector") for line in emitter.take(0, s)]
    return EpilogueView(
        width,
        *element(has_batches=has_batches),
        tuple(loads),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
        staged,
        tuple(sums.values()),
        totals,
        tuple(plan.kind for plan in plans),
        emitter.stored_under,
    )


def _store_test(context: _Context) -> Expression | str:
    """Return what keeps the epilogue inside the result; empty where all of a cluster's tiles lie
    inside.
    """
    problem, p = context.problem, context.parameters
    rows, columns = p.tile_m * p.pair_rows, p.columns * p.pair_columns
    if Facts.proven(problem.m, rows) and Facts.proven(problem.n, columns):
        return ""
    return Binary("&&", Binary("<", ROW, ROWS), Binary("<", COLUMN, COLUMNS))
