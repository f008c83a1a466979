"""The text form of a fusion: a fusion file that reads back equal, one op line per node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from fusec.escape import quoted
from fusec.ir.annotations import Override, Phase, Pin
from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import BOOL, F64, I64, DType
from fusec.ir.graph import Const, DimFact, Fusion, Input, Node, Operand, Output
from fusec.ir.sharding_text import mesh_text, sharding_text

_PLAIN_DOC = re.compile(r"[A-Za-z](?:[^\n:#\"\t]|:(?=[^\s]))*[^\s:]")
_PLAIN_ITEM = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.+*/% ()-]*[A-Za-z0-9_)])?")
_MAX_PERMUTED_RANK = 7
Contiguity = tuple[bool | None, ...]
Divided = Mapping[str, Sequence[str]]
"""How values are sharded, by name, as clauses of their options."""


def to_text(fusion: Fusion, segments: Sequence[Pin] | None = None, *, types: bool = True) -> str:
    """Return `fusion` as a fusion file.

    `segments` are printed instead of the fusion's own pins; `types` adds the type of every result
    as a comment.
    """
    return "\n".join(_lines(fusion, fusion.pins if segments is None else segments, types)) + "\n"


def _lines(fusion: Fusion, segments: Sequence[Pin], types: bool) -> Iterator[str]:
    yield f"fusion: {fusion.name}"
    if fusion.doc.strip():
        yield from _doc(fusion.doc)
    if fusion.mesh is not None:
        yield f"mesh: {mesh_text(fusion.mesh)}"
    mesh = fusion.mesh
    divided = {name: tuple(sharding_text(s, mesh)) for name, s in fusion.shardings.items()}
    yield from _section("dims", _dims(fusion))
    yield from _section("inputs", (line for i in fusion.inputs for line in _input(i, divided)))
    yield from _section("ops", (_op_line(n, types) for n in fusion.nodes), "  - ")
    yield from _outputs(fusion.outputs, divided)
    yield from _section("shardings", _shardings(fusion, divided))
    # A pass may have removed a value that the file pinned.
    alive = {v.name for n in fusion.nodes for v in n.outputs}
    yield from _section("segments", (_segment(s, alive) for s in segments if alive & {*s.values}))
    if fusion.boundaries != "free":
        yield f"boundaries: {fusion.boundaries}"
    yield from _section("phases", (_phase(p) for p in fusion.phases))
    yield from _section("schedules", _schedules(fusion.schedules))


def _section(name: str, lines: Iterator[str], indent: str = "  ") -> Iterator[str]:
    texts = list(lines)
    if texts:
        yield f"{name}:"
        yield from (indent + text for text in texts)


def _doc(doc: str) -> Iterator[str]:
    doc = doc.encode(errors="replace").decode()  # YAML has no lone surrogates
    lines = doc.split("\n")
    if _PLAIN_DOC.fullmatch(doc) and doc.isprintable() and "  " not in doc:
        yield f"doc: {doc}"
    elif len(lines) > 1 and all(t and t[0] != " " and t.isprintable() for t in lines):
        yield "doc: |"
        yield from (f"  {line}" for line in lines)
    else:
        yield f"doc: {quoted(doc)}"


# -- dims


def _dims(fusion: Fusion) -> Iterator[str]:
    scalars = {i.value.name for i in fusion.inputs if i.value.is_scalar}
    dense = dict(_dense_strides(fusion))
    for fact in fusion.dims:
        if fact.name in scalars or dense.get(fact.name) == fact.default:
            continue
        yield f"{fact.name}: {_fact(fact)}"


def _fact(fact: DimFact) -> str:
    extras: list[str] = []
    if fact.multiple_of != 1:
        extras.append(f"multiple_of: {fact.multiple_of}")
    if fact.buckets:
        extras.append(f"buckets: [{', '.join(map(str, fact.buckets))}]")
    if fact.anonymous:
        extras.append("anonymous: true")
    if not extras:
        return str(fact.default)
    return "{" + ", ".join([f"default: {fact.default}", *extras]) + "}"


def _dense_strides(fusion: Fusion) -> Iterator[tuple[str, int]]:
    """Yield each run-time stride with the size that it has if the input is dense."""
    hints = dict(fusion.hints)
    for entry in fusion.inputs:
        layout = layout_of(entry)
        if layout is None or False not in layout[0]:
            continue
        flags, order = layout
        stride = 1
        for position in range(len(order)):
            axis, flag = order.index(position), flags[len(order) - 1 - position]
            if flag is None:
                continue
            if flag is False:
                name = f"{entry.value.name}.stride{axis}"
                yield name, stride
            stride *= entry.value.shape[axis].evaluate(hints)


# -- inputs


def _input(entry: Input, divided: Divided) -> Iterator[str]:
    value = entry.value
    kind = str(value.type)
    options = [*_options(entry), *divided.get(value.name, ())]
    if value.is_scalar and entry.default is not None:
        default = entry.default
        whole = isinstance(default, complex)
        kind += f" = [{_parts(default)}]" if whole else f" = {_number(default)}"
    if not options:
        yield f"{value.name}: {kind}"
        return
    yield f"{value.name}:"
    yield f"  type: {kind}"
    yield from (f"  {option}" for option in options)


def _options(entry: Input) -> Iterator[str]:
    rank = entry.value.rank
    layout = layout_of(entry) if rank else ((), ())
    if layout is None:
        yield f"strides: {_listing(entry.strides)}"
    else:
        flags, order = layout
        if not all(flags):
            yield f"contiguity: {_listing(flags)}"
        if order != _natural(rank):
            yield f"stride_order: {_listing(order)}"
    if entry.low is not None and entry.high is not None:
        yield f"range: [{_number(entry.low)}, {_number(entry.high)}]"
    if entry.on_cpu:
        yield "on_cpu: true"
    if entry.generator:
        yield f"generator: {entry.generator}"


def _natural(rank: int) -> tuple[int, ...]:
    return tuple(range(rank - 1, -1, -1))


def layout_of(entry: Input) -> tuple[Contiguity, tuple[int, ...]] | None:
    """Return (contiguity, stride order) that yield the input's strides, or None."""
    rank = entry.value.rank
    natural = _natural(rank)
    flags = _contiguity(entry, natural)
    if flags is not None or rank > _MAX_PERMUTED_RANK:
        return None if flags is None else (flags, natural)
    # Every stride that is neither 1 nor 0 depends on faster dims: try the orders.
    for order in permutations(range(rank)):
        flags = _contiguity(entry, order)
        if flags is not None:
            return flags, order
    return None


