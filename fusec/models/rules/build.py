"""Builders of op lines for rules, and the table of rules."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import F32, DType
from fusec.ir.graph import Type
from fusec.models.graph import Argument, ModelGraph, ModelNode, Ref, items_of, node_error
from fusec.models.names import Namer

if TYPE_CHECKING:
    from fusec.models.calls import Call

Texts = str | Sequence[str | None]
"""Results of a rule: an expression for each result, None for those that it does not compute."""
Rule = Callable[..., Texts]

RULES: dict[str, Rule] = {}
"""Rules by target of a node, as `aten.slice.Tensor`."""


def rule(*targets: str) -> Callable[[Rule], Rule]:
    """Return a decorator that declares the rule of some targets.

    The function takes a Build, and ATen's parameters by their names.
    """

    def declare(function: Rule) -> Rule:
        for target in targets:
            assert target not in RULES, target
            RULES[target] = function
        return function

    return declare


WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Line:
    """One op line: the names that it defines, and its expression; or an external call."""

    names: tuple[str, ...]
    expression: str
    node: ModelNode
    call: Call | None = None

    @property
    def reads(self) -> list[str]:
        """Return the words of the line; those that are names of values are its operands."""
        return WORD.findall(self.expression) if self.call is None else self.call.reads


@dataclass
class Build:
    """The lines of a graph so far, and the node that is being converted."""

    graph: ModelGraph
    namer: Namer
    node: ModelNode
    texts: dict[str, str] = field(default_factory=dict[str, str])
    types: dict[str, Type] = field(default_factory=dict[str, Type])
    lines: list[Line] = field(default_factory=list[Line])
    natural: set[str] = field(default_factory=set[str])
    """Integer tensors that are nonnegative, since they count."""
    external: frozenset[str] = frozenset()
    """The operations that become external calls at the user's request."""

    def type_of(self, argument: Argument) -> Type:
        """Return the type of a tensor."""
        if not isinstance(argument, Ref) or argument.name not in self.types:
            raise self.unsupported(f"expected a tensor, got {self.text(argument)}")
        return self.types[argument.name]

    def shape_of(self, argument: Argument) -> tuple[Dim, ...]:
        """Return the shape of a tensor."""
        return self.type_of(argument).shape or ()

    def dtype_of(self, argument: Argument) -> DType:
        """Return the element type of a tensor."""
        return self.type_of(argument).dtype

    @property
    def result(self) -> Type:
        """Return the type of the node's first result."""
        found = self.node.results[0].type if self.node.results else None
        if found is None:
            raise self.unsupported("the type of its result is unknown")
        return found

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the shape of the node's first result."""
        return self.result.shape or ()

    def text(self, argument: Argument) -> str:
        """Return the text of an argument."""
        if isinstance(argument, Ref):
            found = self.texts.get(argument.name)
            if found is None:
                raise self.unsupported(f"its operand `{argument.name}` is not in the graph")
            return found
        items = items_of(argument)
        if items is not None:
            return f"[{', '.join(map(self.text, items))}]"
        if argument is None or isinstance(argument, bool):
            return str(argument).lower()
        if isinstance(argument, float):
            return repr(argument) if math.isfinite(argument) else str(argument)
        return str(argument)

    def let(self, expression: str, word: str) -> str:
        """Write a line for an intermediate value, and return its name; a name is returned as is."""
        if expression.isidentifier():
            return expression
        name = self.namer.inner(self.node, word)
        self.lines.append(Line((name,), expression, self.node))
        return name

    def let_all(self, expression: str, words: Sequence[str]) -> list[str]:
        """Write a line for an operation with several results, and return their names.

        A result with the word `_` is not used.
        """
        names = ["_" if w == "_" else self.namer.inner(self.node, w) for w in words]
        self.lines.append(Line(tuple(names), expression, self.node))
        return names

    def cast(self, text: str, old: DType, new: DType) -> str:
        """Return an expression converted to a type, if it has another one."""
        return text if old == new else f"cast({text}, {new})"

    def result_dtype(self, number: int) -> DType:
        """Return the element type of one of the node's results; f32 where it is not used."""
        results = self.node.results
        found = results[number].type if number < len(results) else None
        return F32 if found is None else found.dtype

    def in_f32(self, argument: Argument) -> str:
        """Return a tensor of 16-bit floats converted to f32; others unchanged."""
        dtype = self.dtype_of(argument)
        return f"cast({self.text(argument)}, f32)" if dtype.is_half else self.text(argument)

    def unsupported(self, reason: str, help: str | None = None) -> FusecError:
        """Return the error for a valid node that cannot be converted."""
        return node_error(self.graph.file, self.node, reason, help, kind=Unsupported)

    def integer(self, argument: Argument, what: str) -> int:
        """Return an argument that must be a known integer."""
        if isinstance(argument, Dim) and argument.is_const:
            return argument.value
        if type(argument) is not int:
            raise self.unsupported(f"`{what}` is not a known integer")
        return argument


def axis_of(place: int, rank: int) -> int:
    """Return a dim counted from the front."""
    return place + rank if place < 0 else place


def axes_of(dims: Argument, rank: int) -> list[int]:
    """Return the dims of an argument, counted from the front and sorted; empty for None."""
    items = items_of(dims)
    places = items if items is not None else [] if dims is None else [dims]
    return sorted({axis_of(place, rank) for place in places})


def size_texts(shape: Sequence[Dim]) -> str:
    """Return the text of a shape."""
    return f"[{', '.join(map(str, shape))}]"


def as_dim(argument: int | Dim) -> Dim:
    """Return an integer or a size as a Dim."""
    return argument if isinstance(argument, Dim) else dim(argument)


def call_rule(build: Build, function: Rule, node: ModelNode) -> Texts:
    """Return the result of the node's rule for its arguments."""
    signature = inspect.signature(function)
    known = {n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
    takes_all = len(known) < len(signature.parameters)
    named = {n: a for n, a in node.named.items() if takes_all or n in known}
    try:
        arguments = signature.bind(build, *node.positional, **named)
    except TypeError as error:
        raise build.unsupported(f"its arguments are not those of ATen ({error})") from None
    return function(*arguments.args, **arguments.kwargs)
