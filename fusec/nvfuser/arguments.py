"""Arguments as in nvFuser's API, where fusec's differ: rejected, or converted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ops import find_op
from fusec.parse.dsl import calls
from fusec.parse.dsl.datatype import DataType, as_dtype
from fusec.parse.dsl.handles import Handle, Scalar, Tensor
from fusec.parse.dsl.place import placed

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition

_INDEXED = ("take_along_axis", "gather", "index_select", "scatter")


def as_taken(
    definition: FusionDefinition, name: str, args: Sequence[Any], options: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a call with float indices as integers.

    FusecError for a slice, an iota or a padding that nvFuser rejects.
    """
    if name not in _CHECKS and name not in _INDEXED and name != "embedding_fwd":
        return args, options
    with placed():
        op = find_op(name)
        positional, named = calls.named_arguments(op, args, options)
        given = {**dict(zip((p.name for p in op.params), positional, strict=False)), **named}
        if name in _CHECKS:
            _CHECKS[name](given)
        elif given.get("max_norm") is not None:
            return [], given
        elif _is_float(given.get("index")):
            nameless: Any = ()
            index = definition.ops.cast(given["index"], DataType.Int, name=nameless)
            return [], {**given, "index": index}
    return args, options


def without_gradient(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that affect an embedding's values, by `embedding_with_norm`'s names."""
    index, weight = given.get("input", given.get("index")), given["weight"]
    return {"index": index, "weight": weight, "max_norm": given["max_norm"],
            "norm_type": given.get("norm_type")}  # fmt: skip


def _is_float(value: Any) -> bool:
    known = isinstance(value, Handle) and value.definition.knows(value)
    return known and value.operand.type.dtype.kind == "float"


def _check_slice(given: Mapping[str, Any]) -> None:
    starts, ends = _constants(given.get("start_indices")), _constants(given.get("end_indices"))
    steps, arg = _constants(given.get("strides")), given.get("arg")
    if steps and len(steps) != len(starts):
        raise FusecError(
            "Slice start_indices and strides don't match! "
            f"They have {len(starts)} and {len(steps)} entries"
        )
    if len(ends) != len(starts):
        raise FusecError(
            "Slice indexing attribute dimensions don't match! "
            f"start_indices and end_indices have {len(starts)} and {len(ends)} entries"
        )
    if isinstance(arg, Tensor) and arg.definition.knows(arg) and arg.ndim != len(starts):
        raise FusecError(
            "Number of tensor dimensions does not match slice dimensions! "
            f"They are {arg.ndim} and {len(starts)}"
        )
    if any(s is not None and s < 0 for s in starts):
        raise FusecError(
            "Slice operation start_indices must be greater than or equal to 0. "
            f"They are {given['start_indices']}"
        )
    if any(s is not None and e is not None and e < s for s, e in zip(starts, ends, strict=False)):
        raise FusecError(
            "Slice operation end_indices must be greater than or equal to start_indices. "
            f"They are {given['end_indices']} and {given['start_indices']}"
        )
    if any(k not in (None, 1) for k in steps):
        raise FusecError(
            f"nvFuser Limitation: All slice operation strides must be of const size 1. "
            f"They are {given['strides']}",
            help="fusec's DSL supports steps",
        )


def _constants(values: Any) -> list[int | None]:
    """Return the elements of a list that are constants when the fusion is defined."""
    return [_constant(v) for v in values or ()]


def _constant(value: Any) -> Any:
    if isinstance(value, Scalar):
        return None if value.const is None else value.const.value
    return value if isinstance(value, (int, float, complex)) else None


def _check_pad(given: Mapping[str, Any]) -> None:
    arg, value = given.get("arg"), given.get("value")
    if value is None or not isinstance(arg, Handle) or not arg.definition.knows(arg):
        return
    own = arg.operand.type.dtype
    operand = value.operand if isinstance(value, Handle) else calls.scalar_const(value, None)
    other = operand.type.dtype
    if own.is_complex != other.is_complex or (own.is_integer and other.kind == "float"):
        raise FusecError(
            f"Tensor arg and pad value must have the same dtype: they are {own} and {other}",
            help="cast one of them: fd.ops.cast(value, dtype=...)",
        )


def _check_iota(given: Mapping[str, Any]) -> None:
    dtype = as_dtype(given.get("dtype")) or dtypes.I64
    step = _constant(given.get("step"))
    if step is not None and step == 0:
        raise FusecError("iota: step value must not equal zero")
    for name in ("start", "step"):
        value = _constant(given.get(name))
        if isinstance(value, complex) or (isinstance(value, float) and dtype.is_integer):
            raise FusecError(f"iota: {name} dtype does not match specified dtype argument {dtype}")
        if isinstance(value, float) and not math.isfinite(value):
            raise FusecError("iota: length, start, step must be finite numbers")


def _check_scan(given: Mapping[str, Any]) -> None:
    arg = given.get("arg")
    if isinstance(arg, Tensor) and arg.definition.knows(arg) and not arg.ndim:
        raise FusecError("a 0-dim tensor has no dim to scan")


_CHECKS = {
    **dict.fromkeys(("cumsum", "cumprod", "cummin", "cummax"), _check_scan),
    "slice": _check_slice,
    "pad": _check_pad,
    "iota": _check_iota,
}
