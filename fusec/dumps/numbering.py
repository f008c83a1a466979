"""nvFuser's names for a fusion: tensors T0, T1, ..., iteration domains, scalars and expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.ir.dim import Call, Dim, Symbol
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.roles import Line

INPUT_LETTERS = {"bool": "b", "int": "i", "uint": "i", "complex": "c"}
DIGITS = {"f64": 17, "f32": 9, "f16": 5, "bf16": 4}


@dataclass(frozen=True)
class Axis:
    """A dim of a tensor: `i` iteration, `r` reduction, `b` broadcast (`repeats`: expanded)."""

    kind: str
    extent: Dim | int
    repeats: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor of the dump; an operation that is printed as two steps has one in between."""

    number: int
    axes: tuple[Axis, ...]
    first_id: int


class Numbering:
    """Numbers of everything in a fusion, in the order of definition."""

    def __init__(self, fusion: Fusion) -> None:
        """Number inputs first, then results."""
        self.fusion = fusion
        self.tensors: dict[Value, Tensor] = {}
        self.between: dict[Value, Tensor] = {}
        self.expressions: dict[Value, tuple[int, ...]] = {}
        self.scalars: dict[Value, str] = {}
        self.symbols: dict[str, str] = {}
        self._ids = 0
        self._others = 0
        for entry in fusion.inputs:
            for extent in entry.value.shape:
                self._name_symbols(extent)
        for entry in fusion.inputs:
            self._enter_input(entry.value)
        for node in fusion.nodes:
            self._enter_node(node)

    def _name_symbols(self, extent: Dim) -> None:
        for atom in extent.atoms():
            if isinstance(atom, Symbol) and atom.name not in self.symbols:
                self.symbols[atom.name] = f"i{self._others}"
                self._others += 1

    def _enter_input(self, value: Value) -> None:
        if value.is_scalar:
            self._enter_scalar(value)
            return
        strides = self.fusion.input_of[value].strides
        axes = tuple(
            Axis("b", e, repeats=True) if s == 0 and e != 1 else plain(e)
            for e, s in zip(value.shape, strides, strict=True)
        )
        self.tensors[value] = self._tensor(axes)

    def _enter_scalar(self, value: Value) -> None:
        known = self.symbols.get(value.name)
        if known is None:
            known = f"{INPUT_LETTERS.get(value.dtype.kind) or _float_letter(value)}{self._others}"
            self._others += 1
            if value.dim is not None:
                self.symbols.setdefault(value.name, known)
        self.scalars[value] = known

    def _enter_node(self, node: Node) -> None:
        for value in node.outputs:
            for extent in value.shape:
                self._name_symbols(extent)
        first = self._expression_count()
        if len(steps_of(node)) == 2:
            self.between[node.output] = self._tensor(_placed(node, self.axes(node.inputs[0])))
            self.expressions[node.output] = (first, first + 1)
        else:
            for value in node.outputs:
                self.expressions[value] = (first,)
        for value in node.outputs:
            if value.is_scalar:
                self._enter_scalar(value)
            else:
                self.tensors[value] = self._tensor(_axes_of(node, value, self))

    def _expression_count(self) -> int:
        return max((k[-1] for k in self.expressions.values()), default=-1) + 1

    def _tensor(self, axes: tuple[Axis, ...]) -> Tensor:
        number = len(self.tensors) + len(self.between)
        tensor = Tensor(number, axes, self._ids)
        self._ids += len(axes)
        return tensor

    def axes(self, operand: Operand) -> tuple[Axis, ...]:
        """Return the dims of an operand that are not reduced."""
        if isinstance(operand, Const) or operand.is_scalar:
            return ()
        return tuple(a for a in self.tensors[operand].axes if a.kind != "r")

    def numbers(self, node: Node) -> tuple[int, ...]:
        """Return the numbers of a node's expressions."""
        return self.expressions[node.output]

    def size(self, extent: Dim | int) -> str:
        """Return a size: a number, a symbol's number, or an expression in parentheses."""
        if isinstance(extent, int):
            return str(extent)
        if extent.is_const:
            return str(extent.value)
        text = _expression(extent, self.symbols)
        bare = len(extent.terms) == 1 and len(extent.terms[0][0]) == extent.terms[0][1] == 1
        return text if bare else f"( {text} )"


