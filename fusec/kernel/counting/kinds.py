"""The types of expressions of a kernel, as far as instruction classes depend on them."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field
from fusec.kernel.counting.levels import Typed
from fusec.kernel.device import DECLARED, NAMESPACE
from fusec.kernel.nodes import (
    AUTO,
    BOOL,
    FALSE,
    INT,
    TRUE,
    Anywhere,
    Binary,
    Braced,
    Call,
    Cast,
    Declare,
    Element,
    Expression,
    Grouped,
    Integer,
    Item,
    Let,
    Listed,
    Literal,
    Name,
    Parameter,
    Pointer,
    Real,
    Select,
    Static,
    Sum,
    Type,
    Unary,
    vector_of,
    walk,
)
from fusec.kernel.values import Values

FLOAT, DOUBLE = Type("float"), Type("double")
VECTOR = f"{NAMESPACE}Vec"
_OWN = {8: "i64 u64", 4: "i32 u32", 2: "bf16 f16 i16 u16", 1: "f8e4m3 f8e5m2 i8 u8"}
_SIZES: Mapping[str, int] = {
    "float": 4, "double": 8, "int": 4, "bool": 1,
    **{NAMESPACE + name: size for size, names in _OWN.items() for name in names.split()},
}  # fmt: skip
_BY_TYPE = frozenset(NAMESPACE + name for name in ("convert", "splat"))
_LOADS = frozenset(NAMESPACE + n for n in ("load", "load_readonly", "load_streaming", "load_part"))
_SAME = frozenset(
    NAMESPACE + name
    for name in ("block_reduce_rows", "block_reduce_rows_in_turns", "block_reduce_columns")
)
_OF_INTEGERS = frozenset(
    ["min", "max", *(NAMESPACE + name for name in DECLARED["wrap.cuh"].split())]
)
_COMPARED = frozenset(["<", "<=", ">", ">=", "==", "!=", "&&", "||"])


def element_of(kind: Type) -> Type:
    """Return the type of an element of a vector, or the type itself."""
    first = kind.arguments[0] if kind.name == VECTOR else kind
    return first if isinstance(first, Type) else FLOAT


def size_of(kind: Type) -> int:
    """Return the size of a type in memory in bytes; four if it is unknown."""
    return _SIZES.get(element_of(kind).name, 4)


def bytes_of(kind: Type, values: Values) -> int:
    """Return the size of a value of a type in bytes, including all elements of a vector."""
    return size_of(kind) * width_of(kind, values)


def width_of(kind: Type, values: Values) -> int:
    """Return the number of elements of a vector; one for other types."""
    number = values.number(kind.arguments[1]) if kind.name == VECTOR else 1
    return 1 if number is None else int(number)


@dataclass
class Kinds:
    """The types of the variables of a kernel; for a pointer, the type of its elements."""

    types: dict[str, Type]
    _extents: dict[str, int] = field(default_factory=dict[str, int])
    _lengths: dict[str, Expression] = field(default_factory=dict[str, Expression])

    def declare(self, node: Let | Declare) -> None:
        """Record the type of a variable."""
        kind = node.type
        if kind == AUTO:
            kind = INT if node.value is None else self.of(node.value)
        self.types[node.name] = kind
        extents = node.extents if isinstance(node, Declare) else ()
        self._extents[node.name] = len(extents)
        if extents:
            self._lengths[node.name] = extents[0]

    def elements(self, node: Expression, values: Values) -> int:
        """Return the number of elements of a vector or an array; one for other values."""
        if isinstance(node, Name) and self._extents.get(node.name) and node.name in self._lengths:
            number = values.number(self._lengths[node.name])
            return 1 if number is None else int(number)
        return width_of(self.of(node), values)

    def declare_typed(self, node: Typed) -> None:
        """Record the type of a template's declaration."""
        self.types[node.name.name] = node.type
        self._extents[node.name.name] = node.extents

    def declare_parameters(self, listed: Listed | Parameter) -> None:
        """Record the types of the parameters of a function."""
        for each in walk([listed]):
            if isinstance(each, Parameter):
                self.types[each.name] = each.type

    def of(self, node: Expression) -> Type:
        """Return the type of an expression: int for a variable that only the template declares."""
        if isinstance(node, Name):
            return self.types.get(node.name, INT)
        if isinstance(node, Literal):
            return _of_literal(node)
        if isinstance(node, Binary):
            return BOOL if node.operator in _COMPARED else self._wider(node.left, node.right)
        if isinstance(node, Sum):
            return self._wider(*node.terms)
        if isinstance(node, Unary):
            return BOOL if node.operator == "!" else self.of(node.operand)
        if isinstance(node, Select):
            return self._wider(node.yes, node.no)
        if isinstance(node, Cast):
            return node.type
        if isinstance(node, Grouped):
            return self.of(node.inside)
        if isinstance(node, Element | Pointer):
            return self.of(node.buffer)
        if isinstance(node, Anywhere):
            return self.of(node.pointer)
        if isinstance(node, Item):
            return self._item(node)
        return self._made(node)

    def _made(self, node: Expression) -> Type:
        if isinstance(node, Braced):
            return INT if node.type is None else node.type
        if isinstance(node, Static):
            first = node.type.arguments[:1]
            return first[0] if first and isinstance(first[0], Type) else FLOAT
        return self._called(node) if isinstance(node, Call) else INT

    def _called(self, node: Call) -> Type:
        if node.function in _LOADS and node.template:
            return vector_of(self.of(node.arguments[0]), node.template[0])
        if node.function == f"{NAMESPACE}splat":
            kind = node.template[0]
            return vector_of(kind, node.template[1]) if isinstance(kind, Type) else FLOAT
        if node.function in _BY_TYPE and node.template and isinstance(node.template[0], Type):
            return node.template[0]
        if node.function in _SAME and node.arguments:
            return self.of(node.arguments[0])
        if node.function in _OF_INTEGERS and node.arguments:
            return self._wider(*node.arguments)
        return FLOAT

    def _item(self, node: Item) -> Type:
        depth, array = 1, node.array
        while isinstance(array, Item):
            depth, array = depth + 1, array.array
        if not isinstance(array, Name) or array.name not in self.types:
            return FLOAT
        kind = self.types[array.name]
        return kind if depth <= self._extents.get(array.name, 0) else element_of(kind)

    def _wider(self, *operands: Expression) -> Type:
        types = [element_of(self.of(each)) for each in operands]
        for wide in (DOUBLE, FLOAT):
            if wide in types:
                return wide
        return next((t for t in types if size_of(t) == 8), types[0])


def _of_literal(node: Literal) -> Type:
    if isinstance(node, Real):
        return FLOAT if node.suffix else DOUBLE
    if isinstance(node, Integer):
        return INT
    return BOOL if node in (TRUE, FALSE) else FLOAT
