"""Complex numbers: their parts, and the operations that support them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fusec.diagnostics import Unsupported
from fusec.ir.dtype import DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import OpDef
from fusec.ir.roles import ComplexError
from fusec.ops import complex_formulas
from fusec.ops.declare import Array, declare
from fusec.ops.dtypes import JOIN, PART, DTypeRule, dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import same_rank_shape


def _elementwise(
    rule: DTypeRule, parts: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], OpDef]:
    """Declare an operation between complex numbers and their parts."""

    def wrap(body: Callable[..., Any]) -> OpDef:
        name = body.__name__

        def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
            return (Type(rule.result(name, operands), same_rank_shape(name, operands)),)

        return declare(
            body, "complex", infer=infer, compute=rule.computes, accuracy=0,
            promoted=rule.promoted, complex_error=ComplexError(0), parts=parts,
        )  # fmt: skip

    return wrap


@_elementwise(
    PART,
    parts=complex_formulas.REAL,
)
def real(x: Array) -> Array:
    """Return the real part of a complex number."""
    return np.real(x)


@_elementwise(
    PART,
    parts=complex_formulas.IMAG,
)
def imag(x: Array) -> Array:
    """Return the imaginary part of a complex number."""
    return np.imag(x)


@_elementwise(JOIN)
def complex(real: Array, imag: Array) -> Array:
    """Return the complex number with these parts: c128 for f64, else c64."""
    joined = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), np.complex128)
    joined.real, joined.imag = real, imag
    return joined


MOVED = frozenset(
    {
        *("set", "segment_set", "broadcast", "broadcast_in_dim", "expand", "squeeze", "reshape"),
        *("permute", "slice", "pad", "cat", "flip", "index_select", "select", "gather"),
        *("take_along_axis", "embedding_fwd", "full", "sum", "cumsum", "scatter"),
    }
)
"""Operations that process the real and the imaginary parts independently and alike."""
COMPLEX = MOVED | {
    *("add", "sub", "mul", "div", "truediv", "neg", "reciprocal", "addcmul", "abs", "pow"),
    *("exp", "log", "log2", "log10", "sqrt", "rsqrt"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("eq", "ne", "where", "real", "imag", "complex", "cast"),
    *("isfinite", "isinf", "isnan", "isreal", "logical_and", "logical_or", "logical_not"),
    *("var", "var_mean", "matmul", "linear"),
    *("mean", "repeat", "stride_order", "size", "shape", "triu", "tril"),
}
"""The operations that accept complex numbers."""


def check_complex(op: OpDef, operands: Iterable[Operand], attributes: Mapping[str, Any]) -> None:
    """Raise Unsupported for an operation that is undefined or unsupported on complex numbers."""
    if op.name in COMPLEX:
        return
    given = [dtype_of(o) for o in operands]
    given += [a for a in attributes.values() if isinstance(a, DType)]
    if any(dtype.is_complex for dtype in given):
        raise Unsupported(f"`{op.name}` of complex numbers", notes=_known(op))


def _known(op: OpDef) -> list[str]:
    ordered = {"lt", "le", "gt", "ge", "max", "min", "maximum", "minimum", "clamp", "sort", "topk"}
    return ["complex numbers have no order"] if op.name in ordered else []
