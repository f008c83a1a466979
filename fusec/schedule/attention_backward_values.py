"""What queries have of their own in the backward of an attention: computed once, not per key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusec.index.instances import Instance
from fusec.ir.dtype import F32
from fusec.ir.expression import Var
from fusec.ops.acts import Act
from fusec.schedule.attention_backward_problem import Between, Weights
from fusec.schedule.attention_masks import does


@dataclass(frozen=True)
class QueryValues:
    """Instances that depend on the query, and on no key.

    scores: what shares are the exponentials of, less a value of the query; exponent: the number of
    that value. None where shares are made otherwise.
    """

    weights: Weights
    instances: tuple[Instance, ...]
    scores: Instance | None
    exponent: int | None


def find_query_values(between: Between) -> QueryValues:
    """Return the values of queries that the graph of weights reads."""
    part = between.part
    weights = between.weights(part.lowering(1))
    axes = part.axes(1)
    along = frozenset({axes.chunk, axes.lane})
    scores, less = _exponent(weights.shares)
    first = [] if less is None or not _is_own(less, axes.row, along) else [less]
    roots = [scores] if scores is not None and first else [weights.shares]
    others = _own((*roots, weights.pulls), weights.shares, axes.row, along)
    found = (*first, *(i for i in others if first == [] or i is not less))
    return QueryValues(weights, found, scores if first else None, 0 if first else None)


def _exponent(shares: Instance) -> tuple[Instance | None, Instance | None]:
    if does(shares, Act.EXPONENTIATE) and does(shares.operands[0], Act.SUBTRACT):
        scores, less = shares.operands[0].operands
        return scores, less
    return None, None


def _is_own(instance: Instance, query: Var, along: frozenset[Var]) -> bool:
    own = query in instance.variables and not instance.variables & along
    return own and instance.dtype.is_float and instance.dtype.compute == F32


def _own(
    roots: Iterable[Instance], shares: Instance, query: Var, along: frozenset[Var]
) -> list[Instance]:
    """Return the largest instances of queries alone, the first to be met first."""
    found: dict[Instance, None] = {}
    seen: set[Instance] = set()
    stack = [r for r in reversed(list(roots))]
    entered = shares in stack
    while stack:
        instance = stack.pop()
        if instance in seen or (instance is shares and not entered):
            continue
        seen.add(instance)
        if _is_own(instance, query, along):
            found[instance] = None
        else:
            stack.extend(reversed(instance.operands))
    return list(found)
