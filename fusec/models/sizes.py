"""Symbolic sizes of exported models: SymPy's text, parsed and never evaluated.

Recordings have its short form, `2*s77 + 1`; archives the long one, `Add(Mul(Integer(2),
Symbol('s77', positive=True, integer=True)), Integer(1))`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim, dim, floordiv, maximum, minimum, mod, symbol
from fusec.parse.source import source_of_text
from fusec.parse.syntax.expressions import Parser
from fusec.parse.syntax.trees import CallTree, Infix, Literal, Name, Prefix, String, Tree

MOST_TERMS = 256
"""Maximum terms of an expanded product: `((a + b + c)**8)**8` has hundreds of thousands."""


def _multiplied(left: Dim, right: Dim) -> Dim:
    if len(left.terms) * len(right.terms) > MOST_TERMS:
        raise Unsupported(f"a size has over {MOST_TERMS} terms")
    return left * right


_FUNCTIONS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "Mod": mod, "PythonMod": mod, "FloorDiv": floordiv, "CleanDiv": floordiv,
    "Max": maximum, "Min": minimum, "Add": lambda a, b: a + b, "Mul": _multiplied,
}  # fmt: skip
_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": _multiplied,
    "//": floordiv,
    "%": mod,
}
MOST_TEXT = 2000
"""Maximum length of a size's text."""
MOST_POWER = 8


def size_of(text: str, symbols: Collection[str]) -> Dim:
    """Return the size that a SymPy text denotes, in the symbols of a model.

    Unsupported for a symbol that depends on data, and for functions that sizes do not have.
    """
    if len(text) > MOST_TEXT:
        raise FusecError(f"a size of {len(text)} characters is too long")
    tree = Parser(source_of_text(text, "<size>"), 0, len(text)).expression()
    return _dim(tree, text, symbols)


def _dim(tree: Tree, text: str, symbols: Collection[str]) -> Dim:
    def of(part: Tree) -> Dim:
        return _dim(part, text, symbols)

    if isinstance(tree, Literal) and type(tree.value) is int:
        return dim(tree.value)
    name = _symbol_in(tree)
    if name is not None:
        return _known_symbol(name, text, symbols)
    if isinstance(tree, Prefix) and tree.operator == "-":
        return -of(tree.operand)
    if isinstance(tree, Infix) and tree.operator == "**":
        return _power(of(tree.left), tree.right, text)
    if isinstance(tree, Infix) and tree.operator in _OPERATORS:
        return _applied(_OPERATORS[tree.operator], [of(tree.left), of(tree.right)], text)
    if isinstance(tree, CallTree) and tree.name.text == "Integer" and len(tree.arguments) == 1:
        return of(tree.arguments[0].value)
    if isinstance(tree, CallTree) and tree.name.text == "Pow" and len(tree.arguments) == 2:
        base, exponent = (a.value for a in tree.arguments)
        return _power(of(base), exponent, text)
    if isinstance(tree, CallTree) and tree.name.text in _FUNCTIONS and len(tree.arguments) > 1:
        values = [of(a.value) for a in tree.arguments]
        return _applied(_FUNCTIONS[tree.name.text], values, text)
    raise Unsupported(f"the size `{text}` has a function or a number that sizes do not have")


def symbol_of(text: str) -> str | None:
    """Return the symbol that a SymPy text denotes, None for anything else."""
    if len(text) > MOST_TEXT:
        return None
    try:
        return _symbol_in(Parser(source_of_text(text, "<size>"), 0, len(text)).expression())
    except FusecError:
        return None


def _symbol_in(tree: Tree) -> str | None:
    if isinstance(tree, Name):
        return tree.text
    if not isinstance(tree, CallTree) or tree.name.text != "Symbol" or not tree.arguments:
        return None
    first = tree.arguments[0].value
    return first.text if isinstance(first, String) else None


def _known_symbol(name: str, text: str, symbols: Collection[str]) -> Dim:
    if name in symbols:
        return symbol(name)
    if name.startswith("u"):
        raise Unsupported(
            f"the size `{name}` depends on data",
            help="export the model with a fixed size there, or with a mask in its place",
        )
    raise FusecError(f"the size `{text}` has the unknown symbol `{name}`")


def _power(base: Dim, exponent: Tree, text: str) -> Dim:
    if isinstance(exponent, CallTree) and exponent.name.text == "Integer" and exponent.arguments:
        exponent = exponent.arguments[0].value
    if not isinstance(exponent, Literal) or type(exponent.value) is not int:
        raise Unsupported(f"the size `{text}` has an exponent that is not an integer")
    if not 0 <= exponent.value <= MOST_POWER:
        raise Unsupported(f"the size `{text}` has the exponent {exponent.value}")
    return reduce(_multiplied, [base] * exponent.value, dim(1))


def _applied(function: Callable[[Dim, Dim], Dim], values: list[Dim], text: str) -> Dim:
    if function in (floordiv, mod) and values[-1] == dim(0):
        raise FusecError(f"the size `{text}` divides by zero")
    return reduce(function, values)
