"""What divides what: facts of constants, and of sizes at hint values, kept as guards."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.index.expression import Index
from fusec.index.movement import Condition
from fusec.ir.dim import Dim
from fusec.schedule.plan import Guard


class Divisibility:
    """Answers whether dims and indices are multiples of a number; answers from hints become guards."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        """Take the hint sizes."""
        self.hints = hints
        self.guards: dict[Guard, None] = {}

    def multiple(self, value: Dim, by: int) -> bool:
        """Return whether `value` is a multiple of `by`."""
        if by == 1 or all(c % by == 0 for _, c in value.terms):
            return True
        if value.is_const or value.evaluate(self.hints) % by:
            return False
        self.guards[Guard(value, "%", by, "vector accesses need aligned rows")] = None
        return True

    def index_multiple(self, value: Index, by: int) -> bool:
        """Return whether every value of the index is a multiple of `by`."""
        return self.multiple(value.constant, by) and all(
            self.multiple(c, by) for _, c in value.terms
        )

    def condition_aligned(self, condition: Condition, base: Index, by: int) -> bool:
        """Return whether a vector of `by` elements from `base` on is inside or outside as a whole."""
        return (
            self.index_multiple(base, by)
            and self.multiple(condition.low, by)
            and self.multiple(condition.end, by)
        )
