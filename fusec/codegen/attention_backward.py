"""The view of the template of attention's backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusec.codegen.attention import bound_test, counted, operand_view
from fusec.codegen.attention_backward_view import ElementView, WalkView
from fusec.codegen.matmul_names import c_names, renamed
from fusec.codegen.matmul_view import EpilogueView
from fusec.codegen.product_text import (
    INDEX,
    THREADS,
    boolean,
    constant,
    element,
    integer,
    shared_memory,
    using,
)
from fusec.codegen.render import Parameter
from fusec.codegen.views import emit_store, head, plan_stores
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.ir.dtype import F32
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import Names
from fusec.kernel.nest import Alias, Scope
from fusec.kernel.nodes import INT, Expression, Raw, Statement
from fusec.schedule.attention_backward import BackwardPlan
from fusec.schedule.attention_backward_choice import BackwardParameters, WalkKernel
from fusec.schedule.attention_backward_problem import Backward, find_backward
from fusec.schedule.attention_backward_values import QueryValues, find_query_values
from fusec.schedule.attention_masks import Bound, masks_of, unmasked
from fusec.schedule.attention_part import Part
from fusec.schedule.attention_scale import without_scale
from fusec.schedule.matmul_operand import BATCH

RESERVED = frozenset([
    "Config", "Index", "M", "N", "OwnedTiles", "Sums", "acc", "all_seen", "batch", "batches",
    "chunk", "column", "compute", "d", "finish_keys", "finish_queries", "finish_values", "first",
    "first_row", "half", "i", "kOutWidth", "keep", "lane_row", "last", "m", "moved", "n", "other",
    "own", "own_row", "p", "passing", "place", "pull", "pulls", "query_values", "row", "s", "scale",
    "seen", "seen_by", "share", "shared", "shares", "stage", "sums", "tile", "tile_row",
    "tile_rows", "tiles", "value_sums", "values", "visit_keys", "visit_queries", "visit_values",
    "warp", "warp_row", "weigh", "weight", "weights",
])  # fmt: skip
"""Names that the template gives to its own constants and variables."""
OUT_WIDTH = 2
"""Neighbouring features that a thread has, as the tensor cores leave them."""


@dataclass(frozen=True)
class _Context:
    """A plan's problem in C names."""

    fusion: Fusion
    backward: Backward
    parameters: BackwardParameters
    kernel: WalkKernel
    names: Mapping[str, str]
    facts: Facts

    @property
    def has_batches(self) -> bool:
        """Return whether there are several batches."""
        return self.backward.batches != 1


def view(plan: BackwardPlan, kernel: WalkKernel) -> WalkView:
    """Return the view of a kernel that walks."""
    parameters, names = plan.parameters, c_names(kernel, RESERVED)
    walk, of_keys = kernel.walk, kernel.walk.of_keys
    fusion = renamed(plan.fusion, names)
    backward = find_backward(fusion)
    assert isinstance(backward, Backward)
    context = _Context(fusion, backward, parameters, kernel, names, Facts(fusion.hints))
    operands = (backward.queries, backward.gradients, backward.keys, backward.values)
    queries, gradients, keys, values = (
        operand_view(o, names[m]) for o, m in zip(operands, kernel.map_names, strict=True)
    )
    sides = ((queries, gradients), (keys, values))
    elements = _elements(context)
    return WalkView(
        **{  # pyright: ignore[reportArgumentType]
            **head(plan, kernel),
            "parameters": tuple(Parameter(a, identifier(names[a.name])) for a in kernel.arguments),
        },
        schedule=_sentence(context),
        of_keys=of_keys,
        config=_config(context),
        constants=(
            constant(INDEX, "M", backward.m),
            constant(INDEX, "N", backward.n),
            constant(INT, "batches", backward.batches),
        ),
        index_type="fusec::i64" if parameters.wide_index else "int",
        own=sides[of_keys],
        others=sides[not of_keys],
        own_rows="keys" if of_keys else "queries",
        own_count=_own_count(context),
        other_rows="queries" if of_keys else "keys",
        other_count="M" if of_keys else "N",
        bounds=tuple(_limit(b, of_keys=of_keys) for b in backward.bounds),
        parameters_of_query=_parameters(context, "Index m"),
        parameters_of_element=_parameters(context, "Index m, Index n"),
        results=_results(context),
        unsummed="" if walk.pulls and walk.shares else "value_sums" if walk.pulls else "sums",
        has_batches=context.has_batches,
        **elements,  # pyright: ignore[reportArgumentType]
    )


