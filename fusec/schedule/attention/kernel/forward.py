"""The statements of attention."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance, instances_under
from fusec.ir.dim import Dim
from fusec.kernel.ctext import storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import StoreKind
from fusec.kernel.lowering.products import (
    INDEX,
    ROW,
    ROWS,
    THREADS,
    TILE_BATCH,
    boolean,
    constant,
    coordinates,
    integer,
    shared_memory,
    using,
)
from fusec.kernel.lowering.stores import StorePlan, plan_stores
from fusec.kernel.nodes import INT, THREAD_X, ZERO, Binary, Statement
from fusec.schedule.attention.forward.choice import (
    AttentionKernel,
    AttentionParameters,
    spelled_layout,
)
from fusec.schedule.attention.forward.family import AttentionPlan
from fusec.schedule.attention.forward.problem import (
    Attention,
    Softmax,
    find_attention,
    find_softmax,
)
from fusec.schedule.attention.kernel.frame import Frame, frame_of, neighbours, row_scopes
from fusec.schedule.attention.kernel.limits import bound_test, narrowed_by_rows
from fusec.schedule.attention.kernel.names import FORWARD
from fusec.schedule.attention.kernel.records import (
    FusedNodes,
    GraphNodes,
    RowNodes,
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
from fusec.schedule.attention.maps import batch_axes
from fusec.schedule.attention.masks import Bound, masks_of, unmasked
from fusec.schedule.attention.part import Part
from fusec.schedule.attention.scale import without_scale
from fusec.schedule.matmul.kernel.records import OperandNodes
from fusec.schedule.matmul.operands.operand import Operand

OUT_WIDTH = 2
"""Neighbouring features per thread in the accumulator layout of the tensor cores."""
_IS_QUERY = Binary("<", ROW, ROWS)
"""Tiles may extend past the last query."""
_ROW_TEST = Binary("&&", _IS_QUERY, Binary("==", THREAD_X % 4, ZERO))
"""True in one thread per query: four threads share a row's accumulators."""


@dataclass(frozen=True)
class Context:
    """A plan's problem in C names, with the frame around its graphs."""

    frame: Frame
    attention: Attention
    parameters: AttentionParameters


def context_of(plan: AttentionPlan, kernel: AttentionKernel) -> Context:
    """Return a plan's problem in C names."""
    frame = frame_of(plan, kernel, FORWARD, wide=plan.parameters.wide_index)
    attention = find_attention(frame.fusion)
    assert isinstance(attention, Attention)
    return Context(frame, attention, plan.parameters)


@dataclass(frozen=True, kw_only=True)
class AttentionNodes(FusedNodes):
    """An attention kernel.

    bounds: for the queries from `first` to `last`. row: the end of a query; nothing is read past
    the last one. output: the graph on the second GEMM.
    """

    queries: OperandNodes
    keys: OperandNodes
    values: OperandNodes
    scores: ScoresNodes
    row: RowNodes
    output: GraphNodes
    has_batches: bool


def nodes_of(context: Context, kernel: AttentionKernel) -> AttentionNodes:
    """Return the statements of an attention kernel."""
    attention = context.attention
    maps = [context.frame.names[m] for m in kernel.map_names]
    operands = (attention.queries, attention.keys, attention.values)
    queries, keys, values = (loaded_operand(o, m) for o, m in zip(operands, maps, strict=True))
    return AttentionNodes(
        config=_config(context, kernel),
        constants=(
            constant(INDEX, "M", attention.m),
            constant(INDEX, "N", attention.n),
            constant(INT, "batches", attention.batches),
        ),
        queries=queries,
        keys=keys,
        values=values,
        bounds=tuple(_limit(b) for b in attention.bounds),
        scores=_scores(context),
        row=_rows(context),
        output=_output(context),
        has_batches=attention.batches != 1,
    )


def loaded_operand(operand: Operand, map_name: str) -> OperandNodes:
    """Return an operand that is loaded through a tensor map."""
    axes = (axis.index for axis in batch_axes(operand))
    return OperandNodes(operand.buffer.name, map_name, coordinates(axes, TILE_BATCH))


