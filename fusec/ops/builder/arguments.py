"""Arguments of calls: bind them to parameters, check their kinds and canonicalize them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusec.codes.calls import (
    ARGUMENT_KIND,
    ARGUMENT_TWICE,
    MISSING_ARGUMENT,
    NOT_A_LIST,
    RESULT_COUNT,
    TOO_MANY_ARGUMENTS,
    UNKNOWN_ARGUMENT,
)
from fusec.diagnostics import FusecError, Span, Unsupported, WrongType
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Operand, Value
from fusec.ir.op import REQUIRED, OpDef, Param
from fusec.ops.literals import literal
from fusec.ops.shapes import normal_axes, normal_axis

OperandArgument = Any
"""An operand, a number, a list of these (for a parameter of kind `operands`) or None."""


def bind(
    op: OpDef, positional: Sequence[Any], keywords: Mapping[str, Any], span: Span | None = None
) -> tuple[list[OperandArgument], dict[str, Any]]:
    """Return (operands in the order of `op.operands`, attributes) of a call as written."""
    if len(positional) > len(op.params):
        raise FusecError(
            f"`{op.name}` takes {len(op.params)} argument{'s' * (len(op.params) != 1)}, "
            f"got {len(positional)}",
            span=span,
            help=signature(op),
            code=TOO_MANY_ARGUMENTS,
        )
    given = dict(zip((p.name for p in op.params), positional, strict=False))
    for name, value in keywords.items():
        if name in given:
            raise FusecError(
                f"argument `{name}` of `{op.name}` is specified twice",
                span=span,
                code=ARGUMENT_TWICE,
            )
        if all(p.name != name for p in op.params):
            raise _unknown(op, name, span)
        given[name] = value
    operands: list[OperandArgument] = []
    attributes: dict[str, Any] = {}
    for param in op.params:
        if param.name not in given and param.default is REQUIRED:
            raise FusecError(
                f"`{op.name}` needs `{param.name}`",
                span=span,
                help=_help_of(op, param),
                code=MISSING_ARGUMENT,
            )
        if param.is_operand:
            operands.append(given.get(param.name, param.default))
        elif param.name in given:
            attributes[param.name] = given[param.name]
    return operands, attributes


def _unknown(op: OpDef, name: str, span: Span | None) -> FusecError:
    nearest = near_argument(op, name)
    help = f"did you mean `{nearest}`?" if nearest else signature(op)
    return FusecError(
        f"`{op.name}` has no argument `{name}`", span=span, help=help, code=UNKNOWN_ARGUMENT
    )


LISTS = ("dims", "ints", "shape")
"""Kinds of parameters that are lists; PyTorch's methods also accept their elements separately."""

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "dims": ("axes", "axis", "dim", "reduction_axes"),
    "dim": ("axis", "dims"),
    "shape": ("size", "output_shape", "new_shape"),
    "new_shape": ("shape", "size"),
    "is_broadcast_dim": ("is_broadcast_dims",),
    "fill_value": ("arg", "value"),
    "keepdim": ("keep_dim", "keepdims"),
    "alpha": ("value",),
    "start_indices": ("start",),
    "end_indices": ("end",),
    "norm_shape": ("normalized_shape",),
    "split_size": ("split_size_or_sections", "split_sizes"),
}
"""Names of parameters in older versions of nvFuser, or in PyTorch."""

_OPERAND_NAMES = (
    ("arg", "x", "input", "self", "arg1", "lhs", "a", "in_tensor", "x1", "tensor"),
    ("arg2", "other", "rhs", "y", "b", "x2", "exponent", "tensor1"),
    ("arg3", "z", "c", "tensor2"),
)


def parameter_called(op: OpDef, name: str) -> str:
    """Return the parameter that a keyword names, by its own or another name; else the keyword."""
    names = [p.name for p in op.params]
    if name in names:
        return name
    for target, synonyms in SYNONYMS.items():
        if target in names and name in synonyms:
            return target
    for operand, synonyms in zip(op.operands, _OPERAND_NAMES, strict=False):
        if name in synonyms:
            return operand.name
    return name


def near_argument(op: OpDef, name: str) -> str | None:
    """Return the parameter that `name` was probably meant to be."""
    if name == "unbiased" and any(p.name == "correction" for p in op.params):
        return "correction"
    import difflib

    close = difflib.get_close_matches(name, [p.name for p in op.params], n=1)
    return close[0] if close else None


def signature(op: OpDef) -> str:
    """Return the call as documented: `sum(arg, dims=None, keepdim=False, dtype=None)`."""
    parts: list[str] = []
    for param in op.params:
        default = "" if param.default is REQUIRED else f"={param.default!r}"
        parts.append(f"{param.name}{default}")
    return f"{op.name}({', '.join(parts)})"


