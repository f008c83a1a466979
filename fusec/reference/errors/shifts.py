"""Maxima whose errors cancel: those that a softmax subtracts before it exponentiates.

exp(x - m) / sum(exp(x - m)) and m + log(sum(exp(x - m))) do not depend on m. A kernel's maximum may
be off by a rounding of x. All weights are then off by one factor, which cancels. Nor does the value
matter that replaces an infinite maximum, that of a row without keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf as is_infinite

from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ir.op import OpDef
from fusec.ir.roles import Combine
from fusec.ops.pointwise.binary import add, div, sub
from fusec.ops.pointwise.classify import isfinite, isinf
from fusec.ops.pointwise.compare import eq, ne
from fusec.ops.pointwise.exponential import exp, log
from fusec.ops.pointwise.ternary import where
from fusec.ops.reduction.reductions import sum as sum_


def free_shifts(fusion: Fusion) -> frozenset[Value]:
    """Return the maxima whose value does not affect the results computed from them."""
    return frozenset(shift.top.output for shift in _find_free(fusion))


def shifted_scores(fusion: Fusion) -> frozenset[Value]:
    """Return the arguments of exponentials: scores minus such a maximum."""
    return frozenset(value for shift in _find_free(fusion) for value in shift.shifted)


def _find_free(fusion: Fusion) -> Iterator[_Shift]:
    for node in fusion.nodes:
        if node.op.family == "reduction" and node.op.combine is Combine.MAXIMUM:
            shift = _Shift(fusion, node)
            if shift.is_free():
                yield shift


class _Shift:
    """The values computed from one maximum."""

    def __init__(self, fusion: Fusion, top: Node) -> None:
        self.fusion, self.top = fusion, top
        self.tops = self._moved(top.output)
        self.infinite = self._compared(eq, isinf)
        self.finite = self._compared(ne, isfinite)
        self.tops |= self._guarded(self.tops)
        self.shifted = self._made(sub, self.tops, 1)
        self.weights = self._made(exp, self.shifted, 0)
        self.sums = set[Value]()
        for value in self._made(sum_, self.weights, 0):
            if fusion.producer[value].attributes["dims"] == top.attributes["dims"]:
                self.sums |= self._moved(value)
        self.sums |= self._guarded(self.sums)
        self.logarithms = set[Value]()
        for value in self._made(log, self.sums, 0):
            self.logarithms |= self._moved(value)

    def is_free(self) -> bool:
        """Return whether all values computed from the maximum are independent of its value."""
        inside = (self.tops, self.shifted, self.weights, self.sums, self.logarithms)
        return bool(self.sums) and all(
            value not in self.fusion.output_of
            and all(self._allows(user) for user in self.fusion.users.get(value, ()))
            for values in inside
            for value in values
        )

    def _allows(self, user: Node) -> bool:
        """Return whether a node computes one of these values, or something that has no shift."""
        known = self.tops | self.shifted | self.weights | self.sums | self.logarithms
        if user.output in self.infinite | self.finite:
            return True
        if user.output in known:
            return user.op is where or not self._holds(user.operands[1:], known - self.tops)
        a, b = (*user.operands, None, None)[:2]
        if user.op is div:
            return a in self.weights and b in self.sums
        if user.op is sub:
            return a in self.shifted and b in self.logarithms
        pairs = ((a, b), (b, a))
        return user.op is add and any(x in self.tops and y in self.logarithms for x, y in pairs)

    @staticmethod
    def _holds(operands: tuple[Operand, ...], values: set[Value]) -> bool:
        return any(o in values for o in operands)

    def _made(self, op: OpDef, of: set[Value], place: int) -> set[Value]:
        """Return the results of an operation with one of some values as the operand at `place`."""
        users = (user for value in of for user in self.fusion.users.get(value, ()))
        return {
            user.output
            for user in users
            if user.op is op
            and user.operands[place] in of
            and not (len(user.operands) > 1 and user.operands[1 - place] in of)
        }

    def _compared(self, op: OpDef, test: OpDef) -> set[Value]:
        """Return whether maxima are infinite, or finite: their errors do not change that."""
        users = (user for value in self.tops for user in self.fusion.users.get(value, ()))
        found = set[Value]()
        for user in users:
            others = [o for o in user.operands if o not in self.tops]
            with_infinity = user.op is op and all(_is_infinite(o) for o in others)
            if with_infinity or user.op is test:
                found |= self._moved(user.output)
        return found

    def _guarded(self, values: set[Value]) -> set[Value]:
        """Return those of these values that replace infinite maxima by a number."""
        found = set[Value]()
        for user in (user for value in values for user in self.fusion.users.get(value, ())):
            if user.op is not where:
                continue
            condition, yes, no = user.operands
            kept, other = (no, yes) if condition in self.infinite else (yes, no)
            known = condition in self.infinite or condition in self.finite
            if known and kept in values and isinstance(other, Const):
                found |= self._moved(user.output)
        return found

    def _moved(self, value: Value) -> set[Value]:
        """Return a value and its moved copies."""
        found, left = {value}, [value]
        while left:
            for made in self._movements(left.pop()):
                if made not in found:
                    found.add(made)
                    left.append(made)
        return found

    def _movements(self, value: Value) -> Iterator[Value]:
        for user in self.fusion.users.get(value, ()):
            if user.op.family == "movement" and len(user.inputs) == 1:
                yield user.output


def _is_infinite(operand: Operand) -> bool:
    """Return whether an operand is infinity as a literal."""
    value = operand.value if isinstance(operand, Const) else None
    return isinstance(value, float) and is_infinite(value)
