"""Declare operations: a function's body is the reference, its signature the operation's.

Every decorator turns a function into a frozen OpDef and enters it into the table; the docstring is
the documentation. Annotations give the kinds of parameters: `Array` an operand, `Dims`, `Axis`,
`Shape`, ... an attribute. A reference is called as OpDef says: operands in the types of `compute`
(floats in f64), sizes as ints.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import InternalError
from fusec.ir.access import Access, Sample
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Operand, Type
from fusec.ir.op import (
    REQUIRED,
    Canonical,
    Compute,
    Cost,
    Equal,
    Infer,
    OpDef,
    Param,
    Slopes,
    Terms,
)
from fusec.ir.roles import BY_NAME, Combine, Text
from fusec.ops.dtypes import NUMBER, DTypeRule, is_scalar_call
from fusec.ops.lazy import np
from fusec.ops.movement.maps import check_map
from fusec.ops.shapes import same_rank_shape
from fusec.ops.table import TABLE

Array: TypeAlias = Any
Dims: TypeAlias = Sequence[int] | None
Axis: TypeAlias = int
Size: TypeAlias = int
Shape: TypeAlias = Sequence[int]
Ints: TypeAlias = Sequence[int]
Mask: TypeAlias = Sequence[bool]
SizeRule: TypeAlias = Callable[..., Dim]
Body: TypeAlias = Callable[..., Any]

_KINDS = {
    "Array": "operand", "Array | None": "optional", "Dims": "dims", "Axis": "axis", "Size": "size",
    "Size | None": "size", "Shape": "shape", "Ints": "ints", "Ints | None": "ints",
    "Mask": "mask", "int": "int", "float": "float", "bool": "bool", "str": "str",
    "DType": "dtype", "DType | None": "dtype", "int | None": "int", "float | None": "float",
    "bool | None": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Approximation:
    """The form of an operation in f32 for results that are finally rounded to a 16-bit float.

    accuracy, in units in the last place, is relative to terms as an operation's is; largest: the
    largest relative error, for any operands, if the result is a normal number.
    """

    cuda: str
    cost: Cost
    accuracy: float
    largest: float
    terms: Terms | None = None


def parameters(body: Body) -> tuple[Param, ...]:
    """Return the parameters that the signature of a reference declares."""
    code, defaults = body.__code__, body.__defaults__ or ()
    plain = code.co_varnames[: code.co_argcount]
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    given = dict(zip(reversed(plain), reversed(defaults), strict=False))
    given |= body.__kwdefaults__ or {}
    found = [(name, _KINDS[body.__annotations__[name]]) for name in (*plain, *named)]
    if code.co_flags & inspect.CO_VARARGS:
        rest = code.co_varnames[len(plain) + len(named)]
        found.insert(len(plain), (rest, "operands"))
    return tuple(Param(name, kind, given.get(name, REQUIRED)) for name, kind in found)


def _quiet(body: Body) -> Body:
    """Return `body` without NumPy's warnings: infinities and NaN are results here."""

    @functools.wraps(body)
    def reference(*operands: Array, **attributes: Any) -> Array:
        with np.errstate(all="ignore"):
            return body(*operands, **attributes)

    return reference


def _operands_first(body: Body, params: tuple[Param, ...]) -> Body:
    """Return `body` called with positional operands, if an attribute precedes one of them."""
    kinds = [p.is_operand for p in params]
    if kinds == sorted(kinds, reverse=True):
        return body
    names = [p.name for p in params if p.is_operand]

    def reference(*operands: Array, **attributes: Any) -> Array:
        return body(**dict(zip(names, operands, strict=False)), **attributes)

    return reference


def declare(
    body: Body, family: str, *, infer: Infer, compute: Compute,
    approx: Approximation | None = None, **fields: Any,
) -> OpDef:  # fmt: skip
    """Enter an operation into the table; an operation of the same name must not exist."""
    name = body.__name__.removesuffix("_")
    params = parameters(body)
    op = OpDef(
        name=name,
        family=family,
        params=params,
        reference=_quiet(_operands_first(body, params)),
        infer=infer,
        compute=compute,
        doc=inspect.cleandoc(body.__doc__ or ""),
        **fields,
    )
    module = body.__module__ or ""
    if not module.startswith("fusec."):
        check_map(op)  # those of the package are checked by tests, not at import
    if approx is None:
        return TABLE.enter(op, module)
    form = _form(op, approx)
    op = TABLE.enter(replace(op, approx=form), module)
    TABLE.enter(form, module)
    return op


def _form(op: OpDef, approx: Approximation) -> OpDef:
    """Return an operation's approximate form, which computes f64 as the operation does."""
    first, _, rest = op.doc.partition("\n")
    return replace(
        op,
        name=f"{op.name}_approx",
        cuda={**op.cuda, "f64": op.cuda.get("f64", op.cuda.get("default", "")), "f32": approx.cuda},
        cost=approx.cost,
        accuracy=approx.accuracy,
        accuracy_f64=op.accuracy,
        terms=approx.terms,
        largest=approx.largest,
        complex_error=None,
        parts=None,
        text=BY_NAME,
        doc=f"{first.removesuffix('.')}, in fewer instructions.\n{rest}".rstrip(),
    )


def _expressions(cuda: str | Mapping[str, str]) -> Mapping[str, str]:
    return {"default": cuda} if isinstance(cuda, str) else dict(cuda)


def computes_in_result(operands: tuple[Operand, ...], result: DType) -> tuple[DType, ...]:
    """Return the result's compute type for every operand."""
    return (result.compute,) * len(operands)


