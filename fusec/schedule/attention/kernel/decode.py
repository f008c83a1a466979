"""The statements of decode attention."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim
from fusec.ir.dtype import I64
from fusec.ir.expression import Var
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.products import INDEX, boolean, constant, integer, shared_memory, using
from fusec.kernel.lowering.stores import plan_stores
from fusec.kernel.nodes import Name, Statement, Sum, operand
from fusec.schedule.attention.decode.choice import DecodeKernel, DecodeParameters, spelled_layout
from fusec.schedule.attention.decode.family import DecodePlan
from fusec.schedule.attention.decode.problem import KEY, Decode, find_decode, start_of
from fusec.schedule.attention.kernel.frame import Frame, Scopes, frame_of, neighbours
from fusec.schedule.attention.kernel.limits import counted, narrowed
from fusec.schedule.attention.kernel.names import DECODE
from fusec.schedule.attention.kernel.records import (
    FusedNodes,
    GraphNodes,
    RowNodes,
    RowsNodes,
    ScoresNodes,
)
from fusec.schedule.attention.kernel.rows import emit_row_end
from fusec.schedule.attention.kernel.scores import (
    emit_outputs,
    emit_scores,
    graph_of,
    scale_of,
    taken,
)
from fusec.schedule.attention.masks import Bound, Limit
from fusec.schedule.attention.part import Part
from fusec.schedule.attention.scale import without_scale

_VALUE_FEATURES = "Config::kValueFeatures"
OUT_WIDTH = 4
"""Neighbouring features that a thread combines; all feature counts are multiples of 16."""
_ROW_TEST = Name("stores")
"""True in the thread that has a query's first features; all threads compute the row statistics."""


@dataclass(frozen=True)
class Context:
    """A plan's problem in C names, with the frame around its graphs."""

    frame: Frame
    decode: Decode
    parameters: DecodeParameters


def context_of(plan: DecodePlan, kernel: DecodeKernel) -> Context:
    """Return a plan's problem in C names."""
    frame = frame_of(plan, kernel, DECODE, wide=plan.parameters.wide_index)
    decode = find_decode(frame.fusion)
    assert isinstance(decode, Decode)
    return Context(frame, decode, plan.parameters)


@dataclass(frozen=True, kw_only=True)
class DecodeNodes(FusedNodes):
    """A kernel of decode attention.

    queries: rows of a query `m` of a head `g`; keys, values: those of key `n`. row: the end of a
    query. output: the graph on the second GEMM.
    """

    queries: RowsNodes
    keys: RowsNodes
    values: RowsNodes
    scores: ScoresNodes
    row: RowNodes
    output: GraphNodes


def nodes_of(context: Context, kernel: DecodeKernel) -> DecodeNodes:
    """Return the statements of a decode attention kernel."""
    decode, graph = context.decode, context.decode.graph
    own, of_values = {"Config::kFeatures": graph.features}, {_VALUE_FEATURES: graph.value_features}
    each = enumerate((own, own, of_values))
    queries, keys, values = (_operand(context, number, sizes) for number, sizes in each)
    scores, bounds = _scores(context)
    return DecodeNodes(
        config=_config(context, kernel),
        constants=(constant(INDEX, "N", graph.n),),
        queries=queries,
        keys=keys,
        values=values,
        bounds=(*(_bound(b, decode.queries) for b in graph.bounds), *bounds),
        scores=scores,
        row=_rows(context),
        output=_output(context),
    )


def _config(context: Context, kernel: DecodeKernel) -> tuple[Statement, ...]:
    decode, p = context.decode, context.parameters
    assert decode.rounded is not None
    kind = storage_type(decode.rounded.dtype)
    return (
        using("T", kind, "of queries, keys, values and weights"),
        integer("kFeatures", decode.graph.features.value, "of queries and keys"),
        integer("kValueFeatures", decode.graph.value_features.value, "of values"),
        integer("kQueries", decode.queries, "queries per head"),
        integer("kRows", decode.rows, "queries that share keys and values"),
        boolean("kSharedQueries", kernel.layout.queries > 0, "queries are in shared memory"),
        integer("kKeys", p.tile_keys, "keys per tile"),
        integer("kStages", p.stages, "tiles in flight per warp"),
        integer("kWarps", p.warps),
        integer("kThreads", operand(32) * "kWarps"),
        integer("kSplits", p.splits, "blocks that split the keys"),
        boolean("kStreaming", p.streaming, "L2 evict-first for keys and values"),
        *shared_memory(spelled_layout(p, decode)),
    )