def _own_count(context: _Context) -> str:
    """Return how many rows CTAs own."""
    return "N" if context.kernel.walk.of_keys else "M"


def _sentence(context: _Context) -> str:
    backward, p, of_keys = context.backward, context.parameters, context.kernel.walk.of_keys
    batch = "" if backward.batches == 1 else f"{backward.batches} times "
    own, others = (backward.n, backward.m) if of_keys else (backward.m, backward.n)
    names = ("keys", "queries") if of_keys else ("queries", "keys")
    groups = "one warpgroup" if p.warpgroups == 1 else f"{p.warpgroups} warpgroups"
    return (
        f"Schedule: {batch}{own} {names[0]} in tiles of {p.rows}, looping over {others} {names[1]} "
        f"in tiles of {p.others(of_keys=of_keys)}, one CTA per SM over all tiles, {groups}."
    )


def _config(context: _Context) -> tuple[Statement, ...]:
    backward, p, kernel = context.backward, context.parameters, context.kernel
    walk, of_keys = kernel.walk, kernel.walk.of_keys
    own, others = ("keys", "queries") if of_keys else ("queries", "keys")
    return (
        using("T", storage_type(backward.dtype), "of all operands and weights"),
        integer("kFeatures", backward.features.value, "of a query, and of a key"),
        integer("kValueFeatures", backward.value_features.value, "of a gradient, and of a value"),
        integer("kRows", p.rows, f"{own} that a CTA owns at a time"),
        integer("kOthers", p.others(of_keys=of_keys), f"{others} of a stage"),
        integer("kStages", p.stages(of_keys=of_keys), "stages in flight"),
        integer("kConsumers", p.warpgroups, f"warpgroups of 64 {own} each; one more loads"),
        THREADS,
        integer("kProducerRegisters", p.producer_registers, "of a thread that loads"),
        integer("kConsumerRegisters", p.consumer_registers, "of a thread that multiplies"),
        integer("kQueryCount", kernel.query_values, "values that a query has of its own"),
        boolean("kOfKeys", of_keys, "keys are owned, not queries"),
        boolean("kPulls", walk.pulls, f"what {own} are pulled by is summed"),
        boolean("kShares", walk.shares, "shares of gradients are summed, for values"),
        boolean("kDescending", bool(backward.bounds), "tiles with most work are owned first"),
        boolean("kLastFirst", not of_keys, "of those, the last ones have most"),
        *shared_memory(kernel.layout.constants),
    )


def _limit(bound: Bound, *, of_keys: bool) -> str:
    """Return the line that narrows what the rows that are owned see, or are seen by."""
    is_end = bound.is_end != of_keys
    offset = (0 - bound.offset if of_keys else bound.offset) + (1 if is_end else 0)
    some, every = ("last", "first") if is_end else ("first", "last")
    method = "end_at" if is_end else "begin_at"
    return f"seen.{method}({counted(some, offset)}, {counted(every, offset)});"


def _parameters(context: _Context, own: str) -> str:
    return f"Index batch, {own}" if context.has_batches else own


def _emitter(context: _Context, part: Part, width: int, stored_under: str = "") -> Emitter:
    axes = part.axes(width)
    return Emitter(
        (
            Scope("kernel", frozenset()),
            Scope("batch", frozenset({Var(BATCH, context.backward.batches)})),
            Scope("row", frozenset({axes.row})),
            Scope("vector", frozenset({axes.chunk})),
            Scope("lane", frozenset({axes.lane})),
        ),
        Names([*context.names.values(), *RESERVED]),
        context.facts,
        lane=axes.lane if width > 1 else None,
        width=width,
        aliases={axes.chunk: Alias("n", width)},
        wide=context.parameters.wide_index,
        width_name="kOutWidth",
        stored_under=stored_under,
    )


def _taken(emitter: Emitter, *scopes: str) -> tuple[Statement, ...]:
    return tuple(line for scope in scopes for line in emitter.take(0, scope))


