"""The statements of GEMMs: operands, sizes, and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Lowering, instances_under
from fusec.ir.dim import Dim, dim
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, index_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, StoreKind, named
from fusec.kernel.lowering.products import (
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
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import Names
from fusec.kernel.nodes import (
    INT,
    ZERO,
    Binary,
    Constexpr,
    Expression,
    Let,
    Listed,
    Member,
    Name,
    Noted,
    Pointer,
    Statement,
    Type,
    item,
    operand,
)
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.dual import find_products
from fusec.schedule.matmul.epilogue import SECOND_SUMS, SUMS
from fusec.schedule.matmul.family import MatmulPlan
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import PersistentParameters
from fusec.schedule.matmul.kernel.arguments import further, loop, pipeline, row_distance, scaled_by
from fusec.schedule.matmul.kernel.computed import computed_nodes
from fusec.schedule.matmul.kernel.config import config, sums_type
from fusec.schedule.matmul.kernel.names import COMPUTED, RESERVED, STREAMED, c_names, renamed
from fusec.schedule.matmul.kernel.records import (
    ComputedNodes,
    EpilogueNodes,
    GroupsNodes,
    OperandNodes,
)
from fusec.schedule.matmul.kernel.scales import scales_of, zero_points
from fusec.schedule.matmul.kernel.staged import emit_staged, stage
from fusec.schedule.matmul.kernel.totals import GATHERED, emit_totals
from fusec.schedule.matmul.operands.operand import BATCH, Operand
from fusec.schedule.matmul.problem import Product, bind
from fusec.schedule.matmul.shared import MatmulKernel
from fusec.schedule.matmul.sums import SUM_SLICES


@dataclass(frozen=True)
class Context:
    """A plan's problem in C names, which are mapped from argument names."""

    fusion: Fusion
    problem: Product
    parameters: MatmulParameters
    names: Mapping[str, str]
    facts: Facts


def context_of(plan: MatmulPlan, kernel: MatmulKernel) -> Context:
    """Return a plan's problem in C names."""
    gathered = GATHERED if plan.problem.product.totals else frozenset[str]()
    computes = plan.problem.product.computed is not None
    reserved = RESERVED | gathered
    streams = isinstance(plan.parameters, GemvParameters)
    reserved |= STREAMED if streams else frozenset[str]()
    names = c_names(kernel, reserved | (COMPUTED if computes else frozenset[str]()))
    fusion = renamed(plan.fusion, names)
    problem = find_products(fusion)
    assert isinstance(problem, Product)
    return Context(fusion, problem, plan.parameters, names, Facts(fusion.hints))


@dataclass(frozen=True, kw_only=True)
class MatmulNodes:
    """The statements that every GEMM kernel has.

    loop: the main loop function of a Hopper kernel; pipeline: overrides of the plain stages;
    policy: the struct with these, a further template argument of producer and consumer functions;
    zero_points: overrides of the plain ones; scales: lines that define the scales of both operands
    along K, if there are any; scaled: further arguments with these; row_distance: further template
    arguments of functions that store accumulators in shared memory; columns: the constant of the
    Config with a tile's columns. config: the members of its `Config`. constants: declarations of M,
    N, K and of all other sizes and strides that are not parameters. offsets: lines that define
    `a_offset` and `b_offset`, in elements, from `tile.batch` or the group. computed: the
    computation of A, if it is not in memory; second_map: the map of the second B of a dual GEMM, if
    there is one. groups: the partition of the GEMM into groups, by rows or by elements of K; with
    them the constants are `all_rows` or `all_depth` instead of M or K, and `groups` with those of
    rows.
    """

    loop: str
    pipeline: tuple[Statement, ...]
    policy: Listed
    zero_points: tuple[Statement, ...]
    scales: tuple[Statement, ...]
    scaled: Listed
    row_distance: Listed
    columns: str
    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    offsets: tuple[Statement, ...]
    computed: ComputedNodes | None
    sums_type: Type
    a: OperandNodes
    b: OperandNodes
    second_map: str
    epilogue: EpilogueNodes
    has_batches: bool
    groups: GroupsNodes | None
    cuts_rows: bool
    cuts_depth: bool


