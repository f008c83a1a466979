"""Construction of graphs: a builder that checks, completes and types every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from fusec.codes.declarations import ALIAS_NOT_AN_INPUT, ALIAS_TYPE
from fusec.codes.shapes import ELEMENTS_DIFFER
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError, InternalError, Span
from fusec.ir.annotations import Override, Pin
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Fusion, Input, Node, Operand, Output, Type, Value
from fusec.ir.op import OpDef
from fusec.ir.verify import verify
from fusec.ops.builder.advice import (
    Dropped,
    advised,
    advised_of_sizes,
    advised_of_slices,
    dropped_of,
    in_terms_of,
    searched,
    written,
)
from fusec.ops.builder.arguments import (
    OperandArgument,
    attributes_of,
    bind,
    flat_operands,
    miscounted,
    operand_slots,
    reversed_pads,
)
from fusec.ops.builder.boundaries import Boundary, check_pin, phases_between
from fusec.ops.builder.draws import DrawBuilder
from fusec.ops.builder.size_operands import with_constants
from fusec.ops.builder.wording import FILE_WORDING, Declaration, Wording
from fusec.ops.complexes import check_complex
from fusec.ops.dtypes import common_type, dtype_of
from fusec.ops.find import find_op
from fusec.ops.limits import check_fits, check_sizes
from fusec.ops.literals import typed_literals
from fusec.ops.reduction.zero_dim import is_one_element, of_one_element
from fusec.ops.shapes import Unequal, broadcast_shape
from fusec.ops.table import TABLE

NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class _Draft:
    """A node whose types may still change by unification; values are slot numbers."""

    op: OpDef
    operands: tuple[int | Const, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[int, ...]
    span: Span | None


class GraphBuilder(DrawBuilder):
    """Builds one fusion: declare dims and inputs, call operations, name outputs, finish."""

    def __init__(
        self,
        name: str = "fusion",
        *,
        doc: str = "",
        source: str = "",
        words: Wording = FILE_WORDING,
    ) -> None:
        """Start an empty fusion; words: the language of suggestions in errors."""
        super().__init__(name)
        self.words = words
        self.name, self.doc, self.source = name, doc, source
        self._drafts: list[_Draft] = []
        self._outputs: list[Output] = []
        self._pins: list[Pin] = []
        self.schedules: list[Override] = []
        self.boundaries = "free"
        self._boundaries: list[Boundary] = []
        self._call_span: Span | None = None
        self._depth = 0
        """Nesting depth of the current call: composites make calls."""
        self._dropped: dict[int, Dropped] = {}

    def call(
        self,
        op: str,
        operands: Sequence[OperandArgument],
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        *,
        names: Sequence[str] | None = None,
        span: Span | None = None,
        place: Callable[[str], Span | None] | None = None,
    ) -> tuple[Operand, ...]:
        """Call an operation and return its results.

        place: returns the source location of the argument kind that an error is about.

        Operands follow `op.operands`: numbers and None are allowed, and lists for the kind
        `operands`. Scalar integers may be returned as Const. Calls made by a call, as those of a
        composite, get its span.
        """
        definition = find_op(op, span)
        outer, span = self._call_span, span or self._call_span
        self._call_span = span
        self._depth += 1
        try:
            results = self._call(definition, operands, reversed_pads(attributes), names, span)
        except InternalError:
            raise
        except FusecError as error:
            search = partial(self._of_call, error, definition, operands, attributes)
            error = searched(error, search)
            here = place(error.about) if place is not None and error.about else None
            raise self._placed(error, operands, here or span) from None
        finally:
            self._call_span = outer
            self._depth -= 1
        made = (value for value in results if isinstance(value, Value))
        for value, dropped in dropped_of(definition, operands, attributes, made):
            self._dropped[self._slot_of[value]] = dropped
        return results

    def _of_call(
        self,
        error: FusecError,
        op: OpDef,
        operands: Sequence[OperandArgument],
        attributes: Mapping[str, Any],
    ) -> FusecError:
        """Return an error of a call in the call's own terms, with a suggested fix if one is known.

        An error of a call that a composite makes names operations and values that are in no file.
        """
        is_inner = bool(error.operation)
        if is_inner and op.expand is None and op.instead is None:
            return error
        given = dict(zip((p.name for p in op.operands), operands, strict=False))
        if is_inner:
            error = in_terms_of(error, op, given)
        cause = error.cause or error.diagnostic.message
        error = error.changed(operation=op.name, cause=cause, given=given)
        if isinstance(error, Unequal):
            now = {p: self._value(o) if isinstance(o, Value) else o for p, o in given.items()}
            values = [v for v in now.values() if isinstance(v, Value)]
            known = {v.name: self._dropped.get(self._slot_of[v]) for v in values}
            dropped = {n: d for n, d in known.items() if d is not None}
            declared = [self._value(i.value) for i in self._inputs]
            cut = {v.name: found for v in values if (found := self._cut_input(v)) is not None}
            longer = advised_of_slices(error, values, cut, self.hints, self.words)
            mended = advised(error, now, dropped, declared, self.dims, self.words)
            error = mended if longer is error else longer
        elif error.code is ELEMENTS_DIFFER and op is TABLE["reshape"] and not is_inner:
            (x,) = (self.resolve(o) for o in operands)
            is_input = any(self._value(i.value) is x for i in self._inputs)
            shape = self.bindings.attribute(attributes_of(op, [x], attributes)["new_shape"])
            error = advised_of_sizes(error, x, shape, is_input, self.hints, self.words)
        if error.instead is None or self._depth > 1:
            return error
        line = written(op, error.instead, operands, attributes)
        return error.changed(help=error.instead.help(f"`{line}`"))

    def _cut_input(self, value: Value) -> Value | None:
        """Return the input whose slice a value is, or is computed from elementwise."""
        makers = {slot: draft for draft in self._drafts for slot in draft.outputs}
        slot = self._slot_of[value]
        while (draft := makers.get(slot)) is not None:
            sources = [o for o in draft.operands if not isinstance(o, Const)]
            is_cut = draft.op is TABLE["slice"]
            if len(sources) != 1 or not (is_cut or draft.op.is_elementwise or draft.op.converts):
                return None
            (slot,) = sources
            if is_cut:
                found = self._current(slot)
                return found if any(self._value(i.value) is found for i in self._inputs) else None
        return None

    def works(self, make: Callable[[], Any], declared: Declaration | None = None) -> bool:
        """Return whether the calls that `make` makes are valid; they leave no trace in the graph.

        declared: a declaration to assume for them.
        """
        count, restore = len(self._drafts), self.assume(declared)
        try:
            make()
        except FusecError:
            return False
        finally:
            del self._drafts[count:]
            restore()
        return True

    def apply(self, op: str, *positional: Any, **keywords: Any) -> Operand:
        """Call an operation with one result as written in source, and return the result."""
        operands, attributes = bind(find_op(op), positional, keywords)
        results = self.call(op, operands, attributes)
        if len(results) != 1:
            raise InternalError(f"`{op}` has {len(results)} results")
        return results[0]

    def _call(
        self,
        op: OpDef,
        given: Sequence[OperandArgument],
        attributes: Mapping[str, Any],
        names: Sequence[str] | None,
        span: Span | None,
    ) -> tuple[Operand, ...]:
        slots = [
            None if slot is None else [self.resolve(o) for o in slot]
            for slot in operand_slots(op, given)
        ]
        if is_one_element(op, slots):
            return self._named(op, of_one_element(self, op, slots, attributes), names, span)
        instead = None if op.instead is None else op.instead(self, slots, attributes)
        if instead is not None:
            return self._named(op, instead, names, span)
        flat = [o for slot in slots if slot is not None for o in slot]
        complete = attributes_of(op, flat, self._numbers(op, attributes))
        complete = {k: self.bindings.attribute(v) for k, v in complete.items()}
        if op.canonical is not None:
            complete = {**complete, **op.canonical(tuple(flat), complete)}
        check_complex(op, flat, complete)
        if op.prepare is not None:
            op.prepare(self, slots, complete)
            flat = [o for slot in slots if slot is not None for o in slot]
        for left, right in op.equal(tuple(flat), complete) if op.equal else ():
            self.bindings.unify(left, right)
        complete = {k: self.bindings.attribute(v) for k, v in complete.items()}
        if op.expand is not None:
            single: list[Operand | None] = []
            for slot in slots:
                single += [None] if slot is None else [self.resolve(operand) for operand in slot]
            made: Operand | tuple[Operand, ...] = op.expand(self, *single, **complete)
            return self._named(op, made if isinstance(made, tuple) else (made,), names, span)
        operands = flat_operands(op, slots)
        if op.is_elementwise:
            operands = self._aligned(op, operands)
        operands = [self.resolve(o) for o in operands]
        complete = {k: self.bindings.attribute(v) for k, v in complete.items()}
        return self._node(op, tuple(operands), complete, names, span)

    def _numbers(self, op: OpDef, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return attributes with dims of no input replaced by constants where required."""
        kinds = {p.name: p.kind for p in op.attributes}

        def number(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [number(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
            size = value.type.dim if isinstance(value, Value) else value
            return with_constants(self, size) if isinstance(size, Dim) else value

        fixed = ("int", "ints", "float")
        return {k: number(v) if kinds.get(k) in fixed else v for k, v in attributes.items()}

    def _node(
        self,
        op: OpDef,
        operands: tuple[Operand, ...],
        attributes: dict[str, Any],
        names: Sequence[str] | None,
        span: Span | None,
    ) -> tuple[Operand, ...]:
        keepdim: bool = attributes.pop("keepdim", False)
        types = op.infer(operands, attributes)
        if names is not None and len(names) != len(types):
            raise miscounted(op, len(types), len(names))
        folded = _folded(operands, types)
        if op.converts and types[0].shape is None and types[0].dtype.is_integer:
            folded = folded or self._cast_literal(op, operands[0], types[0].dtype)
        if folded is not None:
            return (folded,)
        if types[0].dim is None:  # sizes are exact
            given, operands = operands, typed_literals(op, operands, types[0].dtype)
            types = types if operands == given else op.infer(operands, attributes)
        labels = self._labels(op, names, len(types))
        kept = [self.fresh_name(f"{label}_kept") for label in labels] if names is None else names
        if keepdim and names is not None:
            labels = [self.fresh_name(f"{label}_reduced") for label in labels]
        outputs = [self._enter(Value(n, t), span) for n, t in zip(labels, types, strict=True)]
        self._drafts.append(
            _Draft(
                op,
                tuple(o if isinstance(o, Const) else self._slot_of[o] for o in operands),
                MappingProxyType(attributes),
                tuple(self._slot_of[o] for o in outputs),
                span,
            )
        )
        if not keepdim:
            return tuple(outputs)
        rank = len(operands[0].type.shape or ())
        mask = tuple(axis in attributes["dims"] for axis in range(rank))
        return tuple(
            self.call("broadcast", [value], {"is_broadcast_dim": mask}, names=[kept[k]], span=span)[
                0
            ]
            for k, value in enumerate(outputs)
        )

    def _cast_literal(self, cast: OpDef, operand: Operand, dtype: DType) -> Const | None:
        """Return a cast of a scalar computed only from literals: the integer may be a size."""
        from fusec.ir.evaluate import apply_reference

        number = self.number_of(operand, {})
        if number is None:
            return None
        (result,) = apply_reference(cast, [number], {"dtype": dtype})
        return Const(result.astype(dtype.numpy).item(), dtype)

    def number_of(self, operand: Operand, scalars: Mapping[str, Any]) -> Any:
        """Return the value of a scalar computed from literals and scalar inputs, or None."""
        from fusec.ir.evaluate import constant, evaluate_node

        if isinstance(operand, Value) and operand.name in scalars:
            operand = Const(scalars[operand.name], operand.dtype)
        if isinstance(operand, Const):
            return constant(operand)
        slot = self._slot_of[operand]
        draft = next((d for d in self._drafts if slot in d.outputs), None)
        if draft is None or not draft.op.is_elementwise or not operand.is_scalar:
            return None
        operands = [o if isinstance(o, Const) else self._slots[o] for o in draft.operands]
        given = {o: self.number_of(o, scalars) for o in operands if isinstance(o, Value)}
        if any(array is None for array in given.values()):
            return None
        outputs = tuple(self._slots[o] for o in draft.outputs)
        node = Node(draft.op, tuple(operands), draft.attributes, outputs, draft.span)
        return evaluate_node(node, given, scalars)[0]

    def _labels(self, op: OpDef, names: Sequence[str] | None, count: int) -> list[str]:
        if names is not None:
            for name in names:
                self._claim(name, "value", None)
            if len(set(names)) != len(names):
                raise FusecError(f"a result of `{op.name}` is named twice: {', '.join(names)}")
            return list(names)
        results = [op.name] if count == 1 else op.results
        return [self._numbered(result) for result in results]

    def _named(
        self,
        op: OpDef,
        results: tuple[Operand, ...],
        names: Sequence[str] | None,
        span: Span | None,
    ) -> tuple[Operand, ...]:
        if names is None:
            return results
        if len(names) != len(results):
            raise miscounted(op, len(results), len(names))
        return tuple(
            self._renamed(result, name, span) for result, name in zip(results, names, strict=True)
        )

    def _renamed(self, result: Operand, name: str, span: Span | None) -> Operand:
        if isinstance(result, Const):
            return result
        if self._value(result).name in {i.value.name for i in self._inputs}:
            return self.call("set", [result], names=[name], span=span)[0]
        return self.rename(result, name, span=span)

    def _aligned(self, op: OpDef, operands: list[Operand]) -> list[Operand]:
        """Return elementwise operands with broadcasts to the result's rank written out."""
        shapes = [o.type.shape for o in operands if o.type.shape is not None]
        rank = max((len(s) for s in shapes), default=0)
        for axis in range(-rank, 0):
            wide = [s[axis] for s in shapes if len(s) >= -axis and s[axis] != 1]
            for other in wide[1:]:
                self.bindings.unify(wide[0], other)
        operands = [self.resolve(o) for o in operands]
        shape = broadcast_shape(op.name, operands)
        if shape is None or all(len(s) == rank for s in shapes):
            return operands
        promoted = op.promoted(tuple(operands)) if op.promoted else ()
        common = common_type(op.name, promoted) if promoted else None
        aligned: list[Operand] = []
        for operand in operands:
            own = operand.type.shape
            if isinstance(operand, Value) and own is not None and len(own) < rank:
                name = operand.name
                weak = not own and any(operand is p for p in promoted)
                if weak and common is not None and dtype_of(operand) != common:
                    operand = self.call("cast", [operand], {"dtype": common})[0]
                operand = self.call(
                    "broadcast_in_dim",
                    [operand],
                    {"shape": shape, "broadcast_dims": list(range(rank - len(own), rank))},
                    names=[self.fresh_name(f"{name}_broadcast")],
                )[0]
            aligned.append(operand)
        return aligned

    def output(
        self,
        value: Operand,
        *,
        alias: str | Value | None = None,
        stride_order: Sequence[int] | None = None,
        span: Span | None = None,
    ) -> Value:
        """Name an output and return it; `alias` is the input whose memory it is written into."""
        value = self.resolve(value)
        if isinstance(value, Const) or value.is_scalar:
            raise FusecError(
                "a scalar cannot be an output",
                span=span,
                help="create a 0-dim tensor with `full`"
                if isinstance(value, Const)
                else f"`full([], {value.name})` is a 0-dim tensor of it",
            )
        preferred = self._orders.get(self._slot_of[value])
        used = {self._slot_of[o.value] for o in self._outputs}
        is_input = any(i.value.name == value.name for i in self._inputs)
        if is_input or self._slot_of[value] in used:
            name = self.fresh_name(f"{value.name}_out")
            copied = self.call("set", [value], names=[name], span=span)[0]
            assert isinstance(copied, Value)
            value = copied
        target = None if alias is None else self._alias(value, alias, span)
        order = preferred if stride_order is None else tuple(stride_order)
        if order is not None and sorted(order) != list(range(value.rank)):
            raise FusecError(
                f"stride_order {list(order)} of output `{value.name}` is not a permutation",
                span=span,
            )
        self._outputs.append(Output(value, target, order, span))
        return value

    def _alias(self, value: Value, alias: str | Value, span: Span | None) -> str:
        name = alias if isinstance(alias, str) else self._value(alias).name
        found = next((i for i in self._inputs if i.value.name == name), None)
        if found is None:
            raise FusecError(
                f"output `{value.name}` aliases `{name}`, not an input",
                span=span,
                code=ALIAS_NOT_AN_INPUT,
            )
        if found.generator:
            raise FusecError(
                f"`{name}` belongs to the random generator and cannot be written", span=span
            )
        source = self._value(found.value)
        if source.rank == value.rank:
            for left, right in zip(source.shape, value.shape, strict=True):
                self.bindings.unify(left, right)
        if self._value(source).type != self._value(value).type:
            raise FusecError(
                f"output `{value.name}` cannot be written to `{name}`",
                span=span,
                notes=[f"{self._value(value)}", f"{self._value(source)}"],
                help=self._agreed(self._value(value), self._value(source)),
                code=ALIAS_TYPE,
            )
        if any(o.alias == name for o in self._outputs):
            raise FusecError(f"two outputs are written to input `{name}`", span=span)
        return name

    def pin(self, pin: Pin) -> None:
        """Keep a segment named in the file."""
        check_pin(pin, self._pins)
        self._pins.append(pin)

    def _agreed(self, value: Value, target: Value) -> str:
        """Return how to give an output the type of the input that it is written to."""
        if value.type.shape == target.type.shape:
            return f"the dtypes differ: put out `cast({value.name}, {target.dtype})`"
        taken = {o.alias for o in self._outputs}
        free = [i for i in self._inputs if not i.generator and i.value.name not in taken]
        given = [self._value(i.value) for i in free]
        fitting = next((g for g in given if g.type == value.type), None)
        if fitting is not None:
            return f"the shapes differ: alias `{fitting.name}`, which is {fitting.type}"
        less = target.rank < value.rank
        if value.dtype == target.dtype:
            return f"the shapes differ: {'reduce' if less else 'broadcast'} or reshape the output"
        return (
            f"shape and dtype must agree; cast and {'reduce' if less else 'broadcast'} the output"
        )

    def phase_boundary(self, span: Span | None = None) -> None:
        """End a phase: later declarations and outputs belong to the next one."""
        self._boundaries.append(Boundary(len(self._inputs), len(self._outputs), span))

    def finish(self) -> Fusion:
        """Return the verified fusion."""
        if not self._outputs:
            raise FusecError(f"fusion `{self.name}` has no outputs")
        values = [self._current(slot) for slot in range(len(self._slots))]
        size, attribute = self.bindings.size, self.bindings.attribute
        nodes = tuple(
            Node(
                d.op,
                tuple(o if isinstance(o, Const) else values[o] for o in d.operands),
                MappingProxyType({k: attribute(v) for k, v in d.attributes.items()}),
                tuple(values[o] for o in d.outputs),
                d.span,
            )
            for d in self._drafts
        )
        outputs = tuple(replace(o, value=values[self._slot_of[o.value]]) for o in self._outputs)
        fusion = Fusion(
            name=self.name,
            inputs=tuple(self._final_input(i, values, size) for i in self._given_first()),
            nodes=nodes,
            outputs=outputs,
            dims=self._facts(),
            doc=self.doc,
            pins=tuple(self._pins),
            boundaries=self.boundaries,
            schedules=tuple(self.schedules),
            phases=phases_between(self._boundaries, self._inputs, outputs),
            source=self.source,
        )
        verify(fusion)
        check_sizes(fusion)
        check_fits(fusion)
        return fusion

    def _final_input(
        self, entry: Input, values: Sequence[Value], size: Callable[[Dim], Dim]
    ) -> Input:
        value = values[self._slot_of[entry.value]]
        return replace(entry, value=value, strides=tuple(size(s) for s in entry.strides))


def _folded(operands: Sequence[Operand], types: Sequence[Type]) -> Const | None:
    """Return the integer that a scalar call on literals yields."""
    known: Dim | None = types[0].dim
    literals = bool(operands) and all(isinstance(o, Const) for o in operands)
    if known is not None and known.is_const and literals:
        return Const(types[0].dtype.wrap(known.value), types[0].dtype)
    return None


def make_node(
    op: str,
    operands: Sequence[Operand],
    attributes: Mapping[str, Any],
    names: Sequence[str],
    span: Span | None = None,
) -> Node:
    """Return a node on values of an existing fusion; attributes must be canonical."""
    definition = find_op(op)
    types = definition.infer(tuple(operands), attributes)
    outputs = tuple(Value(n, t) for n, t in zip(names, types, strict=True))
    return Node(definition, tuple(operands), MappingProxyType(dict(attributes)), outputs, span)
