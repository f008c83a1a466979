"""Per-query values of attention's backward, which are computed once rather than for each key."""

from __future__ import annotations

from math import inf

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance, instances_under
from fusec.ir.dtype import F32
from fusec.ir.expression import Var
from fusec.ops.acts import Act
from fusec.schedule.attention.backward.problem import Between, Weights
from fusec.schedule.attention.masks import does
from fusec.schedule.attention.scale import without_scale

_FAR = 1e4
"""The magnitude of a score from which its rounding matters to exp2: 2^-11 of one."""


@dataclass(frozen=True)
class QueryValues:
    """Instances that depend on the query but not on the key.

    scores: what shares are exponentials of, minus a value of the query; exponent: the index of
    that value. Both are None if shares are computed otherwise. reads: whether the weights of a key
    also read memory.
    """

    weights: Weights
    instances: tuple[Instance, ...]
    scores: Instance | None
    exponent: int | None
    reads: bool

    @property
    def may_be_far(self) -> bool:
        """Return whether scores may be far from 0, like the values that masks write.

        Then the query's value is subtracted before both are scaled, since their rounded products
        may differ by much where the values themselves do not.
        """
        if self.scores is None or without_scale(self.scores)[1] is not None:
            return False
        constants = (i.constant for i in instances_under([self.scores]) if i.kind == "constant")
        return self.reads or any(
            isinstance(c, (int, float)) and _FAR <= abs(c) < inf for c in constants
        )


def find_query_values(between: Between) -> QueryValues:
    """Return the per-query values that the graph of weights reads."""
    part = between.part
    weights, axes = between.weights(part.lowering(1)), part.axes(1)
    along = frozenset({axes.chunk, axes.lane})
    scores, less = _exponent(weights.shares)
    if less is None or not _is_own(less, axes.row, along):
        scores, less = None, None
    found: dict[Instance, None] = {} if less is None else {less: None}
    reads = False
    seen: set[Instance] = set()
    stack = [weights.pulls, weights.shares if scores is None else scores]
    while stack:
        instance = stack.pop()
        if instance in seen or (instance is weights.shares and scores is not None):
            continue
        seen.add(instance)
        if _is_own(instance, axes.row, along):
            found[instance] = None
            continue
        sums = instance.value in (part.epilogue.sums, between.moved)
        reads |= instance.kind == "load" and not sums and bool(instance.variables)
        stack.extend(reversed(instance.operands))
    exponent = None if less is None else 0
    return QueryValues(weights, tuple(found), scores, exponent, reads)


def _exponent(shares: Instance) -> tuple[Instance | None, Instance | None]:
    if does(shares, Act.EXPONENTIATE) and does(shares.operands[0], Act.SUBTRACT):
        scores, less = shares.operands[0].operands
        return scores, less
    return None, None


def _is_own(instance: Instance, query: Var, along: frozenset[Var]) -> bool:
    own = query in instance.variables and not instance.variables & along
    return own and instance.dtype.is_float and instance.dtype.compute == F32