def computes_in_own(operands: tuple[Operand, ...], result: DType) -> tuple[DType, ...]:
    """Return every operand's own compute type: results are positions, or copied values."""
    return tuple(o.type.dtype.compute for o in operands)


def pointwise(
    *,
    cuda: str | Mapping[str, str],
    dtype: DTypeRule = NUMBER,
    cost: Cost | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    accuracy: float = 1.0,
    accuracy_f64: float | None = None,
    slopes: Slopes | None = None,
    terms: Terms | None = None,
    discontinuous: bool = False,
    compares: bool = False,
    commutative: bool = False,
    sizes: SizeRule | None = None,
    **roles: Any,
) -> Callable[[Body], OpDef]:
    """Declare an elementwise operation; `sizes` computes a scalar result's Dim from operands'."""

    def wrap(body: Body) -> OpDef:
        name = body.__name__.removesuffix("_")

        def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
            result = dtype.result(name, operands)
            shape = same_rank_shape(name, operands)
            return (Type(result, shape, size_of(sizes, operands, result)),)

        def compute(operands: tuple[Operand, ...], result: DType) -> tuple[DType, ...]:
            return dtype.computes(operands, result)

        return declare(
            body, "pointwise", infer=infer, compute=compute, cuda=_expressions(cuda),
            cost=cost or Cost(), domain=domain, accuracy=accuracy, accuracy_f64=accuracy_f64,
            slopes=slopes, terms=terms, discontinuous=discontinuous, compares=compares,
            commutative=commutative, promoted=dtype.promoted, **roles,
        )  # fmt: skip

    return wrap


def size_of(rule: SizeRule | None, operands: Sequence[Operand], result: DType) -> Dim | None:
    """Return the Dim of an integer scalar result whose operands all carry one."""
    if rule is None or not result.is_integer or not is_scalar_call(operands):
        return None
    dims = [o.type.dim for o in operands]
    known = [d for d in dims if d is not None]
    return rule(*known) if len(known) == len(dims) else None


def reduction(
    *,
    infer: Infer,
    compute: Compute = computes_in_result,
    combine: Combine,
    cuda: str,
    results: tuple[str, ...] = ("out",),
    cost: Cost | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    accuracy: float = 1.0,
    canonical: Canonical | None = None,
    **roles: Any,
) -> Callable[[Body], OpDef]:
    """Declare a reduction over `dims`; `cuda` names its combiner in device/."""

    def wrap(body: Body) -> OpDef:
        return declare(
            body, "reduction", infer=infer, compute=compute, cuda={"default": cuda},
            combine=combine, results=results, cost=cost or Cost(), domain=domain,
            accuracy=accuracy, canonical=canonical, **roles,
        )  # fmt: skip

    return wrap


def movement(
    *,
    infer: Infer,
    access: Access,
    samples: tuple[Sample, ...],
    canonical: Canonical | None = None,
    equal: Equal | None = None,
    **roles: Any,
) -> Callable[[Body], OpDef]:
    """Declare an operation that only moves elements, as `access` defines.

    Raises InternalError if the map reads outside of an operand of the samples.
    """

    def wrap(body: Body) -> OpDef:
        return declare(
            body, "movement", infer=infer, compute=computes_in_result, cost=Cost(0),
            accuracy=0.0, canonical=canonical, equal=equal, access=access,
            samples=samples, **roles,
        )  # fmt: skip

    return wrap


def contraction(
    *, infer: Infer, equal: Equal, domain: tuple[float, float] = (-1.0, 1.0), **roles: Any
) -> Callable[[Body], OpDef]:
    """Declare a sum of products over a shared dim."""

    def wrap(body: Body) -> OpDef:
        return declare(
            body, "contraction", infer=infer, compute=computes_in_result, cost=Cost(2),
            domain=domain, equal=equal, combine=Combine.SUM, **roles,
        )  # fmt: skip

    return wrap


def factory(
    *,
    infer: Infer,
    cuda: str | Mapping[str, str],
    canonical: Canonical | None = None,
    compute: Compute = computes_in_result,
    **roles: Any,
) -> Callable[[Body], OpDef]:
    """Declare an operation that creates a tensor from scalars."""

    def wrap(body: Body) -> OpDef:
        return declare(
            body, "factory", infer=infer, compute=compute, cuda=_expressions(cuda),
            canonical=canonical, **roles,
        )  # fmt: skip

    return wrap


def operation(
    family: str, *, infer: Infer, compute: Compute, results: tuple[str, ...] = ("out",),
    **fields: Any,
) -> Callable[[Body], OpDef]:  # fmt: skip
    """Declare an operation of a family without defaults of its own."""

    def wrap(body: Body) -> OpDef:
        return declare(body, family, infer=infer, compute=compute, results=results, **fields)

    return wrap


def scalar(*, infer: Infer, text: Text) -> Callable[[Body], OpDef]:
    """Declare an operation that reads sizes."""

    def wrap(body: Body) -> OpDef:
        return declare(body, "scalar", infer=infer, compute=_as_they_are, cost=Cost(0), text=text)

    return wrap


def _as_they_are(operands: tuple[Operand, ...], result: DType) -> tuple[DType, ...]:
    return tuple(o.type.dtype for o in operands)


def composite(
    *,
    expand: Callable[..., Any],
    equal: Equal | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    results: tuple[str, ...] = ("out",),
    many: bool = False,
) -> Callable[[Body], OpDef]:
    """Declare an operation that `expand(builder, *operands, **attributes)` composes of others."""

    def wrap(body: Body) -> OpDef:
        return declare(
            body, "composite", infer=_never, compute=computes_in_result, expand=expand,
            equal=equal, domain=domain, results=results, many=many,
        )  # fmt: skip

    return wrap


def _never(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    raise InternalError("a composite has no node")
