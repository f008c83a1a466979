"""The results of one node with their expected errors, by the family of its operation."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, prod

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.arrays import np
from fusec.ir.dtype import F32, DType
from fusec.ir.evaluate import (
    Array,
    Sizes,
    constant,
    evaluate_attributes,
    extents,
    known_scalar,
    round_to,
)
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.op import Block
from fusec.reference.errors.contractions import contract
from fusec.reference.errors.estimate import (
    LIMIT,
    SPREAD,
    Estimate,
    add,
    converted,
    squared,
    ulp,
    unit,
    with_sure_infinities,
)
from fusec.reference.errors.hops import with_hops
from fusec.reference.errors.order import Order, Stage, unknown
from fusec.reference.errors.pointwise import Arithmetic, cast, pointwise
from fusec.reference.errors.reductions import reduce_estimate
from fusec.reference.errors.selections import selected
from fusec.reference.errors.shares import find_shares
from fusec.reference.errors.shifts import free_shifts, shifted_scores
from fusec.reference.errors.sums import Rules

Environment = dict[Value, Estimate]
MANTISSA = 3 / (8 * log(2))
"""The mean of 1 / m**2 for log(m) uniformly distributed from log(1) to log(2)."""
FAR = 65536.0
"""Approximate size of a maximum up to which kernels scale scores before they subtract it."""
LEAST_EPSILON = 2.0**-8
"""Unit roundoff of the 16-bit floats that round values close to 1 to 1."""


@dataclass(frozen=True)
class Model:
    """The computation whose results' errors are estimated.

    orders: of sums by the name of their (first) result; a sum without one has an unknown order.
    errors: false for a plain evaluation. eager: every operation rounds its result to the 16-bit
    float type that its operands come from, as a framework does that runs them one by one.
    approximated: the values that are computed by cheaper forms of their operations; inside: of
    products around them. early: 16-bit values that are rounded before they are scaled, by a factor
    of their own, not after, with the number of terms of a row that are scaled by the largest of
    them, 0 if unknown; unrounded: those that are not rounded at all. wide: those that are kept in
    f32 by an alternative definition of the results. hops: 16-bit sums and products over axis 0 that
    round after every term, in an unknown order: as ranks do that add their own value to a partial
    result. ranks: several ranks compute the results; values needed by all of them may differ from
    rank to rank by roundings.
    """

    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])
    errors: bool = True
    eager: bool = False
    approximated: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()
    early: Mapping[str, int] = field(default_factory=dict[str, int])
    unrounded: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()
    hops: frozenset[str] = frozenset()
    ranks: bool = False

    @property
    def keeps_whole_numbers(self) -> bool:
        """Return whether sums of integers that f32 represents are exact."""
        return not any(order.rounds_whole_numbers for order in self.orders.values())


PLAIN = Model(errors=False)
"""The reference itself."""


class Nodes:
    """The nodes of a fusion as a model computes them at given sizes."""

    def __init__(self, fusion: Fusion, sizes: Sizes, model: Model) -> None:
        """Number the nodes."""
        self.sizes, self.model = sizes, model
        self._stored = frozenset(o.value for o in fusion.outputs)
        self._bits = {node: 1 << number for number, node in enumerate(fusion.nodes)}
        self._half_origins_of = _half_origins(fusion) if model.eager else {}
        self._shifts = free_shifts(fusion) if model.errors else frozenset[Value]()
        self._limits = find_shares(fusion, sizes) if model.errors else {}
        self._scaled = _scores_of(fusion, model.early) if model.early else frozenset[Value]()

    def results(
        self, node: Node, environment: Environment, block: tuple[int, int, int] | None = None
    ) -> tuple[Estimate, ...]:
        """Return a node's results; `block` is (axis, low, high) of a part of them."""
        known = [known_scalar(v, self.sizes) for v in node.outputs]
        if all(k is not None for k in known):
            return tuple(Estimate(k) for k in known if k is not None)
        operands = [operand_of(o, environment) for o in node.operands]
        attributes = evaluate_attributes(node.attributes, self.sizes)
        name = node.op.extents
        if block is not None and name:
            attributes[name] = Block(attributes[name], *block)
        try:
            found = selected(node, operands, attributes, self.rules(node))
        except FusecError as error:
            raise error.at(node.span) from None  # a bad index
        if found is None:
            taken = self.taken(node, operands)
            if self._keeps(node, operands[0]):
                found = (operands[0],)
            elif node.op.converts:
                found = (cast(node, operands[0].settled, attributes),)
            elif node.op.family == "reduction":
                found = reduce_estimate(node, taken[0], attributes, self.rules(node))
                if node.output.name in self.model.hops and self.model.errors:
                    found = (with_hops(found[0], taken[0].value, node),)
            elif node.op.family == "contraction":
                found = (contract(node, taken, attributes, self.rules(node)),)
            elif node.op.is_elementwise:
                arithmetic, limit = self._arithmetic(node), self._limits.get(node)
                found = (pointwise(node, taken, attributes, arithmetic, limit),)
                if node.output in self._scaled:
                    found = (_scaled_first(found[0], taken[1]),)
            else:
                message = f"no error model for operation `{node.op.name}`"
                raise Unsupported(message, span=node.span)
        return self.marked(node, found)

    def _keeps(self, node: Node, operand: Estimate) -> bool:
        """Return whether a cast to a value's type leaves it unrounded, and it is not an output."""
        same = node.op.converts and node.operands[0].dtype == node.output.dtype
        return same and operand.rounds_to is None and node.output not in self._stored

    def _arithmetic(self, node: Node) -> Arithmetic:
        """Return how an elementwise node is computed."""
        if not self.model.errors:
            return Arithmetic.EXACT
        name = node.output.name
        if name in self.model.approximated:
            return Arithmetic.APPROXIMATED
        return Arithmetic.INSIDE if name in self.model.inside else Arithmetic.DECLARED

    def taken(self, node: Node, operands: list[Estimate]) -> list[Estimate]:
        """Return operands in the types that the operation computes in."""
        pairs = zip(node.operands, operands, node.compute_dtypes, strict=True)
        return [converted(o, e, d) for o, e, d in pairs]

    def marked(self, node: Node, found: tuple[Estimate, ...]) -> tuple[Estimate, ...]:
        """Return results with the node among their ancestors, and with an eager rounding."""
        if self.model.ranks:
            # Ranks may have sums that differ by roundings.
            found = tuple(replace(f, shared=None) for f in found)
        if node.op.family == "movement":
            return found
        marked = list[Estimate]()
        for value, estimate in zip(node.outputs, found, strict=True):
            if value in self._shifts:
                estimate = _without_finite_errors(estimate)
            if value.name in self.model.wide:
                estimate = replace(estimate, rounds_to=None)
            if value.name in self.model.early and self.model.errors:
                estimate = _rounded_early(estimate, value.dtype, self.model.early[value.name])
            if value.name in self.model.unrounded and self.model.errors:
                estimate = _unrounded(estimate, value.dtype)
            estimate = with_sure_infinities(estimate)
            half = self._half_origins_of.get(value)
            if half is not None:
                own = squared(estimate.value) * (half.epsilon**2 * SPREAD)
                own = _of_numbers(own, estimate)
                independent = add(estimate.independent, own)
                estimate = replace(estimate, independent=independent, most=None)
            if not estimate.exact:
                bits = estimate.ancestors | self._bits[node]
                estimate = replace(estimate, ancestors=bits)
            marked.append(estimate)
        return tuple(marked)

    def rules(self, node: Node) -> Rules:
        """Return how the sums of a node are computed."""
        count, factors = self._terms(node)
        given = self.model.orders
        known = next(((given[v.name],) for v in node.outputs if v.name in given), None)
        orders = known or unknown(count, factors)
        if factors and node.output.dtype.part.name == "f64":
            # The reference multiplies doubles itself, in an order that the library chooses.
            orders = (*orders, Order((Stage(max(count, 1)),)))
        return Rules(orders, count, self.model.errors)

    def _terms(self, node: Node) -> tuple[int, tuple[DType, ...]]:
        """Return the number of terms of a node's sums, and the types of a contraction's factors."""
        shape = extents(node.operands[0].type, self.sizes) if node.operands else ()
        if node.op.family == "contraction":
            return (shape[-1] if shape else 1), tuple(o.type.dtype for o in node.operands[:2])
        if node.op.family == "reduction":
            axes: tuple[int, ...] = node.attributes["dims"]
            return prod(shape[a] for a in axes), ()
        if node.op.family == "scan":
            axis: int = node.attributes["dim"]
            return shape[axis] if shape else 1, ()
        return 1, ()


