"""Replace complex numbers by pairs of reals, so that later stages see only reals."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import Unsupported
from fusec.ir.dtype import BOOL, DType
from fusec.ir.graph import ComplexPart, Const, Fusion, Input, Node, Operand, Output, Type, Value
from fusec.ir.roles import Combine
from fusec.ops.communication import stands_alone
from fusec.ops.complex_formulas import Pair
from fusec.ops.complexes import MOVED
from fusec.ops.find import find_op
from fusec.ops.names import fresh_name
from fusec.passes.rewrite import NO_ATTRIBUTES, edit_pins, typed

SUFFIXES = ("re", "im")
SUMS = (None, "sum")
"""Reductions of collectives that treat both parts alike; None: no reduction."""


def complex_as_pairs(fusion: Fusion) -> Fusion:
    """Replace complex numbers by pairs of reals; inputs and outputs stay interleaved in memory."""
    if not any(v.dtype.is_complex for v in fusion.values) and not _has_literals(fusion):
        return fusion
    if fusion.phases:
        raise Unsupported("phases of a fusion with complex numbers", span=fusion.phases[0].span)
    work = _Pairing(fusion)
    for node in fusion.nodes:
        work.visit(node)
    return work.finish()


def _has_literals(fusion: Fusion) -> bool:
    return any(o.dtype.is_complex for n in fusion.nodes for o in n.operands if isinstance(o, Const))


class _Pairing:
    """The partially rewritten fusion; real values stay the same objects."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.pairs: dict[Value, Pair] = {}
        self.nodes: list[Node] = []
        self.part = BOOL
        self._near: Node | None = None
        self._names = fusion.names
        self._pin_of = {name: pin.name for pin in fusion.pins for name in pin.values}
        self._joined: dict[str, str] = {}
        self._dropped: set[str] = set()
        self.inputs = [i for entry in fusion.inputs for i in self._input(entry)]

    # -- inputs

    def _input(self, entry: Input) -> list[Input]:
        value, kind = entry.value, entry.value.dtype
        if not kind.is_complex:
            return [entry]
        strides = tuple(s * 2 for s in entry.strides)
        parts: list[Input] = []
        for index, suffix in enumerate(SUFFIXES):
            name = fresh_name(self._names, f"{value.name}_{suffix}")
            made = Value(name, Type(kind.part, value.type.shape))
            default = entry.default
            if default is not None:
                default = (complex(default).real, complex(default).imag)[index]
            part = ComplexPart(value.name, index, kind)
            new = replace(entry, value=made, strides=strides, default=default, part=part)
            parts.append(new)
        self.pairs[value] = Pair(parts[0].value, parts[1].value)
        return parts

    # -- what formulas call

    def op(self, name: str, *operands: Operand | float, **attributes: Any) -> Operand:
        """Write an operation on reals; numbers become constants of the part's type."""
        near = self._near
        assert near is not None
        given = tuple(
            o if isinstance(o, (Value, Const)) else Const(float(o), self.part) for o in operands
        )
        definition = near.op if near.op.name == name else find_op(name)
        complete, types = typed(definition, given, attributes)
        names = [fresh_name(self._names, f"{near.output.name}_{name}") for _ in types]
        results = tuple(map(Value, names, types))
        self._append(Node(definition, given, MappingProxyType(complete), results, near.span))
        return results[0]

    def _append(self, node: Node) -> None:
        assert self._near is not None
        self.nodes.append(node)
        pin = self._pin_of.get(self._near.output.name)
        for value in node.outputs:
            if pin is not None and value.name not in self._pin_of:
                self._joined[value.name] = pin

    # -- operands

    def _pair(self, operand: Operand, dtype: DType) -> Pair:
        """Return an operand as the parts of a complex type; the imaginary part of a real is 0."""
        part = dtype.part
        if isinstance(operand, Const):
            number = complex(operand.value)
            return Pair(Const(number.real, part), Const(number.imag, part))
        if operand in self.pairs:
            pair = self.pairs[operand]
            return Pair(self._cast(pair.re, part), self._cast(pair.im, part))
        return Pair(self._cast(operand, part), Const(0.0, part))

    def _cast(self, operand: Operand, dtype: DType) -> Operand:
        return operand if operand.type.dtype == dtype else self.op("cast", operand, dtype=dtype)

    def _spread(self, operand: Operand, type: Type) -> Operand:
        """Return a part broadcast to the shape of the complex value; a literal becomes a fill."""
        if operand.type.shape == type.shape:
            return operand
        if not operand.is_scalar:
            return self.op("expand", operand, shape=type.shape)
        return self.op("full", operand, shape=type.shape, dtype=type.dtype.part)

    def _tensors(self, operand: Operand, dtype: DType) -> Pair:
        pair = self._pair(operand, dtype)
        return Pair(*(self._spread(p, Type(dtype, operand.type.shape)) for p in (pair.re, pair.im)))

    # -- the walk

    def visit(self, node: Node) -> None:
        """Copy a node on reals; write the parts of any other."""
        computed = node.compute_dtypes
        given = any(o.type.dtype.is_complex for o in node.operands)
        made = any(v.dtype.is_complex for v in node.outputs)
        if not given and not made:
            self.nodes.append(node)
            return
        self._near = node
        kinds = [d for d in (*computed, *(v.dtype for v in node.outputs)) if d.is_complex]
        self.part = kinds[0].part if kinds else node.operands[0].type.dtype.part
        for value, result in zip(node.outputs, self._results(node), strict=True):
            if isinstance(result, Pair):
                self.pairs[value] = Pair(
                    self._spread(result.re, value.type), self._spread(result.im, value.type)
                )
                self._dropped.add(value.name)
            else:
                self._append(Node(find_op("set"), (result,), NO_ATTRIBUTES, (value,), node.span))

    def _results(self, node: Node) -> Sequence[Pair | Operand]:
        name, computed = node.op.name, node.compute_dtypes
        if node.op.family == "scalar":
            operand = node.operands[0]
            source = self.pairs[operand].re if isinstance(operand, Value) else operand
            return [self.op("size", source, **node.attributes)]
        if node.op.converts:
            return [self._converted(node)]
        if name == "complex":
            return [Pair(*(self._cast(o, self.part) for o in node.operands))]
        if node.op.chooses:
            condition, *rest = node.operands
            x, y = (self._pair(o, node.output.dtype) for o in rest)
            return [Pair(self.op("where", condition, x.re, y.re),
                         self.op("where", condition, x.im, y.im))]  # fmt: skip
        if name.startswith("logical_"):
            return [self.op(name, *(self._truth(o) for o in node.operands))]
        if node.op.parts is not None:
            pairs = [self._pair(o, d) for o, d in zip(node.operands, computed, strict=True)]
            return [node.op.parts(self, *pairs)]
        # Products and extrema of complex numbers are not those of their parts.
        if name in MOVED or (stands_alone(node) and node.attributes.get("reduction") in SUMS):
            return [self._moved(node)]
        if node.op.combine is Combine.MOMENTS and "correction" in node.attributes:
            return self._spreads(node)
        if node.op.product is not None and node.op.lookup is None:
            return [self._product(node)]
        raise Unsupported(f"`{name}` of complex numbers", span=node.span)

    def _truth(self, operand: Operand) -> Operand:
        if not operand.type.dtype.is_complex:
            return operand
        pair = self._pair(operand, operand.type.dtype)
        return self.op("logical_or", self.op("ne", pair.re, 0.0), self.op("ne", pair.im, 0.0))

    def _converted(self, node: Node) -> Pair | Operand:
        operand, target = node.operands[0], node.output.dtype
        if target.is_complex:
            return self._pair(operand, target)
        if target == BOOL:
            return self._truth(operand)
        return self._cast(self._pair(operand, operand.type.dtype).re, target)

    def _moved(self, node: Node) -> Pair:
        """Apply the same operation to both parts."""
        sides: list[list[Operand]] = [[], []]
        for operand, dtype in zip(node.operands, node.compute_dtypes, strict=True):
            pair = Pair(operand, operand)
            if dtype.is_complex:
                pair = self._pair(operand, dtype) if operand.is_scalar else (
                    self._tensors(operand, dtype)
                )  # fmt: skip
            sides[0].append(pair.re)
            sides[1].append(pair.im)
        attributes = {k: v.part if isinstance(v, DType) else v for k, v in node.attributes.items()}
        return Pair(*(self.op(node.op.name, *side, **attributes) for side in sides))

    def _spreads(self, node: Node) -> list[Pair | Operand]:
        """Write the variance, which is the sum of the parts' variances, and the mean."""
        pair = self._tensors(node.operands[0], node.compute_dtypes[0])
        variances: list[Operand] = []
        means: list[Operand] = []
        for part in (pair.re, pair.im):
            variances.append(self.op(node.op.name, part, **node.attributes))
            means.append(self.nodes[-1].outputs[-1])
        total = self.op("add", *variances)
        return [total] if len(node.outputs) == 1 else [total, Pair(*means)]

    def _product(self, node: Node) -> Pair:
        """Write a GEMM as four GEMMs of the parts; the bias is added to the result."""
        a, b = (self._tensors(o, node.output.dtype) for o in node.operands[:2])
        name = node.op.name
        re = self.op("sub", self.op(name, a.re, b.re), self.op(name, a.im, b.im))
        im = self.op("add", self.op(name, a.re, b.im), self.op(name, a.im, b.re))
        if len(node.operands) == 2:
            return Pair(re, im)
        bias = self._tensors(node.operands[2], node.output.dtype)
        places = [node.output.rank - 1] if node.operands[2].shape else []
        wide = [
            self.op("broadcast_in_dim", p, shape=node.output.shape, broadcast_dims=tuple(places))
            for p in (bias.re, bias.im)
        ]
        return Pair(self.op("add", re, wide[0]), self.op("add", im, wide[1]))

    # -- outputs

    def finish(self) -> Fusion:
        """Return the rewritten fusion."""
        outputs = [o for output in self.fusion.outputs for o in self._output(output)]
        pins = edit_pins(self.fusion.pins, self._dropped, self._joined)
        return replace(
            self.fusion, inputs=tuple(self.inputs), nodes=tuple(self.nodes),
            outputs=tuple(outputs), pins=pins,
        )  # fmt: skip

    def _output(self, output: Output) -> list[Output]:
        value = output.value
        if value not in self.pairs:
            return [output]
        self._near = self.fusion.producer[value]
        pair, outputs = self.pairs[value], list[Output]()
        for index, (part, suffix) in enumerate(zip((pair.re, pair.im), SUFFIXES, strict=True)):
            named = Value(fresh_name(self._names, f"{value.name}_{suffix}"), part.type)
            self._append(Node(find_op("set"), (part,), NO_ATTRIBUTES, (named,), self._near.span))
            alias = None
            if (target := self.fusion.effects.into.get(value)) is not None:
                name = target.value.name
                alias = next(
                    i.value.name for i in self.inputs
                    if i.part is not None and (i.part.of, i.part.index) == (name, index)
                )  # fmt: skip
            whole = ComplexPart(value.name, index, value.dtype)
            outputs.append(replace(output, value=named, alias=alias, part=whole))
        return outputs
