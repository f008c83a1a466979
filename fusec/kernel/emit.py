"""Statements: every instance becomes a constant in the outermost scope that binds its variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fusec.index.instances import Instance
from fusec.ir.dtype import F64, I32, I64, DType
from fusec.ir.expression import Index, Loaded, index
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
from fusec.kernel.draws import drawn
from fusec.kernel.formulas import fill
from fusec.kernel.nest import Nest
from fusec.kernel.nodes import (
    AUTO,
    SELECT,
    Binary,
    Braced,
    Call,
    Cast,
    Element,
    Expression,
    Grouped,
    Integer,
    Let,
    Name,
    Select,
    Type,
    Unary,
    Widened,
    Word,
    call,
    grouped,
    item,
    vector_of,
)
from fusec.ops.checks import CHECK_INDEX, INDEX_ERRORS

_INLINE_WIDTH = 56


@dataclass
class Emitter(Nest):
    """Collects the lines of each (phase, scope); asking for an instance emits what it needs, once.

    streamed: loads of what is used once. given: texts of instances that the family has computed
    already, in their compute types; given_after: the same, from the phase after the given one on.
    cached: where a load's copy on chip is; tiles: of one that comes by tiles, the tile's name and
    its place there. reduced: the results of reductions, by (node, result). parts: by the name of a
    buffer that is a part of a complex tensor, the name of its real part and which part it is.
    """

    streamed: frozenset[Instance] = frozenset()
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    cached: dict[Instance, Expression] = field(default_factory=dict[Instance, Expression])
    tiles: dict[Instance, tuple[str, Index]] = field(
        default_factory=dict[Instance, tuple[str, Index]]
    )
    given: dict[Instance, Expression] = field(default_factory=dict[Instance, Expression])
    given_after: dict[Instance, tuple[int, Expression]] = field(
        default_factory=dict[Instance, tuple[int, Expression]]
    )
    reduced: dict[tuple[object, int], Expression] = field(
        default_factory=dict[tuple[object, int], Expression]
    )
    uses: Counter[Instance] = field(default_factory=Counter[Instance])
    _gathered: dict[Loaded, Instance] = field(default_factory=dict["Loaded", Instance])
    _read_in: dict[Instance, int] = field(default_factory=dict[Instance, int])
    _texts: dict[tuple[int, Instance], Expression] = field(
        default_factory=dict[tuple[int, Instance], Expression]
    )
    vectors: dict[tuple[int, Instance], str] = field(
        default_factory=dict[tuple[int, Instance], str]
    )
    _pairs: dict[object, str] = field(default_factory=dict[object, str])
    _firsts: dict[Instance, Instance] = field(default_factory=dict[Instance, Instance])

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
        """Return the text of a loaded integer."""
        return self.convert(self._gathered[atom], I64 if self.wide else I32, phase)

    def ref(self, instance: Instance, phase: int) -> Expression:
        """Return the text of an instance's value in its compute type, emitting what it needs."""
        if instance in self.given:
            return self.given[instance]
        if instance in self.given_after and phase > self.given_after[instance][0]:
            return self.given_after[instance][1]
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
        """Return the text of an instance's value, computed in its place: it is given no name."""
        with self.indexed_by(instance.gathered):
            if instance.kind == "load":
                return self._load(instance, phase)
            if instance.kind == "index":
                assert instance.address is not None
                return self.index(instance.address, phase)
            if instance.kind == "select":
                return self._select(instance, phase)
            return self._op(instance, phase)

    @contextmanager
    def indexed_by(self, gathered: Iterable[tuple[Loaded, Instance]]) -> Generator[None]:
        """Let loaded integers be these instances; an operand may load the same elsewhere."""
        around = self._gathered
        self._gathered = {**around, **dict(gathered)}
        yield
        self._gathered = around

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
            text = drawn(self, instance, arguments, phase)
            return self._rounded(text, instance.dtype) if rounded else text
        if node.op is CHECK_INDEX:
            return self._checked(instance, arguments["index"], phase)
        kind = max((d.compute for d in node.compute_dtypes), key=lambda d: (d.is_float, d.bits))
        text = fill(template_of(node.op.cuda, kind), arguments)
        narrow = instance.dtype.is_integer and instance.dtype.bits < 32
        called = isinstance(text, Call) and device_name(text.function)
        if narrow and not called:
            # C computes narrow integers as int: what is not stored at once must wrap, too.
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
        """Return a constant; the quotient of 1 and a size is written as one."""
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

    def _stored(self, text: Expression, dtype: DType) -> Expression:
        return Widened.of(text, storage_type(dtype)) if dtype.is_half else text

    def _select(self, instance: Instance, phase: int) -> Expression:
        found = self.convert(instance.operands[-1], instance.dtype, phase)
        first = list(zip(instance.operands, instance.branches, strict=False))
        for operand, conditions in reversed(first):
            value = self.convert(operand, instance.dtype, phase)
            if value == found:
                continue  # both lie in one place, which depends on the conditions
            yes = grouped(value, SELECT + 1)
            found = Select(self.condition(conditions, phase), yes, found)
        return found

    def is_whole(self, instance: Instance) -> bool:
        """Return whether one access loads what a thread takes at a time."""
        return self.width == 1 or self._base(instance) is not None

    def _is_vector(self, instance: Instance) -> bool:
        return instance in self.cached or self._base(instance) is not None

    def _place(self, instance: Instance) -> tuple[str, Index]:
        """Return the buffer, or the tile, that a load reads, and where."""
        assert instance.address is not None
        return self.tiles.get(instance) or (instance.name, instance.address)

    def _base(self, instance: Instance) -> Index | None:
        """Return lane 0's address if a load is one vector."""
        return self.vector_base(self._place(instance)[1], instance.conditions)

    def _load(self, instance: Instance, phase: int) -> Expression:
        assert instance.address is not None
        if instance in self.cached:
            return self._stored(self.cached[instance], instance.dtype)
        if self._base(instance) is not None:
            assert self.lane is not None
            name = self._vector(instance, phase)
            return self._stored(item(name, self.lane.name), instance.dtype)
        if instance.name in self.parts:
            return self._part(instance, phase)
        return self._stored(self.element(instance, phase), instance.dtype)

    def _vector(self, instance: Instance, phase: int) -> str:
        """Return the name of the vector of which an instance is an element."""
        number = len(self.scopes) - 2
        if self.scopes[number].hoists and self.lane is not None:
            number = min(number, self.scope_of(instance.variables - {self.lane}))
        home = self._phase_of(phase, number, instance.depth)
        if (home, instance) not in self.vectors:
            name = self.fresh(f"{instance.name}_vec", "vec", home, number)
            text = self.load_vector(instance, phase)
            self.add(home, self.scopes[number].name, Let(AUTO, name, text))
            self.vectors[(home, instance)] = name
        return self.vectors[(home, instance)]

    def element(self, instance: Instance, phase: int) -> Expression:
        """Return the expression that loads an element by itself, zero where not needed."""
        name, at = self._place(instance)
        found: Expression = Element(Name(identifier(name)), self.index(at, phase))
        if instance in self.streamed:
            found = item(call("fusec::load_streaming", Unary("&", found)), 0)
        test = self.load_test(name, instance.variables, instance.conditions, phase)
        if test is None:
            return found
        return Grouped(Select(test, found, Braced(storage_type(instance.dtype))))

    def _part(self, instance: Instance, phase: int) -> Expression:
        """Return a part of a complex number whose both parts are one access."""
        assert instance.address is not None
        first, place = self.parts[instance.name]
        number = self.scope_of(instance.variables)
        key = (phase, number, first, instance.address, instance.conditions)
        if key not in self._pairs:
            name = self.fresh(f"{first}_im", "pair", phase, number)
            function = "load" if first in self.written else "load_readonly"
            pointer = self.pointer(first, instance.address, phase)
            found: Expression = call(f"fusec::{function}", pointer, about=[2])
            test = self.load_test(first, instance.variables, instance.conditions, phase)
            if test is not None:
                found = Select(test, found, Braced(vector_of(storage_type(instance.dtype), 2)))
            self.add(phase, self.scopes[number].name, Let(AUTO, name, found))
            self._pairs[key] = name
        return item(self._pairs[key], place)

    def load_vector(self, instance: Instance, phase: int) -> Expression:
        """Return the expression that loads a vector of an instance, zeros where not needed."""
        # The lanes of a vector share its address: indices that are needed where the vector is are
        # read before the loop over lanes.
        with self.indexed_by((atom, self.first_lane(i)) for atom, i in instance.gathered):
            return self._load_vector(instance, phase)

    def _load_vector(self, instance: Instance, phase: int) -> Expression:
        name, at = self._place(instance)
        base = at if self.width == 1 else self._base(instance)
        assert base is not None
        plain = name in self.written or instance in self.tiles
        streams = instance in self.streamed
        function = "load" if plain else "load_streaming" if streams else "load_readonly"
        pointer, width = self.pointer(name, base, phase), self.width_name
        if self.part:
            policy = ["fusec::kStreaming"] if streams else []
            return call("fusec::load_part", pointer, *self.part, about=[width, "kPart", *policy])
        found = call(f"fusec::{function}", pointer, about=[width])
        conditions = self.at_lane_zero(instance.conditions)
        test = self.load_test(name, instance.variables, conditions, phase)
        if test is None:
            return found
        return Select(test, found, Braced(vector_of(storage_type(instance.dtype), width)))

    def first_lane(self, instance: Instance) -> Instance:
        """Return an instance for the first element of a vector."""
        if self.lane is None or self.lane not in instance.variables:
            return instance
        if instance not in self._firsts:
            address, zero = instance.address, {self.lane: index(0)}
            self._firsts[instance] = replace(
                instance,
                operands=tuple(self.first_lane(o) for o in instance.operands),
                address=None if address is None else address.substitute(zero),
                conditions=self.at_lane_zero(instance.conditions),
                branches=tuple(self.at_lane_zero(b) for b in instance.branches),
                gathered=tuple((a, self.first_lane(i)) for a, i in instance.gathered),
                variables=instance.variables - {self.lane},
            )
        return self._firsts[instance]


def _is_named(value: Expression) -> bool:
    """Return whether a value is a variable or a constant of C's, as short as any name for it."""
    return isinstance(value, Word) or (isinstance(value, Name) and not device_name(value.name))


def convert(to: Type, value: Expression) -> Call:
    """Return a value converted to another type."""
    return Call("fusec::convert", (value,), (to,))


def rounded(dtype: DType, value: Expression) -> Call:
    """Return a value rounded to what a type in memory holds."""
    return Call("fusec::round_to", (value,), (storage_type(dtype),))
