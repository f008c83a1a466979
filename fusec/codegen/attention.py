"""The view of the attention template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusec.codegen.attention_rows import RowEnd, emit_row_end
from fusec.codegen.attention_scores import emit_scores, give_sums, taken
from fusec.codegen.attention_view import AttentionView
from fusec.codegen.matmul_names import c_names, renamed
from fusec.codegen.matmul_view import EpilogueView, OperandView
from fusec.codegen.product_text import (
    INDEX,
    THREADS,
    TILE_BATCH,
    boolean,
    constant,
    coordinates,
    element,
    integer,
    shared_memory,
    using,
)
from fusec.codegen.render import Parameter
from fusec.codegen.views import StorePlan, emit_store, head, plan_stores
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import F32
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nest import Alias, Scope, StoreKind
from fusec.kernel.nodes import INT, Expression, Raw, Statement
from fusec.schedule.attention import AttentionPlan
from fusec.schedule.attention_choice import AttentionKernel, AttentionParameters
from fusec.schedule.attention_maps import batch_axes
from fusec.schedule.attention_masks import MOST_ROWS, Bound, masks_of, unmasked
from fusec.schedule.attention_part import Part
from fusec.schedule.attention_problem import Attention, Softmax, find_attention, find_softmax
from fusec.schedule.attention_scale import without_scale
from fusec.schedule.matmul_operand import BATCH, Operand

RESERVED = frozenset([
    "Config", "Index", "M", "N", "Scores", "Sums", "acc", "batch", "batches", "chunk", "column",
    "e", "finish", "finish_row", "first", "first_m", "first_row", "i", "index", "kOutWidth",
    "kWidth", "key", "keys_seen", "lane_row", "last", "lower", "m", "n", "own", "place", "row",
    "rows", "s", "scale", "score", "score_seen", "scores", "seen", "shared", "sums", "tile",
    "tile_m", "tile_rows", "tiles", "top", "total", "turns", "upper", "visit", "warp_m",
    "warpgroup",
])  # fmt: skip
"""Names that the template gives to its own constants and variables."""
OUT_WIDTH = 2
"""Neighbouring features that a thread has, as the tensor cores leave them."""
ROW_TEST = "m < M && threadIdx.x % 4 == 0"
"""Holds in one thread of each query: four have a row's sums, and tiles may pass the last query."""


@dataclass(frozen=True)
class _Context:
    """A plan's problem in C names."""

    fusion: Fusion
    attention: Attention
    parameters: AttentionParameters
    names: Mapping[str, str]
    facts: Facts

    @property
    def has_batches(self) -> bool:
        """Return whether there are several batches."""
        return self.attention.batches != 1


def view(plan: AttentionPlan, kernel: AttentionKernel) -> AttentionView:
    """Return the view of an attention kernel."""
    parameters, names = plan.parameters, c_names(kernel, RESERVED)
    fusion = renamed(plan.fusion, names)
    attention = find_attention(fusion)
    assert isinstance(attention, Attention)
    context = _Context(fusion, attention, parameters, names, Facts(fusion.hints))
    maps = [names[m] for m in kernel.map_names]
    operands = (attention.queries, attention.keys, attention.values)
    queries, keys, values = (operand_view(o, m) for o, m in zip(operands, maps, strict=True))
    rows = _rows(context)
    scores = _scores(context)
    batch = "tile.batch, " if context.has_batches else ""
    return AttentionView(
        **{  # pyright: ignore[reportArgumentType]
            **head(plan, kernel),
            "parameters": tuple(Parameter(a, identifier(names[a.name])) for a in kernel.arguments),
        },
        schedule=_sentence(attention, parameters),
        config=_config(context, kernel),
        constants=_constants(attention),
        index_type="fusec::i64" if parameters.wide_index else "int",
        queries=queries,
        keys=keys,
        values=values,
        bounds=tuple(_limit(b) for b in attention.bounds),
        score_lines=scores.lines,
        scale=scores.scale,
        score=scores.masked,
        seen=scores.seen,
        has_masks=scores.seen != scores.masked,
        score_reads=scores.reads,
        row_parameters=_parameters(context, "Index m"),
        row_lines=rows.lines,
        row_stores=rows.stores,
        row_factor=rows.factor,
        row_test=ROW_TEST,
        row_reads=rows.reads,
        row_first=f"{batch}first_m",
        row_second=f"{batch}first_m + 8",
        output=_output(context),
        has_batches=context.has_batches,
    )


