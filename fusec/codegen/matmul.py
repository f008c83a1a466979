"""The views of the matrix product templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from fusec.codegen.matmul_computed import computed_view
from fusec.codegen.matmul_config import config, part_type, sums_type
from fusec.codegen.matmul_names import COMPUTED, RESERVED, STREAMED, c_names, renamed
from fusec.codegen.matmul_scales import scaled_by, scales_of
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
from fusec.codegen.product_text import constant, coordinate
from fusec.codegen.render import Parameter
from fusec.codegen.views import emit_store, head, plan_stores
from fusec.index.access import Facts
from fusec.index.instances import Lowering, instances_under
from fusec.ir.dim import dim
from fusec.ir.dtype import F32
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, identifier
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nest import Alias, Scope, StoreKind
from fusec.kernel.nodes import Statement
from fusec.schedule.matmul import MatmulPlan
from fusec.schedule.matmul_choice import TILES, MatmulParameters
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
    index_type = "fusec::i64" if parameters.wide_index else "int"
    maps = [names[m] for m in kernel.map_names] if hopper else ["", ""]
    maps = ["", *maps] if computes else maps
    second_map = "".join(maps[2:])
    fields = {
        **head(plan, kernel),
        "parameters": tuple(Parameter(a, identifier(names[a.name])) for a in kernel.arguments),
        "schedule": _sentence(problem, parameters),
        "loop": _loop(problem, parameters),
        "loads": _loads(problem, parameters, kernel.once),
        "scales": scales_of(problem),
        "scaled": scaled_by(problem, parameters),
        "apart": ", 1" if parameters.converted and not problem.b.k_major else "",
        "columns": "kColumns" if parameters.joined else "kTileN",
        "config": config(parameters, problem, kernel, context.facts),
        "has_layout": bool(kernel.layout.constants),
        "constants": _constants(context, index_type, hopper=hopper, multiplies=multiplies),
        "offsets": () if hopper else _offsets(context),
        "computed": computed_view(problem, parameters, context.facts, names.values()),
        "index_type": index_type,
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
            **_arguments(parameters, narrow=problem.narrow is not None),
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
        readers=_arguments(parameters, narrow=parameters.converted)["readers"],
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


def _arguments(p: MatmulParameters, *, narrow: bool) -> dict[str, str]:
    """Return the template arguments behind the Config of what loads a stage and multiplies it."""
    tiles, is_alone = f", {p.pair_rows}, {p.pair_columns}", p.multicast == "none"
    shares = f"{tiles}, true" if p.joined else "" if is_alone else tiles
    readers = "" if is_alone else tiles
    if not narrow:
        readers = f", {str(p.ping_pong).lower()}{readers}" if p.ping_pong or readers else ""
    return {"shares": shares, "readers": readers}


def _loads(problem: Product, p: MatmulParameters, once: tuple[bool, bool]) -> str:
    """Return the template arguments behind the Config of what loads a stage of a split product."""
    if problem.computed is not None:
        return ", true" if once[1] else ""
    panels = p.tile_k // TILES["split_k"]["tile_k"] if p.converted else 1
    halved = [2 if problem.b.packed == axis else 1 for axis in ("depth", "row")]
    across = halved[1] if p.converted and not problem.b.k_major else 0
    given = [p.pair_rows, p.pair_columns, p.joined, panels, *once, halved[0], across]
    plain = (1, 1, False, 1, False, False, 1, 0)
    while given and given[-1] == plain[len(given) - 1]:
        given.pop()
    return "".join(f", {str(each).lower()}" for each in given)


def _loop(problem: Product, p: MatmulParameters) -> str:
    """Return the function that multiplies the stages of a tile."""
    if p.kernel == "vector":
        weights = "multiply_weight_vectors" if problem.b.k_major else "multiply_weights_across"
        rows = "multiply_vectors" if problem.computed is None else "multiply_computed_vectors"
        return weights if p.converted else rows
    if p.kernel == "mma":
        return "multiply_tf32_steps" if problem.dtype == F32 else "multiply_steps"
    if p.converted:
        return "multiply_converted"
    return "multiply_stages" if problem.narrow is None else "multiply_promoted"


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
    ends = groups.ends.name
    if groups.base != 0:
        ends += f" + {dim_text(groups.base, wide=True).at_least(12)}"
    return GroupsView(ends, str(dim_text(groups.stride, wide=True)))


def _operand(problem: Product, operand: Operand, map_name: str) -> OperandView:
    terms = operand.batch.terms
    number = "group.index" if problem.cuts == "rows" else "tile.batch"
    batch = coordinate(terms[0][0], number) if map_name and terms else "0"
    return OperandView(operand.buffer.name, map_name, batch)


def _constants(
    context: _Context, index_type: str, *, hopper: bool, multiplies: bool
) -> tuple[Statement, ...]:
    problem, p = context.problem, context.parameters
    m = "all_rows" if problem.cuts == "rows" else "M"
    k = "all_depth" if problem.cuts else "K"
    lines = [
        constant(index_type, name, value)
        for name, value in ((m, problem.m), ("N", problem.n), (k, problem.k))
        if multiplies or name != k
    ]
    if problem.groups is not None and problem.cuts == "rows":
        lines.append(constant("int", "groups", problem.groups.count))
    if p.kernel == "wgmma":
        lines.append(constant("int", "batches", problem.batches))
    if p.kernel == "split_k" and not p.in_ranges:
        lines.append(f"constexpr int splits = {p.splits};  // clusters that sum a tile")
    if p.kernel == "vector" and p.splits > 1:
        lines.append(f"constexpr int splits = {p.splits};  // blocks that sum a tile")
    if not hopper:
        lines += [
            constant(index_type, name, dim(0) if value is None else value)
            for name, value in (
                ("a_stride_m", problem.a.row),
                ("a_stride_k", problem.a.depth),
                ("b_stride_k", problem.b.depth),
                ("b_stride_n", problem.b.row),
            )
            if problem.computed is None or name[0] == "b"
        ]
    return tuple(lines)


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
        stored_under=_store_test(context),
    )


def _offsets(context: _Context) -> tuple[str, ...]:
    """Return the lines that define where the operands of a batch begin."""
    problem = context.problem
    _, chunk, lane = bind(problem, context.parameters.vector_width)
    emitter = _emitter(context, chunk, lane)
    kind = "fusec::i64" if context.parameters.wide_index else "int"
    sides = (("a", problem.a), ("b", problem.b))
    in_memory = sides if problem.computed is None else sides[1:]
    values = [(n, emitter.index(o.batch, 0)) for n, o in in_memory]
    lines = [*emitter.take(0, "kernel"), *emitter.take(0, "batch")]
    if problem.a.batch.variables or problem.b.batch.variables:
        number = "group.index" if problem.cuts == "rows" else "tile.batch"
        lines.insert(0, f"const {kind} batch = {number};")
    begins = {"a": "", "b": ""}
    if problem.cuts == "depth":
        begins = {name: f" + group.first * {name}_stride_k" for name in begins}
    return (
        *lines,
        *(f"const {kind} {name}_offset = {text}{begins[name]};" for name, text in values),
    )


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
            held = sums[instance.name]
            emitter.cached[instance] = f"{held}[i]" if width > 1 else f"{held}[0]"
    emitter.count(roots)
    has_batches = _has_batches(problem)
    found = zip(problem.totals, reduced, strict=True)
    totals = emit_totals(emitter, found, has_batches=has_batches)
    for plan in plans:
        if plan.kind is StoreKind.STAGED:
            emit_staged(emitter, plan, stored[plan.output], f"{'batch, ' * has_batches}m, 0")
        else:
            emit_store(emitter, plan, 0)
    loads = [line for s in ("kernel", "batch", "row", "vector") for line in emitter.take(0, s)]
    return EpilogueView(
        width,
        "Index batch, Index m, Index n" if has_batches else "Index m, Index n",
        "tile.batch, m, n" if has_batches else "m, n",
        tuple(loads),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
        staged,
        tuple(sums.values()),
        totals,
        tuple(plan.kind for plan in plans),
        emitter.stored_under,
    )


def _store_test(context: _Context) -> str:
    """Return what keeps the epilogue inside the result; empty where all of a cluster's tiles lie
    inside.
    """
    problem, p = context.problem, context.parameters
    rows, columns = p.tile_m * p.pair_rows, p.columns * p.pair_columns
    if Facts.proven(problem.m, rows) and Facts.proven(problem.n, columns):
        return ""
    return "M - tile_m, N - tile_n" if p.kernel == "vector" else "m < M && n < N"
