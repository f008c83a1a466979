"""Instructions of a kernel by class and loop level, counted in one walk over its nodes.

The count is for a thread that takes every branch; for template text, of the nodes it prints.
Integers are counted once where compilers compute them: outside of the loops on which they do not
depend, and not at all if they only add a constant to an address in an unrolled loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from math import log2

from fusec.dataclasses import dataclass, field
from fusec.kernel.counting.call_sites import Site
from fusec.kernel.counting.costs import IN_C, cost_of
from fusec.kernel.counting.homes import Homes, is_affine, is_shift
from fusec.kernel.counting.instructions import (
    BRANCH,
    CONVERT,
    DOUBLE,
    FLOAT,
    GLOBAL,
    INTEGER,
    SHARED,
    SPECIAL,
    Counts,
    accesses,
)
from fusec.kernel.counting.kinds import Kinds, bytes_of, size_of
from fusec.kernel.counting.level_counts import KernelCounts, OpenLevel
from fusec.kernel.counting.levels import Level, Typed
from fusec.kernel.device import NAMESPACE, device_name, is_function
from fusec.kernel.nodes import (
    ZERO,
    Anywhere,
    Assign,
    Binary,
    Call,
    Cast,
    Closure,
    Constexpr,
    Declare,
    Element,
    Evaluate,
    Expression,
    Grouped,
    If,
    Integer,
    Let,
    Listed,
    Literal,
    Loop,
    Method,
    Name,
    Node,
    Noted,
    Parameter,
    Pointer,
    Select,
    Static,
    Sum,
    Type,
    Unary,
    Widened,
    operand,
)
from fusec.kernel.values import Values

QUOTIENT: Counts = {FLOAT: 7, SPECIAL: 1}
"""Of floats (operation `div`); of integers by a number that is not a power of two, as INTEGER."""
_INTEGER_QUOTIENT = 4
_STORES = frozenset(NAMESPACE + name for name in ("store", "store_part", "store_relaxed"))


def count(
    nodes: Iterable[Node], sizes: Mapping[str, int], pointers: Mapping[str, Type]
) -> KernelCounts:
    """Return the instructions of a kernel.

    nodes: in source order, by level. sizes: of parameters, and of the grid as `gridDim.x`;
    pointers: the element types of pointer parameters.
    """
    walker = _Walk(Values(sizes), Kinds(dict(pointers)), frozenset(pointers))
    walker.each(nodes)
    return KernelCounts(walker.level.done(), tuple(sorted(walker.not_counted)))


@dataclass
class _Walk:
    values: Values
    kinds: Kinds
    pointers: frozenset[str]
    level: OpenLevel = field(default_factory=lambda: OpenLevel("kernel", 1, "1", 1))
    not_counted: set[str] = field(default_factory=set[str])
    _closures: dict[str, Closure] = field(default_factory=dict[str, Closure])
    _global: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self._homes = Homes(self.values, self.pointers, self.level)

    def each(self, nodes: Iterable[Node]) -> None:
        """Count statements, and the expressions that templates print between them."""
        for node in nodes:
            if isinstance(node, Level):
                self._template_level(node)
            elif isinstance(node, Expression):
                self._printed(node)
            else:
                self.statement(node)

    def _printed(self, node: Expression) -> None:
        """Count an expression in a template's own text: a function name counts as a call."""
        if isinstance(node, Typed):
            self.kinds.declare_typed(node)
            self._global |= {node.name.name} if node.place == GLOBAL else set()
        elif isinstance(node, Name) and node.name in self._closures:
            self._inlined(node.name)
        elif isinstance(node, Name) and _is_function(node.name):
            self._call(Call(node.name))
        elif not isinstance(node, Name | Type | Literal):
            self.value(node)

    def statement(self, node: Node) -> None:
        """Count a statement."""
        if isinstance(node, Noted):
            self.statement(node.statement)
        elif isinstance(node, Constexpr):
            self.values.declare(node)
        elif isinstance(node, Let | Declare):
            self._declared(node)
        elif isinstance(node, Assign):
            self._assigned(node)
        elif isinstance(node, Evaluate):
            self.value(node.call)
        elif isinstance(node, If):
            self.value(node.test)
            self.level.add({BRANCH: 1} if node.braces else {})
            self.each(node.body)
        elif isinstance(node, Loop):
            self._loop(node)
        elif isinstance(node, Closure):
            self._closures[node.name] = node
            self.kinds.declare_parameters(node.parameters)
        elif isinstance(node, Listed | Parameter):
            self.kinds.declare_parameters(node)

    def _declared(self, node: Let | Declare) -> None:
        if node.value is not None:
            self.value(node.value)
            if isinstance(node, Let):
                self.values.declare(node)
            if self._space(node.value) == GLOBAL:
                self._global.add(node.name)
        self.kinds.declare(node)
        self._homes.declare(node, self.level)

    def _assigned(self, node: Assign) -> None:
        target = node.target
        if node.operator == "=":
            self.value(node.value)
        else:
            self.value(Binary(node.operator[:-1], Grouped(target), node.value))
        if isinstance(target, Element):
            self._address(target.buffer, target.index)
            size = bytes_of(self.kinds.of(target), self.values)
            self.level.add(accesses(self._space(target.buffer), size, store=True))

    def _loop(self, node: Loop) -> None:
        step = Integer(1) if node.step is None else node.step
        span = node.end if node.start == ZERO else Binary("-", node.end, Grouped(node.start))
        shown = span if node.step is None else Binary("/", Grouped(span), step)
        copies = (
            shown if node.unroll == "" else None if node.unroll is None else operand(node.unroll)
        )
        with self._inside(node.variable, shown, copies):
            self.each(node.body)

    def _template_level(self, node: Level) -> None:
        with self._inside(node.name, node.trips, node.copies):
            self.each(node.body)

    @contextmanager
    def _inside(
        self, name: str, trips: Expression | None, unrolled: Expression | None
    ) -> Generator[None]:
        """Count the enclosed code as a loop level."""
        number = None if trips is None else self.values.number(trips)
        shown = "?" if trips is None else trips.text
        copies = 1 if unrolled is None else max(self.values.number(unrolled) or 1, 1)
        around, homes = self.level, self._homes
        self.level = OpenLevel(name, number, shown, copies, around)
        around.inner.append(self.level)
        self._homes = homes.inside(name, self.level)
        if not self.level.is_unrolled:
            self.level.add({INTEGER: 2 / copies, BRANCH: 1 / copies})
        try:
            yield
        finally:
            self.level, self._homes = around, homes

    def value(self, node: Expression) -> None:
        """Count the computation of an expression."""
        if isinstance(node, Name | Literal | Type):
            return
        if isinstance(node, Binary):
            self._binary(node)
        elif isinstance(node, Sum):
            self._sum(node)
        elif isinstance(node, Select):
            self._parts(node)
            self._arithmetic(node, node.yes)
        elif isinstance(node, Widened):
            self.value(node.arguments[0])
            self.level.add({CONVERT: 1} if size_of(node.stored) < 4 else {})
        elif isinstance(node, Call):
            self._called(node)
        elif isinstance(node, Cast):
            self.value(node.operand)
            if _is_float(node.type) != _is_float(self.kinds.of(node.operand)):
                self.level.add({CONVERT: 1})
        elif isinstance(node, Element):
            self._address(node.buffer, node.index)
            size = bytes_of(self.kinds.of(node), self.values)
            self.level.add(accesses(self._space(node.buffer), size))
        elif isinstance(node, Pointer):
            self._address(node.buffer, node.index)
        elif isinstance(node, Static):
            self._parts(node)
            if node.name == "combine":
                self._call(Call(f"{NAMESPACE}combine_each", node.arguments, (node.type,)))
        elif isinstance(node, Method):
            self._parts(node)
            owner = device_name(self.kinds.of(node.object).name)
            self._call(Call(f"{owner}.{node.name}", node.arguments))
        elif isinstance(node, Unary) and node.operator == "&":
            if isinstance(node.operand, Element):
                self._address(node.operand.buffer, node.operand.index)
        else:
            self._parts(node)

    def _parts(self, node: Node) -> None:
        for part in node.children:
            if isinstance(part, Expression):
                self.value(part)

    def _binary(self, node: Binary) -> None:
        if self.values.number(node) is not None:
            return
        kind = self._kind(node.left, node.right)
        if node.operator == "/" and kind is not INTEGER:
            self._parts(node)
            self._quotient(node.left, node.right)
            return
        product = _product(node.right) or _product(node.left)
        if node.operator in ("+", "-") and product is not None and self._same(kind, product):
            # A single instruction multiplies and adds.
            other = node.left if _product(node.right) is product else node.right
            self.value(product.left)
            self.value(product.right)
            self.value(other)
        else:
            self._parts(node)
        self._arithmetic(node, node.left, node.right)

    def _quotient(self, dividend: Expression, divisor: Expression) -> None:
        """Count a quotient of floats: by a power of two it is a product, of constants nothing."""
        number = self.values.number(divisor)
        if number is not None and isinstance(dividend, Literal):
            return
        is_product = number is not None and number > 0 and log2(number).is_integer()
        self.level.add({FLOAT: 1} if is_product else QUOTIENT)

    def _sum(self, node: Sum) -> None:
        plain = [term for term in node.terms if _product(term) is None]
        self._parts(node)
        if plain and len(plain) > 1:
            self._arithmetic(node, *node.terms)

    def _same(self, kind: str, product: Binary) -> bool:
        return self._kind(product.left, product.right) == kind

    def _kind(self, *operands: Expression) -> str:
        types = [self.kinds.of(each) for each in operands]
        if any(t.name == "double" for t in types):
            return DOUBLE
        return FLOAT if any(_is_float(t) for t in types) else INTEGER

    def _arithmetic(self, node: Expression, *operands: Expression) -> None:
        kind = self._kind(*operands)
        if kind is INTEGER:
            self._integer(node)
        else:
            self.level.add({kind: 1})

    def _integer(self, node: Expression) -> None:
        """Count an integer operation where compilers compute it."""
        found = self._homes.of(node, self.level)
        is_quotient = isinstance(node, Binary) and node.operator in ("/", "%")
        cost = _INTEGER_QUOTIENT if is_quotient and not is_shift(node, self.values) else 1
        wide = size_of(self.kinds.of(node)) // 4 or 1
        if found.varies and not is_affine(node, self.values):
            self.level.add({INTEGER: cost * wide})
        elif node not in found.level.known:
            found.level.known.add(node)
            found.level.add({INTEGER: cost * wide})

    def _address(self, buffer: Expression, index: Expression) -> None:
        """Count the address of an element: its index, and adding it to the pointer."""
        self.value(index)
        if not isinstance(index, Literal):
            self._integer(Binary("+", buffer, index))

    def _space(self, pointer: Expression) -> str:
        while isinstance(pointer, Pointer | Element | Anywhere | Unary | Grouped):
            pointer = next(p for p in pointer.children if isinstance(p, Expression))
        if isinstance(pointer, Name) and pointer.name in self.pointers | self._global:
            return GLOBAL
        return SHARED

    def _called(self, node: Call) -> None:
        for argument in node.arguments:
            self.value(argument.pointer if isinstance(argument, Anywhere) else argument)
        if node.function in self._closures:
            self._inlined(node.function)
        elif node.function == f"{NAMESPACE}divide":
            self._quotient(*node.arguments)
        elif not self._converts_nothing(node):
            self._call(node)

    def _converts_nothing(self, node: Call) -> bool:
        if node.function != f"{NAMESPACE}convert" or not node.arguments:
            return False
        return node.template[:1] == (self.kinds.of(node.arguments[0]),)

    def _inlined(self, name: str) -> None:
        closure = self._closures.pop(name)  # it does not call itself
        self.each(closure.body)
        self.value(closure.result)
        self._closures[name] = closure

    def _call(self, node: Call) -> None:
        cost = cost_of(node.function, self._site(node))
        if cost is None:
            self.not_counted.add(_own_name(node.function))
            return
        self.level.add(cost.once)
        if cost.loop:
            inner = OpenLevel(cost.loop, cost.trips, f"{cost.trips:g}", 1, self.level)
            inner.add(cost.each)
            self.level.inner.append(inner)

    def _site(self, node: Call) -> Site:
        arguments = node.arguments
        pointer = arguments[0] if arguments else ZERO
        value = arguments[-1] if arguments else ZERO
        width = max((self.kinds.elements(each, self.values) for each in arguments), default=1)
        element = size_of(self.kinds.of(value if node.function in _STORES else pointer))
        return Site(node.template, self._space(pointer), element, width, self.values.number)


def _own_name(name: str) -> str:
    return device_name(name) or name


def _is_function(name: str) -> bool:
    own = device_name(name)
    return is_function(own) if own else name in IN_C


def _product(node: Expression) -> Binary | None:
    while isinstance(node, Grouped):
        node = node.inside
    return node if isinstance(node, Binary) and node.operator == "*" else None


def _is_float(kind: Type) -> bool:
    return kind.name in ("float", "double")
