"""Warnings: valid but suspicious fusions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import log2, prod

from fusec import target
from fusec.dataclasses import replace
from fusec.diagnostics import Diagnostic, FusecError, Span, warning
from fusec.driver import Compilation
from fusec.explain.units import time_text
from fusec.ir.dim import Dim, product
from fusec.ir.dtype import F64
from fusec.ir.graph import Const, Fusion, Input, Node, Value
from fusec.ir.sharding import STREAM

LEAST_SLOWER = 1.2
"""Minimum ratio of predicted times for which a slowdown is reported."""

MOST_NODES = 100
"""Maximum number of nodes for which a fusion is segmented again to predict a slowdown."""


def lint(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield the warnings about a fusion as written, in the order of its lines."""
    found = (*_unused_inputs(fusion), *_unused_results(fusion), *_short_sums(fusion))
    found = (*found, *_double_choices(fusion), *_double_outputs(fusion), *_empty_slices(fusion))
    found = (*found, *_wrapped_integers(fusion))
    yield from sorted(found, key=lambda d: (d.span.file, d.span.line) if d.span else ("", 0))


def _unused_inputs(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each input that no operation reads and no output overwrites."""
    written = fusion.effects.overwritten | {o.value.name for o in fusion.outputs}
    sizes = {s for v in fusion.values for e in v.shape for s in e.symbols}
    sizes |= {s for n in fusion.nodes for a in n.attributes.values() for s in _symbols(a)}
    for entry in fusion.inputs:
        name = entry.value.name
        if not fusion.users.get(entry.value) and name not in written | sizes:
            yield warning(f"input `{name}` is not used", span=entry.span, help="remove it")


def _double_outputs(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each output that is written as a copy although it already is one."""
    first = {o.value: o for o in fusion.outputs}
    for output in fusion.outputs:
        node = fusion.producer.get(output.value)
        source = node.operands[0] if node is not None and node.op.copies else None
        placed = node is not None and node.span is not None and node.span == output.span
        if placed and isinstance(source, Value) and source in first:
            yield warning(
                f"output `{source.name}` is listed twice: `{output.value.name}` is a copy of it",
                span=output.span,
                help="remove the second one",
            )


def _empty_slices(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each dim that a stream splits into more slices than elements."""
    values = {v.name: v for v in fusion.values}
    for name, sharding in fusion.shardings.items():
        for axis, parts in enumerate(sharding.dims):
            count = prod(p.parts.value for p in parts if p.axis == STREAM and p.parts.is_const)
            extent = values[name].shape[axis]
            if extent.is_const and count > extent.value:
                yield warning(
                    f"dim {axis} of `{name}` has {extent} elements, fewer than {count} slices",
                    span=sharding.span,
                    help=f"write `stream: {{{axis}: {extent}}}`: more slices are empty",
                )


def _symbols(attribute: object) -> Iterator[str]:
    if isinstance(attribute, Dim):
        yield from attribute.symbols
    elif isinstance(attribute, (tuple, list)):
        for item in attribute:  # pyright: ignore[reportUnknownVariableType]
            yield from _symbols(item)  # pyright: ignore[reportUnknownArgumentType]


def _unused_results(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each call without a used result, and for each unused name of others."""
    outputs = {o.value for o in fusion.outputs}
    calls: dict[Span, list[Node]] = {}
    for node in fusion.nodes:
        # Computing a size costs nothing; the nodes of a composite have the span of its call.
        if node.span is not None and node.op.family != "scalar":
            calls.setdefault(node.span, []).append(node)
    for span, nodes in calls.items():
        own = {*nodes}
        loose = [v for n in nodes for v in n.outputs if v not in outputs and v not in fusion.users]
        used = any(
            v in outputs or any(u not in own for u in fusion.users.get(v, ()))
            for n in nodes
            for v in n.outputs
        )
        named = _names_before(span)
        is_part = not named and _is_used_around(span, calls, outputs, fusion)
        if not used and not is_part:
            what = ", ".join(f"`{name}`" for name in named) or f"a result of `{nodes[-1].op.name}`"
            verb = "are" if len(named) > 1 else "is"
            meant = _meant_output(fusion, list(named))
            yield warning(f"{what} {verb} not used", span=span, help=meant or "remove the line")
            continue
        for value in loose:
            if value.name in named:
                place = replace(span, column=named[value.name] + 1, width=len(value.name))
                message = f"`{value.name}` is not used"
                yield warning(message, span=place, help="write `_` for an unused result")


def _is_used_around(
    span: Span, calls: Mapping[Span, Sequence[Node]], outputs: Set[Value], fusion: Fusion
) -> bool:
    """Return whether a call is nested in the line of another one that is used, as for its shape."""
    others = (n for s, ns in calls.items() if s != span and s.line == span.line for n in ns)
    return any(v in outputs or v in fusion.users for n in others for v in n.outputs)


def _meant_output(fusion: Fusion, names: Sequence[str]) -> str | None:
    """Return what to write if an output is the input `p`, and the unused value is `p_2`."""
    inputs = {entry.value.name for entry in fusion.inputs}
    outputs = {o.value.name for o in fusion.outputs}
    direct = [n for n in (o.removesuffix("_out") for o in outputs) if n in inputs]
    if len(names) == len(direct) == len(outputs) == 1:
        return f"`{direct[0]}` under `outputs:` is the input: write `{names[0]}`"
    for name in names:
        found = re.fullmatch(r"(\w+)_\d+", name)
        if found is not None and found[1] in inputs and {found[1], f"{found[1]}_out"} & outputs:
            return f"`{found[1]}` under `outputs:` is the input: write `{name}`"
    return None


def _names_before(span: Span) -> dict[str, int]:
    """Return the names to which a line assigns a call, with their column offsets."""
    before = span.text[: span.column - 1]
    found = re.fullmatch(r"(\s*(?:-\s+)?[\"']?)(\w+(?:\s*,\s*\w+)*)\s*=\s*\(?\s*", before)
    if found is None:
        return {}
    names = re.finditer(r"\w+", found[2])
    return {m[0]: found.start(2) + m.start() for m in names if m[0] != "_"}


def _short_sums(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each reduction whose result is rounded to 16 bits or fewer."""
    for node in fusion.nodes:
        if node.op.family != "reduction" or (node.op.combine and node.op.combine.is_extremum):
            continue
        source, kind = node.inputs[0], node.output.dtype
        # Reductions of wider operands request the narrow type explicitly.
        if not (source.dtype.is_half and kind.is_half):
            continue
        count = _size(fusion, source) // max(1, _size(fusion, node.output))
        bits = round(-log2(kind.epsilon))
        wide = f"{node.op.name}(cast({source.name}, f32), ...)"
        limit = "; beyond 65504 it is infinite" if kind.name == "f16" else ""
        yield warning(
            f"`{node.op.name}` over {count} elements is rounded to {kind}",
            span=node.span,
            notes=[f"it is computed in f32, and {kind} keeps {bits} bits{limit}"],
            help=f"`{wide}` keeps f32; `cast` the result to {kind} if that is intended",
        )


def _double_choices(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each choice between literals, which yields an f64 tensor."""
    for node in fusion.nodes:
        given = node.operands[1:]
        if not (node.op.chooses and node.output.dtype == F64 and node.output.type.shape):
            continue
        if all(isinstance(o, Const) for o in given):
            first, second = (o.value for o in given if isinstance(o, Const))
            yield warning(
                f"`{node.op.name}` of two float literals is a tensor of f64",
                span=node.span,
                notes=["as in nvFuser; PyTorch makes f32 of them"],
                help=f"`{node.op.name}(..., f32({first}), f32({second}))` is f32, "
                "`cast` makes other types",
            )


def _wrapped_integers(fusion: Fusion) -> Iterator[Diagnostic]:
    """Yield a warning for each literal that does not fit the type of its computation."""
    for node in fusion.nodes:
        given = (o for o in node.operands if isinstance(o, Const) and o.wrapped is not None)
        kinds = [o.type.dtype for o in node.operands if isinstance(o, Value)]
        for literal in given:
            dtype = next((d for d in kinds if d.is_integer), node.output.dtype)
            yield warning(
                f"{literal.wrapped} does not fit in {dtype}: it wraps to {literal.value}",
                span=node.span,
                help=f"the range of {dtype} is {dtype.integers.start} to "
                f"{dtype.integers.stop - 1}: cast the tensor to a wider type",
            )


def _size(fusion: Fusion, value: Value) -> int:
    return prod(e.evaluate(fusion.hints) for e in value.shape)


def lint_plan(program: Compilation) -> Iterator[Diagnostic]:
    """Yield the warnings that depend on segments: former names in `schedules:`, and strides."""
    yield from lint_schedules(program)
    yield from lint_strides(program)


def lint_schedules(program: Compilation) -> Iterator[Diagnostic]:
    """Yield a warning for each setting of `schedules:` that has a former name or value."""
    set_ = [(o.name, o.value) for o in program.original.schedules]
    if not set_:
        return
    from fusec.schedule.former import present
    from fusec.schedule.registry import find_scheduler
    from fusec.schedule.space import setting_text

    known = [find_scheduler(name).former for name in {*program.schedulers}]
    if not any(present(former, *each) != dict([each]) for former in known for each in set_):
        return
    found: dict[tuple[Span | None, str], dict[str, str]] = {}
    for override in (o for s in program.segmented.segments for o in s.overrides if o.written):
        now = found.setdefault((override.name_span, override.written), {})
        now[override.name] = setting_text(override.value)
    for (span, written), now in found.items():
        text = ", ".join(f"{name}: {value}" for name, value in now.items())
        yield warning(f"`{written}` is a former name", span=span, help=f"write `{text}`")


def lint_strides(program: Compilation) -> Iterator[Diagnostic]:
    """Yield a warning where tensors have run-time strides but are dense, and that costs time.

    The slowdown is the predicted time relative to dense strides, which takes another segmentation.
    """
    fusion = program.original
    read = (i for i in fusion.inputs if i.value in fusion.users)
    loose = [i for i in read if _is_loose(fusion, i)]
    narrow = [i for i in loose if any(_at_run_time(s) for s in _fastest(fusion, i))]
    times = _times(program, loose) if loose else None
    if times is not None:
        now, then, launches = times
        if then > 2 * launches:
            if now >= LEAST_SLOWER * then:
                text = (
                    f"predicted {time_text(now)}; {time_text(then)} with strides known at compile "
                    "time"
                )
                yield _narrow(loose, [f"{text}: {now / then:.1f} times as long"])
            return
    # Times are inconclusive: sizes are small or unknown, or another segmentation takes too long.
    if narrow:
        yield _narrow(narrow, [])


def _times(program: Compilation, loose: Sequence[Input]) -> tuple[float, float, float] | None:
    """Return the predicted times as declared and with dense strides, and that of its launches.

    None if the fusion is too large, or if either of the two is rejected.
    """
    fusion, options = program.original, program.options
    if len(fusion.nodes) > MOST_NODES:
        return None
    dense = tuple(_dense(fusion, i) if i in loose else i for i in fusion.inputs)
    try:
        found = program.segmented
        better = Compilation(replace(fusion, inputs=dense), options).segmented
    except FusecError:
        return None
    gpu = target.find(options.target)
    kernels = sum(s.estimate.kernels for s in better.segments if s.estimate is not None)
    return sum(found.times(gpu)), sum(better.times(gpu)), kernels * gpu.launch


def _narrow(loose: Sequence[Input], notes: Sequence[str]) -> Diagnostic:
    names = ", ".join(f"`{i.value.name}`" for i in loose)
    others = [(i.value.name, i.span) for i in loose[1:] if i.span is not None]
    return warning(
        f"the strides of {names} are only known at run time: loads and stores cannot be vectorized",
        span=loose[0].span,
        notes=[*notes, *(f"`{name}` is declared at {span.place()}" for name, span in others)],
        help="`define_tensor(..., contiguity=True)` where tensors are contiguous",
    )


def _at_run_time(stride: Dim) -> bool:
    return any("." in name for name in stride.symbols)


def _fastest(fusion: Fusion, entry: Input) -> Iterable[Dim]:
    """Return the smallest stride of a tensor's dims with more than one element."""
    shape = zip(entry.value.shape, entry.strides, strict=True)
    known = [s for e, s in shape if e.evaluate(fusion.hints) > 1 and s != 0]
    return sorted(known, key=lambda s: s.evaluate(fusion.hints))[:1]


def _is_loose(fusion: Fusion, entry: Input) -> bool:
    """Return whether a tensor has run-time strides that equal dense ones at hint sizes."""
    own = [s for s in entry.strides if _at_run_time(s)]
    given = [s.evaluate(fusion.hints) for s in entry.strides]
    dense = [s.evaluate(fusion.hints) for s in _dense(fusion, entry).strides]
    return bool(own) and given == dense


def _dense(fusion: Fusion, entry: Input) -> Input:
    """Return an input with dense strides instead of run-time ones, in the order of its dims."""
    shape, strides = entry.value.shape, list(entry.strides)
    steps = {k: s.evaluate(fusion.hints) for k, s in enumerate(strides) if s != 0}
    order = sorted(steps, key=lambda k: (steps[k], -k))
    for place, axis in enumerate(order):
        if _at_run_time(strides[axis]):
            strides[axis] = product(shape[k] for k in order[:place])
    return replace(entry, strides=tuple(strides))
