"""What every kernel family is: a problem, the space of its parameters, plans, and their price."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Generic, TypeVar

from fusec.ir.graph import Fusion
from fusec.ir.recent import Recent
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.pressure import Pressure, of_template
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.target import Target

P = TypeVar("P")
R = TypeVar("R")
L = TypeVar("L", bound=KernelPlan)


class Family(ABC, Generic[P, R, L]):
    """A scheduler: it analyses a segment once, and prices and plans from what it found.

    name: the scheduler's name, as nvFuser calls it.
    """

    name: str

    def __init__(self) -> None:
        """Know no segment yet."""
        self._problems: Recent[P | Refusal] = Recent()

    @abstractmethod
    def problem(self, segment: Fusion) -> P | Refusal:
        """Return the segment as the family sees it, whatever is chosen, or why it is not its."""

    @abstractmethod
    def space(self, problem: P, target: Target) -> Sequence[R] | Refusal:
        """Return the parameters to choose from, the likeliest first, or why there are none."""

    @abstractmethod
    def plan(self, problem: P, parameters: R, target: Target) -> L:
        """Return the plan with some parameters; nothing is chosen in here."""

    @abstractmethod
    def price(self, plan: L, target: Target) -> Proposal:
        """Return what a plan costs, or why it cannot run as it is."""

    def pressure(self, plan: L, kernel: Kernel) -> Pressure:
        """Return what a thread of one of a plan's kernels holds."""
        del plan
        return of_template(kernel.template)

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return the price of the best plan, or a refusal."""
        problem = self.known(segment)
        if isinstance(problem, Refusal):
            return problem
        plans = self._plans(problem, target)
        if isinstance(plans, Refusal):
            return plans
        prices = [self.price(plan, target) for plan in plans]
        return min(prices, key=lambda price: _seconds(price, target))

    def build(self, segment: Fusion, target: Target) -> L:
        """Return the best plan of a segment that was accepted, the first of equal ones."""
        problem = self.known(segment)
        assert not isinstance(problem, Refusal), problem
        plans = self._plans(problem, target)
        assert not isinstance(plans, Refusal), plans
        if len(plans) == 1:
            return plans[0]
        return min(plans, key=lambda plan: _seconds(self.price(plan, target), target))

    def known(self, segment: Fusion) -> P | Refusal:
        """Return the problem of a segment, found now or lately."""
        return self._problems.of(segment, None, lambda: self.problem(segment))

    def _plans(self, problem: P, target: Target) -> list[L] | Refusal:
        space = self.space(problem, target)
        if isinstance(space, Refusal):
            return space
        return [self.plan(problem, parameters, target) for parameters in space]


def _seconds(price: Proposal, target: Target) -> float:
    return price.seconds(target) if isinstance(price, Estimate) else inf
