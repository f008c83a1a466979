"""The view of the template of decoding attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusec.codegen.attention import counted
from fusec.codegen.attention_decode_view import AttentionDecodeView, RowsView
from fusec.codegen.attention_rows import RowEnd, emit_row_end
from fusec.codegen.attention_scores import emit_scores, give_sums, taken
from fusec.codegen.matmul_names import c_names, renamed
from fusec.codegen.matmul_view import EpilogueView
from fusec.codegen.product_text import INDEX, boolean, constant, integer, shared_memory, using
from fusec.codegen.render import Parameter
from fusec.codegen.views import emit_store, head, plan_stores
from fusec.index.access import Facts
from fusec.index.domain import Refusal
from fusec.ir.dtype import F32, I64
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nest import Alias, Scope
from fusec.kernel.nodes import INT, Listed, Statement, operand
from fusec.kernel.nodes import Parameter as Typed
from fusec.schedule.attention_decode import DecodePlan
from fusec.schedule.attention_decode_choice import DecodeKernel, DecodeParameters
from fusec.schedule.attention_decode_problem import KEY, Decode, find_decode, start_of
from fusec.schedule.attention_masks import Bound, Limit
from fusec.schedule.attention_part import Part
from fusec.schedule.attention_problem import Source
from fusec.schedule.attention_scale import without_scale

RESERVED = frozenset([
    "BlockParts", "Config", "Index", "N", "Scores", "Sums", "WarpParts", "Whole", "acc", "batch",
    "chunk", "column", "e", "factor", "feature", "finish", "finish_part", "finish_row", "first",
    "g", "i", "kOutWidth", "kWidth", "key", "load_keys", "load_values", "m", "n", "parts",
    "queries", "query", "r", "row", "s", "scale", "scale_log2", "score", "scores", "seen", "shared",
    "split", "stage", "stores", "sums", "tiles", "to", "top", "total", "value", "visit", "warps",
    "whole",
])  # fmt: skip
"""Names that the template gives to its own constants and variables."""
OUT_WIDTH = 4
"""Neighbouring features that a thread combines; these are multiples of 16."""
_ELEMENT = Listed(
    (
        Typed(INDEX, "batch"),
        Typed(INT, "g"),
        Typed(INT, "m"),
        Typed(INDEX, "n"),
    )
)
"""What a score, or a feature, is of."""
ROW_TEST = "stores"
"""Holds in the thread with a query's first features: all that have some call for the row's end."""


@dataclass(frozen=True)
class _Context:
    """A plan's problem in C names."""

    fusion: Fusion
    decode: Decode
    parameters: DecodeParameters
    names: Mapping[str, str]
    facts: Facts


def view(plan: DecodePlan, kernel: DecodeKernel) -> AttentionDecodeView:
    """Return the view of a kernel of a decoding attention."""
    parameters, names = plan.parameters, c_names(kernel, RESERVED)
    fusion = renamed(plan.fusion, names)
    decode = find_decode(fusion)
    assert isinstance(decode, Decode)
    context = _Context(fusion, decode, parameters, names, Facts(fusion.hints))
    queries, keys, values = (_operand(context, s) for s in decode.graph.sources)
    rows, scores = _rows(context), _scores(context)
    spaces = [names[w.name] for w in plan.workspaces]
    return AttentionDecodeView(
        **{  # pyright: ignore[reportArgumentType]
            **head(plan, kernel),
            "parameters": tuple(Parameter(a, identifier(names[a.name])) for a in kernel.arguments),
        },
        schedule=_sentence(decode, parameters),
        config=_config(context, kernel),
        constants=(constant(INDEX, "N", decode.graph.n),),
        index_type="fusec::i64" if parameters.wide_index else "int",
        queries=queries,
        keys=keys,
        values=values,
        bounds=(*(_bound(b, decode.queries) for b in decode.graph.bounds), *scores.bounds),
        score_lines=scores.lines,
        scale=scores.scale,
        score=scores.graph,
        row_parameters="Index batch, int g, int m, bool stores",
        row_lines=rows.lines,
        row_stores=rows.stores,
        row_factor=rows.factor,
        row_test=ROW_TEST,
        output=_output(context),
        partials=identifier(spaces[0]) if spaces else "",
        arrived=identifier(spaces[1]) if spaces else "",
    )


def _sentence(decode: Decode, p: DecodeParameters) -> str:
    each = f"{decode.rows} queries" if decode.rows > 1 else "one query"
    shared = f", which {p.splits} blocks share" if p.splits > 1 else ""
    return (
        f"Schedule: {decode.batches} times {each}{shared}, {decode.graph.n} keys in tiles of "
        f"{p.tile_keys}, {p.warps} warps with {p.stages} stages each."
    )


def _config(context: _Context, kernel: DecodeKernel) -> tuple[Statement, ...]:
    decode, p, layout = context.decode, context.parameters, kernel.layout
    assert decode.rounded is not None
    kind = storage_type(decode.rounded.dtype)
    places = [
        ("kKeyBytes", layout.keys, "the keys of a stage; its values follow"),
        ("kStageBytes", layout.stage, ""),
    ]
    if layout.queries:
        places.append(("kQueriesAt", layout.queries, "the queries"))
    return (
        using("T", kind, "of queries, keys, values and weights"),
        integer("kFeatures", decode.graph.features.value, "of a query, and of a key"),
        integer("kValueFeatures", decode.graph.value_features.value, "of a value"),
        integer("kQueries", decode.queries, "queries of a head"),
        integer("kRows", decode.rows, "queries that share keys and values"),
        boolean("kSharedQueries", layout.queries > 0, "queries are in shared memory"),
        integer("kKeys", p.tile_keys, "keys of a tile"),
        integer("kStages", p.stages, "tiles of a warp in flight"),
        integer("kWarps", p.warps),
        integer("kThreads", operand(32) * "kWarps"),
        integer("kSplits", p.splits, "blocks that share queries"),
        boolean("kStreaming", p.streaming, "keys and values are the first to leave L2"),
        *shared_memory(places),
    )


