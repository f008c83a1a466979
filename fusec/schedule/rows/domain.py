"""Rows of a domain: kept axes form the rows, reduced axes the columns; the reads of each phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic

from fusec.dataclasses import dataclass, field
from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain, repeated
from fusec.index.instances import Instance, Lowering, instances_under, reading_order
from fusec.ir.access import Condition, Conditions, needed
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.effects import Touch, conflict
from fusec.ir.expression import Index, Var, delinearize, linearize, of_var
from fusec.ir.graph import Fusion, Node
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.plan import P, Plan, R, Staged
from fusec.schedule.registers import most_elements, words
from fusec.segment.limits import MOST_MAPS
from fusec.segment.protocol import Refusal


@dataclass(frozen=True)
class Rows:
    """A domain seen as rows of columns."""

    kept: tuple[Var, ...]
    reduced: tuple[Var, ...]

    @property
    def rows(self) -> Dim:
        """Return the number of rows."""
        return product(a.extent for a in self.kept)

    @property
    def columns(self) -> Dim:
        """Return the number of columns."""
        return product(a.extent for a in self.reduced)

    def along(self, *, inner: bool) -> Rows:
        """Return these rows if their columns are contiguous, else with rows and columns swapped."""
        return self if inner else Rows(self.reduced, self.kept)

    def variables(self, width: int, shifted: bool = False) -> tuple[Var, Var, Var]:
        """Return the loop variables row, chunk and lane for vectors of `width` columns.

        shifted: the chunk is the first column of a vector, at any position.
        """
        return Var("row", self.rows), *self._vectors(width, shifted)

    def bind(self, width: int, shifted: bool = False) -> Mapping[Var, Index]:
        """Return the axes in loop variables."""
        at_row = delinearize(of_var(Var("row", self.rows)), (a.extent for a in self.kept))
        at_column = delinearize(self._column(width, shifted), (a.extent for a in self.reduced))
        return {
            **dict(zip(self.kept, at_row, strict=True)),
            **dict(zip(self.reduced, at_column, strict=True)),
        }

    def _vectors(self, width: int, shifted: bool) -> tuple[Var, Var]:
        chunks = self.columns if shifted else ceildiv(self.columns, width)
        return Var("chunk", chunks), Var("v", dim(width))

    def _column(self, width: int, shifted: bool) -> Index:
        chunk, lane = self._vectors(width, shifted)
        return of_var(chunk) * (1 if shifted else width) + of_var(lane)


def rows_of(domain: Domain) -> Rows | Refusal:
    """Return the rows of a domain whose reductions all reduce the same axes."""
    sets = set(domain.reduced.values())
    if not sets:
        return Refusal("no reduction", "nothing is reduced")
    if len(sets) > 1:
        names = " and ".join(sorted("{" + ", ".join(sorted(a.name for a in s)) + "}" for s in sets))
        return Refusal("reduction_axes", f"the reductions reduce different axes: {names}")
    chosen = sets.pop()
    axes = [a for a in domain.axes if a.extent != 1]
    return Rows(tuple(a for a in axes if a not in chosen), tuple(a for a in axes if a in chosen))


@dataclass(frozen=True)
class Phases:
    """The elementwise work of a kernel by reduction depth.

    reductions: the nodes whose input has that depth; loads: for each phase the loads that it reads
    in the element loop; computed: the other values that it computes there; cached: loads that more
    than one phase reads; kept: computed values that stay on chip from the given phase on, because a
    later one needs them and they are expensive to compute.
    """

    count: int
    reductions: tuple[tuple[Node, ...], ...]
    loads: tuple[frozenset[Instance], ...]
    computed: tuple[frozenset[Instance], ...]
    kept: tuple[tuple[Instance, int], ...] = ()

    @property
    def repeated(self) -> tuple[float, float]:
        """Return the work per element that later phases repeat: operations, special functions."""
        done = [i.node.op.cost for each in self.computed for i in each if i.node is not None]
        once = frozenset[Instance]().union(*self.computed)
        costs = [i.node.op.cost for i in once if i.node is not None]
        flops = sum(c.flops for c in done) - sum(c.flops for c in costs)
        return flops, sum(c.sfu for c in done) - sum(c.sfu for c in costs)

    @property
    def rereadings(self) -> int:
        """Return how often everything is loaded again if no load stays on chip."""
        return sum(len(p) > 0 for p in self.loads[1:]) if self.cached else 0

    @property
    def cached(self) -> tuple[Instance, ...]:
        """Return the loads that more than one phase reads, in the order of loading."""
        seen = [i for phase in self.loads for i in phase]
        again = {i for i in seen if seen.count(i) > 1}
        return tuple(sorted(again, key=reading_order))


Nest = tuple[Lowering, Phases, tuple[Var, Var, Var]]
"""The loops over rows and vectors: the values in them, their phases, and row, chunk and lane."""


@dataclass(frozen=True)
class PhasedPlan(Plan[P, R], Generic[P, R]):
    """A plan of a kernel in phases.

    loops: the loop variables row, chunk and lane; lowering: the values in these loops; phases: what
    each computes; staged: the loads that stay on chip between phases, in the order of their
    addresses in shared memory.
    """

    loops: tuple[Var, Var, Var] = field(kw_only=True, compare=False, repr=False)
    lowering: Lowering = field(kw_only=True, compare=False, repr=False)
    phases: Phases = field(kw_only=True, compare=False, repr=False)
    staged: tuple[Staged, ...] = field(kw_only=True, compare=False, repr=False)


_CACHE: IdentityCache[tuple[Lowering, Phases]] = IdentityCache()


def phases_of(
    fusion: Fusion, lowering: Lowering, inner: Iterable[Var], *, keep: bool = False
) -> Phases:
    """Return the phases of a segment; `inner` are the variables of the element loop.

    `keep`: whether values of special functions stay on chip between phases.
    """
    columns = frozenset(inner)
    roots: dict[int, list[Instance]] = {}
    reductions: dict[int, list[Node]] = {}
    for node in fusion.nodes:
        if node.op.family == "reduction":
            tensor = lowering.at_home(node.inputs[0])
            roots.setdefault(tensor.depth, []).append(tensor)
            reductions.setdefault(tensor.depth, []).append(node)
    for output in fusion.outputs:
        instance = lowering.at_home(output.value)
        roots.setdefault(instance.depth, []).append(instance)
    count = max(roots, default=0) + 1
    kept = _expensive_values([roots.get(p, []) for p in range(count)], columns) if keep else {}
    loads: list[frozenset[Instance]] = []
    computed: list[frozenset[Instance]] = []
    for phase in range(count):
        known = {i for i, first in kept.items() if first < phase}
        reached = _elements(roots.get(phase, ()), columns, known)
        loads.append(frozenset(i for i in reached if i.kind == "load"))
        computed.append(frozenset(reached) - loads[-1])
    return Phases(
        count,
        tuple(tuple(reductions.get(p, ())) for p in range(count)),
        tuple(loads),
        tuple(computed),
        tuple(kept.items()),
    )


def lowered(
    fusion: Fusion, domain: Domain, rows: Rows, width: int, shifted: bool = False
) -> tuple[Lowering, Phases]:
    """Return the values in the loops over rows, with vectors of a width, and their phases."""

    def found() -> tuple[Lowering, Phases]:
        lowering = Lowering(fusion, domain, rows.bind(width, shifted), MOST_MAPS)
        return lowering, phases_of(fusion, lowering, rows.variables(width, shifted)[1:])

    return _CACHE.of(fusion, (id(domain), rows, width, shifted), found)


def _expensive_values(roots: list[list[Instance]], columns: frozenset[Var]) -> dict[Instance, int]:
    """Return the values to keep for later phases, and the first phase of each.

    These are special-function values that several phases read or, if they take no more words,
    values computed from them in the first phase and read by the others.
    """
    elements = [_elements(each, columns, set()) for each in roots]
    again = _read_again(elements)
    kept: dict[Instance, int] = {}
    for phase in sorted(set(again.values())):
        expensive = {i for i, first in again.items() if first == phase}
        made = _made_of(expensive, phase, roots, elements)
        fewer = _words(made) <= _words(expensive)
        kept.update(dict.fromkeys(made if fewer else expensive, phase))
    return dict(sorted(kept.items(), key=lambda item: (item[1], item[0].name)))


def _made_of(
    expensive: set[Instance], phase: int, roots: list[list[Instance]], elements: list[set[Instance]]
) -> set[Instance]:
    """Return the values that a phase computes from expensive ones for later phases only."""
    shared: set[Instance] = elements[phase]
    later = set[Instance]().union(*elements[phase + 1 :])
    read = {i for each in roots[phase + 1 :] for i in each}
    read.update(o for i in later - shared for o in i.operands)
    return {i for i in read & shared if expensive & set(instances_under([i]))}


def _words(values: Iterable[Instance]) -> int:
    return sum(words(i.dtype.compute) for i in values)


def _read_again(elements: list[set[Instance]]) -> dict[Instance, int]:
    """Return the special-function values that several phases read, and the first phase of each."""
    first: dict[Instance, int] = {}
    again: dict[Instance, int] = {}
    for phase, each in enumerate(elements):
        for instance in each:
            if instance.kind != "op" or not _is_expensive(instance):
                continue
            if instance in first:
                again[instance] = first[instance]
            first.setdefault(instance, phase)
    return again


def _elements(
    roots: Iterable[Instance], columns: frozenset[Var], known: set[Instance]
) -> set[Instance]:
    """Return what the element loop computes for `roots`, except already computed values."""
    found: set[Instance] = set()
    stack = list(roots)
    while stack:
        instance = stack.pop()
        element = bool(instance.variables & columns) and instance.kind != "reduced"
        if element and instance not in found and instance not in known:
            found.add(instance)
            stack.extend(instance.operands)
    return found


def vector_width(
    fusion: Fusion, domain: Domain, rows: Rows, facts: Facts, *, stores: bool = True
) -> int:
    """Return the widest vector that divides the row length and makes all large accesses whole.

    `stores`: whether large stores must be whole vectors, too.
    """
    tensors = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs]
    smallest = min((v.dtype.size for v in tensors if v.shape), default=4)
    most = min(16 // smallest, most_elements(fusion))
    for width in (16, 8, 4, 2):
        if width > most or not facts.multiple(rows.columns, width):
            continue
        if _all_vector(fusion, domain, rows, width, facts, stores):
            return width
    return 1


def _all_vector(
    fusion: Fusion, domain: Domain, rows: Rows, width: int, facts: Facts, stores: bool
) -> bool:
    lowering, phases, binding = _in_vectors(fusion, domain, rows, width)
    _, _, lane = rows.variables(width)
    loads = {i for p in phases.loads for i in p}
    large = max((_size(fusion, i) for i in loads), default=0)
    effects = fusion.effects
    for load in loads:
        assert load.address is not None
        address, conditions = _bound(load.address, load.conditions, binding)
        kind = access_class(address, conditions, lane, width, facts)
        # Overwritten data must stay on chip, and only whole vectors do.
        if kind == "scalar" and (
            load.name in effects.overwritten or 4 * _size(fusion, load) >= large
        ):
            return False
    for output in fusion.outputs if stores else ():
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, effects.strides(output.value))
        address, conditions = _bound(address, conditions, binding)
        size = product(output.value.shape).evaluate(fusion.hints) * output.value.dtype.size
        small = 4 * size < large
        if access_class(address, conditions, lane, width, facts) == "scalar" and not small:
            return False
    return True


def _in_vectors(
    fusion: Fusion, domain: Domain, rows: Rows, width: int
) -> tuple[Lowering, Phases, Mapping[Var, Index]]:
    """Return values in the loops over rows, their phases, and the binding of these to vectors.

    With a constant number of columns the loops are over single columns for all widths: addresses
    are the same once the column is bound.
    """
    if not rows.columns.is_const:
        return *lowered(fusion, domain, rows, width), {}
    _, chunk, _ = rows.variables(1)
    _, vector, lane = rows.variables(width)
    binding = {chunk: of_var(vector) * width + of_var(lane)}
    return *lowered(fusion, domain, rows, 1), binding


def _bound(
    address: Index, conditions: Conditions, binding: Mapping[Var, Index]
) -> tuple[Index, Conditions]:
    """Return an address and conditions with loop variables bound."""
    moved = (Condition(c.position.substitute(binding), c.low, c.end) for c in conditions)
    return address.substitute(binding), needed(*moved)


def _size(fusion: Fusion, load: Instance) -> int:
    assert load.value is not None
    return product(load.value.shape).evaluate(fusion.hints) * load.dtype.size


def in_place_hazard(
    fusion: Fusion,
    lowering: Lowering,
    *,
    phases: Phases | None = None,
    on_chip: bool = True,
    once: bool = False,
    by_all: bool = False,
) -> Refusal | None:
    """Return a refusal if a buffer written in place is read at another map than the store's.

    Nor may it be read if several threads write the same value to an address that others read,
    unless the caller guarantees that it is written `once`. Nor in a phase after the one that writes
    it: `phases`, if there are more than one; `on_chip`: loads of one phase are not loaded again
    later. by_all: whether all threads that share a reduction read its result's users, not only the
    one that stores that.
    """
    alike = {value for value, _ in repeated(fusion, lowering.domain)}
    axes = {a for a in lowering.domain.reduced_axes if a.extent != 1}
    effects = fusion.effects
    for output in effects.in_place:
        across = axes - lowering.domain.homes[output.value].variables
        if across and (by_all or not lowering.at_home(output.value).depth):
            # In the loop over reduced elements it is written each time.
            alike.add(output.value)
        home = lowering.domain.homes[output.value]
        points = product(a.extent for a in home.variables).evaluate(fusion.hints)
        if not home.conditions and points > product(output.value.shape).evaluate(fusion.hints):
            because = f"`{output.value.name}` would be written in place more than once"
            return Refusal("in_place", because)
        phase = lowering.at_home(output.value).depth
        target, where = effects.buffer(output.value), effects.strides(output.value)
        store = Touch(target, lowering.address(output.value, where), phase)
        loads = [Touch(i.name, i.address) for i in lowering.made.values() if i.kind == "load"]
        late = _read_after(fusion, lowering, phase) if not on_chip else set[str]()
        if on_chip and phases is not None:
            late = _loaded_after(phases, phase)
        again = [Touch(name, store.where, phase + 1) for name in late]
        if conflict(store, loads) is not None:
            because = f"`{target}` is written in place but also read at another index"
            return Refusal("in_place", because)
        if not once and output.value in alike and any(i.buffer == target for i in loads):
            because = f"`{target}` is read while other threads write it"
            return Refusal("in_place", because)
        if conflict(store, again) is not None:
            because = f"`{target}` is written in place and read again after a reduction"
            return Refusal("in_place", because)
    return None


def _loaded_after(phases: Phases, phase: int) -> set[str]:
    """Return the names of the buffers that are first loaded after a given phase."""
    known = frozenset[Instance]().union(*phases.loads[: phase + 1])
    return {i.name for loads in phases.loads[phase + 1 :] for i in loads - known}


def _read_after(fusion: Fusion, lowering: Lowering, phase: int) -> set[str]:
    """Return the names of the buffers that phases after a given one load from."""
    values = [o.value for o in fusion.outputs]
    values += [n.inputs[0] for n in fusion.nodes if n.op.family == "reduction"]
    roots = [i for v in values if (i := lowering.at_home(v)).depth > phase]
    return {i.name for i in instances_under(roots) if i.kind == "load"}


def _is_expensive(instance: Instance) -> bool:
    """Return whether recomputing a value costs more than keeping it in a register."""
    assert instance.node is not None
    cost = instance.node.op.cost
    return cost.sfu > 0 or cost.flops >= 16
