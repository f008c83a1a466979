"""The base class of schedulers: problem, parameter space, plans, and their predicted cost."""

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
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.compile_time import with_build_time
from fusec.schedule.former import Former
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
    """A scheduler that analyses a segment once, then estimates costs and makes plans from that.

    name: the scheduler's name, as in nvFuser. templates: the templates of its kernels, by name.
    reach: the tables `[reach.NAME]` of target files that its costs read. vocabulary: the variable
    names that its templates declare; no value of a kernel may have one of them. former: former
    names of its fields, which files may still have.
    """

    name: str
    templates: ClassVar[Mapping[str, Template]]
    reach: ClassVar[tuple[str, ...]]
    vocabulary: ClassVar[frozenset[str]]
    former: ClassVar[Mapping[str, Former]] = MappingProxyType({})

    def __init_subclass__(cls, **given: object) -> None:
        """Check the class variables of a family; a class without a name is a shared base class."""
        super().__init_subclass__(**given)
        if hasattr(cls, "name"):
            state(cls, cls.name)

    def __init__(self) -> None:
        """Start with empty caches."""
        self._problems: IdentityCache[P | Refusal] = IdentityCache()
        self._dynamic: IdentityCache[P | Refusal] = IdentityCache()
        self._offers: IdentityCache[tuple[L, Estimate] | Refusal] = IdentityCache()

    # -- implemented by each family

    @abstractmethod
    def problem(self, segment: Fusion) -> P | Refusal:
        """Return the analysis of a segment, valid for all parameters, or why it is unsupported."""

    def with_dynamic_sizes(self, problem: P) -> P:
        """Return the problem with each size dynamic unless that would slow the kernel.

        Only for plans that are built; proposals have the same cost without it.
        """
        return problem

    @abstractmethod
    def default_parameters(self, problem: P, target: Target) -> R | Refusal:
        """Return the parameters that are used where no field is set, or why there are none."""

    def with_settings(self, parameters: R, settings: Mapping[str, Setting]) -> R | Refusal:
        """Return parameters with some free fields set, or why no kernel has that combination."""
        return replace(parameters, **settings)

    def with_derived(self, problem: P, parameters: R) -> R:
        """Return parameters with those that are derived from the free ones."""
        return parameters

    def why_illegal(self, problem: P, parameters: R, target: Target) -> Refusal | None:
        """Return the rule that individually valid parameters violate, or None if they are legal."""
        return None

    @abstractmethod
    def plan(self, problem: P, parameters: R, target: Target) -> L:
        """Return the plan for some parameters, without further choices."""

    @abstractmethod
    def estimate(self, plan: L, target: Target) -> Proposal:
        """Return the predicted cost of a plan, or why the plan is rejected."""

    def pressure(self, plan: L, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread of one of a plan's kernels."""
        del plan
        return of_template(kernel.template)

    # -- the same for all families

    def legal(self, problem: P, parameters: R, target: Target) -> Refusal | None:
        """Return the rule that the parameters violate, or None if they are legal."""
        return _no_value(parameters, parameters.settings) or self.why_illegal(
            problem, parameters, target
        )

    def candidates(
        self, problem: P, default_parameters: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        """Yield parameters that may be legal, the defaults first, with some free fields set."""
        made = (
            self.with_settings(default_parameters, each)
            for each in near(default_parameters, settings)
        )
        return (p for p in made if not isinstance(p, Refusal))

    def space(
        self, problem: P, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> Iterator[R] | Refusal:
        """Return legal parameters, defaults first, with some free fields set."""
        default_parameters = self.default_parameters(problem, target)
        if isinstance(default_parameters, Refusal):
            return default_parameters
        legal = self._legal(problem, default_parameters, target, settings)
        first = next(legal, None)
        if first is None:
            return self._refusal(problem, default_parameters, target, settings)
        return chain((first,), islice(legal, MOST_RECORDS - 1))

    def _legal(
        self, problem: P, default_parameters: R, target: Target, settings: Mapping[str, Setting]
    ) -> Iterator[R]:
        seen: set[R] = set()
        if not settings:
            yield default_parameters
            seen.add(default_parameters)
        for candidate in self.candidates(problem, default_parameters, target, settings):
            found = self.with_derived(problem, candidate)
            as_set = all(found.setting(name) == value for name, value in settings.items())
            if as_set and found not in seen and self.legal(problem, found, target) is None:
                # Inexact or non-deterministic kernels are offered only if set by name.
                yield from (found,) if found.requested <= settings.keys() else ()
            seen.add(found)

    def chosen(
        self, problem: P, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> R | Refusal:
        """Return the first parameters of the space, or why there are none."""
        space = self.space(problem, target, settings)
        return space if isinstance(space, Refusal) else next(space)

    def _refusal(
        self, problem: P, default_parameters: R, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal:
        """Return why the default parameters cannot have some fields set."""
        made = _no_value(default_parameters, settings) or self.with_settings(
            default_parameters, settings
        )
        if isinstance(made, Refusal):
            return made
        found = self.with_derived(problem, made)
        for name, value in settings.items():
            if found.setting(name) != value:
                because = f"{name} must be {found.setting(name)} here"
                return self.legal(problem, found, target) or Refusal("follows", because)
        return self.legal(problem, found, target) or Refusal("value", "no kernel supports it")

    def propose(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> Proposal:
        """Return the predicted cost of the plan that would be built, or a refusal."""
        offer = self._offer(self.known(segment), target, settings)
        return offer if isinstance(offer, Refusal) else offer[1]

    def offer(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> tuple[L, Estimate] | Refusal:
        """Return the first plan of the space of a segment and its cost, or why there is none."""
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
            estimate = self.estimate(plan, target)
            if isinstance(estimate, Refusal):
                return estimate
            return plan, with_build_time(estimate, problem.segment, target)

        return self._offers.of(problem, (target, tuple(sorted(settings.items()))), found)

    def build(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> L:
        """Return the first plan of the space of a segment that was accepted.

        Raise Unsupported if there is none with these settings.
        """
        offer = self.offer(segment, target, settings)
        if isinstance(offer, Refusal):
            raise Unsupported(f"{self.name}: {offer.because}")
        return offer[0]

    # -- for callers that have a segment, not a problem

    def free(self, segment: Fusion, target: Target) -> tuple[Field, ...]:
        """Return the fields that may be set for a segment."""
        chosen = self._chosen(segment, target)
        return () if isinstance(chosen, Refusal) else chosen.free

    def refusal(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal | None:
        """Return why a segment has no plan with some fields set, or None if it has one."""
        chosen = self._chosen(segment, target, settings)
        return chosen if isinstance(chosen, Refusal) else None

    def allowed(
        self, segment: Fusion, target: Target, name: str, settings: Mapping[str, Setting]
    ) -> tuple[Setting, ...]:
        """Return the values that a field may have together with some settings."""
        default_parameters = self._chosen(segment, target)
        if isinstance(default_parameters, Refusal):
            return ()
        now = default_parameters.setting(name)
        field = next(f for f in default_parameters.free if f.name == name)
        tried = sorted((now, *field.nearest(now)), key=_order_of(field))
        return tuple(
            v for v in tried if self.refusal(segment, target, {**settings, name: v}) is None
        )

    def estimated_space(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> tuple[tuple[Parameters, Proposal], ...]:
        """Return the space of a segment with the cost of each plan, the one to build first.

        settings: values that all records of the space have.
        """
        problem = self.built(segment)
        assert not isinstance(problem, Refusal), problem
        space = self.space(problem, target, settings)
        if isinstance(space, Refusal):
            return ()
        return tuple((p, self.estimate(self.plan(problem, p, target), target)) for p in space)

    def _chosen(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = NOTHING_SET
    ) -> R | Refusal:
        problem = self.built(segment)
        return problem if isinstance(problem, Refusal) else self.chosen(problem, target, settings)

    def built(self, segment: Fusion) -> P | Refusal:
        """Return the problem of a segment whose plan is built, from the cache if possible."""

        def found() -> P | Refusal:
            known = self.known(segment)
            return known if isinstance(known, Refusal) else self.with_dynamic_sizes(known)

        return self._dynamic.of(segment, None, found)

    def known(self, segment: Fusion) -> P | Refusal:
        """Return the problem of a segment, from the cache if possible."""
        return self._problems.of(segment, None, lambda: self.problem(segment))


def _no_value(parameters: Parameters, settings: Mapping[str, Setting]) -> Refusal | None:
    """Return the setting that is not a valid value of its field, or None."""
    for free in parameters.free:
        if free.name in settings and settings[free.name] not in free.values:
            value = setting_text(settings[free.name])
            return Refusal("value", f"{free.name} cannot be {value}")
    return None


def _order_of(field: Field) -> Callable[[Setting], int]:
    """Return a function that gives the index of a value among those of a field."""
    return field.values.index
