"""Simpler fusions made from one: a result or a node less, smaller sizes, plainer types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim
from fusec.ir.dtype import F32, I64, DType
from fusec.ir.graph import Const, DimFact, Fusion, Input, Node, Output, Value
from fusec.ops.builder.arguments import written_attributes
from fusec.ops.builder.build import GraphBuilder

Stand = Callable[["Rebuild", Node, list[Any]], Sequence[Any] | None]


def _kept(entry: Input) -> Input:
    return entry


@dataclass
class Rebuild:
    """A fusion built again call by call, with something done differently."""

    fusion: Fusion
    instead: Stand = lambda rebuild, node, operands: None
    """Returns what stands for a node's results, or None to call it again."""
    entry: Callable[[Input], Input | None] = _kept
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    constants: Mapping[int, int] = field(default_factory=dict[int, int])

    def made(self) -> Fusion | None:
        """Return the fusion, or None where what is left does not fit together."""
        self.builder = GraphBuilder(self.fusion.name)
        self.values: dict[Value, Any] = {}
        try:
            self._begin()
            for node in self.fusion.nodes:
                self._node(node)
            for output in self.fusion.outputs:
                self._output(output)
            made = self.builder.finish()
        except (FusecError, KeyError):
            return None
        names = {v.name for n in made.nodes for v in n.outputs}
        pins = (
            replace(p, values=tuple(v for v in p.values if v in names)) for p in self.fusion.pins
        )
        kept = tuple(p for p in pins if p.values)
        return replace(pruned(made), pins=kept, schedules=self.fusion.schedules)

    def _begin(self) -> None:
        scalars = {i.value.name for i in self.fusion.inputs}
        for fact in self.fusion.dims:
            if "." not in fact.name and fact.name not in scalars:
                size = self.sizes.get(fact.name, fact.default)
                multiple = fact.multiple_of if size % fact.multiple_of == 0 else 1
                self.builder.declare_dim(fact.name, size, multiple_of=multiple)
        for entry in self.fusion.inputs:
            kept = self.entry(entry)
            if kept is not None:
                self.values[entry.value] = self._declare(kept)

    def _declare(self, entry: Input) -> Value:
        value = entry.value
        if entry.generator:
            return self.builder.generator_input(value.name, entry.generator)
        shape = None if value.is_scalar else [self.extent(e) for e in value.shape]
        layout: dict[str, Any] = {} if value.is_scalar else _layout_of(entry, self.extent)
        return self.builder.input(
            value.name, value.dtype, shape, low=entry.low, high=entry.high,
            default=entry.default, on_cpu=entry.on_cpu, **layout,
        )  # fmt: skip

    def extent(self, extent: Dim | int) -> Dim | int:
        """Return an extent with constants replaced."""
        if isinstance(extent, Dim) and extent.is_const:
            return self.constants.get(extent.value, extent.value)
        return extent

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Dim):
            return self.extent(value)
        if isinstance(value, tuple):
            return tuple(self._attribute(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        return value

    def _node(self, node: Node) -> None:
        operands = [o if isinstance(o, Const) else self.values.get(o, o) for o in node.operands]
        found = self.instead(self, node, operands)
        if found is None:
            given: list[Any] = operands
            if any(p.kind == "operands" for p in node.op.params):
                given = [operands]
            attributes = written_attributes(node.op, node.attributes)
            attributes = {k: self._attribute(v) for k, v in attributes.items()}
            names = [v.name for v in node.outputs]
            found = self.builder.call(node.op.name, given, attributes, names=names)
        self.values.update(zip(node.outputs, found, strict=True))

    def _output(self, output: Output) -> None:
        value = self.values[output.value]
        alias, order = output.alias, output.stride_order
        self.builder.output(value, alias=alias, stride_order=order)


def _layout_of(entry: Input, extent: Callable[[Dim], Any]) -> dict[str, Any]:
    """Return the strides of an input, those that are only known at run time by flags."""
    from fusec.ir.text import layout_of

    if not entry.strides:
        return {}
    found = layout_of(entry)
    if found is None:
        return {"strides": [extent(s) for s in entry.strides]}
    flags, order = found
    return {"contiguity": flags, "stride_order": order}


def pruned(fusion: Fusion) -> Fusion:
    """Return the fusion without what no output needs."""
    from fusec.ir.graph import needed_nodes
    from fusec.segment.segmented import extract

    nodes = needed_nodes(fusion.nodes, [o.value for o in fusion.outputs])
    return extract(fusion, nodes, fusion.name)


def candidates(fusion: Fusion) -> Iterator[Fusion]:
    """Yield simpler fusions, those with most taken away first."""
    for made in _candidates(fusion):
        if made is not None:
            yield made


def _candidates(fusion: Fusion) -> Iterator[Fusion | None]:
    yield from _fewer_outputs(fusion)
    if fusion.pins:
        yield replace(fusion, pins=())
    for k in range(len(fusion.schedules)):
        yield replace(fusion, schedules=fusion.schedules[:k] + fusion.schedules[k + 1 :])
    for node in reversed(fusion.nodes):
        if not any(v.is_scalar for v in node.outputs):
            yield _cut(fusion, node)
    for node in reversed(fusion.nodes):
        for k, operand in enumerate(node.operands):
            if isinstance(operand, Value) and not operand.is_scalar and len(node.outputs) == 1:
                yield _bypass(fusion, node, k)
    yield from _plainer(fusion)
    yield from _smaller(fusion)


def _fewer_outputs(fusion: Fusion) -> Iterator[Fusion | None]:
    outputs = fusion.outputs
    if len(outputs) > 1:
        for kept in outputs:
            yield pruned(replace(fusion, outputs=(kept,), pins=()))
            yield _with_outputs(fusion, [kept])
        for dropped in outputs:
            yield _with_outputs(fusion, [o for o in outputs if o is not dropped])
    for k, output in enumerate(outputs):
        if output.alias is not None or output.stride_order is not None:
            plain = replace(output, alias=None, stride_order=None)
            yield _with_outputs(fusion, [*outputs[:k], plain, *outputs[k + 1 :]])


def _with_outputs(fusion: Fusion, outputs: Sequence[Output]) -> Fusion | None:
    return Rebuild(replace(fusion, outputs=tuple(outputs))).made()


def _cut(fusion: Fusion, node: Node) -> Fusion | None:
    """Return the fusion with a node's results as inputs."""
    written = {o.value for o in fusion.outputs}

    def instead(rebuild: Rebuild, at: Node, operands: list[Any]) -> Sequence[Any] | None:
        if at is not node:
            return None
        made: list[Any] = []
        for value in node.outputs:
            name = rebuild.builder.fresh_name(f"{value.name}_in")
            shape = [rebuild.extent(e) for e in value.shape]
            made.append(rebuild.builder.input(name, value.dtype, shape))
        return made

    if all(v in written and v not in fusion.users for v in node.outputs):
        return None
    return Rebuild(fusion, instead).made()


def _bypass(fusion: Fusion, node: Node, number: int) -> Fusion | None:
    """Return the fusion with one of a node's operands in its place, cast where needed."""

    def instead(rebuild: Rebuild, at: Node, operands: list[Any]) -> Sequence[Any] | None:
        if at is not node:
            return None
        operand = rebuild.builder.resolve(operands[number])
        if operand.type.dtype == node.output.dtype:
            return [operand]
        return rebuild.builder.call("cast", [operand], {"dtype": node.output.dtype})

    if node.op.converts:
        return None
    return Rebuild(fusion, instead).made()


def _plainer(fusion: Fusion) -> Iterator[Fusion | None]:
    """Yield the fusion with plain layouts, types and numbers."""
    for chosen in fusion.inputs:
        if chosen.value.is_scalar:
            continue
        if not _is_dense(chosen):
            yield Rebuild(fusion, entry=lambda e, c=chosen: _dense(e) if e is c else e).made()
    floats = {v.dtype for v in fusion.values if v.dtype.is_float and v.dtype != F32}
    wholes = {v.dtype for v in fusion.values if v.dtype.is_integer and v.dtype != I64}
    for dtype in sorted(floats | wholes, key=str):
        plain = F32 if dtype.is_float else I64
        yield Rebuild(fusion, _typed(dtype, plain), entry=_retyped(dtype, plain)).made()


def _is_dense(entry: Input) -> bool:
    from fusec.ops.builder.layout import contiguous

    return entry.strides == contiguous(entry.value.shape) and not entry.on_cpu


def _dense(entry: Input) -> Input:
    from fusec.ops.builder.layout import contiguous

    return replace(entry, strides=contiguous(entry.value.shape), on_cpu=False)


def _retyped(old: DType, new: DType) -> Callable[[Input], Input]:
    def entry(found: Input) -> Input:
        if found.value.dtype != old or found.value.is_scalar:
            return found
        value = Value(found.value.name, replace(found.value.type, dtype=new))
        return replace(found, value=value)

    return entry


def _typed(old: DType, new: DType) -> Stand:
    """Return what calls nodes again with another type where they name one."""

    def instead(rebuild: Rebuild, node: Node, operands: list[Any]) -> Sequence[Any] | None:
        if node.attributes.get("dtype") != old:
            return None
        attributes = {**written_attributes(node.op, node.attributes), "dtype": new}
        names = [v.name for v in node.outputs]
        return rebuild.builder.call(node.op.name, operands, attributes, names=names)

    return instead


def _smaller(fusion: Fusion) -> Iterator[Fusion | None]:
    """Yield the fusion with one size less."""
    scalars = {i.value.name for i in fusion.inputs}
    for fact in fusion.dims:
        if "." in fact.name or fact.name in scalars:
            continue
        for size in _sizes_below(fact.default):
            yield Rebuild(fusion, sizes={fact.name: size}).made()
        if fact != DimFact(fact.name, fact.default):
            dims = (DimFact(d.name, d.default) if d is fact else d for d in fusion.dims)
            yield replace(fusion, dims=tuple(dims))
    constants = {e.value for v in fusion.values for e in v.shape if e.is_const and e.value > 1}
    for constant in sorted(constants, reverse=True):
        for size in _sizes_below(constant):
            yield Rebuild(fusion, constants={constant: size}).made()


def _sizes_below(size: int) -> Iterator[int]:
    yield from dict.fromkeys(s for s in (1, 2, 8, size // 4, size // 2, size - 1) if 0 < s < size)