def _elements(context: _Context) -> dict[str, object]:
    """Return the fields of the view that say what becomes of an element."""
    between = context.backward.between
    values = find_query_values(between)
    part = between.part
    common = _emitter(context, part, 1)
    own, lines = list[str](), list[str]()
    for number, instance in enumerate(values.instances):
        text = common.convert(instance, F32, 0)
        if number == values.exponent and not values.may_be_far:
            text = f"fusec::exponent_of_two(-{text.at_least(14)})"
        own.append(f"values[{number}] = {text};")
    # A mask without limits is tested for every element: tiles are not skipped, nor partly seen.
    seen = values.scores
    if seen is not None and context.backward.bounds:
        seen = unmasked(seen, part.axes(1))
    kept = {test: bound_test(bound, 1) for bound, test in _masks(seen, part)}
    masks = (bound_test(b, 1) for b, test in _masks(values.scores, part) if test not in kept)
    pull = _emitter(context, part, 1)
    pull.given[values.weights.shares] = Raw("share")
    _give(context, pull, values, [values.weights.pulls], "moved")
    pulled = pull.ref(values.weights.pulls, 0)
    return {
        "value_lines": (*_taken(common, "kernel", "batch", "row"), *own),
        "share": _share(context, values, seen, kept, lines),
        "masks": tuple(mask.at_least(9) for mask in masks),
        "pull": ElementView(_taken(pull, "kernel", "batch", "row", "vector", "lane"), str(pulled)),
        "reads": values.reads,
        "lines": tuple(dict.fromkeys(lines)),
    }


def _masks(scores: Instance | None, part: Part) -> list[tuple[Bound, Instance]]:
    return [] if scores is None else masks_of(scores, part.axes(1))


def _share(
    context: _Context,
    values: QueryValues,
    scores: Instance | None,
    tests: Mapping[Instance, Expression],
    lines: list[str],
) -> ElementView:
    """Return what makes a share; of an exponential, by one multiplication and addition."""
    emitter = _emitter(context, context.backward.between.part, 1)
    emitter.given.update(tests)
    if scores is None or values.exponent is None:
        _give(context, emitter, values, [values.weights.shares], "s")
        text = str(emitter.ref(values.weights.shares, 0))
        return ElementView(_taken(emitter, "kernel", "batch", "row", "vector", "lane"), text)
    inside, factor = without_scale(scores)
    _give(context, emitter, values, [inside], "s")
    score = emitter.ref(inside, 0)
    scale = "1.0f" if factor is None else str(emitter.convert(factor, F32, 0))
    lines.extend(emitter.take(0, "kernel"))
    lines.append(f"const float scale = fusec::exponent_of_two({scale});")
    less = f"values[{values.exponent}]"
    power = f"fmaf({score}, scale, {less})"
    if values.may_be_far:
        power = f"({score.at_least(12)} - {less}) * scale"
    text = f"fusec::exp2_approx({power})"
    return ElementView(_taken(emitter, "batch", "row", "vector", "lane"), text)


def _give(
    context: _Context,
    emitter: Emitter,
    values: QueryValues,
    roots: Sequence[Instance],
    name: str,
) -> None:
    """Let what a thread has be the results of a product, rounded, and the values of a query."""
    between = context.backward.between
    sums = between.moved if name == "moved" else between.part.epilogue.sums
    for number, instance in enumerate(values.instances):
        if number != values.exponent:
            emitter.given[instance] = Raw(f"values[{number}]")
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.value is sums:
            emitter.given[instance] = Raw(name)
    for instance in instances_under(roots):
        converts = instance.kind == "op" and instance.node is not None and instance.node.op.converts
        if (
            converts
            and instance.dtype.is_half
            and emitter.given.get(instance.operands[0]) is not None
        ):
            kind = storage_type(instance.dtype)
            emitter.given[instance] = Raw(f"fusec::rounded_sum<{kind}>({name})")
    emitter.count(roots)


def _results(context: _Context) -> tuple[tuple[str, str, EpilogueView], ...]:
    """Return the graphs on results: what they are of, their sums, and what becomes of these."""
    backward, walk = context.backward, context.kernel.walk
    found: list[tuple[str, str, EpilogueView]] = []
    if walk.pulls:
        part = backward.of_keys[1] if walk.of_keys else backward.of_queries[1]
        found.append(("keys" if walk.of_keys else "queries", "sums", _output(context, part)))
    if walk.shares:
        found.append(("values", "value_sums", _output(context, backward.of_values[1])))
    return tuple(found)


def _output(context: _Context, part: Part) -> EpilogueView:
    emitter = _emitter(context, part, OUT_WIDTH, f"m < {_own_count(context)}")
    plans = plan_stores(part.lowering(OUT_WIDTH), part.epilogue.fusion.outputs, emitter.store_kind)
    roots = [p.instance for p in plans]
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.value is part.epilogue.sums:
            emitter.cached[instance] = "acc[i]"
    emitter.count(roots)
    for plan in plans:
        emit_store(emitter, plan, 0)
    return EpilogueView(
        OUT_WIDTH,
        *element(has_batches=context.has_batches),
        _taken(emitter, "kernel", "batch", "row", "vector"),
        emitter.take(0, "lane"),
        emitter.take(0, "after"),
        stored_under=emitter.stored_under,
    )
