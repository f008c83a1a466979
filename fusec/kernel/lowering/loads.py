"""Loads of a loop nest: elements and vectors from memory, and from copies on chip."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from fusec.dataclasses import dataclass, field, replace
from fusec.index.instances import Instance
from fusec.ir.dtype import DType
from fusec.ir.expression import Index, Loaded, index
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.lowering.nest import Nest
from fusec.kernel.nodes import (
    AUTO,
    Braced,
    Element,
    Expression,
    Grouped,
    Let,
    Name,
    Select,
    Unary,
    Widened,
    call,
    item,
    vector_of,
)


@dataclass
class Loads(Nest):
    """Collects the loads of instances; a vector for all lanes is loaded once.

    streamed: loads of data that is used once. cached: the on-chip copy of a load; tiles: for one
    that is loaded by tiles, the tile's name and its position there. parts: by the name of a buffer
    that is a part of a complex tensor, the name of its real part and which part it is. vectors: the
    names of the loaded ones, by phase.
    """

    streamed: frozenset[Instance] = frozenset()
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    cached: dict[Instance, Expression] = field(default_factory=dict[Instance, Expression])
    tiles: dict[Instance, tuple[str, Index]] = field(
        default_factory=dict[Instance, tuple[str, Index]]
    )
    vectors: dict[tuple[int, Instance], str] = field(
        default_factory=dict[tuple[int, Instance], str]
    )
    _gathered: dict[Loaded, Instance] = field(default_factory=dict["Loaded", Instance])
    _pairs: dict[object, str] = field(default_factory=dict[object, str])
    _firsts: dict[Instance, Instance] = field(default_factory=dict[Instance, Instance])

    @contextmanager
    def indexed_by(self, gathered: Iterable[tuple[Loaded, Instance]]) -> Generator[None]:
        """Bind loaded integers to these instances; an operand may load the same elsewhere."""
        around = self._gathered
        self._gathered = {**around, **dict(gathered)}
        yield
        self._gathered = around

    def _stored(self, text: Expression, dtype: DType) -> Expression:
        return Widened.of(text, storage_type(dtype)) if dtype.is_half else text

    def is_whole(self, instance: Instance) -> bool:
        """Return whether one access loads all elements that a thread handles at a time."""
        return self.width == 1 or self._base(instance) is not None

    def _is_vector(self, instance: Instance) -> bool:
        return instance in self.cached or self._base(instance) is not None

    def _place(self, instance: Instance) -> tuple[str, Index]:
        """Return the buffer or tile that a load reads, and the address in it."""
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
        """Return the name of the vector that contains an instance."""
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
        """Return the expression that loads a single element, zero if it is not needed."""
        name, at = self._place(instance)
        found: Expression = Element(Name(identifier(name)), self.index(at, phase))
        if instance in self.streamed:
            found = item(call("fusec::load_streaming", Unary("&", found)), 0)
        test = self.load_test(name, instance.variables, instance.conditions, phase)
        if test is None:
            return found
        return Grouped(Select(test, found, Braced(storage_type(instance.dtype))))

    def _part(self, instance: Instance, phase: int) -> Expression:
        """Return a part of a complex number if one access loads both parts."""
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
        # The lanes of a vector share its address: integers in its index are read before the loop
        # over lanes.
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