def nodes_of(context: Context, kernel: MatmulKernel) -> MatmulNodes:
    """Return the statements of a GEMM kernel."""
    problem, p = context.problem, context.parameters
    multiplies = kernel.template != SUM_SLICES
    maps = [context.names[m] for m in kernel.map_names] if p.uses_tma else ["", ""]
    maps = maps if problem.computed is None else ["", *maps]
    stages = pipeline(problem, p, kernel.once) if multiplies else ()
    return MatmulNodes(
        loop=loop(problem, p),
        pipeline=stages,
        policy=further("Pipeline") if stages else further(),
        zero_points=zero_points(problem),
        scales=scales_of(problem),
        scaled=scaled_by(problem, p),
        row_distance=row_distance(problem, p),
        columns="kColumns" if p.products > 1 else "kTileN",
        config=config(p, problem, kernel, context.facts),
        constants=_constants(context, multiplies=multiplies),
        offsets=() if p.uses_tma else _offsets(context),
        computed=computed_nodes(problem, p, context.facts, context.names.values()),
        sums_type=sums_type(problem),
        a=_operand(problem, problem.a, maps[0]),
        b=_operand(problem, problem.b, maps[1]),
        second_map="".join(maps[2:]),
        epilogue=_epilogue(context),
        has_batches=_has_batches(problem),
        groups=_groups(problem),
        cuts_rows=problem.cuts == "rows",
        cuts_depth=problem.cuts == "depth",
    )


def _has_batches(problem: Product) -> bool:
    """Return whether an epilogue handles several batches."""
    return problem.batches != 1


def _groups(problem: Product) -> GroupsNodes | None:
    """Return the view of the groups, with their ends as a pointer to the first."""
    groups = problem.groups
    if groups is None:
        return None
    ends = Pointer(Name(groups.ends.name), dim_text(groups.base, wide=True))
    return GroupsNodes(ends, dim_text(groups.stride, wide=True))


def _operand(problem: Product, operand: Operand, map_name: str) -> OperandNodes:
    terms = operand.batch.terms
    axis = terms[0][0] if map_name and terms else None
    return OperandNodes(operand.buffer.name, map_name, coordinates([axis], _batch(problem)))


def _batch(problem: Product) -> Expression:
    """Return the batch index of a tile."""
    return GROUP_INDEX if problem.cuts == "rows" else TILE_BATCH


def _constants(context: Context, *, multiplies: bool) -> tuple[Statement, ...]:
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
    if isinstance(p, PersistentParameters):
        lines.append(constant(INT, "batches", problem.batches))
    if p.splitters:
        splits = Constexpr(INT, "splits", operand(p.splits))
        lines.append(Noted(splits, f"{p.splitters} that sum a tile"))
    if not p.uses_tma:
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
    """Return the definition of a stride; for contiguous rows it is their extent."""
    spelled = named(**{across[0]: across[1]})
    if value.is_const and value.value in spelled:
        return Constexpr(kind, name, Name(spelled[value.value]))
    return constant(kind, name, value)


def _emitter(context: Context, chunk: Var, lane: Var) -> Emitter:
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


def _offsets(context: Context) -> tuple[Statement, ...]:
    """Return the statements that define the offsets of a batch's operands."""
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


def _epilogue(context: Context) -> EpilogueNodes:
    problem, width = context.problem, context.parameters.vector_width
    binding, chunk, lane = bind(problem, width)
    fusion = problem.epilogue.fusion
    sums = dict(zip((s.name for s in problem.epilogue.all_sums), (SUMS, SECOND_SUMS), strict=False))
    lowering = Lowering(fusion, problem.domain, binding)
    emitter = _emitter(context, chunk, lane)
    tensors = context.parameters.staged_tensors(problem, context.facts)
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
    return EpilogueNodes(
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


def _store_test(context: Context) -> Expression | str:
    """Return the bounds test of the epilogue, empty if all tiles of a cluster are in bounds."""
    problem, p = context.problem, context.parameters
    rows, columns = p.tile_m * p.cluster_m, p.columns * p.cluster_n
    if Facts.proven(problem.m, rows) and Facts.proven(problem.n, columns):
        return ""
    return Binary("&&", Binary("<", ROW, ROWS), Binary("<", COLUMN, COLUMNS))