class Miscounted(FusecError):
    """A call with a different number of names than results.

    results: how many it has; known: their names, if the operation has any.
    """

    results = 0
    known: tuple[str, ...] = ()


def miscounted(op: OpDef, results: int, names: int) -> FusecError:
    """Return the error for a call with a different number of names than results."""
    known = op.results if len(op.results) == results > 1 else ()
    text = f"the results are {', '.join(known)}; write `_` for an unused one"
    error = Miscounted(
        f"`{op.name}` has {results} result{'s' * (results != 1)}, "
        f"got {names} name{'s' * (names != 1)}",
        help=text if known else None,
        code=RESULT_COUNT,
    )
    error.results, error.known = results, tuple(known)
    return error


def operand_slots(op: OpDef, given: Sequence[OperandArgument]) -> list[list[Operand] | None]:
    """Return the operands of each operand parameter, defaults filled; None for an absent one."""
    params = op.operands
    if len(given) > len(params):
        raise FusecError(
            f"`{op.name}` takes {len(params)} operands, got {len(given)}", help=signature(op)
        )
    slots: list[list[Operand] | None] = []
    for position, param in enumerate(params):
        value = given[position] if position < len(given) else None
        if value is None and param.default is not REQUIRED:
            value = param.default
        if value is REQUIRED or (value is None and param.kind != "optional"):
            raise FusecError(
                f"`{op.name}` needs `{param.name}`", help=signature(op), code=MISSING_ARGUMENT
            )
        slots.append(None if value is None else _operands_of(op, param, value))
    return slots


def flat_operands(op: OpDef, slots: Sequence[list[Operand] | None]) -> list[Operand]:
    """Return the operands of a node without absent ones, which must be the last."""
    flat: list[Operand] = []
    absent: str | None = None
    for param, slot in zip(op.operands, slots, strict=True):
        if slot is None:
            absent = param.name
        elif absent is not None:
            raise FusecError(f"`{op.name}` with `{param.name}` needs `{absent}` too")
        else:
            flat += slot
    return flat


def _help_of(op: OpDef, param: Param) -> str:
    """Return the help for an argument that is missing."""
    last = f"; `{param.name}=-1` is the last dim" if param.kind == "axis" else ""
    return f"{signature(op)}{last}"


