"""What every kernel family is: a problem, the space of its parameters, plans, and their price."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from fusec.dataclasses import replace
from fusec.diagnostics import Unsupported
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.ir.recent import Recent
from fusec.schedule.compile_time import with_build_time
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.pressure import Pressure, of_template
from fusec.schedule.problem import Problem
from fusec.schedule.space import MOST_RECORDS, Field, Parameters, near, setting_text
from fusec.schedule.templates import Template, state
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.target import Target

P = TypeVar("P", bound=Problem)
R = TypeVar("R", bound=Parameters)
L = TypeVar("L", bound=KernelPlan)
NOTHING_SET: Mapping[str, Setting] = MappingProxyType({})


class Family(ABC, Generic[P, R, L]):
    """A scheduler: it analyses a segment once, and prices and plans from what it found.

    name: the scheduler's name, as nvFuser calls it. templates: those of its kernels, by name.
    reach: the tables `[reach.NAME]` of target files that its costs read. vocabulary: the names that
    its templates give to their own variables, which no value of a kernel may have.
    """

    name: str
    templates: ClassVar[Mapping[str, Template]]
    reach: ClassVar[tuple[str, ...]]
    vocabulary: ClassVar[frozenset[str]]

    def __init_subclass__(cls, **given: object) -> None:
        """Check what a family states; those without a name are parts that families share."""
        super().__init_subclass__(**given)
        if hasattr(cls, "name"):
            state(cls, cls.name)

    def __init__(self) -> None:
        """Know no segment yet."""
        self._problems: Recent[P | Refusal] = Recent()
        self._general: Recent[P | Refusal] = Recent()
        self._offers: Recent[tuple[L, Estimate] | Refusal] = Recent()

    # -- what a family says

    @abstractmethod
    def problem(self, segment: Fusion) -> P | Refusal:
        """Return the segment as the family sees it, whatever is chosen, or why it is not its."""

    def general(self, problem: P) -> P:
        """Return the problem with as many sizes left to run time as cost no element anything.

        Of what is built alone: what is proposed has the same price.
        """
        return problem

    @abstractmethod
    def likeliest(self, problem: P, target: Target) -> R | Refusal:
        """Return the parameters that are built where nothing is set, or why there are none."""

    def completed(self, problem: P, parameters: R) -> R:
        """Return parameters with those that follow from the free ones."""
        return parameters

    def trouble(self, problem: P, parameters: R, target: Target) -> Refusal | None:
        """Return the rule by which no kernel has some parameters, whose values are allowed."""
        return None

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

    # -- what follows for all

    def legal(self, problem: P, parameters: R, target: Target) -> Refusal | None:
        """Return the rule by which no kernel has some parameters, or None."""
        for free in parameters.free:
            value = getattr(parameters, free.name)
            if value not in free.values:
                return Refusal("value", f"{free.name} cannot be {setting_text(value)}")
        return self.trouble(problem, parameters, target)

    def candidates(
        self, problem: P, likeliest: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        """Yield parameters that may be legal, the likeliest first, with some free fields set."""
        return near(replace(likeliest, **settings), settings)

    def space(
        self, problem: P, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> Iterator[R] | Refusal:
        """Return legal parameters, the likeliest first, with some free fields set."""
        likeliest = self.likeliest(problem, target)
        if isinstance(likeliest, Refusal):
            return likeliest
        legal = self._legal(problem, likeliest, target, settings)
        first = next(legal, None)
        if first is None:
            return self._refusal(problem, likeliest, target, settings)
        return chain((first,), islice(legal, MOST_RECORDS - 1))

    def _legal(
        self, problem: P, likeliest: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        seen: set[R] = set()
        if not settings:
            yield likeliest
            seen.add(likeliest)
        for candidate in self.candidates(problem, likeliest, target, settings):
            found = self.completed(problem, candidate)
            as_set = all(getattr(found, name) == value for name, value in settings.items())
            if as_set and found not in seen and self.legal(problem, found, target) is None:
                # What loses bits, or the same bits in every run, is set by name or not offered.
                yield from (found,) if found.requested <= settings.keys() else ()
            seen.add(found)

    def chosen(
        self, problem: P, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> R | Refusal:
        """Return the first parameters of the space, or why there are none."""
        space = self.space(problem, target, settings)
        return space if isinstance(space, Refusal) else next(space)

    def _refusal(
        self, problem: P, likeliest: R, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal:
        """Return why the likeliest parameters cannot have some fields set."""
        found = self.completed(problem, replace(likeliest, **settings))
        for name, value in settings.items():
            if getattr(found, name) != value:
                because = f"{name} must be {getattr(found, name)} here"
                return self.legal(problem, found, target) or Refusal("follows", because)
        return self.legal(problem, found, target) or Refusal("value", "no kernel supports it")

    def propose(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> Proposal:
        """Return the price of the plan that would be built, or a refusal."""
        offer = self._offer(self.known(segment), target, settings)
        return offer if isinstance(offer, Refusal) else offer[1]

    def offer(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> tuple[L, Estimate] | Refusal:
        """Return the first plan of the space of a segment and its price, or why there is none."""
        offer = self._offer(self.built(segment), target, settings)
        if isinstance(offer, Refusal) and self.built(segment) is not self.known(segment):
            return self._offer(self.known(segment), target, settings)
        return offer

    def _offer(
        self, problem: P | Refusal, target: Target, settings: Mapping[str, Setting]
    ) -> tuple[L, Estimate] | Refusal:
        if isinstance(problem, Refusal):
            return problem

        def found() -> tuple[L, Estimate] | Refusal:
            chosen = self.chosen(problem, target, settings)
            if isinstance(chosen, Refusal):
                return chosen
            plan = self.plan(problem, chosen, target)
            price = self.price(plan, target)
            if isinstance(price, Refusal):
                return price
            return plan, with_build_time(price, problem.segment, target)

        return self._offers.of(problem, (target, tuple(sorted(settings.items()))), found)

    def build(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> L:
        """Return the first plan of the space of a segment that was accepted.

        Unsupported where there is none with such settings.
        """
        offer = self.offer(segment, target, settings)
        if isinstance(offer, Refusal):
            raise Unsupported(f"{self.name}: {offer.because}")
        return offer[0]

    # -- for whom only segments are known

    def free(self, segment: Fusion, target: Target) -> tuple[Field, ...]:
        """Return the fields that may be set for a segment."""
        chosen = self._chosen(segment, target)
        return () if isinstance(chosen, Refusal) else chosen.free

    def refusal(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal | None:
        """Return the rule by which a segment has no plan with some fields set, or None."""
        chosen = self._chosen(segment, target, settings)
        return chosen if isinstance(chosen, Refusal) else None

    def allowed(
        self, segment: Fusion, target: Target, name: str, settings: Mapping[str, Setting]
    ) -> tuple[Setting, ...]:
        """Return the values that a field may have beside some settings."""
        likeliest = self._chosen(segment, target)
        if isinstance(likeliest, Refusal):
            return ()
        now: Setting = getattr(likeliest, name)
        field = next(f for f in likeliest.free if f.name == name)
        tried = sorted((now, *field.nearest(now)), key=_order_of(field))
        return tuple(
            v for v in tried if self.refusal(segment, target, {**settings, name: v}) is None
        )

    def priced(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> tuple[tuple[Parameters, Proposal], ...]:
        """Return the space of a segment with the price of each plan, the first of which is built.

        settings: fields that all of them have.
        """
        problem = self.built(segment)
        assert not isinstance(problem, Refusal), problem
        space = self.space(problem, target, settings)
        if isinstance(space, Refusal):
            return ()
        return tuple((p, self.price(self.plan(problem, p, target), target)) for p in space)

    def _chosen(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> R | Refusal:
        problem = self.built(segment)
        return problem if isinstance(problem, Refusal) else self.chosen(problem, target, settings)

    def built(self, segment: Fusion) -> P | Refusal:
        """Return the problem of a segment whose plan is built, found now or lately."""

        def found() -> P | Refusal:
            known = self.known(segment)
            return known if isinstance(known, Refusal) else self.general(known)

        return self._general.of(segment, None, found)

    def known(self, segment: Fusion) -> P | Refusal:
        """Return the problem of a segment, found now or lately."""
        return self._problems.of(segment, None, lambda: self.problem(segment))


def _order_of(field: Field) -> Callable[[Setting], int]:
    """Return the place of a value among those of a field."""
    return field.values.index
