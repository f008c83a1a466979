"""The iteration domain of a segment, and the home of every value on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.dataclasses import dataclass
from fusec.index.spread import Home, Spread
from fusec.ir.access import Condition, Conditions
from fusec.ir.dim import dim, maximum, product
from fusec.ir.expression import Index, Quotient, Remainder, Var, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.identity_cache import IdentityCache

OF_ANOTHER_KIND = frozenset(
    {
        "computed", "concat", "contraction", "no column sums", "no reduction", "no transposition",
        "operation", "operations", "persistence", "reduction_axes", "scans", "scatters",
    }
)  # fmt: skip
"""Rules of refusals where the scheduler does not support this kind of group at all."""


@dataclass(frozen=True)
class Refusal:
    """A rule that rejects something, and why: a value, kept for `explain`."""

    rule: str
    because: str

    @property
    def is_near(self) -> bool:
        """Return whether this kind of group is supported, and a property of this one forbids it."""
        return self.rule not in OF_ANOTHER_KIND

    def __str__(self) -> str:
        return f"{self.rule}: {self.because}"


@dataclass(frozen=True)
class Domain:
    """Axes in the order of `reference`'s dims, homes of values, and each reduction's axes."""

    reference: Value
    axes: tuple[Var, ...]
    homes: Mapping[Value, Home]
    reduced: Mapping[Node, frozenset[Var]]

    @property
    def reduced_axes(self) -> frozenset[Var]:
        """Return the axes that any reduction reduces."""
        found: frozenset[Var] = frozenset()
        for axes in self.reduced.values():
            found |= axes
        return found


MOST_STEPS = 4096
"""Total nodes visited in search of a reference; of a large segment few values are tried."""
LEAST_TRIES = 4
_CACHE: IdentityCache[Domain | Refusal] = IdentityCache()


def find_domain(
    fusion: Fusion, reference: Value | None = None, siblings: Iterable[Value] = ()
) -> Domain | Refusal:
    """Return the domain of a segment, or why there is none.

    The reference is an input of a reduction if there is one, else an output, else any value: the
    first (largest first) from which every output and every reduction can be reached by index maps;
    or `reference`, with `siblings`, values of its shape computed at the same points. The refusal is
    that of the first reference.
    """
    if reference is not None:
        return _of_spread(_spread(fusion, reference, siblings), reference)
    return _CACHE.of(fusion, None, lambda: _first_reference(fusion))


def _first_reference(fusion: Fusion) -> Domain | Refusal:
    """Return the domain of the first reference that has one, or why the first one has none.

    References with fewer elements than an output are skipped, and those with the axes of one that
    failed: they reach the same values.
    """
    refusal: Refusal | None = None
    tries = max(LEAST_TRIES, MOST_STEPS // max(1, len(fusion.nodes)))
    changed = fusion.effects.updates
    least = max(
        (_elements(o.value, fusion) for o in fusion.outputs if o.value not in changed), default=0
    )
    same: set[Value] = set()
    for reference in _candidates(fusion):
        if refusal is not None and (reference in same or _elements(reference, fusion) < least):
            continue
        spread = _spread(fusion, reference)
        found = _of_spread(spread, reference)
        if isinstance(found, Domain):
            return found
        refusal, tries = refusal or found, tries - 1
        if not tries:
            break
        same.update(v for v, home in spread.homes.items() if home == spread.own)
    return refusal or Refusal("domain", "the segment has no output")


def _elements(value: Value, fusion: Fusion) -> int:
    return product(value.shape).evaluate(fusion.hints)


def _candidates(fusion: Fusion) -> Iterable[Value]:
    def size(value: Value) -> int:
        return -_elements(value, fusion)

    reductions = [n for n in fusion.nodes if n.op.family == "reduction"]
    if reductions:
        tensors = [n.inputs[0] for n in reductions]
        yield from sorted(dict.fromkeys(tensors), key=size)
        return
    updates = fusion.effects.updates.values()
    changed = [u.source for u in updates if u.source is not None]
    outputs = changed or [o.value for o in fusion.outputs if not o.value.is_scalar]
    others = [v for n in fusion.nodes for v in n.outputs if not v.is_scalar]
    inputs = [i.value for i in fusion.inputs if not i.value.is_scalar]
    seen: set[Value] = set()
    for group in (outputs, others, inputs):
        for value in sorted(group, key=size):
            if value not in seen:
                seen.add(value)
                yield value


def _spread(fusion: Fusion, reference: Value, siblings: Iterable[Value] = ()) -> Spread:
    """Return the homes of all values that a reference reaches."""
    axes = tuple(Var(f"i{k}", extent) for k, extent in enumerate(reference.shape))
    spread = Spread(fusion, (reference, *siblings), axes)
    spread.run()
    for output in fusion.outputs:
        # An output of the reference's shape that no map reaches is a sibling on the same domain.
        update = fusion.effects.updates.get(output.value)
        value = output.value if update is None or update.source is None else update.source
        if value not in spread.homes and value.shape == reference.shape:
            spread.settle(value, spread.own)
            spread.run()
    return spread


def _of_spread(spread: Spread, reference: Value) -> Domain | Refusal:
    """Return the domain of a reference, or the first output or reduction that it does not reach."""
    fusion = spread.fusion
    for output in fusion.outputs:
        home = spread.homes.get(output.value)
        if home is None:
            return Refusal(
                "domain",
                f"`{output.value.name}` {output.value.type} has no index map from the domain of "
                f"`{reference.name}` {reference.type}",
            )
        if home.complete == (output.value in fusion.effects.updates):
            some = "only the changed part" if home.complete else "all"
            return Refusal(
                "store_map", f"the domain does not reach {some} of `{output.value.name}`"
            )
    for node in fusion.nodes:
        if node.op.family == "reduction" and node not in spread.reduced:
            return Refusal(
                "reduction_axes",
                spread.refusals.get(node, f"`{node.output.name}` reduces another domain"),
            )
    domain = Domain(reference, spread.axes, spread.homes, spread.reduced)
    for value in dict.fromkeys(o.value for o in fusion.outputs):
        if None in stored_at(value, domain, reduced=True).values():
            return Refusal("store_map", f"`{value.name}` would be stored repeatedly")
    places = [(v, a.extent) for v, a in repeated(fusion, domain)]
    for value in dict.fromkeys(o.value for o in fusion.outputs):
        # A value that is also broadcast to an empty one is at home in a slice of that one.
        places += [(value, c.end - c.low) for c in domain.homes[value].conditions]
    for output, extent in places:
        if extent.evaluate(fusion.hints) <= 0 != product(output.shape).evaluate(fusion.hints):
            return Refusal("store_map", f"`{output.name}` has elements, the domain has none")
    return domain


def repeated(fusion: Fusion, domain: Domain) -> list[tuple[Value, Var]]:
    """Return the outputs that are constant along an unreduced axis, and that axis.

    If its extent is 0, nothing is iterated over and the output would not be written.
    """
    outputs = dict.fromkeys(o.value for o in fusion.outputs)
    return [(v, a) for v in outputs for a in _repeated_axes(v, domain)]


def _repeated_axes(value: Value, domain: Domain) -> list[Var]:
    kept = [a for a in domain.axes if a.extent != 1 and a not in domain.reduced_axes]
    return [a for a in kept if a not in domain.homes[value].variables]


def stored_once(fusion: Fusion, domain: Domain) -> dict[Value, dict[Var, Condition | None]]:
    """Return for each output the condition of one point per axis along which it is constant."""
    return {o.value: stored_at(o.value, domain) for o in fusion.outputs}


def stored_at(
    value: Value, domain: Domain, *, reduced: bool = False
) -> dict[Var, Condition | None]:
    """Return the condition of one point per axis along which a value is constant.

    It is stored only at that point; None if no such point is known. For a value that is periodic
    with an extent, as a repeated one, the condition selects one period. reduced: along the axes
    that reductions reduce, too, as in the loops over these.
    """
    home = domain.homes[value]
    axes = _repeated_axes(value, domain)
    if reduced:
        across = domain.reduced_axes - home.variables
        axes += [a for a in domain.axes if a in across and a.extent != 1]
    points = {axis: _one_of(home, axis) for axis in axes}
    for inner, condition in _one_period(value, home):
        points.setdefault(min(inner.variables, key=lambda a: a.name), condition)
    return points


def _one_of(home: Home, axis: Var) -> Condition | None:
    first = dim(0)
    for bound in home.conditions:
        if axis in bound.position.variables:
            beginning = bound.position - of_var(axis)
            if not beginning.is_const:
                return None
            first = maximum(first, bound.low - beginning.constant)
    return Condition(of_var(axis), first, first + 1)


def _one_period(value: Value, home: Home) -> Iterable[tuple[Index, Condition | None]]:
    """Yield the index whose remainder or quotient an output repeats, and its condition.

    There is one if the home's axes have more points than the output has elements.
    """
    points, elements = product(a.extent for a in home.variables), product(value.shape)
    atoms = [a for c in home.coordinates for a, _ in c.terms if isinstance(a, Remainder | Quotient)]
    if home.conditions:
        for atom in atoms if len(atoms) == 1 else ():
            if isinstance(atom, Remainder):
                yield from _within(atom, home.conditions)
    elif points != elements:
        for atom in atoms:
            least, most = atom.inner.bounds
            if isinstance(atom, Quotient) and points == elements * atom.divisor:
                rest = atom.inner % atom.divisor
                yield atom.inner, Condition(rest, dim(0), dim(1))
                return
            if least is None or most is None or isinstance(atom, Quotient):
                continue
            if points * atom.divisor == elements * (most - least + 1):
                yield atom.inner, Condition(atom.inner, least, least + atom.divisor)
                return
        if atoms:
            yield atoms[0].inner, None


def _within(atom: Remainder, conditions: Conditions) -> Iterable[tuple[Index, Condition]]:
    """Yield the first period of a remainder whose index a condition bounds."""
    for bound in conditions:
        offset = bound.position - atom.inner
        if offset.is_const and (bound.end - bound.low - atom.divisor).at_least(1):
            yield atom.inner, Condition(bound.position, bound.low, bound.low + atom.divisor)
            return
