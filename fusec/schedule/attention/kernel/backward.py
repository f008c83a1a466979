"""The statements of attention's backward."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.kernel.ctext import compute_type, storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.products import (
    COLUMN,
    COLUMNS,
    INDEX,
    ROW,
    ROWS,
    THREADS,
    boolean,
    constant,
    integer,
    shared_memory,
    using,
)
from fusec.kernel.nodes import (
    INT,
    Assign,
    Binary,
    Expression,
    Let,
    Name,
    Statement,
    Unary,
    both,
    call,
    item,
)
from fusec.schedule.attention.backward.choice import (
    BackwardParameters,
    WalkKernel,
    spelled_walk_layout,
)
from fusec.schedule.attention.backward.family import BackwardPlan
from fusec.schedule.attention.backward.problem import Backward, find_backward
from fusec.schedule.attention.backward.values import QueryValues, find_query_values
from fusec.schedule.attention.kernel.forward import OUT_WIDTH, loaded_operand
from fusec.schedule.attention.kernel.frame import Frame, frame_of, neighbours, row_scopes
from fusec.schedule.attention.kernel.limits import bound_test, narrowed_by_rows
from fusec.schedule.attention.kernel.names import BACKWARD
from fusec.schedule.attention.kernel.records import (
    ElementNodes,
    FusedNodes,
    GraphNodes,
    ResultNodes,
)
from fusec.schedule.attention.kernel.scores import (
    emit_outputs,
    give_rounded,
    give_sums,
    scale_of,
    taken,
)
from fusec.schedule.attention.masks import Bound, masks_of, unmasked
from fusec.schedule.attention.part import Part
from fusec.schedule.attention.scale import without_scale
from fusec.schedule.matmul.kernel.records import OperandNodes


@dataclass(frozen=True)
class Context:
    """A plan's problem in C names, with the frame around its graphs."""

    frame: Frame
    backward: Backward
    parameters: BackwardParameters
    kernel: WalkKernel


def context_of(plan: BackwardPlan, kernel: WalkKernel) -> Context:
    """Return a plan's problem in C names."""
    frame = frame_of(plan, kernel, BACKWARD, wide=plan.parameters.wide_index)
    backward = find_backward(frame.fusion)
    assert isinstance(backward, Backward)
    return Context(frame, backward, plan.parameters, kernel)


@dataclass(frozen=True, kw_only=True)
class WalkNodes(FusedNodes):
    """A walk of attention's backward.

    of_keys: whether it owns keys, else queries. own, others: the operands of both sides. own_rows,
    own_count: the name of owned rows and their number; other_rows, other_count: of the rows that
    are streamed. bounds: for the rows from `first` to `last`. lines: statements common to all
    elements; value_lines: statements that compute the per-query values. share: computes a share
    from the first GEMM; inside: the bounds test of the streamed rows; kept: that and the mask tests
    on query `m` and key `n`, if there are any; pull: computes a pull from `share` and the second
    GEMM; reads: whether they read memory for each key. results: the epilogues of the accumulators;
    unsummed: the accumulators that this walk does not have.
    """

    of_keys: bool
    own: tuple[OperandNodes, OperandNodes]
    others: tuple[OperandNodes, OperandNodes]
    own_rows: str
    own_count: str
    other_rows: str
    other_count: str
    lines: tuple[Statement, ...]
    value_lines: tuple[Statement, ...]
    share: ElementNodes
    inside: Expression
    kept: Expression | None
    pull: ElementNodes
    reads: bool
    results: tuple[ResultNodes, ...]
    unsummed: str
    has_batches: bool