def _config(context: Context, kernel: AttentionKernel) -> tuple[Statement, ...]:
    attention, p = context.attention, context.parameters
    last_first = any(b.is_end and b.by_row for b in attention.bounds)
    return (
        using("T", storage_type(attention.dtype), "of queries, keys, values and weights"),
        integer("kFeatures", attention.features.value, "of queries and keys"),
        integer("kValueFeatures", attention.value_features.value, "of values"),
        integer("kRows", p.rows, "queries per tile"),
        integer("kKeys", p.tile_keys, "keys per stage"),
        integer("kStages", p.stages, "stages in flight"),
        integer("kConsumers", p.warpgroups, "warpgroups with 64 queries each; one more loads"),
        integer(
            "kTurns",
            p.warpgroups if p.ping_pong else 1,
            "warpgroups that alternate",
        ),
        THREADS,
        integer("kProducerRegisters", p.producer_registers, "per producer thread"),
        integer("kConsumerRegisters", p.consumer_registers, "per consumer thread"),
        boolean("kLastFirst", last_first, "the last tiles of queries come first"),
        *shared_memory(spelled_layout(p, attention.features.value, attention.value_features.value)),
    )


def _limit(bound: Bound) -> Statement:
    """Return the statement that narrows the range of visible keys."""
    offset = bound.offset + (1 if bound.is_end else 0)
    return narrowed_by_rows(offset, is_end=bound.is_end, by_row=bound.by_row)


def _emitter(context: Context, part: Part, width: int) -> Emitter:
    """Return an emitter of a graph on neighbouring columns of a row."""
    axes, is_score = part.axes(width), part is context.attention.scores
    return context.frame.emitter(
        (*row_scopes(context.attention.batches, axes), *neighbours(axes)),
        axes,
        "kWidth" if is_score else "kOutWidth",
        None if is_score else _IS_QUERY,
        _sizes(context.attention, is_score=is_score),
    )


def _sizes(attention: Attention, *, is_score: bool) -> Mapping[str, Dim]:
    """Return the sizes that strides of scores or outputs may consist of."""
    if is_score:
        return {"N": attention.n, "M": attention.m}
    return {"Config::kValueFeatures": attention.value_features, "M": attention.m}


def _softmax(context: Context, width: int) -> tuple[Softmax, tuple[StorePlan, ...]]:
    """Return the softmax in loop variables, and the stores of per-query outputs."""
    attention = context.attention
    lowering = attention.scores.lowering(width)
    softmax = find_softmax(attention.scores, attention.weights, lowering)
    assert isinstance(softmax, Softmax)
    return softmax, plan_stores(lowering, attention.rows, StoreKind.GUARDED)


def _scores(context: Context) -> ScoresNodes:
    """Return the graph of scores, and a variant for tiles whose keys are all visible."""
    part, width = context.attention.scores, context.parameters.vector_width
    scores, factor = without_scale(_softmax(context, width)[0].scores)
    masked, seen = _emitter(context, part, width), _emitter(context, part, width)
    whole = unmasked(scores, part.axes(width))
    for bound, test in masks_of(scores, part.axes(width)):
        masked.given[test] = bound_test(bound, width)
    graph = _graph_of_scores(context, masked, scores)
    for instance in instances_under([whole]):
        if not instance.variables and instance.kind in ("op", "load", "select"):
            seen.given.setdefault(instance, masked.ref(instance, 0))
    loads = [i for i in instances_under([scores]) if i.kind == "load" and i.variables]
    everywhere = _graph_of_scores(context, seen, whole)
    return ScoresNodes(
        taken(masked, "kernel"),
        scale_of(masked, factor),
        graph,
        everywhere if everywhere != graph else None,
        any(i not in masked.cached for i in loads),
    )


def _graph_of_scores(context: Context, emitter: Emitter, scores: Instance) -> GraphNodes:
    emit_scores(emitter, context.attention.scores, scores)
    return graph_of(emitter, "batch", "row", "vector")


def _rows(context: Context) -> RowNodes:
    softmax, plans = _softmax(context, 1)
    scopes = row_scopes(context.attention.batches, context.attention.scores.axes(1))
    emitter = context.frame.emitter(
        (*scopes, ("store", frozenset())), stored_under=_ROW_TEST, sizes={"M": context.attention.m}
    )
    return emit_row_end(emitter, softmax, plans)


def _output(context: Context) -> GraphNodes:
    part = context.attention.outputs
    emitter = _emitter(context, part, OUT_WIDTH)
    return emit_outputs(emitter, part, part.lowering(OUT_WIDTH))