def _scopes(context: Context) -> Scopes:
    """Return the scopes around the per-query computations."""
    decode = context.decode
    return ("batch", frozenset({decode.batch})), ("row", decode.row_variables)


def _emitter(context: Context, part: Part, width: int) -> Emitter:
    """Return an emitter of a graph on neighbouring columns of a row."""
    axes, graph = context.decode.axes(part, width), context.decode.graph
    width_name = "kWidth" if part is graph.scores else "kOutWidth"
    scopes = (*_scopes(context), *neighbours(axes))
    sizes = {"N": graph.n}
    if part is not graph.scores:
        sizes = {_VALUE_FEATURES: graph.value_features}
    return context.frame.emitter(scopes, axes, width_name, sizes=sizes)


def _operand(context: Context, number: int, sizes: Mapping[str, Dim]) -> RowsNodes:
    """Return the row addresses of an operand; sizes: constants that strides may consist of."""
    rows = context.decode.operand(number)
    assert not isinstance(rows, Refusal)
    start = start_of(rows, context.frame.facts)
    assert start is not None
    batch, (row, variables) = _scopes(context)
    inside = variables | {Var(KEY, context.decode.graph.n)}
    emitter = context.frame.emitter((batch, (row, inside)), sizes=sizes)
    with emitter.indexed_by(rows.gathered):
        pointer = emitter.pointer(rows.name, start, 0)
    return RowsNodes(taken(emitter, "kernel", "batch", "row"), pointer)


def _bound(bound: Bound, queries: int) -> Statement:
    """Return the statement that narrows the range of keys seen by any query of a head."""
    offset = bound.offset
    if bound.is_end:
        offset += queries if bound.by_row else 1
    return narrowed(counted("", offset), is_end=bound.is_end)


def _scores(context: Context) -> tuple[ScoresNodes, tuple[Statement, ...]]:
    """Return the graph of scores, and the statements of limits that are data."""
    decode, width = context.decode, context.parameters.vector_width
    part = decode.graph.scores
    whole = decode.softmax(width).scores
    scores, factor = without_scale(whole)
    emitter = _emitter(context, part, width)
    emit_scores(emitter, part, scores)
    scale = scale_of(emitter, factor)
    bounds = tuple(_limit(emitter, limit) for limit in decode.limits(whole, width))
    graph = graph_of(emitter, "row", "vector")
    return ScoresNodes(taken(emitter, "kernel", "batch"), scale, graph), bounds


def _limit(emitter: Emitter, limit: Limit) -> Statement:
    """Return the statement that narrows the range of visible keys by a limit that is data."""
    at = emitter.convert(limit.at, I64, 0)
    if limit.offset:
        at = Sum((at, operand(limit.offset)))
    return narrowed(at, is_end=limit.is_end)


def _rows(context: Context) -> RowNodes:
    decode = context.decode
    scopes = (*_scopes(context), ("store", frozenset[Var]()))
    emitter = context.frame.emitter(scopes, stored_under=_ROW_TEST)
    lowering = decode.lowering(decode.graph.scores, 1)
    plans = plan_stores(lowering, decode.graph.rows, emitter.store_kind)
    return emit_row_end(emitter, decode.softmax(1), plans)


def _output(context: Context) -> GraphNodes:
    decode = context.decode
    part = decode.graph.outputs
    emitter = _emitter(context, part, OUT_WIDTH)
    return emit_outputs(emitter, part, decode.lowering(part, OUT_WIDTH))
