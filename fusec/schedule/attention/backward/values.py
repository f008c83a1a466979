"""What queries have of their own in the backward of an attention: computed once, not per key."""

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
"""The size of a score whose rounding is no small part of a power of two: 2^-11 of one."""


@dataclass(frozen=True)
class QueryValues:
    """Instances that depend on the query, and on no key.

    scores: what shares are the exponentials of, less a value of the query; exponent: the number of
    that value. None where shares are made otherwise. reads: whether the weights of a key read
    memory besides.
    """

    weights: Weights
    instances: tuple[Instance, ...]
    scores: Instance | None
    exponent: int | None
    reads: bool

    @property
    def may_be_far(self) -> bool:
        """Return whether scores may be far from 0, as what masks put in their place is.

        Then the value of the query is taken off before both are scaled: their rounded products may
        differ by much where they do not.
        """
        if self.scores is None or without_scale(self.scores)[1] is not None:
            return False
        constants = (i.constant for i in instances_under([self.scores]) if i.kind == "constant")
        return self.reads or any(
            isinstance(c, (int, float)) and _FAR <= abs(c) < inf for c in constants
        )


def find_query_values(between: Between) -> QueryValues:
    """Return the values of queries that the graph of weights reads."""
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
