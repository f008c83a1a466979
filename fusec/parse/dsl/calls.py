"""Calls of `fd.ops.*`: map nvFuser's argument lists, old and new, to the operation table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Unsupported, WrongType
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Operand, Value
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import LISTS, bind, parameter_called
from fusec.ops.literals import literal
from fusec.parse.dsl.datatype import DataType, as_dtype
from fusec.parse.dsl.handles import Handle, Scalar, Tensor, Vector
from fusec.parse.dsl.indexing import Extent
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.results import Results
from fusec.parse.dsl.size import plain
from fusec.parse.dsl.steps import guess_rank

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition

Arguments = tuple[list[Any], dict[str, Any]]


def _without_original_shape(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    """Remove the shape of the operand, which older versions require before the new one."""
    positional, named = list(args), dict(options)
    named.pop("original_shape", None)
    if len(positional) == 3 or (len(positional) == 2 and {"new_shape", "dims"} & named.keys()):
        del positional[1]
    return positional, named


def _squeeze(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    # The old form has the operand's sizes as the second argument, the new one a bool as the third.
    if len(args) == 3 and isinstance(args[2], bool):
        return list(args), dict(options)
    return _without_original_shape(args, options)


def _cat(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    positional, named = list(args), dict(options)
    if named.pop("manual_padding", False) or any(positional[2:]):
        raise Unsupported("`cat` with manual_padding", help="concatenate unpadded tensors")
    return positional[:2], named


def _reduce(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    # nvFuser's overload without dims takes the dtype as the second argument.
    if len(args) == 2 and isinstance(args[1], DataType):
        return [args[0]], {**options, "dtype": args[1]}
    return list(args), dict(options)


def _draw(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    # Older versions have the dtype in the position of the seed.
    positional, named = list(args), dict(options)
    if len(positional) > 3 and isinstance(positional[3], (DataType, DType)):
        named["dtype"] = positional.pop(3)
    elif isinstance(named.get("rng_seed"), (DataType, DType)):
        named["dtype"] = named.pop("rng_seed")
    return positional, named


_SCALES_OF_THE_RESULT = ("output_block_scale_size", "output_block_scale_dtype", "output_gamma")


def _scale(args: Sequence[Any], options: Mapping[str, Any], *, before: int) -> Arguments:
    """Reject scales of the result, whose arguments follow `before` others."""
    named = {**options, **dict(zip(_SCALES_OF_THE_RESULT, args[before:], strict=False))}
    asked = {name: named.pop(name, None) for name in _SCALES_OF_THE_RESULT}
    for name in ("output_block_scale_size", "output_gamma"):
        if asked[name]:
            raise Unsupported(
                f"a GEMM with `{name}`", help="compute the scales of the result separately"
            )
    end = before + len(_SCALES_OF_THE_RESULT)
    return [*args[:before], *args[end:]], named


def _attention_call(args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    # Older versions have neither a bias nor a mask, both tensors, but the numbers dropout_p and
    # is_causal in these positions.
    if any(_is_number(value) for value in args[3:5]):
        return [*args[:3], None, None, *args[3:]], dict(options)
    return list(args), dict(options)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Scalar))


ADAPTERS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], Arguments]] = {
    "reshape": _without_original_shape,
    "squeeze": _squeeze,
    "cat": _cat,
    **dict.fromkeys(("uniform", "normal"), _draw),
    "scaled_mm": partial(_scale, before=8),
    "grouped_mm": partial(_scale, before=9),
    "sdpfa_fwd": _attention_call,
    **dict.fromkeys(("sum", "prod", "max", "min"), _reduce),
}
"""Argument lists that differ from the table's own parameters."""


