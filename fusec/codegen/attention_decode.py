"""The view of the template of decoding attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusec.codegen.attention_decode_view import AttentionDecodeView, RowsView
from fusec.codegen.attention_frame import Frame, Scopes, frame_of, neighbours
from fusec.codegen.attention_limits import counted, narrowed
from fusec.codegen.attention_rows import emit_row_end
from fusec.codegen.attention_scores import emit_outputs, emit_scores, graph_of, scale_of, taken
from fusec.codegen.attention_view import GraphView, RowView, ScoresView
from fusec.codegen.product_text import INDEX, boolean, constant, integer, shared_memory, using
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim
from fusec.ir.dtype import I64
from fusec.ir.expression import Var
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nodes import Name, Statement, Sum, operand
from fusec.kernel.stores import plan_stores
from fusec.schedule.attention_decode import DecodePlan
from fusec.schedule.attention_decode_choice import (
    DecodeKernel,
    DecodeParameters,
    spelled_layout,
)
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
_VALUE_FEATURES = "Config::kValueFeatures"
OUT_WIDTH = 4
"""Neighbouring features that a thread combines; these are multiples of 16."""
_ROW_TEST = Name("stores")
"""Holds in the thread with a query's first features: all that have some call for the row's end."""


@dataclass(frozen=True)
class _Context:
    """A plan's problem in C names, and what stands around its graphs."""

    frame: Frame
    decode: Decode
    parameters: DecodeParameters


def view(plan: DecodePlan, kernel: DecodeKernel) -> AttentionDecodeView:
    """Return the view of a kernel of a decoding attention."""
    parameters = plan.parameters
    frame = frame_of(plan, kernel, RESERVED, wide=parameters.wide_index)
    decode = find_decode(frame.fusion)
    assert isinstance(decode, Decode)
    context = _Context(frame, decode, parameters)
    graph = decode.graph
    own, of_values = {"Config::kFeatures": graph.features}, {_VALUE_FEATURES: graph.value_features}
    each = zip(graph.sources, (own, own, of_values), strict=True)
    queries, keys, values = (_operand(context, source, sizes) for source, sizes in each)
    scores, bounds = _scores(context)
    spaces = [identifier(frame.names[w.name]) for w in plan.workspaces]
    return AttentionDecodeView(
        **frame.head,  # pyright: ignore[reportArgumentType]
        schedule=_sentence(decode, parameters),
        config=_config(context, kernel),
        constants=(constant(INDEX, "N", decode.graph.n),),
        queries=queries,
        keys=keys,
        values=values,
        bounds=(*(_bound(b, decode.queries) for b in decode.graph.bounds), *bounds),
        scores=scores,
        row=_rows(context),
        output=_output(context),
        partials=spaces[0] if spaces else "",
        arrived=spaces[1] if spaces else "",
    )


def _sentence(decode: Decode, p: DecodeParameters) -> str:
    each = f"{decode.rows} queries" if decode.rows > 1 else "one query"
    shared = f", which {p.splits} blocks share" if p.splits > 1 else ""
    return (
        f"Schedule: {decode.batches} times {each}{shared}, {decode.graph.n} keys in tiles of "
        f"{p.tile_keys}, {p.warps} warps with {p.stages} stages each."
    )


def _config(context: _Context, kernel: DecodeKernel) -> tuple[Statement, ...]:
    decode, p = context.decode, context.parameters
    assert decode.rounded is not None
    kind = storage_type(decode.rounded.dtype)
    return (
        using("T", kind, "of queries, keys, values and weights"),
        integer("kFeatures", decode.graph.features.value, "of a query, and of a key"),
        integer("kValueFeatures", decode.graph.value_features.value, "of a value"),
        integer("kQueries", decode.queries, "queries of a head"),
        integer("kRows", decode.rows, "queries that share keys and values"),
        boolean("kSharedQueries", kernel.layout.queries > 0, "queries are in shared memory"),
        integer("kKeys", p.tile_keys, "keys of a tile"),
        integer("kStages", p.stages, "tiles of a warp in flight"),
        integer("kWarps", p.warps),
        integer("kThreads", operand(32) * "kWarps"),
        integer("kSplits", p.splits, "blocks that share queries"),
        boolean("kStreaming", p.streaming, "keys and values are the first to leave L2"),
        *shared_memory(spelled_layout(p, decode)),
    )


