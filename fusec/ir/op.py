"""The type of an operation: all of its properties, declared once in `fusec.ops`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass, field
from fusec.ir.dtype import DType
from fusec.ir.roles import BY_NAME, Combine, ComplexError, LinkRule, Lookup, Product, Text
from fusec.properties import cached_property

if TYPE_CHECKING:
    from fusec.ir.access import Access, Sample
    from fusec.ir.dim import Dim
    from fusec.ir.graph import Operand, Type

REQUIRED = object()
"""The default of a required parameter."""


@dataclass(frozen=True)
class Param:
    """A parameter of an operation.

    `kind` of a tensor parameter: `operand`, `operands` (a list, as in cat) or `optional`; a number
    may be an operand's default. `kind` of an attribute: `dims` (a set of dims), `axis` (one dim),
    `int`, `float`, `bool`, `str`, `dtype`, `shape` (sizes that may be symbolic), `size` (one size),
    `ints`, `mask` (bools).
    """

    name: str
    kind: str
    default: Any = REQUIRED

    @property
    def is_operand(self) -> bool:
        """Return whether the parameter is a tensor or scalar operand."""
        return self.kind in ("operand", "operands", "optional")


class Block(tuple[int, ...]):
    """The extents of a block of a tensor: [low, low + extent) of `whole` along one axis."""

    axis: int
    low: int
    whole: int

    def __new__(cls, shape: Iterable[int], axis: int, low: int, high: int) -> Block:
        """Return the block of `shape` from `low` to before `high` along `axis`."""
        extents = list(shape)
        whole, extents[axis] = extents[axis], high - low
        part = super().__new__(cls, extents)
        part.axis, part.low, part.whole = axis, low, whole
        return part


@dataclass(frozen=True)
class Cost:
    """Work per element: ordinary arithmetic instructions and special-function calls."""

    flops: float = 1
    sfu: float = 0


Slopes = Callable[[int, Sequence[Any], Callable[[int], Any]], Any]
Terms = Callable[..., Any]
Between = Callable[[Sequence[Any], Any, int], "tuple[Any, Any]"]
Infer = Callable[["tuple[Operand, ...]", Mapping[str, Any]], "tuple[Type, ...]"]
Compute = Callable[["tuple[Operand, ...]", DType], tuple[DType, ...]]
Canonical = Callable[["tuple[Operand, ...]", Mapping[str, Any]], Mapping[str, Any]]
Promoted = Callable[["tuple[Operand, ...]"], "tuple[Operand, ...]"]
Equal = Callable[["tuple[Operand, ...]", Mapping[str, Any]], "Iterable[tuple[Dim, Dim]]"]
Prepare = Callable[[Any, "list[list[Operand] | None]", Mapping[str, Any]], None]
Instead = Callable[
    [Any, "list[list[Operand] | None]", Mapping[str, Any]], "tuple[Operand, ...] | None"
]


@dataclass(frozen=True, eq=False)
class OpDef:
    """An operation.

    name: as in nvFuser's fd.ops.
    family: pointwise, complex (elementwise, between complex numbers and their parts), reduction,
        scan, sort, movement, indexing, scatter, contraction, factory, random, scalar (size, shape),
        or composite (expanded into other operations when it is called, never a node).
    params: in nvFuser's order, so that in a few operations an attribute precedes an operand.
    results: names of the results, one for most operations.
    many: for a composite, whether the number of results depends on attributes and shapes.
    reference: NumPy function of the operand arrays, positional in the order of `operands`, and of
        the attributes by keyword with sizes as ints; a tuple for several results. Operands have
        the types of `compute`, floats are f64; the caller rounds to the result's type. To compute
        only a block of the result, the attribute with its extents is a Part.
    infer: the types of the results from operands and attributes; raises FusecError on bad shapes.
    compute: the types that the operands are converted to before the operation, from the operands'
        and the result's type (16-bit and narrower floats are computed in f32).
    cuda: C expressions by compute type: keys `f32`, `f64`, `int`, `uint`, `bool` or `default`, with
        operands as `{name}`; for a reduction or a scan the name of its combiner in device/, as
        `default`. A scan may define its own: `combine` of a and b, and its `identity`.
    domain: interval of random inputs on which the operation is defined and well-conditioned.
    accuracy: largest error of the CUDA expression in units in the last place of the compute type:
        0 if exact, 1/2 if correctly rounded; accuracy_f64: the same for computation in f64, if
        that differs.
    slopes: bounds on the derivative by an operand, None for 1:
        `slopes(place, values, reach)` where `reach(k)` is the error bound of operand k. Without it
        slopes are found by perturbing operands; worth defining for cheap operations.
    terms: what the error is relative to, if not to the result: `terms(*values, result)`.
    condition: bound on the result's relative error divided by an operand's, that of a sum relative
        to its largest term; None if unbounded.
    approx: an approximation in fewer instructions, for results that are then rounded to 16 bits or
        fewer; a separate operation with its own accuracy, terms and cost.
    largest: of such an approximation, its largest relative error in units in the last place.
    inside: its error, in units in the last place, where a form replaces a composition around it,
        and what they are relative to.
    discontinuous: whether the result has discontinuities (compare, `floor`), or no slope (bits).
    compares: whether the result is the order of two operands: it changes where they are equal.
    expand: for a composite, builds it from other operations.
    canonical: completes the attributes from the operands when the operation is called.
    promoted: the operands of an elementwise operation that promote to one type.
    equal: pairs of extents that must agree; an anonymous one is unified with the other.
    prepare: completes the operands, in place, when the operation is called: `prepare(builder,
        slots, attributes)`, a slot per operand parameter.
    instead: replaces some calls by other operations: `instead(builder, slots, attributes)`, None
        for all other calls.
    access: of a movement or an indexing operation, the index maps of its elements.
    samples: calls on which `access` is tested when the operation is declared (ops/maps).
    links: which axes correspond, if neither `access` nor the family determines it.
    extents: the attribute that holds the extents of the result, if there is one.
    combine: how colliding elements are combined: in a reduction, a scan, a scatter, a contraction.
    lookup: the operand of integers that selects elements.
    generator: the operands that select a sequence of random numbers, by name: no cost, no schedule
        and no legality depends on their values.
    product: of a contraction, the layout of its factors.
    text: how nvFuser's dumps print it.
    between: where results within an operand's interval may differ more than at its ends, and by
        how much: `between(values, bound, place)`.
    parts: expresses it by operations on the parts of complex operands (ops/complex_formulas).
    complex_error: its error on complex numbers, if it accepts them.
    exact: the range of the result if operands are small multiples of powers of two (ops/exact).
    neutral: a left and a right operand for which the result is bitwise equal to the other one.
    quick: the operation in f64 on Python floats, without NumPy, bitwise equal.
    scales: multiplies or divides, so that sums may be computed before it.
    fills: the operand whose value elements of the result take unchanged.
    copies: the result is the operand. ends_segment: it is stored in memory, between two kernels.
    converts: the result is the operand in another type. chooses: it is one of the operands.
    lies: `inside` if the result's memory is a part of the operand's, `around` if the operand's is
        a part of the result's.
    """

    name: str
    family: str
    params: tuple[Param, ...]
    reference: Callable[..., Any]
    infer: Infer
    compute: Compute
    results: tuple[str, ...] = ("out",)
    many: bool = False
    cuda: Mapping[str, str] = field(default_factory=dict[str, str])
    cost: Cost = Cost()
    domain: tuple[float, float] = (-2.0, 2.0)
    accuracy: float = 1.0
    accuracy_f64: float | None = None
    slopes: Slopes | None = None
    terms: Terms | None = None
    condition: float | None = None
    approx: OpDef | None = None
    largest: float = 0.0
    inside: tuple[float, Terms] | None = None
    discontinuous: bool = False
    compares: bool = False
    commutative: bool = False
    expand: Callable[..., Any] | None = None
    canonical: Canonical | None = None
    equal: Equal | None = None
    promoted: Promoted | None = None
    prepare: Prepare | None = None
    instead: Instead | None = None
    access: Access | None = None
    samples: tuple[Sample, ...] = ()
    links: LinkRule | None = None
    extents: str = ""
    combine: Combine | None = None
    lookup: Lookup | None = None
    generator: tuple[str, ...] = ()
    product: Product | None = None
    text: Text = BY_NAME
    between: Between | None = None
    complex_error: ComplexError | None = None
    parts: Callable[..., Any] | None = None
    exact: Callable[[Sequence[Any]], Any] | None = None
    neutral: tuple[float | None, float | None] = (None, None)
    quick: Callable[..., float] | None = None
    scales: bool = False
    fills: str = ""
    copies: bool = False
    ends_segment: bool = False
    converts: bool = False
    chooses: bool = False
    lies: str = ""
    doc: str = ""

    @cached_property
    def operands(self) -> tuple[Param, ...]:
        """Return the parameters that are operands."""
        return tuple(p for p in self.params if p.is_operand)

    @cached_property
    def attributes(self) -> tuple[Param, ...]:
        """Return the parameters that are attributes."""
        return tuple(p for p in self.params if not p.is_operand)

    @property
    def is_elementwise(self) -> bool:
        """Return whether each element of the result is computed from one of each operand."""
        return self.family in ("pointwise", "complex")

    @property
    def is_form(self) -> bool:
        """Return whether this is an approximation, in fewer instructions, of another operation."""
        return self.largest > 0

    def __repr__(self) -> str:
        return self.name