def _operands_of(op: OpDef, param: Param, value: Any) -> list[Operand]:
    if param.kind == "operands":
        if not isinstance(value, (list, tuple)) or not value:
            raise FusecError(
                f"`{param.name}` of `{op.name}` must be a list of tensors",
                help=f"write `{op.name}([a, b])`",
                code=NOT_A_LIST,
            )
        return [_operand(op, param, v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return [_operand(op, param, value)]


def _operand(op: OpDef, param: Param, value: Any) -> Operand:
    if isinstance(value, (Value, Const)):
        return value
    if isinstance(value, (bool, int, float, complex)):
        return literal(value)
    shape = getattr(value, "shape", None)
    raise FusecError(
        f"`{param.name}` of `{op.name}` must be a tensor or a number, "
        f"got {f'an array of shape {tuple(shape)}' if shape else repr(value)}",
        help="declare the array as an input and pass it at run time" if shape else None,
    )


def attributes_of(
    op: OpDef, operands: Sequence[Operand], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all attributes in canonical form, defaults filled."""
    names = {p.name for p in op.attributes}
    for name in given:
        if name not in names:
            raise _unknown(op, name, None)
    complete: dict[str, Any] = {}
    for param in op.attributes:
        value = given.get(param.name, param.default)
        if value is REQUIRED:
            raise FusecError(
                f"`{op.name}` needs `{param.name}`", help=signature(op), code=MISSING_ARGUMENT
            )
        complete[param.name] = canonical_attribute(op, param, value, operands)
    return complete


def canonical_attribute(op: OpDef, param: Param, value: Any, operands: Sequence[Operand]) -> Any:
    """Return one attribute in canonical form; FusecError states the expected kind."""
    if value is None and param.default is None and param.kind != "dims":
        return None
    if isinstance(value, Const) and param.kind in ("float", "bool"):
        value = value.value
    match param.kind:
        case "dims":
            return _dims(op, param, value, operands)
        case "axis":
            rank = len(operands[0].type.shape or ()) if operands else 0
            return normal_axis(op.name, _axis(op, param, value, operands), rank)
        case "int":
            return _int(op, param, value)
        case "ints":
            return tuple(_int(op, param, v) for v in _sequence(value))
        case "size":
            return size_argument(op.name, param.name, value)
        case "float" | "bool" | "mask" | "str" | "dtype":
            found = _PLAIN[param.kind](value)
        case _:
            return tuple(size_argument(op.name, param.name, v) for v in _sequence(value))
    if found is not None:
        return found
    raise FusecError(
        f"`{param.name}` of `{op.name}` must be a {param.kind}, got {value!r}",
        help="write `true` or `false`" if param.kind == "bool" else None,
        code=ARGUMENT_KIND,
    )


def _dims(op: OpDef, param: Param, value: Any, operands: Sequence[Operand]) -> tuple[int, ...]:
    """Return the dims that an operation works along, in order; None: all of them."""
    rank = len(operands[0].type.shape or ()) if operands else 0
    if value is None:
        return tuple(range(rank))
    axes = [_axis(op, param, v, operands) for v in _sequence(value)]
    if rank == 0 and op.family in ("reduction", "composite") and set(axes) <= {0, -1}:
        return ()  # a 0-dim tensor is reduced as one element, as in PyTorch
    if not axes and rank and op.family == "reduction":
        raise FusecError(f"dims of `{op.name}` is empty", help="omit it for all dims")
    return tuple(sorted(normal_axes(op.name, axes, rank)))


def _float(value: Any) -> float | None:
    if isinstance(value, Dim) and value.is_const:
        value = value.value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _mask(value: Any) -> tuple[bool, ...] | None:
    values = tuple(_sequence(value))
    return values if all(isinstance(v, bool) for v in values) else None


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _dtype(value: Any) -> DType | None:
    if isinstance(value, str):
        return dtypes.find(value)
    return value if isinstance(value, DType) else None


_PLAIN: dict[str, Callable[[Any], object]] = {
    "float": _float, "bool": _bool, "mask": _mask, "str": _str, "dtype": _dtype,
}  # fmt: skip
"""Values of attributes whose canonical form needs no operand, by kind; None if invalid."""


def _sequence(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)  # pyright: ignore[reportUnknownVariableType]


def _axis(op: OpDef, param: Param, value: Any, operands: Sequence[Operand]) -> int:
    """Return the index of a dim; if a size is passed instead, the error says which dim it is."""
    try:
        return _int(op, param, value)
    except FusecError as error:
        sizes = operands[0].shape if operands and isinstance(value, Dim) else ()
        places = [str(k) for k, size in enumerate(sizes) if size == value]
        help = f"dims are numbered: {value} is dim {' or '.join(places)}" if places else None
        raise error.changed(help=help) from None


def _int(op: OpDef, param: Param, value: Any) -> int:
    if isinstance(value, (Const, Value)) and value.type.dim is not None:
        value = value.type.dim
    if isinstance(value, Dim) and value.is_const:
        value = value.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Dim):
        raise WrongType(
            f"`{param.name}` of `{op.name}` must be a compile-time constant, and `{value}` is a "
            "size of an input",
            help="write the number, or declare a dim that no input uses",
            code=ARGUMENT_KIND,
        )
    raise WrongType(
        f"`{param.name}` of `{op.name}` must be an integer, got {value!r}", code=ARGUMENT_KIND
    )


def size_argument(op: str, param: str, value: Any) -> Dim:
    """Return a size given as a number, a Dim or an integer scalar computed from sizes."""
    if isinstance(value, (Const, Value)):
        if value.type.dim is not None:
            return value.type.dim
        if value.type.dtype.is_integer:
            raise Unsupported(
                f"`{param}` of `{op}` depends on tensor data",
                notes=[f"{value} is not computed from sizes, constants and scalar inputs"],
            )
    if isinstance(value, Dim) or (isinstance(value, int) and not isinstance(value, bool)):
        return dim(value)
    is_float = isinstance(value, Value) and value.is_scalar and value.type.dtype.is_float
    help = "sizes are integers: `D // 2` is half of the size `D`" if is_float else None
    if isinstance(value, str):
        help = "sizes are a list, as in `[B, H]`"
    raise FusecError(f"`{param}` of `{op}` must hold sizes, got {value!r}", help=help)


def reversed_pads(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with the pairs of pad_widths in the opposite order.

    A call names the last dim first, as PyTorch does; a node has them in the order of dims.
    """
    widths: Any = attributes.get("pad_widths")
    if not isinstance(widths, (list, tuple)) or len(widths) % 2:  # pyright: ignore[reportUnknownArgumentType]
        return dict(attributes)
    pairs: list[Any] = [widths[i : i + 2] for i in range(0, len(widths), 2)]  # pyright: ignore[reportUnknownArgumentType]
    return {**attributes, "pad_widths": tuple(w for pair in reversed(pairs) for w in pair)}


def written_attributes(op: OpDef, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's attributes as a call writes them: without defaults, pad's last dim first."""
    written: dict[str, Any] = {}
    for param in op.attributes:
        if param.name not in attributes:
            continue
        value = attributes[param.name]
        if value == param.default or (param.name == "strides" and all(v == 1 for v in value)):
            continue
        written[param.name] = value
    return reversed_pads(written)