def _scopes(context: _Context) -> Scopes:
    """Return the scopes around what is computed of a query."""
    decode = context.decode
    return ("batch", frozenset({decode.batch})), ("row", decode.row_variables)


def _emitter(context: _Context, part: Part, width: int) -> Emitter:
    """Return an emitter of a graph on neighbours of a row."""
    axes, graph = context.decode.axes(part, width), context.decode.graph
    width_name = "kWidth" if part is graph.scores else "kOutWidth"
    scopes = (*_scopes(context), *neighbours(axes))
    sizes = {"N": graph.n}
    if part is not graph.scores:
        sizes = {_VALUE_FEATURES: graph.value_features}
    return context.frame.emitter(scopes, axes, width_name, sizes=sizes)


def _operand(context: _Context, source: Source, sizes: Mapping[str, Dim]) -> RowsView:
    """Return where an operand's rows begin; sizes: what strides may be made of."""
    rows = context.decode.operand(source)
    assert not isinstance(rows, Refusal)
    start = start_of(rows, context.frame.facts)
    assert start is not None
    batch, (row, variables) = _scopes(context)
    inside = variables | {Var(KEY, context.decode.graph.n)}
    emitter = context.frame.emitter((batch, (row, inside)), sizes=sizes)
    with emitter.indexed_by(rows.gathered):
        pointer = emitter.pointer(rows.name, start, 0)
    return RowsView(taken(emitter, "kernel", "batch", "row"), pointer)


def _bound(bound: Bound, queries: int) -> Statement:
    """Return the statement that narrows the keys which some query of a head sees."""
    offset = bound.offset
    if bound.is_end:
        offset += queries if bound.by_row else 1
    return narrowed(counted("", offset), is_end=bound.is_end)


def _scores(context: _Context) -> tuple[ScoresView, tuple[Statement, ...]]:
    """Return the graph of scores, and the limits that are data."""
    decode, width = context.decode, context.parameters.vector_width
    part = decode.graph.scores
    whole = decode.softmax(width).scores
    scores, factor = without_scale(whole)
    emitter = _emitter(context, part, width)
    emit_scores(emitter, part, scores)
    scale = scale_of(emitter, factor)
    bounds = tuple(_limit(emitter, limit) for limit in decode.limits(whole, width))
    graph = graph_of(emitter, "row", "vector")
    return ScoresView(taken(emitter, "kernel", "batch"), scale, graph), bounds


def _limit(emitter: Emitter, limit: Limit) -> Statement:
    """Return the statement that narrows the keys seen by what is data."""
    at = emitter.convert(limit.at, I64, 0)
    if limit.offset:
        at = Sum((at, operand(limit.offset)))
    return narrowed(at, is_end=limit.is_end)


def _rows(context: _Context) -> RowView:
    decode = context.decode
    scopes = (*_scopes(context), ("store", frozenset[Var]()))
    emitter = context.frame.emitter(scopes, stored_under=_ROW_TEST)
    lowering = decode.lowering(decode.graph.scores, 1)
    plans = plan_stores(lowering, decode.graph.rows, emitter.store_kind)
    return emit_row_end(emitter, decode.softmax(1), plans)


def _output(context: _Context) -> GraphView:
    decode = context.decode
    part = decode.graph.outputs
    emitter = _emitter(context, part, OUT_WIDTH)
    return emit_outputs(emitter, part, decode.lowering(part, OUT_WIDTH))
