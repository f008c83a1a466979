"""The argument lists of nvFuser's `define_tensor` in its versions, as one declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.ir.dtype import F32, DType
from fusec.parse.dsl.datatype import DataType, as_dtype
from fusec.parse.dsl.inputs import span
from fusec.parse.dsl.lists import is_list

Contiguity = tuple[bool | None, ...]


@dataclass(frozen=True)
class TensorForm:
    """A declared tensor: sizes (-1: unknown), contiguity in nvFuser's order, hints for sizes.

    `strides` is fusec's own addition: each stride as a size expression, instead of contiguity.
    `is_measured`: contiguity and order are those of given strides.
    """

    shape: tuple[Any, ...]
    contiguity: Contiguity | None
    dtype: DType
    is_cpu: bool
    stride_order: tuple[int, ...] | None
    hints: tuple[int | None, ...]
    strides: tuple[Any, ...] | None = None
    is_measured: bool = False


_SHAPE_NAMES = ("shape", "sizes", "symbolic_sizes", "symbolic_shape")
_OPTIONS = {"contiguity", "strides", "dtype", "is_cpu", "static_sizes", "stride_order"}


def read_form(args: tuple[Any, ...], options: dict[str, Any]) -> TensorForm:
    """Return what a call of `define_tensor` declares."""
    values = _named(args, dict(options))
    dtype = as_dtype(values.get("dtype")) or F32
    is_cpu = bool(values.get("is_cpu", False))
    shape = values["shape"]
    if isinstance(shape, int):
        shape = [-1] * shape
    shape = tuple(shape)
    strides = values.get("strides")
    if strides is not None:
        return _of_strides(shape, tuple(strides), dtype, is_cpu, bool(values.get("static_sizes")))
    contiguity = values.get("contiguity", False)
    if isinstance(contiguity, bool):
        contiguity = [contiguity] * len(shape)
    order = tuple(values.get("stride_order") or ()) or None
    if order is not None and sorted(order) != list(range(len(shape))):
        raise FusecError(f"stride_order {list(order)} is not an order of {len(shape)} dims")
    if len(contiguity) != len(shape):
        raise FusecError(
            f"contiguity has {len(contiguity)} entries for {len(shape)} dims",
            help="one of True, False or None (a broadcast dim) for each dim",
        )
    none = (None,) * len(shape)
    return TensorForm(shape, tuple(contiguity), dtype, is_cpu, order, none)


def _named(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments by name; the meaning of the second one depends on its type."""
    for name in _SHAPE_NAMES:
        if name in options:
            options["shape"] = options.pop(name)
    if "ndims" in options:
        options["shape"] = int(options.pop("ndims"))
    if "contiguous" in options:
        options["contiguity"] = options.pop("contiguous")
    order = ["contiguity", "dtype", "is_cpu", "stride_order"]
    if "shape" not in options:
        order.insert(0, "shape")
    counted = bool(args) and isinstance(args[0], int)
    typed = len(args) > 1 and isinstance(args[1], DataType)
    if (counted or typed) and "shape" in order:
        order = ["shape", "dtype", "is_cpu"]
    elif len(args) > 1 and "shape" in order and _are_strides(args[1]):
        order = ["shape", "strides", "dtype", "static_sizes", "is_cpu"]
    if len(args) > len(order):
        raise FusecError(f"define_tensor takes at most {len(order)} positional arguments")
    for name, value in zip(order, args, strict=False):
        if name in options:
            raise FusecError(f"define_tensor got `{name}` twice")
        options[name] = value
    unknown = options.keys() - _OPTIONS - {"shape"}
    if unknown:
        raise FusecError(
            f"define_tensor has no argument `{min(unknown)}`",
            help=(
                "its arguments are shape, contiguity, dtype, is_cpu and stride_order, or sizes "
                "and strides"
            ),
        )
    if "shape" not in options:
        raise FusecError("define_tensor needs a shape")
    return options


def _are_strides(value: Any) -> bool:
    return is_list(value) and any(v is not None and not isinstance(v, bool) for v in value)


def _of_strides(
    shape: tuple[Any, ...], strides: tuple[Any, ...], dtype: DType, is_cpu: bool, static: bool
) -> TensorForm:
    if len(strides) != len(shape):
        raise FusecError(f"strides has {len(strides)} entries for {len(shape)} dims")
    none = (None,) * len(shape)
    if not all(isinstance(v, int) and v >= 0 for v in (*shape, *strides)):
        return TensorForm(shape, None, dtype, is_cpu, None, none, strides)
    if dtype.size * span(shape, strides) >= 2**63:
        raise FusecError(
            f"strides {list(strides)} with sizes {list(shape)} span more than any memory",
            help="strides are in elements, not bytes",
        )
    contiguity, order = describe(shape, strides)
    if static:
        return TensorForm(shape, contiguity, dtype, is_cpu, order, none, is_measured=True)
    symbolic = tuple(1 if n == 1 else -1 for n in shape)
    return TensorForm(symbolic, contiguity, dtype, is_cpu, order, shape, is_measured=True)


def describe(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[Contiguity, tuple[int, ...] | None]:
    """Return contiguity (slowest dim first) and stride order of a tensor with known strides."""
    rank = len(sizes)
    slow_to_fast = _by_stride(strides)
    contiguity: list[bool | None] = []
    expected = 1
    for axis in reversed(slow_to_fast):
        if sizes[axis] == 1 or strides[axis] == 0:
            contiguity.append(None)
            continue
        contiguity.append(strides[axis] == expected)
        expected = strides[axis] * sizes[axis]
    order = [0] * rank
    for position, axis in enumerate(reversed(slow_to_fast)):
        order[axis] = position
    plain = order == list(range(rank - 1, -1, -1))
    return tuple(reversed(contiguity)), None if plain else tuple(order)


def _by_stride(strides: Sequence[int]) -> list[int]:
    """Return the axes from the largest stride to the smallest; a stride of 0 keeps its position.

    Sorted as PyTorch and nvFuser do: by insertion, skipping dims without a stride of their own.
    """
    order = list(range(len(strides)))
    for start in range(1, len(order)):
        own = start
        for place in reversed(range(start)):
            left, right = strides[order[place]], strides[order[own]]
            if left == 0 or right == 0:
                continue
            if left >= right:
                break
            order[place], order[own] = order[own], order[place]
            own = place
    return order