def named_arguments(op: OpDef, args: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
    """Return a call's arguments in the form of the table: positional ones and the table's names."""
    adapter = ADAPTERS.get(op.name)
    positional, named = (list(args), dict(options)) if adapter is None else adapter(args, options)
    last = len(op.params) - 1
    spread = positional[last:] if last > 0 and op.params[last].kind in LISTS else []
    if len(spread) > 1 and not any(map(is_list, args)):
        positional = [*positional[:last], spread]  # `permute(x, 0, 2, 1)`
    kinds = [p.kind for p in op.params[:2]]
    if (
        kinds == ["shape", "dtype"]
        and len(positional) > 1
        and all(type(size) is int for size in positional)
    ):
        positional = [positional]  # `zeros(4, 8)`
    return positional, {parameter_called(op, name): value for name, value in named.items()}


def read_call(
    definition: FusionDefinition, op: OpDef, positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the operands and attributes of a call, as GraphBuilder.call takes them."""
    kinds = {p.name: p.kind for p in op.params}
    order = [p.kind for p in op.params] + [""] * len(positional)
    operands, attributes = bind(
        op,
        [_plain(definition, v, kind) for v, kind in zip(positional, order, strict=False)],
        {name: _plain(definition, v, kinds.get(name, "")) for name, v in named.items()},
    )
    # None means "not given" for every optional attribute of nvFuser.
    return operands, {name: value for name, value in attributes.items() if value is not None}


def _plain(definition: FusionDefinition, value: Any, kind: str) -> Any:
    """Return an argument without handles: values, numbers, dims, dtypes and lists of these."""
    if kind == "dtype":
        return as_dtype(value)
    if kind == "bool" and isinstance(value, int):
        return bool(value)  # nvFuser prints flags as 0 and 1
    if isinstance(value, Results) and kind in ("operand", "optional"):
        raise value.refused()
    if isinstance(value, Handle):
        if value.definition is not definition:
            raise FusecError(f"`{value!r}` belongs to another FusionDefinition")
        operand = value.operand
        if kind in _NUMBERS and isinstance(operand, Value) and definition.is_scalar_input(operand):
            return definition.value_of(operand.name)
        if kind in _SIZES and isinstance(operand, Value) and operand.type.dtype.is_float:
            number = definition.whole_number(operand)
            return operand if number is None else number
        size = operand.type.dim
        is_size = kind not in _OPERAND_KINDS and size is not None and isinstance(operand, Value)
        return definition.known(size) if is_size and size is not None else operand
    if is_list(value) or isinstance(value, Vector):
        return [_plain(definition, v, kind) for v in value]
    if isinstance(value, Extent):
        value = value.size()
    if isinstance(value, Dim):
        if value.is_const:
            return value.value
        if kind in _OPERAND_KINDS:
            return definition.operand_of_size(plain(value))
        return plain(value)
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):
        return value  # an array: rejected later, with the argument's name


_NUMBERS = ("bool", "float")
_SIZES = ("shape", "size")
_OPERAND_KINDS = ("operand", "operands", "optional")


def handle_of(definition: FusionDefinition, operand: Operand) -> Tensor | Scalar:
    """Return a handle for a result."""
    if isinstance(operand, Const):
        return Scalar(definition, operand)
    return Scalar(definition) if operand.is_scalar else Tensor(definition)


def guessed_handles(
    definition: FusionDefinition, op: OpDef, arguments: Arguments, count: int | None = None
) -> list[Tensor | Scalar]:
    """Return handles for the results of a call that cannot be applied yet."""
    positional, named = arguments
    given = {**dict(zip((p.name for p in op.params), positional, strict=False)), **named}
    operands: list[Any] = [given.get(p.name) for p in op.operands]
    flat: list[Any] = []
    for operand in operands:
        flat += operand if is_list(operand) else [operand]
    ranks = [v.ndim for v in flat if isinstance(v, Tensor)]
    if op.name == "shape":
        return [Scalar(definition) for _ in range(max(ranks, default=0))]
    if op.many and count is not None:
        rank = max(ranks, default=0)
        return [Tensor(definition, rank=guess_rank(op.name, given, [rank])) for _ in range(count)]
    if op.name == "size" or not (ranks or op.family in ("factory", "random")):
        return [Scalar(definition)]
    rank = guess_rank(op.name, given, ranks)
    return [Tensor(definition, rank=rank) for _ in op.results[:count]]


def scalar_const(value: Any, dtype: DType | None) -> Const:
    """Return a literal of the given type, or of the value's own Python type."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, (bool, int, float, complex)):
        raise FusecError(f"the value of a scalar must be a number, got {value!r}")
    if dtype is None:
        return literal(value)
    convert = {"bool": bool, "uint": int, "int": int, "float": float, "complex": complex}
    try:
        made: Any = convert[dtype.kind](value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        raise FusecError(f"{value!r} is not a {dtype} value") from None
    if dtype == dtypes.BOOL or not dtype.is_integer:
        return Const(made, dtype)
    if made not in dtype.integers:
        raise FusecError(f"{value!r} does not fit in {dtype}")
    return Const(made, dtype)


def as_size(value: Any, what: str) -> Dim | int:
    """Return a size: an int (which may be -1) or an expression of sizes."""
    if isinstance(value, Scalar):
        size = value.dim
        if size is None:
            raise FusecError(
                f"{what} depends on data: {value!r} is not a function of sizes",
                help="sizes come from constants, shapes and integer scalar inputs",
            )
        value = size
    if isinstance(value, Dim):
        return value.value if value.is_const else plain(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongType(f"{what} is a size, got {value!r}")
    size = value.__index__()
    if size >= 2**63:
        raise WrongType(f"{what} is {size}, more than 64 bits hold")
    return size
