"""The calls of a definition in a script, as the Python text that nvFuser prints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.op import OpDef
from fusec.ops import find_op
from fusec.parse.dsl import calls, tensors
from fusec.parse.dsl.datatype import DataType, as_dtype, of_dtype
from fusec.parse.dsl.handles import Handle, Scalar, Tensor, Vector
from fusec.parse.dsl.indexing import Extent
from fusec.parse.dsl.lists import is_list

_OF_PYTHON = (dtypes.BOOL, dtypes.I64, dtypes.F64, dtypes.C128)
"""Types of constants that are Python literals."""

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Calls:
    """The calls of one definition as lines of Python, with names for their results."""

    def __init__(self, tensor: str, scalar: str, *, numbers_constants: bool) -> None:
        """Name tensors and scalars by two prefixes and a running number.

        numbers_constants: as in nvFuser's first API, inline constants and lists of sizes take
        numbers too, and a tensor that is declared by its strides prints their order.
        """
        self.lines: list[str] = []
        self._prefixes = tensor, scalar
        self._numbers_constants = numbers_constants
        self._names: dict[Any, str] = {}
        self._count = 0
        self._inside = False

    def take(self, text: Callable[[Any], str | None], run: Callable[[], Any]) -> Any:
        """Run a call and record its result's text, unless it is part of another or has none."""
        if self._inside:
            return run()
        self._inside = True
        try:
            result = run()
            line = text(result)
        finally:
            self._inside = False
        if line is not None:
            names = self._named(result)
            self.lines.append(f"{', '.join(names)} = {line}" if names else line)
        return result

    def printed(self) -> list[str]:
        """Return the lines in the order in which `repr` shows them."""
        return self.lines

    def key(self) -> str:
        """Return the printed lines, with values numbered in order of appearance."""
        numbers: dict[str, str] = {}

        def renamed(found: re.Match[str]) -> str:
            return numbers.setdefault(found[0], f"{found[1]}{len(numbers)}")

        prefixes = "|".join((*self._prefixes, "V"))
        return re.sub(rf"\b({prefixes})\d+\b", renamed, "\n".join(self.printed()))

    def _named(self, result: Any) -> list[str]:
        """Return new names for the result of a call, a tuple of handles or one."""
        if isinstance(result, tuple):
            parts: tuple[Any, ...] = result  # pyright: ignore[reportUnknownVariableType]
            return [name for part in parts for name in self._named(part) or ["_"]]
        if isinstance(result, Vector):
            name = self._next("V")
            self._names.update((e, f"{name}[{k}]") for k, e in enumerate(result.elements))
            return [name]
        if not isinstance(result, Handle):
            return []
        tensor, scalar = self._prefixes
        self._names[result] = self._next(tensor if isinstance(result, Tensor) else scalar)
        return [self._names[result]]

    def _next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count - 1}"

    def vector(self, values: Any) -> str | None:
        """Return the text of a vector of scalar inputs, or None for a list of given ones."""
        if isinstance(values, int):
            return f"fd.define_vector({values})"
        self._count_list(values)
        return None

    def _skip_number(self) -> None:
        self._count += self._numbers_constants

    def _count_list(self, values: Any) -> None:
        """Take numbers for a list that nvFuser makes a vector, and for constants in it."""
        for value in values:
            if not _is_handle(value):
                self._skip_number()
        self._skip_number()

    def _count_constants(self, op: OpDef, named: Mapping[str, Any]) -> None:
        for parameter in op.params:
            value = named.get(parameter.name)
            if parameter.kind == "shape" or (op.name, parameter.name) == ("slice", "strides"):
                if is_list(value):
                    self._count_list(value)
            elif parameter.is_operand and isinstance(value, (bool, int, float, complex)):
                self._skip_number()

    def tensor(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
        """Return the text of a call of `define_tensor`, normalized to one form."""
        known = {k: v for k, v in options.items() if k not in ("name", "range")}
        form = tensors.read_form(args, known)
        rank = len(form.shape)
        order = form.stride_order
        if order is None and form.is_measured and self._numbers_constants:
            order = tuple(range(rank))[::-1]
        fields: dict[str, Any] = {"shape": list(form.shape)}
        if form.contiguity is None:
            fields["strides"] = list(form.strides or ())
        else:
            fields["contiguity"] = list(form.contiguity)
        fields |= {"dtype": of_dtype(form.dtype), "is_cpu": form.is_cpu}
        if order and form.contiguity is not None:
            fields["stride_order"] = list(order)
        return f"fd.define_tensor({self._keywords(fields)})"

    def scalar(self, value: Any, dtype: DType | None) -> str | None:
        """Return the text of a scalar input, or of a constant that is not a Python literal."""
        if value is None:
            return f"fd.define_scalar(None, dtype={of_dtype(dtype or dtypes.F64)})"
        const = calls.scalar_const(value, dtype)
        if const.dtype in _OF_PYTHON:
            self._skip_number()
            return None
        return f"fd.define_scalar({self.value(const.value)}, dtype={of_dtype(const.dtype)})"

    def operation(
        self, name: str, args: Sequence[Any], options: Mapping[str, Any], result: Any
    ) -> str:
        """Return the text of a call of `fd.ops.name`: operands by position, the others by name."""
        op = find_op(name)
        given = {k: v for k, v in options.items() if k != "name"}
        positional, named = calls.named_arguments(op, args, given)
        named = {**dict(zip((p.name for p in op.params), positional, strict=False)), **named}
        self._count_constants(op, named)
        return self._call(op, named, result)

    def _call(self, op: OpDef, named: dict[str, Any], result: Any) -> str:
        texts: list[str] = []
        by_place = True
        for parameter in op.params:
            if parameter.name not in named:
                by_place = False
                continue
            value = _number(named.pop(parameter.name))
            by_place = by_place and parameter.is_operand and parameter.kind != "optional"
            if by_place:
                texts.append(self.value(value))
            elif value is not None and (_is_handle(value) or value != parameter.default):
                value = as_dtype(value) or DataType.Null if parameter.kind == "dtype" else value
                texts.append(f"{parameter.name}={self.value(value)}")
        texts += [f"{n}={self.value(v)}" for n, v in named.items() if v is not None]
        return f"fd.ops.{op.name}({', '.join(texts)})"

    def output(self, output: Any, alias: Any, order: Sequence[int] | None) -> str:
        """Return the text of a call of `add_output`."""
        fields = {"stride_order": list(order)} if order else {}
        places = [output] if alias is None else [output, alias]
        texts = [*map(self.value, places), *([self._keywords(fields)] if fields else [])]
        return f"fd.add_output({', '.join(texts)})"

    def _keywords(self, fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name}={self.value(value)}" for name, value in fields.items())

    def value(self, value: Any) -> str:
        """Return the text of one argument."""
        if isinstance(value, Handle):
            return self._handle(value)
        if isinstance(value, Vector) or is_list(value):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, DType):
            return repr(of_dtype(value))
        if isinstance(value, Extent):
            size = value.known_size
            if size is not None and size.is_const:
                return str(size)
            return f"fd.ops.size({self._handle(value.tensor)}, {value.axis})"
        if isinstance(value, Dim):
            return str(value)
        if hasattr(value, "item"):
            value = value.item()
        if isinstance(value, complex):
            return f"complex({_float(value.real)}, {_float(value.imag)})"
        return _float(value) if isinstance(value, float) else repr(value)

    def _handle(self, handle: Handle) -> str:
        if handle in self._names:
            return self._names[handle]
        if isinstance(handle, Scalar) and handle.const is not None:
            return self.value(handle.const.value)
        raise FusecError(f"`{handle!r}` belongs to another FusionDefinition")


def _number(value: Any) -> Any:
    """Return the number that a constant represents if Python prints it; other values unchanged."""
    const = value.const if isinstance(value, Scalar) else None
    return value if const is None or const.dtype not in _OF_PYTHON else const.value


def _is_handle(value: Any) -> bool:
    return isinstance(value, Handle)  # whose `!=` is an operation


def _float(value: float) -> str:
    if not math.isfinite(value):
        return f'float("{value}")'
    short = f"{value:#.6g}"
    return short if float(short) == value else repr(value)
