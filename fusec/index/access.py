"""Access classes: which accesses of a vector of lanes form one wide access, and on which facts."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError
from fusec.ir.access import Conditions
from fusec.ir.dim import Dim, dim, product
from fusec.ir.expression import Index, Var
from fusec.ir.graph import Fusion, Value


@dataclass
class Facts:
    """Decides whether dims are multiples of a number; facts read off hint sizes become guards.

    start: an index that is always a multiple of a vector's width: for vectors shifted to an aligned
    position, the address of the first element.
    """

    hints: Mapping[str, int]
    start: Index | None = None
    assumed: dict[tuple[Dim, int], None] = field(default_factory=dict[tuple[Dim, int], None])

    def multiple(self, value: Dim, by: int) -> bool:
        """Return whether `value` is a multiple of `by`."""
        if by == 1 or self.proven(value, by):
            return True
        if value.is_const:
            return False
        try:
            if value.evaluate(self.hints) % by:
                return False
        except FusecError:
            return False  # a remainder by an extent of 0: nothing is read
        self.assumed[(value, by)] = None
        return True

    @staticmethod
    def proven(value: Dim, by: int) -> bool:
        """Return whether `value` is a multiple of `by` at any size."""
        return all(c % by == 0 for _, c in value.terms)

    def index_multiple(self, value: Index, by: int) -> bool:
        """Return whether every value of the index is a multiple of `by`."""
        if self.start is not None and value.variables & self.start.variables:
            value = value - self.start
        return self.multiple(value.constant, by) and all(
            self.multiple(c, by) for _, c in value.terms
        )


def lane_zero(address: Index, lane: Var, width: int, facts: Facts) -> Index | None:
    """Return lane 0's address if the lanes are contiguous from an aligned start, else None."""
    if width == 1 or address.coefficient(lane) != 1:
        return None
    # Its coefficient is a constant, so no other term depends on it.
    base = Index(tuple(t for t in address.terms if t[0] != lane), address.constant)
    return base if facts.index_multiple(base, width) else None


def vector_base(
    address: Index, conditions: Conditions, lane: Var, width: int, facts: Facts
) -> Index | None:
    """Return lane 0's address if all lanes form one access, all inside the conditions or none."""
    base = lane_zero(address, lane, width, facts)
    if base is None:
        return None
    for condition in conditions:
        if lane not in condition.position.variables:
            continue
        start = lane_zero(condition.position, lane, width, facts)
        aligned = (
            start is not None
            and facts.multiple(condition.low, width)
            and facts.multiple(condition.end, width)
        )
        if not aligned:
            return None
    return base


def runs_along(address: Index, conditions: Conditions, lane: Var, width: int) -> bool:
    """Return whether the lanes are contiguous, aligned or not, under the same conditions."""
    tested = any(lane in c.position.variables for c in conditions)
    return width > 1 and address.coefficient(lane) == 1 and not tested


def access_class(
    address: Index, conditions: Conditions, lane: Var, width: int, facts: Facts
) -> str:
    """Return `uniform` (same for all lanes), `vector` or `scalar` (one access per lane)."""
    tested = any(lane in c.position.variables for c in conditions)
    if lane not in address.variables and not tested:
        return "uniform"
    return "scalar" if vector_base(address, conditions, lane, width, facts) is None else "vector"


def span_of(fusion: Fusion, value: Value) -> Dim:
    """Return the span of an input or output in memory, in elements."""
    given = fusion.input_of.get(value) or fusion.output_of.get(value)
    if given is None or not given.strides:
        return product(value.shape)
    reach = dim(1)
    for extent, stride in zip(value.shape, given.strides, strict=True):
        reach = reach + (extent - 1) * stride
    total = product(value.shape)
    return total if reach == total else reach