def nodes_of(context: Context) -> WalkNodes:
    """Return the statements of a walk's kernel."""
    backward, walk = context.backward, context.kernel.walk
    of_keys, names = walk.of_keys, context.frame.names
    operands = (backward.queries, backward.gradients, backward.keys, backward.values)
    queries, gradients, keys, values = (
        loaded_operand(o, names[m]) for o, m in zip(operands, context.kernel.map_names, strict=True)
    )
    sides = ((queries, gradients), (keys, values))
    return WalkNodes(
        of_keys=of_keys,
        config=_config(context),
        constants=(
            constant(INDEX, "M", backward.m),
            constant(INDEX, "N", backward.n),
            constant(INT, "batches", backward.batches),
        ),
        own=sides[of_keys],
        others=sides[not of_keys],
        own_rows="keys" if of_keys else "queries",
        own_count=_count(of_keys=of_keys),
        other_rows="queries" if of_keys else "keys",
        other_count=_count(of_keys=not of_keys),
        bounds=tuple(_limit(b, of_keys=of_keys) for b in backward.bounds),
        results=_results(context),
        unsummed="" if walk.pulls and walk.shares else "value_sums" if walk.pulls else "sums",
        has_batches=backward.batches != 1,
        **_elements(context),  # pyright: ignore[reportArgumentType]
    )


def _count(*, of_keys: bool) -> str:
    """Return the name of the number of keys or queries."""
    return "N" if of_keys else "M"


def _config(context: Context) -> tuple[Statement, ...]:
    backward, p, kernel = context.backward, context.parameters, context.kernel
    walk, of_keys = kernel.walk, kernel.walk.of_keys
    own, others = ("keys", "queries") if of_keys else ("queries", "keys")
    return (
        using("T", storage_type(backward.dtype), "of all operands and weights"),
        integer("kFeatures", backward.features.value, "of queries and keys"),
        integer("kValueFeatures", backward.value_features.value, "of gradients and values"),
        integer("kRows", p.rows, f"{own} per tile of a CTA"),
        integer("kOthers", p.others(of_keys=of_keys), f"{others} per stage"),
        integer("kStages", p.stages(of_keys=of_keys), "stages in flight"),
        integer("kConsumers", p.warpgroups, f"warpgroups with 64 {own} each; one more loads"),
        THREADS,
        integer("kProducerRegisters", p.producer_registers, "per producer thread"),
        integer("kConsumerRegisters", p.consumer_registers, "per consumer thread"),
        integer("kQueryCount", kernel.query_values, "per-query values"),
        boolean("kOfKeys", of_keys, "a CTA owns keys, not queries"),
        boolean("kPulls", walk.pulls, f"sums the gradients of {own}"),
        boolean("kShares", walk.shares, "sums the gradients of values"),
        boolean("kDescending", bool(backward.bounds), "tiles with the most work come first"),
        boolean("kLastFirst", not of_keys, "the last tiles have the most work"),
        *shared_memory(
            spelled_walk_layout(
                p,
                backward.features.value,
                backward.value_features.value,
                kernel.query_values,
                walk,
            )
        ),
    )


def _limit(bound: Bound, *, of_keys: bool) -> Statement:
    """Return the statement that narrows the range that owned rows see or are seen by."""
    is_end = bound.is_end != of_keys
    offset = 0 - bound.offset if of_keys else bound.offset
    return narrowed_by_rows(offset + (1 if is_end else 0), is_end=is_end)


def _emitter(context: Context, part: Part, width: int, own: str = "") -> Emitter:
    """Return an emitter; own: the name of the number of rows, which guards stores."""
    axes = part.axes(width)
    scopes = (*row_scopes(context.backward.batches, axes), *neighbours(axes))
    test = Binary("<", ROW, Name(own)) if own else None
    backward = context.backward
    sizes = {
        "Config::kFeatures": backward.features, "Config::kValueFeatures": backward.value_features,
        "M": backward.m, "N": backward.n,
    }  # fmt: skip
    return context.frame.emitter(scopes, axes, "kOutWidth", test, sizes)