def _contiguity(entry: Input, order: tuple[int, ...]) -> Contiguity | None:
    flags: list[bool | None] = []
    dense = dim(1)
    for position in range(len(order)):
        axis = order.index(position)
        stride = entry.strides[axis]
        if stride == 0:
            flags.append(None)
            continue
        if stride == dense:
            flags.append(True)
        elif str(stride) == f"{entry.value.name}.stride{axis}":
            flags.append(False)
        else:
            return None
        dense = product((stride, entry.value.shape[axis]))
    return tuple(reversed(flags))


# -- ops, outputs, segments


def op_text(node: Node) -> str:
    """Return a node as an op line: `y = sum(x, dims=[1])`."""
    names = ", ".join(v.name for v in node.outputs)
    return f"{names} = {node.op.name}({', '.join(_arguments(node))})"


def _op_line(node: Node, types: bool) -> str:
    if not types:
        return op_text(node)
    return f"{op_text(node)}  # {', '.join(str(v.type) for v in node.outputs)}"


def _arguments(node: Node) -> Iterator[str]:
    rest = list(node.operands)
    positional = True
    for param in node.op.params:
        prefix = "" if positional else f"{param.name}="
        if param.kind == "operands":
            count = len(rest) - sum(p.is_operand and p is not param for p in node.op.params)
            yield f"{prefix}[{', '.join(_operand(o) for o in rest[:count])}]"
            del rest[:count]
        elif param.is_operand:
            if rest:
                yield prefix + _operand(rest.pop(0))
        else:
            # After an attribute all arguments are passed by keyword.
            positional = False
            value = node.attributes.get(param.name)
            if value is None or (type(value) is type(param.default) and value == param.default):
                continue
            yield f"{param.name}={_attribute(as_written(node.op.name, param.name, value))}"