def _float_letter(value: Value) -> str:
    return "d" if value.dtype.name == "f64" else "f"


def plain(extent: Dim) -> Axis:
    """Return the axis of an ordinary dim; one of extent 1 is a broadcast."""
    return Axis("b" if extent == 1 else "i", extent)


def steps_of(node: Node) -> Sequence[Callable[[Line], str]]:
    """Return nvFuser's expressions for a node, if it is not one of its own."""
    steps = node.op.text.steps
    return () if steps is None else steps(node)


def _placed(node: Node, given: tuple[Axis, ...]) -> tuple[Axis, ...]:
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    kept = dict(zip(places, given, strict=True))
    return tuple(kept.get(k, Axis("b", 1)) for k in range(node.output.rank))


def _expanded(given: tuple[Axis, ...], value: Value) -> tuple[Axis, ...]:
    return tuple(
        Axis("b", e, repeats=True) if a.kind == "b" and e != 1 else a
        for a, e in zip(given, value.shape, strict=True)
    )


def _axes_of(node: Node, value: Value, names: Numbering) -> tuple[Axis, ...]:
    given, access = _given(node, names), node.op.access
    if access is not None and access.along is not None and access.window is None:
        placed = (Axis("b", 1) if k is None else given[k] for k in access.along(node))
        return _expanded(tuple(placed), value) if access.repeats else tuple(placed)
    if node.op.family == "reduction":
        dims: tuple[int, ...] = node.attributes["dims"]
        extents = node.operands[0].shape
        return tuple(Axis("r", extents[k]) if k in dims else a for k, a in enumerate(given))
    if node.op.family == "pointwise":
        return tuple(_elementwise(node, value, k, names) for k in range(value.rank))
    return tuple(plain(e) for e in value.shape)


def _given(node: Node, names: Numbering) -> tuple[Axis, ...]:
    return names.axes(node.operands[0]) if node.operands else ()


def _elementwise(node: Node, value: Value, position: int, names: Numbering) -> Axis:
    """Return a dim of an elementwise result: a broadcast only if those of all operands are."""
    tensors = [names.axes(v) for v in node.inputs if not v.is_scalar]
    axes = [t[position] for t in tensors if len(t) == value.rank]
    if axes and all(a.kind == "b" for a in axes):
        return next((a for a in axes if a.repeats), axes[0])
    return Axis("i", value.shape[position])


def _expression(size: Dim, symbols: Mapping[str, str]) -> str:
    terms: list[str] = []
    for monomial, coefficient in size.terms:
        factors = [_atom(a, symbols) for a in monomial]
        if coefficient != 1 or not factors:
            factors.append(str(coefficient))
        terms.append(" * ".join(factors))
    return " + ".join(terms)


def _atom(atom: Symbol | Call, symbols: Mapping[str, str]) -> str:
    if isinstance(atom, Symbol):
        return symbols.get(atom.name, atom.name)
    left, right = _expression(atom.left, symbols), _expression(atom.right, symbols)
    if atom.function in ("floordiv", "mod"):
        sign = "/" if atom.function == "floordiv" else "%"
        return f"( ( {left} ) {sign} ( {right} ) )"
    name = {"ceildiv": "ceilDiv"}.get(atom.function, atom.function)
    return f"( {name}({left}, {right}) )"


def constant(operand: Const) -> str:
    """Return a literal: `double(1)`, `5`, `true`."""
    if operand.dtype.kind == "bool":
        return str(bool(operand.value)).lower()
    if operand.dtype.is_integer:
        return str(operand.value)
    if isinstance(operand.value, complex):
        return f"{operand.dtype.printed}({operand.value.real:g},{operand.value.imag:g})"
    return f"{operand.dtype.printed}({operand.value:.{DIGITS.get(operand.dtype.name, 9)}g})"