def _elements(context: Context) -> dict[str, object]:
    """Return the fields of the view that compute an element."""
    between = context.backward.between
    values = find_query_values(between)
    part = between.part
    common = _emitter(context, part, 1)
    own = list[Statement]()
    for number, instance in enumerate(values.instances):
        value = common.convert(instance, F32, 0)
        if number == values.exponent and not values.may_be_far:
            value = _exponent_of_two(Unary("-", value))
        own.append(Assign(_value(number), value))
    # A mask without bounds is tested for every element: no tile is skipped or partly visible.
    seen = values.scores
    if seen is not None and context.backward.bounds:
        seen = unmasked(seen, part.axes(1))
    tests = {test: bound_test(bound, 1) for bound, test in _masks(seen, part)}
    masks = [bound_test(b, 1) for b, test in _masks(values.scores, part) if test not in tests]
    share, lines = _share(context, values, seen, tests)
    pull = _emitter(context, part, 1)
    pull.given[values.weights.shares] = Name("share")
    _give(context, pull, values, values.weights.pulls, "moved")
    pulled = pull.ref(values.weights.pulls, 0)
    inside = Binary("<", *((ROW, ROWS) if context.kernel.walk.of_keys else (COLUMN, COLUMNS)))
    return {
        "value_lines": (*taken(common, "kernel", "batch", "row"), *own),
        "share": share,
        "inside": inside,
        "kept": both([inside, *masks]) if masks else None,
        "pull": _element(pull, pulled),
        "reads": values.reads,
        "lines": lines,
    }


def _masks(scores: Instance | None, part: Part) -> list[tuple[Bound, Instance]]:
    return [] if scores is None else masks_of(scores, part.axes(1))


def _value(number: int) -> Expression:
    """Return a per-query value."""
    return item("values", number)


def _exponent_of_two(value: Expression) -> Expression:
    return call("fusec::exponent_of_two", value)


def _element(emitter: Emitter, value: Expression, *scopes: str) -> ElementNodes:
    """Return the view of the emitted statements; scopes: those around a batch, if any."""
    return ElementNodes(taken(emitter, *scopes, "batch", "row", "vector", "lane"), value)


def _share(
    context: Context,
    values: QueryValues,
    scores: Instance | None,
    tests: Mapping[Instance, Expression],
) -> tuple[ElementNodes, tuple[Statement, ...]]:
    """Return the statements that compute a share, and those common to all elements.

    The share of an exponential is computed with one multiply-add.
    """
    emitter = _emitter(context, context.backward.between.part, 1)
    emitter.given.update(tests)
    if scores is None or values.exponent is None:
        _give(context, emitter, values, values.weights.shares, "s")
        share = emitter.ref(values.weights.shares, 0)
        return _element(emitter, share, "kernel"), ()
    inside, factor = without_scale(scores)
    _give(context, emitter, values, inside, "s")
    score, less, scale = emitter.ref(inside, 0), _value(values.exponent), Name("scale")
    of_all = scale_of(emitter, factor)
    lines = *emitter.take(0, "kernel"), Let(compute_type(F32), "scale", _exponent_of_two(of_all))
    power = (score - less) * scale if values.may_be_far else call("fmaf", score, scale, less)
    return _element(emitter, call("fusec::exp2_approx", power)), lines


def _give(
    context: Context, emitter: Emitter, values: QueryValues, root: Instance, name: str
) -> None:
    """Bind the GEMM results that a thread holds, rounded, and the per-query values."""
    between = context.backward.between
    sums = between.moved if name == "moved" else between.part.epilogue.sums
    for number, instance in enumerate(values.instances):
        if number != values.exponent:
            emitter.given[instance] = _value(number)
    give_sums(emitter, sums, [root], Name(name))
    give_rounded(emitter, [root])
    emitter.count([root])


def _results(context: Context) -> tuple[ResultNodes, ...]:
    """Return the epilogues of the accumulators."""
    backward, walk = context.backward, context.kernel.walk
    found: list[ResultNodes] = []
    if walk.pulls:
        name = "keys" if walk.of_keys else "queries"
        part = backward.of_keys[1] if walk.of_keys else backward.of_queries[1]
        found.append(ResultNodes(name, "sums", "kFeatures", _output(context, part)))
    if walk.shares:
        output = _output(context, backward.of_values[1])
        found.append(ResultNodes("values", "value_sums", "kValueFeatures", output))
    return tuple(found)


def _output(context: Context, part: Part) -> GraphNodes:
    own = _count(of_keys=context.kernel.walk.of_keys)
    emitter = _emitter(context, part, OUT_WIDTH, own)
    return emit_outputs(emitter, part, part.lowering(OUT_WIDTH))