def as_written(op: str, name: str, value: Any) -> Any:
    """Return a canonical attribute as a call takes it: pads are written last dim first."""
    if (op, name) != ("pad", "pad_widths"):
        return value
    pairs = zip(value[::2], value[1::2], strict=True)
    return tuple(width for pair in reversed(list(pairs)) for width in pair)


def _operand(operand: Operand) -> str:
    if not isinstance(operand, Const):
        return operand.name
    plain: dict[type, DType] = {bool: BOOL, int: I64, float: F64}
    if isinstance(operand.value, complex):
        return f"{operand.dtype}({_parts(operand.value)})"
    text = _number(operand.value)
    return text if plain.get(type(operand.value)) == operand.dtype else f"{operand.dtype}({text})"


def _attribute(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_attribute(v) for v in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (Dim, DType, str)):
        return str(value)
    return _number(value)


def _parts(value: complex) -> str:
    return f"{_number(value.real)}, {_number(value.imag)}"


def _number(value: complex | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # 1e-05 is Python's form; people write 1e-5.
    return re.sub(r"e([-+]?)0+(?=\d)", r"e\1", repr(value)).replace("e+", "e")


def _listing(values: Sequence[Any]) -> str:
    texts = (_attribute(v) for v in values)
    return "[" + ", ".join(t if _PLAIN_ITEM.fullmatch(t) else f'"{t}"' for t in texts) + "]"


def _outputs(outputs: Sequence[Output], divided: Divided) -> Iterator[str]:
    names = {o.value.name for o in outputs}
    if all(o.alias is None and o.stride_order is None for o in outputs) and not names & {*divided}:
        yield f"outputs: [{', '.join(o.value.name for o in outputs)}]"
        return
    yield "outputs:"
    for output in outputs:
        options: list[str] = []
        if output.alias is not None:
            options.append(f"alias: {output.alias}")
        if output.stride_order is not None:
            options.append(f"stride_order: {_listing(output.stride_order)}")
        options += divided.get(output.value.name, ())
        tail = ": {" + ", ".join(options) + "}" if options else ""
        yield f"  - {output.value.name}{tail}"


def _shardings(fusion: Fusion, divided: Divided) -> Iterator[str]:
    """Yield the shardings of values that are neither inputs nor outputs."""
    ends = {e.value.name for e in (*fusion.inputs, *fusion.outputs)}
    for name, clauses in divided.items():
        if name not in ends:
            yield f"{name}: {{{', '.join(clauses)}}}"


def _phase(phase: Phase) -> str:
    inputs, outputs = (f"[{', '.join(names)}]" for names in (phase.inputs, phase.outputs))
    return f"{phase.name}: {{inputs: {inputs}, outputs: {outputs}}}"


def _schedules(overrides: Sequence[Override]) -> Iterator[str]:
    for of in dict.fromkeys(o.of for o in overrides):
        own = (f"{o.name}: {_attribute(o.value)}" for o in overrides if o.of == of)
        yield f"{of}: {{{', '.join(own)}}}"


def _segment(pin: Pin, alive: set[str]) -> str:
    values = f"[{', '.join(v for v in pin.values if v in alive)}]"
    if pin.open:
        return f"{pin.name}: {{values: {values}, open: true}}"
    if pin.scheduler is None:
        return f"{pin.name}: {values}"
    return f"{pin.name}: {{values: {values}, scheduler: {pin.scheduler}}}"