def _sentence(attention: Attention, p: AttentionParameters) -> str:
    batch = "" if attention.batches == 1 else f"{attention.batches} times "
    groups = "one warpgroup" if p.warpgroups == 1 else f"{p.warpgroups} warpgroups"
    turns = " in ping-pong" if p.ping_pong else ""
    return (
        f"Schedule: {batch}{attention.m} queries in tiles of {p.rows}, {attention.n} keys in tiles "
        f"of {p.tile_keys}, one CTA per SM over all tiles, {groups}{turns}."
    )


def operand_view(operand: Operand, map_name: str) -> OperandView:
    axes = (axis.index for axis in batch_axes(operand))
    return OperandView(operand.buffer.name, map_name, coordinates(axes, TILE_BATCH))


def _config(context: _Context, kernel: AttentionKernel) -> tuple[Statement, ...]:
    attention, p = context.attention, context.parameters
    last_first = any(b.is_end and b.by_row for b in attention.bounds)
    return (
        using("T", storage_type(attention.dtype), "of queries, keys, values and weights"),
        integer("kFeatures", attention.features.value, "of a query, and of a key"),
        integer("kValueFeatures", attention.value_features.value, "of a value"),
        integer("kRows", p.rows, "queries of a tile"),
        integer("kKeys", p.tile_keys, "keys of a stage"),
        integer("kStages", p.stages, "stages in flight"),
        integer("kConsumers", p.warpgroups, "warpgroups of 64 queries each; one more loads"),
        integer("kTurns", p.warpgroups if p.ping_pong else 1, "that alternate at the tensor cores"),
        THREADS,
        integer("kProducerRegisters", p.producer_registers, "of a thread that loads"),
        integer("kConsumerRegisters", p.consumer_registers, "of a thread that multiplies"),
        boolean("kLastFirst", last_first, "tiles of queries"),
        *shared_memory(kernel.layout.constants),
    )


def _constants(attention: Attention) -> tuple[Statement, ...]:
    return (
        constant(INDEX, "M", attention.m),
        constant(INDEX, "N", attention.n),
        constant(INT, "batches", attention.batches),
    )


def _limit(bound: Bound) -> str:
    """Return the line that narrows the keys seen."""
    some, every = ("last", "first") if bound.is_end else ("first", "last")
    method = "end_at" if bound.is_end else "begin_at"
    offset = bound.offset + (1 if bound.is_end else 0)
    texts = [counted(name if bound.by_row else "", offset) for name in (some, every)]
    return f"seen.{method}({', '.join(texts)});"


def bound_test(bound: Bound, width: int) -> Expression:
    """Return whether the query sees a key."""
    sign = "<=" if bound.is_end else ">="
    key = "n + i" if width > 1 else "n"
    return Raw(f"{key} {sign} {counted('m' if bound.by_row else '', bound.offset)}", 9)


def counted(name: str, offset: Dim) -> str:
    """Return a position, or 0, and an offset: beyond all positions, it does not matter how far."""
    if offset.is_const:
        offset = dim(max(-MOST_ROWS, min(offset.value, MOST_ROWS)))
    if name and offset == 0:
        return name
    known = dim(sum(c for monomial, c in offset.terms if not monomial))
    parts = [name] if name else []
    if not offset.is_const:
        parts.append(f"fusec::offset_of({dim_text(offset - known)})")
    if known != 0 or not parts:
        parts.append(dim_text(known).text)
    return " + ".join(parts).replace("+ -", "- ")


def _parameters(context: _Context, own: str) -> str:
    return f"Index batch, {own}" if context.has_batches else own


