"""Calls of `fd.ops` and of tensors by other frameworks' names, rewritten for fusec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim, dim
from fusec.ops import TABLE
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, find, find_bare
from fusec.ops.frameworks.entry import LIKE
from fusec.ops.frameworks.unsupported import IN_PLACE
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.place import here, placed
from fusec.parse.dsl.refused import MissingName, UnsupportedName
from fusec.parse.dsl.written import written_call, written_method
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.einops import rearranged
from fusec.parse.foreign.einsum import expression_of
from fusec.parse.syntax.operators import BINARY, COMPARISONS, UNARY
from fusec.parse.syntax.trees import Tree

if TYPE_CHECKING:
    from fusec.parse.dsl.operations import Operations


def function_named(operations: Operations, name: str) -> Callable[..., Any] | None:
    """Return `fd.ops.name` if the name is another framework's and fusec accepts it.

    None if no framework has it. The error for a name that must be rewritten, or that is not
    supported, is also an AttributeError.
    """
    if name == "einsum":
        return _einsum(operations)
    if name in ("rearrange", "reduce"):
        return _einops(operations, name)
    entry = find_bare(name)
    if entry is None:
        return None
    if entry.kind != "alias":
        raise _missing(name, entry)
    return function_of(operations, entry)


def method_named(operations: Operations, name: str) -> Callable[..., Any] | None:
    """Return `tensor.name` as a function of the tensor, if only a tensor has such a method.

    A method with a name of `fd.ops` also accepts separate sizes: `x.permute(0, 2, 1)`.
    """
    if name in LIKE:
        return _like(operations, name)
    entry = find("torch.Tensor", name)
    if name not in TABLE:
        if entry is None or entry.namespace != "torch.Tensor":
            return function_named(operations, name)
        if entry.kind != "alias":
            raise _missing(name, entry)
        return function_of(operations, entry)
    own = getattr(operations, name)
    if entry is None or not any(p.variadic for p in entry.parameters):
        return None
    spread = function_of(operations, entry)

    def method(*args: Any, **options: Any) -> Any:
        several = len(args) > 2 and not any(is_list(a) for a in args) and not options
        return spread(*args) if several else own(*args, **options)

    return method


def _missing(name: str, entry: Entry) -> FusecError:
    """Return the error for a name that must be rewritten, in Python syntax."""
    prefix = "fd.ops."
    written = frameworks.shown(entry, prefix) if entry.kind != "unsupported" else None
    place = here()
    method = None if place is None else written_method(place.span, name, entry)
    if method is not None:
        written = f"`{method}`" + (f"; {entry.caveat}" if entry.note else "")
    plain = not_ours(name, replace(entry, note="") if written else entry, written)
    told = plain.diagnostic
    if entry.note == IN_PLACE and place is not None:
        help = _assigned(place.span.text, f"{name.removesuffix('_')}(")
        plain = plain.changed(help=help or told.help)
        told = plain.diagnostic
    kind = UnsupportedName if isinstance(plain, Unsupported) else MissingName
    return kind(told.message, span=told.span, notes=told.notes, help=told.help, code=plain.code)


_CALL_IN_PLACE = re.compile(r"\.([A-Za-z]\w*)_\(")


def _assigned(line: str, call: str) -> str | None:
    """Return what to write for a line that changes a tensor in place; None for a truncated one."""
    text, receiver = line.strip(), re.match(r"\s*([A-Za-z_]\w*)\.", line)
    if text.count("(") != text.count(")") or call not in _CALL_IN_PLACE.sub(r".\1(", text):
        return None
    plain = _CALL_IN_PLACE.sub(r".\1(", text)
    stands_alone = receiver is not None and not re.match(r"[\w\s,]+=[^=]", text)
    return f"write `{receiver[1]} = {plain}`" if stands_alone and receiver else f"write `{plain}`"


def _like(operations: Operations, name: str) -> Callable[..., Any]:
    """Return a method that converts a tensor to the type or the shape of another."""

    def method(tensor: Any, other: Any) -> Any:
        return getattr(operations, LIKE[name])(
            tensor, other.dtype if name == "type_as" else other.shape
        )

    return method


def _einsum(operations: Operations) -> Callable[..., Any]:
    def einsum(equation: str, *operands: Any) -> Any:
        given = list(operands[0]) if len(operands) == 1 and is_list(operands[0]) else operands
        with placed():
            made = expression_of(equation, [getattr(value, "ndim", None) for value in given])
        if made is None:
            with placed():
                raise Unsupported(f"`einsum` of {equation!r}", help="write an equation with `->`")
        text, names = made
        values = dict(zip(names, given, strict=True))
        return evaluate_calls(operations, frameworks.parsed(text), values, {})

    return einsum


def _einops(operations: Operations, name: str) -> Callable[..., Any]:
    def einops(tensor: Any, pattern: str, reduction: str = "", **sizes: Any) -> Any:
        values: dict[str, Any] = {"x": tensor}

        def shown(size: Dim) -> str:
            values[f"_{len(values)}"] = size
            return f"_{len(values) - 1}"

        with placed():
            given = {word: dim(getattr(size, "dim", size)) for word, size in sizes.items()}
            text = rearranged(name, pattern, tensor.operand.shape, given, reduction, shown)
        return evaluate_calls(operations, frameworks.parsed(text), values, {}, {"name": ()})

    return einops


def function_of(operations: Operations, entry: Entry) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        name = options.pop("name", None)
        with placed():
            given = frameworks.bind(entry, args, options, _listed)
            tree = frameworks.instantiate(entry, given, _value_of)

        return evaluate_calls(operations, tree, given, {"name": name} if name is not None else {})

    function.__name__, function.__doc__ = entry.name, f"{entry.title}: {frameworks.shown(entry)}."
    return function


def evaluate_calls(
    operations: Operations, tree: Tree, given: Mapping[str, Any], own: Mapping[str, Any],
    inner: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Return the value of an expression for values of its names.

    own: further arguments of its calls. inner: of calls nested in others, if not `own`.
    """

    def by(options: Mapping[str, Any]) -> Callable[[str, Sequence[Any], Mapping[str, Any]], Any]:
        def call(op: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
            return getattr(operations, op)(*positional, **named, **options)

        return call

    def operator(sign: str, operands: Sequence[Any]) -> Any:
        table = UNARY if len(operands) == 1 else {**BINARY, **COMPARISONS, "/": "truediv"}
        return getattr(operations, table[sign])(*operands)

    return frameworks.evaluated(tree, given, by(own), operator, by(own if inner is None else inner))


def _listed(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 and is_list(values[0]) else list(values)


def _value_of(value: Any) -> Any:
    plain = value is None or isinstance(value, (bool, int, float, str))
    return value if plain else frameworks.OPAQUE


def on_tensors(called: str) -> str | None:
    """Return what to write for another library's call, such as `math.exp(x)`, on a fusion's tensor.

    None if fusec has no equivalent, or the script's call is not found.
    """
    place = here()
    written = written_call(None if place is None else place.span)
    if written is None:
        return None
    return f"`{called}` takes no tensor of a fusion: write `{written}`"
