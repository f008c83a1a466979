"""Statements: every instance becomes a constant in the outermost scope that binds its variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fusec.dataclasses import dataclass, field
from fusec.index.instances import Instance
from fusec.ir.dtype import F64, I32, I64, DType
from fusec.ir.expression import Loaded
from fusec.ir.index_errors import INDEX_ERRORS
from fusec.kernel.ctext import (
    compute_type,
    converted,
    dim_text,
    identifier,
    is_reciprocal,
    literal,
    storage_type,
    template_of,
)
from fusec.kernel.device import device_name
from fusec.kernel.formulas import fill
from fusec.kernel.lowering.draws import random_value
from fusec.kernel.lowering.loads import Loads
from fusec.kernel.nodes import (
    SELECT,
    Binary,
    Call,
    Cast,
    Expression,
    Grouped,
    Integer,
    Let,
    Name,
    Select,
    Type,
    Word,
    grouped,
)
from fusec.ops.checks import CHECK_INDEX

_INLINE_WIDTH = 56


@dataclass
class Emitter(Loads):
    """Collects the lines of each (phase, scope); the first use of an instance emits its operands.

    given: expressions of instances that the family has already computed, in their compute types;
    given_after: the same, from the phase after the given one on. reduced: the results of
    reductions, by (node, result).
    """

    given: dict[Instance, Expression] = field(default_factory=dict[Instance, Expression])
    precomputed_after: dict[Instance, tuple[int, Expression]] = field(
        default_factory=dict[Instance, tuple[int, Expression]]
    )
    reduced: dict[tuple[object, int], Expression] = field(
        default_factory=dict[tuple[object, int], Expression]
    )
    uses: Counter[Instance] = field(default_factory=Counter[Instance])
    _read_in: dict[Instance, int] = field(default_factory=dict[Instance, int])
    _texts: dict[tuple[int, Instance], Expression] = field(
        default_factory=dict[tuple[int, Instance], Expression]
    )

    def count(self, roots: Iterable[Instance]) -> None:
        """Count how often each instance is read, for folding single uses into their user."""
        stack, seen = list(roots), set[Instance]()
        self.uses.update(stack)
        self._read_in.update(dict.fromkeys(stack, len(self.scopes) - 1))
        while stack:
            instance = stack.pop()
            if instance in seen:
                continue
            seen.add(instance)
            if instance.kind != "reduced" and instance not in self.given:
                self.uses.update(instance.operands)
                stack.extend(instance.operands)
                scope = self.scope_of(instance.variables)
                for operand in instance.operands:
                    self._read_in[operand] = max(scope, self._read_in.get(operand, 0))

    def loaded(self, atom: Loaded, phase: int) -> Expression:
        """Return the expression of a loaded integer."""
        return self.convert(self._gathered[atom], I64 if self.wide else I32, phase)

    def ref(self, instance: Instance, phase: int) -> Expression:
        """Return an instance's value in its compute type, emitting its operands first."""
        if instance in self.given:
            return self.given[instance]
        if instance in self.precomputed_after and phase > self.precomputed_after[instance][0]:
            return self.precomputed_after[instance][1]
        if instance.kind == "constant":
            assert not isinstance(instance.constant, complex)
            assert instance.constant is not None
            return self.constant(instance.constant, instance.dtype)
        if instance.kind == "dim":
            assert instance.dim is not None
            return dim_text(instance.dim)
        if instance.kind == "scalar":
            return self._stored(Name(identifier(instance.name)), instance.dtype)
        if instance.kind == "reduced":
            return self.reduced[(instance.node, instance.result)]
        number = self.scope_of(instance.variables)
        home = self._phase_of(phase, number, instance.depth)
        if (home, instance) not in self._texts:
            self._texts[(home, instance)] = self._emit(instance, home, number)
        return self._texts[(home, instance)]

    def _emit(self, instance: Instance, phase: int, number: int) -> Expression:
        text = self.value(instance, phase)
        local = self._read_in.get(instance, number) == number  # not hoisted out of its user's loop
        simple = len(text.text) < _INLINE_WIDTH and self.uses[instance] <= 1 and local
        own = instance.kind != "index" or instance.dtype == (I64 if self.wide else I32)
        is_same = instance.kind == "select" and not isinstance(text, Select)  # of all branches
        if (simple and (instance.kind == "op" or is_same)) or (_is_named(text) and own):
            return text
        if instance.kind == "load" and self.uses[instance] <= 1 and self._is_vector(instance):
            return text
        name = self.fresh(instance.name or "part", "value", phase, number)
        self.add(phase, self.scopes[number].name, Let(compute_type(instance.dtype), name, text))
        return Name(name)

    def value(self, instance: Instance, phase: int) -> Expression:
        """Return an instance's value, computed inline without a name."""
        if instance.kind in ("constant", "dim", "scalar", "reduced"):
            return self.ref(instance, phase)
        with self.indexed_by(instance.gathered):
            if instance.kind == "load":
                return self._load(instance, phase)
            if instance.kind == "index":
                assert instance.address is not None
                return self.index(instance.address, phase)
            if instance.kind == "select":
                return self._select(instance, phase)
            return self._op(instance, phase)

    def _op(self, instance: Instance, phase: int, *, rounded: bool = True) -> Expression:
        node = instance.node
        assert node is not None
        if node.op.converts:
            return self.convert(instance.operands[0], instance.dtype, phase)
        if node.op.family == "factory":
            return self._sequence(instance, phase)
        names = [p.name for p in node.op.operands]
        arguments = {
            name: self.convert(operand, wanted.compute, phase)
            for name, operand, wanted in zip(
                names, instance.operands, node.compute_dtypes, strict=False
            )
        }
        if node.op.family == "random":
            text = random_value(self, instance, arguments, phase)
            return self._rounded(text, instance.dtype) if rounded else text
        if node.op is CHECK_INDEX:
            return self._checked(instance, arguments["index"], phase)
        kind = max((d.compute for d in node.compute_dtypes), key=lambda d: (d.is_float, d.bits))
        text = fill(template_of(node.op.cuda, kind), arguments)
        narrow = instance.dtype.is_integer and instance.dtype.bits < 32
        called = isinstance(text, Call) and device_name(text.function)
        if narrow and not called:
            # C computes narrow integers as int: unless stored immediately, they must wrap, too.
            return Cast(compute_type(instance.dtype), text)
        return self._rounded(text, instance.dtype) if rounded else text

    def _sequence(self, instance: Instance, phase: int) -> Expression:
        """Return an element of an iota, computed in 64 bits and rounded once."""
        assert instance.node is not None
        wide = F64 if instance.dtype.is_float else I64
        start, step, index = (self.convert(o, wide, phase) for o in instance.operands)
        given = {"start": start, "step": step, "index": index}
        text = fill(template_of(instance.node.op.cuda, wide), given)
        if instance.dtype.is_half:
            return self._rounded(text, instance.dtype)
        if instance.dtype == wide:
            return text
        return convert(compute_type(instance.dtype), text)

    def _checked(self, instance: Instance, value: Expression, phase: int) -> Expression:
        """Return an index that is checked where it is needed, 0 elsewhere."""
        assert instance.node is not None
        attributes = instance.node.attributes
        given = {
            "index": value,
            "extent": dim_text(attributes["extent"]),
            "number": Integer(attributes["number"]),
            "errors": Name(identifier(INDEX_ERRORS)),
        }
        text = fill(CHECK_INDEX.cuda["default"], given)
        if not instance.conditions:
            return text
        test = self.condition(instance.conditions, phase)
        return Grouped(Select(test, text, literal(0, instance.dtype)))

    def _rounded(self, text: Expression, dtype: DType) -> Expression:
        return rounded(dtype, text) if dtype.is_half else text

    def convert(self, instance: Instance, to: DType, phase: int) -> Expression:
        """Return an instance's value converted to another dtype, in its compute type."""
        if instance.kind == "constant" and not isinstance(instance.constant, complex):
            assert instance.constant is not None
            value = instance.constant
            if not to.is_half:
                return self.constant(converted(value, to), to)
            return self._rounded(self.constant(value, to), to)
        text, source = self.ref(instance, phase), instance.dtype
        if instance.kind == "dim":
            return self._size(instance, to)
        if to.is_half:
            if source == to:
                return text
            if source.compute.name != "f32":
                text = convert(Type("float"), text) if source.name != "f64" else text
            return self._rounded(text, to)
        if source.compute == to.compute:
            return text
        return convert(compute_type(to), text)

    def constant(self, value: bool | int | float, dtype: DType) -> Expression:
        """Return a constant; the quotient of 1 and a size is written as such."""
        if isinstance(value, float):
            for size, name in self.counts.items():
                if is_reciprocal(value, size, dtype):
                    return Binary("/", literal(1.0, dtype), Name(name))
        return literal(value, dtype)

    def _size(self, instance: Instance, to: DType) -> Expression:
        """Return a size in another type; a literal of that type where it is known."""
        assert instance.dim is not None
        if instance.dim.is_const:
            value = instance.dim.value
            if to.is_float and not to.is_half and value in self.counts:
                return Cast(compute_type(to), Name(self.counts[value]))
            return literal(to.wrap(value) if to.is_integer else value, to)
        return convert(compute_type(to), dim_text(instance.dim))

    def to_storage(self, instance: Instance, dtype: DType, phase: int) -> Expression:
        """Return an instance's value as stored; a cast that only rounds is left to the store."""
        source = instance
        while (
            source.kind == "op"
            and source.node is not None
            and source.node.op.converts
            and source.dtype == dtype
            and dtype.is_half
            and self.uses[source] <= 1
            and source.operands[0].kind != "constant"
        ):
            source = source.operands[0]
        if (
            source.kind == "op"
            and source not in self.given
            and source.dtype == dtype
            and dtype.is_half
            and self.uses[source] <= 1
        ):
            text = self._op(source, phase, rounded=False)
        else:
            text = self.ref(source, phase)
        if not dtype.is_half and source.dtype.compute == dtype and source.kind != "dim":
            return text
        return convert(storage_type(dtype), text)

    def _select(self, instance: Instance, phase: int) -> Expression:
        found = self.convert(instance.operands[-1], instance.dtype, phase)
        first = list(zip(instance.operands, instance.branches, strict=False))
        for operand, conditions in reversed(first):
            value = self.convert(operand, instance.dtype, phase)
            if value == found:
                continue  # both are in one location, which depends on the conditions
            yes = grouped(value, SELECT + 1)
            found = Select(self.condition(conditions, phase), yes, found)
        return found


def _is_named(value: Expression) -> bool:
    """Return whether a value is a variable or a C constant, as short as any name for it."""
    return isinstance(value, Word) or (isinstance(value, Name) and not device_name(value.name))


def convert(to: Type, value: Expression) -> Call:
    """Return a value converted to another type."""
    return Call("fusec::convert", (value,), (to,))


def rounded(dtype: DType, value: Expression) -> Call:
    """Return a value rounded to a type of values in memory."""
    return Call("fusec::round_to", (value,), (storage_type(dtype),))
