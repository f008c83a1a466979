"""Type stubs for editors: `fd.ops` and the methods of tensors, from the operations' declarations.

`python -m fusec.pages.stubs` writes `fusec/parse/dsl/typed.pyi`; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fusec.ir.op import REQUIRED, OpDef, Param
from fusec.ops import TABLE
from fusec.ops.frameworks import Entry, aliases
from fusec.ops.frameworks.find import entries
from fusec.parse.dsl.handles import Tensor
from fusec.parse.dsl.operations import RETURNED

FILE = Path(__file__).parents[1] / "parse" / "dsl" / "typed.pyi"

_TYPES = {
    "operand": "Operand", "optional": "Operand | None", "operands": "Sequence[Operand]",
    "bool": "_bool", "axis": "_int", "dtype": "DTypeLike", "dims": "Dims", "shape": "Sizes",
    "size": "Size", "str": "_str", "int": "_int", "ints": "Sequence[_int]", "float": "_float",
    "mask": "Sequence[_bool]",
}  # fmt: skip
"""The annotation of each kind of parameter."""
_LISTS = ("dims", "shape", "ints", "operands")
"""Kinds whose elements a method also accepts as separate arguments: `x.permute(0, 2, 1)`."""
_HEAD = '''\
# Generated from the operations by `python -m fusec.pages.stubs`.
"""What operations add to `fd.ops` and to values, for type checkers and editors."""

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

from fusec.ir.dim import Dim
from fusec.parse.dsl.datatype import DataType
from fusec.parse.dsl.handles import Scalar, Tensor, Vector

_bool: TypeAlias = bool
_int: TypeAlias = int
_float: TypeAlias = float
_str: TypeAlias = str
Size: TypeAlias = int | Dim | Scalar
Sizes: TypeAlias = Sequence[Size] | Vector
Dims: TypeAlias = int | Sequence[int] | None
Operand: TypeAlias = Tensor | Scalar | Dim | complex
DTypeLike: TypeAlias = DataType | str | Any
'''
_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_COMPARISONS = ("lt", "le", "gt", "ge")
_UNARY = ("neg", "invert", "abs")


def stub() -> str:
    """Return the text of the stub."""
    return "".join(
        (_HEAD, "\nclass Functions:\n", *_functions(), "\nclass Methods:\n", *_methods())
    )


def _functions() -> Iterator[str]:
    """Yield `fd.ops`: a function for each operation, and for each alias."""
    for op in TABLE.values():
        yield from _calls(op, op.params)
    yield from (_alias(entry) for name, entry in sorted(aliases().items()) if name not in TABLE)


def _methods() -> Iterator[str]:
    """Yield the methods of tensors and scalars, which are the operation's first operand."""
    own = {name for kind in Tensor.__mro__ for name in vars(kind)}
    yield from (_operator(f"__{p}{name}__") for name in _OPERATORS for p in ("", "r"))
    yield from (_operator(f"__{name}__") for name in _COMPARISONS)
    yield from (f"    def __{name}__(self) -> Tensor: ...\n" for name in _UNARY)
    for op in TABLE.values():
        if op.name not in own and op.params and op.params[0].kind in ("operand", "operands"):
            yield from _calls(op, op.params[1:], is_method=True)
    of_tensors = {e.name: e for e in entries("torch.Tensor") if e.kind == "alias"}
    for name, entry in sorted({**aliases(), **of_tensors}.items()):
        if name not in TABLE and name not in own and not name.startswith("_"):
            yield _alias(entry)


def _calls(op: OpDef, params: tuple[Param, ...], *, is_method: bool = False) -> Iterator[str]:
    """Yield an operation as a method; with overloads for other accepted orders of arguments."""
    forms = [_parameters(params)]
    if is_method and params and params[0].kind in _LISTS:
        element = "_int" if params[0].kind == "dims" else "Size"
        forms.append([f"*{params[0].name}: {element}", *_parameters(params[1:])])
    if _has_other_orders(params):
        forms.append(["*args: Any", "**options: Any"])
    for form in forms:
        if len(forms) > 1:
            yield "    @overload\n"
        named = [] if form[-1:] == ["**options: Any"] else ["name: _str | None = None"]
        spread = any(p.startswith("*") for p in form)
        separator = [] if spread or not named else ["*"]
        yield _function(op.name, [*form, *separator, *named], _returned(op), op.doc)


def _has_other_orders(params: tuple[Param, ...]) -> bool:
    """Return whether PyTorch or earlier versions of nvFuser have parameters in another order."""
    kinds = [p.kind for p in params]
    before = {"operand", "optional", "operands"}
    moved = any(k == "axis" and before & {*kinds[:n]} for n, k in enumerate(kinds))
    return moved or {"dims", "dtype"} <= {*kinds} or "shape" in kinds


def _parameters(params: Iterable[Param]) -> list[str]:
    return [_parameter(p) for p in params]


def _parameter(param: Param) -> str:
    kind = _TYPES[param.kind]
    if param.default is REQUIRED:
        return f"{param.name}: {kind}"
    if param.default is None and "None" not in kind and param.kind not in ("dims", "dtype"):
        kind += " | None"
    return f"{param.name}: {kind} = {param.default!r}"


def _returned(op: OpDef) -> str:
    if op.name in RETURNED:
        return RETURNED[op.name]
    if op.many:
        return "tuple[Tensor, ...]"
    return "Tensor" if len(op.results) == 1 else f"tuple[{', '.join(['Tensor'] * len(op.results))}]"


def _alias(entry: Entry) -> str:
    written = " or ".join(entry.expressions)
    parameters = ["*args: Any", "**options: Any"]
    # A single call of an operation returns its type; an expression may return anything.
    called = re.fullmatch(r"(\w+)\(.*\)", written)
    op = TABLE.get(called[1]) if called and len(entry.expressions) == 1 else None
    returned = "Any" if op is None else _returned(op)
    return _function(entry.name, parameters, returned, f"{entry.signature}: {written}")


def _operator(name: str) -> str:
    return f"    def {name}(self, other: Operand) -> Tensor: ...\n"


def _function(name: str, parameters: list[str], returned: str, doc: str) -> str:
    text = doc.replace("\\", "\\\\").replace('"', "'").splitlines()
    body = '"""' + "\n        ".join(text) + ('"""' if len(text) == 1 else '\n        """')
    head = f"    def {name}({', '.join(['self', *parameters])}) -> {returned}:\n"
    return f"{head}        {body}\n"


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")