def operand_of(operand: Operand, environment: Environment) -> Estimate:
    """Return an operand's estimate; a literal is exact."""
    return Estimate(constant(operand)) if isinstance(operand, Const) else environment[operand]


def _without_finite_errors(estimate: Estimate) -> Estimate:
    """Return a value that is exact wherever its error is finite."""
    variance = estimate.variance
    unknown = variance is not None and np.isinf(variance)
    if not np.any(unknown):
        return Estimate(estimate.value, part=estimate.part, rounds_to=estimate.rounds_to)
    independent = np.where(unknown, np.inf, 0.0)
    return replace(
        estimate, independent=independent, common=None, alike=None, most=None, shared=None
    )


def _scores_of(fusion: Fusion, early: Mapping[str, int]) -> frozenset[Value]:
    """Return the shifted scores of attention whose weights are rounded early."""
    shifted, found = shifted_scores(fusion), set[Value]()
    for node in fusion.nodes:
        value = node.output
        if value.name in early:
            while value not in shifted and value in fusion.producer:
                first = fusion.producer[value].operands[0]
                if not isinstance(first, Value):
                    break
                value = first
            found.add(value)
    return shifted & found


def _scaled_first(found: Estimate, shift: Estimate) -> Estimate:
    """Return differences from a maximum as in kernels that scale both by log2(e) first.

    The product with the maximum has its own rounding, unless that is far from 0
    (device/softmax_rows.cuh): all weights of a row are off by one factor, and so is their sum.
    """
    with np.errstate(all="ignore"):
        near = np.where(np.abs(shift.value) <= FAR, shift.value, 0.0)
        own = squared(near) * ((unit(F32) / 2) ** 2 * SPREAD)
    own = np.broadcast_to(own, found.value.shape)
    return replace(found, common=add(found.common, own), most=None, shared=None)