def _emitter(
    context: _Context, part: Part, width: int, scopes: Sequence[str], stored_under: str = ""
) -> Emitter:
    """Return an emitter of a graph; scopes: those inside of a query's."""
    axes = part.axes(width)
    binds = {"vector": frozenset({axes.chunk}), "lane": frozenset({axes.lane})}
    return Emitter(
        (
            Scope("kernel", frozenset()),
            Scope("batch", frozenset({Var(BATCH, context.attention.batches)})),
            Scope("row", frozenset({axes.row})),
            *(Scope(name, binds.get(name, frozenset())) for name in scopes),
        ),
        Names([*context.names.values(), *RESERVED]),
        context.facts,
        lane=axes.lane if width > 1 else None,
        width=width,
        aliases={axes.chunk: Alias("n", width)},
        written=context.fusion.effects.overwritten,
        wide=context.parameters.wide_index,
        width_name="kWidth" if part is context.attention.scores else "kOutWidth",
        stored_under=stored_under,
    )


def _softmax(context: _Context, width: int) -> tuple[Softmax, tuple[StorePlan, ...]]:
    """Return the softmax in loop variables, and where a query's own outputs are stored."""
    attention = context.attention
    lowering = attention.scores.lowering(width)
    softmax = find_softmax(attention.scores, attention.weights, lowering)
    assert isinstance(softmax, Softmax)
    return softmax, plan_stores(lowering, attention.rows, StoreKind.GUARDED)


@dataclass(frozen=True)
class _Scores:
    """The graph of scores, masked and where all keys are seen, and what both have in common.

    scale: what scores are to be multiplied by. reads: whether they read memory for each query or
    key.
    """

    lines: tuple[Statement, ...]
    scale: str
    masked: EpilogueView
    seen: EpilogueView
    reads: bool


def _scores(context: _Context) -> _Scores:
    """Return the graph of scores, and the same where all keys are seen."""
    part, width = context.attention.scores, context.parameters.vector_width
    scores, factor = without_scale(_softmax(context, width)[0].scores)
    masked = _emitter(context, part, width, ("vector", "lane"))
    seen = _emitter(context, part, width, ("vector", "lane"))
    whole = unmasked(scores, part.axes(width))
    for bound, test in masks_of(scores, part.axes(width)):
        masked.given[test] = bound_test(bound, width)
    graph = _graph_of_scores(context, masked, scores)
    for instance in instances_under([whole]):
        if not instance.variables and instance.kind in ("op", "load", "select"):
            seen.given.setdefault(instance, masked.ref(instance, 0))
    loads = [i for i in instances_under([scores]) if i.kind == "load" and i.variables]
    scale = "1.0f" if factor is None else str(masked.convert(factor, F32, 0))
    return _Scores(
        taken(masked, "kernel"),
        scale,
        graph,
        _graph_of_scores(context, seen, whole),
        any(i not in masked.cached for i in loads),
    )


def _graph_of_scores(context: _Context, emitter: Emitter, scores: Instance) -> EpilogueView:
    emit_scores(emitter, context.attention.scores, scores)
    return EpilogueView(
        emitter.width,
        *element(has_batches=context.has_batches),
        taken(emitter, "batch", "row", "vector"),
        emitter.take(0, "lane"),
        (),
    )


def _rows(context: _Context) -> RowEnd:
    softmax, plans = _softmax(context, 1)
    emitter = _emitter(context, context.attention.scores, 1, ("store",), ROW_TEST)
    return emit_row_end(emitter, softmax, plans)


def _output(context: _Context) -> EpilogueView:
    part = context.attention.outputs
    lowering = part.lowering(OUT_WIDTH)
    emitter = _emitter(context, part, OUT_WIDTH, ("vector", "lane"), "m < M")
    plans = plan_stores(lowering, part.epilogue.fusion.outputs, emitter.store_kind)
    give_sums(emitter, part, [p.instance for p in plans])
    for plan in plans:
        emit_store(emitter, plan, 0)
    return EpilogueView(
        OUT_WIDTH,
        *element(has_batches=context.has_batches),
        taken(emitter, "kernel", "batch", "row", "vector"),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
        stored_under=emitter.stored_under,
    )