def _emitter(
    context: _Context,
    names: Names,
    scopes: Sequence[tuple[str, frozenset[Var]]],
    part: Part | None = None,
    width: int = 1,
    stored_under: str = "",
) -> Emitter:
    """Return an emitter; scopes: those inside of a batch; part: whose columns it is for."""
    lane, aliases, width_name = None, {}, "kWidth"
    if part is not None:
        axes = context.decode.axes(part, width)
        lane = axes.lane if width > 1 else None
        aliases = {axes.chunk: Alias(KEY, width)}
        width_name = "kWidth" if part is context.decode.graph.scores else "kOutWidth"
    return Emitter(
        (
            Scope("kernel", frozenset()),
            Scope("batch", frozenset({context.decode.batch})),
            *(Scope(name, variables) for name, variables in scopes),
        ),
        names,
        context.facts,
        lane=lane,
        width=width,
        aliases=aliases,
        written=context.fusion.effects.overwritten,
        wide=context.parameters.wide_index,
        width_name=width_name,
        stored_under=stored_under,
    )


def _names(context: _Context) -> Names:
    return Names([*context.names.values(), *RESERVED])


def _columns(context: _Context, part: Part, width: int) -> Emitter:
    """Return an emitter of a graph on neighbours of a row."""
    axes = context.decode.axes(part, width)
    rows = context.decode.row_variables
    scopes = (
        ("row", rows), ("vector", frozenset({axes.chunk})), ("lane", frozenset({axes.lane})),
    )  # fmt: skip
    return _emitter(context, _names(context), scopes, part, width)


def _operand(context: _Context, source: Source) -> RowsView:
    """Return where an operand's rows begin."""
    operand = context.decode.operand(source)
    assert not isinstance(operand, Refusal)
    start = start_of(operand, context.facts)
    assert start is not None
    inside = {*context.decode.row_variables, Var(KEY, context.decode.graph.n)}
    emitter = _emitter(context, _names(context), (("row", frozenset(inside)),))
    with emitter.indexed_by(operand.gathered):
        pointer = emitter.pointer(operand.name, start, 0)
    return RowsView(taken(emitter, "kernel", "batch", "row"), pointer)


def _bound(bound: Bound, queries: int) -> str:
    """Return the line that narrows the keys which some query of a head sees."""
    if bound.is_end:
        last = queries - 1 if bound.by_row else 0
        return f"seen.end_at({counted('', bound.offset + (last + 1))});"
    return f"seen.begin_at({counted('', bound.offset)});"


@dataclass(frozen=True)
class _Scores:
    """The graph of scores, what it has in common, its factor, and the limits that are data."""

    lines: tuple[Statement, ...]
    scale: str
    graph: EpilogueView
    bounds: tuple[Statement, ...]


def _scores(context: _Context) -> _Scores:
    decode, width = context.decode, context.parameters.vector_width
    part = decode.graph.scores
    whole = decode.softmax(width).scores
    scores, factor = without_scale(whole)
    emitter = _columns(context, part, width)
    emit_scores(emitter, part, scores)
    scale = "1.0f" if factor is None else str(emitter.convert(factor, F32, 0))
    bounds = tuple(_limit(emitter, limit) for limit in decode.limits(whole, width))
    graph = EpilogueView(
        width,
        _ELEMENT,
        Listed(),
        taken(emitter, "row", "vector"),
        emitter.take(0, "lane"),
        (),
    )
    return _Scores(taken(emitter, "kernel", "batch"), scale, graph, bounds)


def _limit(emitter: Emitter, limit: Limit) -> str:
    """Return the line that narrows the keys seen by what is data."""
    method, at = "end_at" if limit.is_end else "begin_at", emitter.convert(limit.at, I64, 0)
    if not limit.offset:
        return f"seen.{method}({at});"
    return f"seen.{method}({at.at_least(12)} + {limit.offset});".replace("+ -", "- ")


def _rows(context: _Context) -> RowEnd:
    decode = context.decode
    scopes = (("row", decode.row_variables), ("store", frozenset[Var]()))
    emitter = _emitter(context, _names(context), scopes, stored_under=ROW_TEST)
    lowering = decode.lowering(decode.graph.scores, 1)
    plans = plan_stores(lowering, decode.graph.rows, emitter.store_kind)
    return emit_row_end(emitter, decode.softmax(1), plans)


def _output(context: _Context) -> EpilogueView:
    decode = context.decode
    part = decode.graph.outputs
    lowering = decode.lowering(part, OUT_WIDTH)
    emitter = _columns(context, part, OUT_WIDTH)
    plans = plan_stores(lowering, part.epilogue.fusion.outputs, emitter.store_kind)
    give_sums(emitter, part, [p.instance for p in plans])
    for plan in plans:
        emit_store(emitter, plan, 0)
    return EpilogueView(
        OUT_WIDTH,
        _ELEMENT,
        Listed(),
        taken(emitter, "kernel", "batch", "row", "vector"),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
    )