def _rounded_early(estimate: Estimate, dtype: DType, terms: int) -> Estimate:
    """Return a value that is rounded to a 16-bit float at another scale, and not here.

    A number m 2**k has a relative rounding error of at most epsilon / m. m is unknown at that
    scale, except for weights that are 1 before they are divided by their sum. terms: of a row that
    are scaled by the largest of them.
    """
    least = np.where(estimate.value == 0, 0.0, ulp(np.zeros(()), dtype))
    own = (squared(estimate.value) * (MANTISSA * dtype.epsilon**2) + squared(least)) * SPREAD
    own = np.where(_are_ones(estimate, dtype, terms), 0.0, _of_numbers(own, estimate))
    independent = add(estimate.independent, own)
    return replace(estimate, independent=independent, rounds_to=None, most=None)


def _are_ones(estimate: Estimate, dtype: DType, terms: int) -> Array:
    """Return which weights are 1 before they are divided.

    Those of rows whose weights are all equal or 0; in rows scaled by their largest weight, that
    weight, unless another may be larger. A kernel's exponent may be off by 2**-8 there, which finer
    types than bf16 do not round to 1.
    """
    value, factor = estimate.value, estimate.factor
    if factor is None or factor.ndim != value.ndim or dtype.epsilon < LEAST_EPSILON:
        return np.zeros((), np.bool_)
    axes = tuple(a for a, e in enumerate(factor.shape) if e == 1)
    largest = np.max(value, axis=axes, keepdims=True, initial=0.0)
    is_largest = value == largest
    less = value == 0
    if prod(value.shape[a] for a in axes) <= terms:
        reach = LIMIT * estimate.sigma
        least = np.min(np.where(is_largest, value - reach, np.inf), axis=axes, keepdims=True)
        less |= value + reach < least
    return is_largest & np.all(is_largest | less, axis=axes, keepdims=True)


def _of_numbers(own: Array, estimate: Estimate) -> Array:
    """Return variances of roundings, 0 for infinities and NaN, which are not rounded."""
    return np.where(np.isfinite(estimate.value), own, 0.0)


def _unrounded(estimate: Estimate, dtype: DType) -> Estimate:
    """Return a rounded value that is off by what its rounding removes."""
    held = round_to(estimate.value, dtype)
    with np.errstate(invalid="ignore"):
        off = _of_numbers(squared(estimate.value - held), estimate)
    found = replace(estimate, value=held, rounds_to=None, most=None)
    return replace(found, independent=add(found.independent, off)) if off.any() else found


def _half_origins(fusion: Fusion) -> dict[Value, DType]:
    """Return the 16-bit float type of floats computed only from tensors of that type.

    A framework that runs operation by operation does not widen its inputs.
    """
    origin: dict[Value, DType] = {
        i.value: i.value.dtype
        for i in fusion.inputs
        if i.value.dtype.is_half and not i.value.is_scalar
    }
    inputs = set(origin)
    for node in fusion.nodes:
        tensors = [v for v in node.inputs if not v.is_scalar and v.dtype.is_rounded]
        halves = {origin[v] for v in tensors if v in origin}
        if len(halves) == 1 and all(v in origin for v in tensors):
            origin |= dict.fromkeys((v for v in node.outputs if v.dtype.is_rounded), halves.pop())
    return {value: dtype for value, dtype in origin.items() if value not in inputs}
