"""The one iteration domain of a segment, and the home of every value on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from fusec.index.movement import pull, pull_elementwise, push
from fusec.ir.access import Condition, Conditions, Coordinates, needed
from fusec.ir.dim import dim, maximum, product
from fusec.ir.expression import Index, Quotient, Remainder, Var, index, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.recent import Recent

OF_ANOTHER_KIND = frozenset(
    {
        "computed", "concat", "contraction", "no column sums", "no reduction", "no transposition",
        "operation", "operations", "persistence", "reduction_axes", "scans", "scatters",
    }
)  # fmt: skip
"""Rules by which a scheduler says that a group is not of the kind that it takes."""


@dataclass(frozen=True)
class Refusal:
    """A rule that keeps something from being done, and why: a value, kept for `explain`."""

    rule: str
    because: str

    @property
    def is_near(self) -> bool:
        """Return whether a group of this kind is taken, and something about this one forbids it."""
        return self.rule not in OF_ANOTHER_KIND

    def __str__(self) -> str:
        return f"{self.rule}: {self.because}"


@dataclass(frozen=True)
class Home:
    """Where a value sits on the domain: coordinates at an iteration point, where conditions hold.

    `complete` says that the points reach every element of the value.
    """

    coordinates: Coordinates
    conditions: Conditions = ()
    complete: bool = True

    @property
    def variables(self) -> frozenset[Var]:
        """Return the axes on which the value depends."""
        found: frozenset[Var] = frozenset()
        for coordinate in self.coordinates:
            found |= coordinate.variables
        return found


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
"""Nodes that are looked at in search of a reference; of a large segment few values are tried."""
LEAST_TRIES = 4
_RECENT: Recent[Domain | Refusal] = Recent()


def find_domain(
    fusion: Fusion, reference: Value | None = None, siblings: Iterable[Value] = ()
) -> Domain | Refusal:
    """Return the domain of a segment, or why there is none.

    The reference is an input of a reduction if there is one, else an output, else any value: the
    first (largest first) from which every output and every reduction can be reached by index maps;
    or the given one, with `siblings`, values of its shape made where it is. The refusal
    is that of the likeliest reference.
    """
    if reference is not None:
        return _spread(fusion, reference, siblings)
    return _RECENT.of(fusion, None, lambda: _likeliest(fusion))


def _likeliest(fusion: Fusion) -> Domain | Refusal:
    """Return the domain of the first reference that has one, or why the likeliest has none."""
    refusal: Refusal | None = None
    tries = max(LEAST_TRIES, MOST_STEPS // max(1, len(fusion.nodes)))
    for reference in islice(_candidates(fusion), tries):
        found = _spread(fusion, reference)
        if isinstance(found, Domain):
            return found
        refusal = refusal or found
    return refusal or Refusal("domain", "the segment has no output")


def _candidates(fusion: Fusion) -> Iterable[Value]:
    def size(value: Value) -> int:
        return -product(value.shape).evaluate(fusion.hints)

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


def _spread(fusion: Fusion, reference: Value, siblings: Iterable[Value] = ()) -> Domain | Refusal:
    axes = tuple(Var(f"i{k}", extent) for k, extent in enumerate(reference.shape))
    own = Home(tuple(of_var(a) for a in axes))
    spread = _Spread(fusion, dict.fromkeys((reference, *siblings), own), axes)
    spread.run()
    for output in fusion.outputs:
        # An output of the reference's shape that no map reaches is a sibling on the same domain.
        update = fusion.effects.updates.get(output.value)
        value = output.value if update is None or update.source is None else update.source
        if value not in spread.homes and value.shape == reference.shape:
            spread.settle(value, Home(tuple(of_var(a) for a in axes)))
            spread.run()
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
                spread.trouble.get(node, f"`{node.output.name}` reduces another domain"),
            )
    domain = Domain(reference, axes, spread.homes, spread.reduced)
    for value in dict.fromkeys(o.value for o in fusion.outputs):
        if None in stored_at(value, domain, reduced=True).values():
            return Refusal("store_map", f"`{value.name}` would be stored repeatedly")
    places = [(v, a.extent) for v, a in repeated(fusion, domain)]
    for value in dict.fromkeys(o.value for o in fusion.outputs):
        # A value that is also broadcast to an empty one has its home in what that one is cut from.
        places += [(value, c.end - c.low) for c in domain.homes[value].conditions]
    for output, extent in places:
        if extent.evaluate(fusion.hints) <= 0 != product(output.shape).evaluate(fusion.hints):
            return Refusal("store_map", f"`{output.name}` has elements, the domain has none")
    return domain


def repeated(fusion: Fusion, domain: Domain) -> list[tuple[Value, Var]]:
    """Return the outputs that are the same along an axis that nothing reduces, and that axis.

    Where its extent is 0, nothing is iterated over and the output would not be written.
    """
    outputs = dict.fromkeys(o.value for o in fusion.outputs)
    return [(v, a) for v in outputs for a in _repeated_axes(v, domain)]


def _repeated_axes(value: Value, domain: Domain) -> list[Var]:
    kept = [a for a in domain.axes if a.extent != 1 and a not in domain.reduced_axes]
    return [a for a in kept if a not in domain.homes[value].variables]


def stored_once(fusion: Fusion, domain: Domain) -> dict[Value, dict[Var, Condition | None]]:
    """Return for each output what holds at one point along each axis along which it is the same."""
    return {o.value: stored_at(o.value, domain) for o in fusion.outputs}


def stored_at(
    value: Value, domain: Domain, *, reduced: bool = False
) -> dict[Var, Condition | None]:
    """Return what holds at one point along each axis along which a value is the same.

    It is stored at that point alone; None where no such point is known. Where a value is the same
    at every multiple of an extent, as one that is repeated, the condition is that of one multiple.
    reduced: along the axes that reductions reduce, too, as in the loops over these.
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
    """Yield the index whose remainder or quotient an output has more than once, and its condition.

    There is one where the home's axes have more points than the output has elements.
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


class _Spread:
    """Carries homes from value to value until nothing changes; complete homes first."""

    def __init__(self, fusion: Fusion, homes: dict[Value, Home], axes: tuple[Var, ...]) -> None:
        self.fusion = fusion
        self.axes = axes
        self.homes = homes
        self.reduced: dict[Node, frozenset[Var]] = {}
        self.trouble: dict[Node, str] = {}
        self.queue: deque[Value] = deque(homes)
        self.later: list[tuple[Value, Home]] = []

    def settle(self, value: Value, home: Home) -> None:
        """Give a value its home if it has none yet."""
        if value.is_scalar or value in self.homes:
            return
        if not home.complete:
            self.later.append((value, home))
            return
        self.homes[value] = home
        self.queue.append(value)

    def run(self) -> None:
        """Visit values until no home is left to give."""
        while self.queue or self.later:
            if not self.queue:
                value, home = self.later.pop(0)
                if value in self.homes:
                    continue
                self.homes[value] = home
                self.queue.append(value)
                continue
            value = self.queue.popleft()
            producer = self.fusion.producer.get(value)
            if producer is not None:
                self.pull(producer, value)
            for user in self.fusion.users.get(value, ()):
                self.push(user, value)

    def pull(self, node: Node, value: Value) -> None:
        """Give the operands of `node` homes from its result."""
        home = self.homes[value]
        if node.op.family == "pointwise":
            for operand in node.inputs:
                at = pull_elementwise(operand, home.coordinates)
                self.settle(operand, Home(at, home.conditions, home.complete))
            for sibling in node.outputs:
                self.settle(sibling, home)
        elif node.op.access is not None:
            partial = node.op.access.partial(node)
            for branch in pull(node, home.coordinates).branches:
                if isinstance(branch.operand, Value):
                    where = needed(*home.conditions, *branch.conditions)
                    complete = home.complete and not partial
                    self.settle(branch.operand, Home(branch.coordinates, where, complete))
        elif node.op.family == "reduction":
            for sibling in node.outputs:
                self.settle(sibling, home)
            self.align(node, home)

    def align(self, node: Node, home: Home) -> None:
        """Give a reduction's input, reached through its result, the axes that the result lacks."""
        tensor, dims = node.inputs[0], set(node.attributes["dims"])
        free = [a for a in self.axes if a not in home.variables and a.extent != 1]
        extents = [e for i, e in enumerate(tensor.shape) if i in dims and e != 1]
        if extents != [a.extent for a in free]:
            return
        kept, new = iter(home.coordinates), iter(free)
        at = tuple(
            (index(0) if e == 1 else of_var(next(new))) if i in dims else next(kept)
            for i, e in enumerate(tensor.shape)
        )
        self.settle(tensor, Home(at, home.conditions, home.complete))

    def push(self, node: Node, value: Value) -> None:
        """Give the results of `node` homes from one operand."""
        home = self.homes[value]
        if node.op.family == "pointwise":
            if value.shape == node.output.shape:
                for result in node.outputs:
                    self.settle(result, home)
        elif node.op.family == "reduction":
            self.reduce(node, home)
        elif node.op.access is not None:
            places = [k for k, o in enumerate(node.operands) if o is value]
            pushed = push(node, home.coordinates, places[0]) if len(places) == 1 else None
            if pushed is not None:
                where = needed(*home.conditions, *pushed.conditions)
                complete = home.complete and pushed.complete
                self.settle(node.output, Home(pushed.coordinates, where, complete))

    def reduce(self, node: Node, home: Home) -> None:
        """Give a reduction's results their home, if it reduces whole axes of the domain."""
        dims = set(node.attributes["dims"])
        kept = tuple(c for i, c in enumerate(home.coordinates) if i not in dims)
        gone = [c for i, c in enumerate(home.coordinates) if i in dims]
        kept_axes = frozenset[Var]().union(*(c.variables for c in kept))
        gone_axes = frozenset[Var]().union(*(c.variables for c in gone))
        all_axes = {a for a in self.axes if a.extent != 1}
        name = node.output.name
        if kept_axes & gone_axes:
            shared = ", ".join(sorted(a.name for a in kept_axes & gone_axes))
            self.trouble[node] = f"`{name}` both keeps and reduces parts of axis {shared}"
        elif not home.complete:
            self.trouble[node] = f"the domain does not cover all elements that `{name}` reduces"
        elif (kept_axes | gone_axes) < all_axes and not self._nested(node, kept_axes | gone_axes):
            self.trouble[node] = f"`{name}` reduces a value that does not span the domain"
        elif not home.conditions and product(
            e for i, e in enumerate(node.inputs[0].shape) if i in dims
        ) != product(a.extent for a in gone_axes):
            # The points reach every element, so where there are more of them, some reach it again.
            self.trouble[node] = f"the domain visits elements that `{name}` reduces more than once"
        else:
            self.reduced[node] = gone_axes
            for result in node.outputs:
                self.settle(result, Home(kept, home.conditions, home.complete))

    def _nested(self, node: Node, axes: frozenset[Var]) -> bool:
        """Return whether the input is itself the result of reducing the axes that it lacks."""
        missing = {a for a in self.axes if a.extent != 1 and a not in axes}
        seen: set[Value] = set()
        stack = [node.inputs[0]]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            producer = self.fusion.producer.get(value)
            if producer in self.reduced and missing <= self.reduced[producer]:
                return True
            if producer is not None and producer.op.family != "reduction":
                stack.extend(producer.inputs)
        return False
