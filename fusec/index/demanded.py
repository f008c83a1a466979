"""Demanded elements: which elements of each value the outputs of a fusion need.

One analysis for everything that counts accesses: the cost of a segment, the lower bound on traffic,
the traffic of a partition, and the operations of a kernel. It goes backwards from the outputs
through each node's index map (`OpDef.access`), through intermediate values and through indices, at
hint sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from weakref import WeakKeyDictionary

from fusec.index.boxes import Box, Range, clipped, extent, scaled, volume, whole, without
from fusec.index.regions import By, Demanded, Region, demanded, elementwise, merged
from fusec.ir.access import Condition, Coordinates, Pulled
from fusec.ir.dim import Dim
from fusec.ir.effects import Update, update_by
from fusec.ir.expression import Index, Loaded, Quotient, Var, of_var
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.ops.communication import RANK_SLICE, stands_alone
from fusec.ops.movement.links import links_of
from fusec.properties import cached_property


class Demand:
    """The elements of each value that the outputs of a fusion need, at hint sizes."""

    def __init__(self, fusion: Fusion, roots: Iterable[Value] | None = None) -> None:
        """Take a fusion; roots: values that are needed whole (None: its outputs)."""
        self.fusion = fusion
        outputs = (o.value for o in fusion.outputs)
        self.roots = frozenset(outputs if roots is None else roots)
        self._known: dict[Value, Demanded] = {}
        self._shapes: dict[Value, tuple[int, ...]] = {}
        self._sizes = tuple(fusion.hints.items())

    def of(self, value: Value) -> Demanded:
        """Return the needed elements of a value."""
        # Users before their operands, without recursion: chains are long.
        stack = [value]
        while stack:
            seen = stack[-1]
            later = [
                v
                for user in self.fusion.users.get(seen, ())
                for v in user.outputs
                if v not in self._known
            ]
            if seen not in self._known and later and seen not in self.roots:
                stack += later
                continue
            stack.pop()
            if seen not in self._known:
                self._known[seen] = demanded(self._regions(seen), self.shape(seen))
        return self._known[value]

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return a value's extents at hint sizes; () of a scalar."""
        if value not in self._shapes:
            hints = self.fusion.hints
            self._shapes[value] = tuple(e.evaluate(hints) for e in value.shape)
        return self._shapes[value]

    def _regions(self, value: Value) -> frozenset[Region]:
        if value in self.roots:
            return frozenset({Region(whole(self.shape(value)))})
        found: set[Region] = set()
        for user in self.fusion.users.get(value, ()):
            if user.op.family != "scalar":
                found |= {r for r in self.through(user, value) if r.count}
        return merged(found)

    def of_user(self, user: Node, value: Value) -> Demanded:
        """Return the elements of a value that one of its users needs for its own needed results."""
        return demanded(merged(self.through(user, value)), self.shape(value))

    def through(self, user: Node, value: Value) -> set[Region]:
        """Return the regions of a value that one of its users needs for its own needed results."""
        results = [self.of(v) for v in user.outputs]
        if not any(d.regions for d in results):
            return set()
        update = self._in_place.get(user)
        if update is not None and value is user.operands[0]:
            return self._updated(update, value)
        return self._operand(user, value, results)

    def _operand(self, user: Node, value: Value, demanded: list[Demanded]) -> set[Region]:
        """Return the regions of an operand that some elements of a node's results need."""
        if len(user.outputs) == 1 and not stands_alone(user):
            if user.op.family == "pointwise":
                shape = self.shape(value)
                return {elementwise(r, shape) for r in demanded[0].regions}
            if user.op.access is not None:
                return {m for r in demanded[0].regions for m in self._moved(user, r, value)}
        return self._counted(user, value, demanded)

    @cached_property
    def _in_place(self) -> Mapping[Node, Update]:
        """Return the nodes that update some elements of an input in place."""
        return {update.node: update for update in self.fusion.effects.changes.values()}

    def _updated(self, update: Update, value: Value) -> set[Region]:
        """Return what an update in place reads of the updated tensor, and what its readers read."""
        result = update.node.output
        others = (u for u in self.fusion.users.get(result, ()) if not u.op.copies)
        regions = {r for user in others for r in self.through(user, result) if r.count}
        behind = Demanded(frozenset(regions), self.shape(result))
        found = self._operand(update.node, value, [behind]) if regions else set[Region]()
        if update.reads:
            found.add(self._some(value, self._changed(update)))
        return found

    def _changed(self, update: Update) -> int:
        """Return how many elements an update writes."""
        return prod(e.evaluate(self.fusion.hints) for e in update.written)

    def _some(self, value: Value, count: int) -> Region:
        """Return any `count` elements of a value."""
        shape = self.shape(value)
        dims = frozenset(range(len(shape)))
        return Region(whole(shape), dims, count, by=By.COUNT) if dims else Region(())

    def _counted(self, user: Node, value: Value, demanded: list[Demanded]) -> set[Region]:
        """Return the needs without an index map: all elements at most, and a certain part."""
        shape = self.shape(value)
        everything = Region(whole(shape), sure=False)
        results = [(d.least, prod(d.shape)) for d in demanded]
        complete = any(least == size for least, size in results)
        if user.op is RANK_SLICE:
            sure = results[0][0]
        elif user.op.family in ("reduction", "contraction", "scan", "sort"):
            linked = self._linked(user, value, demanded)
            if linked is not None:
                return {everything, *linked}
            # Each element of the operand contributes to equally many results.
            sure = max(prod(shape) * least // max(1, size) for least, size in results)
        elif user.op.family == "scatter":
            return self._scattered(user, value, demanded[0], everything)
        else:
            sure = prod(shape) if complete else 1
        if sure >= prod(shape):
            return {Region(whole(shape))}
        return {everything, self._some(value, sure)}

    def _linked(self, user: Node, value: Value, demanded: list[Demanded]) -> set[Region] | None:
        """Return the certain needs of an operand that occurs once, by aligned axes."""
        if user.operands.count(value) != 1:
            return None
        shape, place = self.shape(value), user.operands.index(value)
        shapes = [self.shape(o) if isinstance(o, Value) else () for o in user.operands]
        links = links_of(user, user.attributes, shapes, demanded[0].shape)
        if not links.same and not links.summed:
            return None
        axes = {axis: result for operand, axis, result in links.same if operand == place}
        found: set[Region] = set()
        for region in (r for d in demanded for r in d.regions):
            box = tuple(
                region.box[axes[k]] if k in axes else (0, e, 1) for k, e in enumerate(shape)
            )
            if user.op.family == "scan":
                along = user.attributes["dim"]
                if region.box[along] != (0, shape[along], 1):
                    return None
            kept = {k for k, axis in axes.items() if axis in region.picked}
            sure = region.sure and len(kept) == len(region.picked)
            places = region.places if kept else 1
            found.add(Region(box, frozenset(kept), places, sure, region.by))
        return found

    def _scattered(
        self, user: Node, value: Value, needed: Demanded, everything: Region
    ) -> set[Region]:
        """Return the needs of a scatter that does not update its operand in place."""
        update, lookup = update_by(user, value), user.op.lookup
        if update is not None:
            overwritten = 0 if update.reads else self._changed(update)
            return {everything, self._some(value, max(0, needed.least - overwritten))}
        index = None if lookup is None else user.operands[lookup.index]
        if value is index or needed.least == prod(needed.shape):
            return {Region(everything.box)}
        return {everything, self._some(value, 1)}

    def _moved(self, user: Node, region: Region, value: Value) -> frozenset[Region]:
        """Return the regions of a value that a movement or an indexing operation reads.

        Groups of the same nodes need the same regions: results are cached with the node.
        """
        known = _MOVED.setdefault(user, {})
        key = region, value, self._sizes
        if key not in known:
            known[key] = frozenset(self._find_moved(user, region, value))
        return known[key]

    def _find_moved(self, user: Node, region: Region, value: Value) -> set[Region]:
        found: set[Region] = set()
        rest = [region.box]
        for branch in _pulled(user).branches:
            inside, outside, exact = self._split(rest, branch.conditions, region.picked)
            rest = outside
            for box in inside:
                sure = region.sure and exact
                part = Region(box, region.picked, region.picks, sure, region.by)
                found |= self._read(branch.operand, branch.coordinates, part, value)
                for loaded in {a for c in branch.coordinates for a in c.loaded}:
                    found |= self._read(loaded.tensor, loaded.coordinates, part, value)
        return found

    def _split(
        self, boxes: list[Box], conditions: Iterable[Condition], picked: frozenset[int]
    ) -> tuple[list[Box], list[Box], bool]:
        """Return boxes where all conditions hold, other boxes, and whether they are exact.

        They are not exact if positions that an index picks may be in either.
        """
        inside, outside, exact = boxes, list[Box](), True
        for condition in conditions:
            axis, by, offset = self._along(condition.position)
            if axis is None or abs(by) != 1:
                exact = False
                outside += inside
                continue
            low, end = (
                d.evaluate(self.fusion.hints) - offset for d in (condition.low, condition.end)
            )
            if by < 0:
                low, end = 1 - end, 1 - low
            exact = exact and axis not in picked
            held: list[Box] = []
            for box in inside:
                part = clipped(box[axis], low, end)
                bounds = tuple(
                    (low, end, 1) if k == axis else (-(1 << 62), 1 << 62, 1)
                    for k in range(len(box))
                )
                if extent(part):
                    held.append((*box[:axis], part, *box[axis + 1 :]))
                outside += without(box, bounds)
            inside = held
        return inside, outside, exact

    def _along(self, position: Index) -> tuple[int | None, int, int]:
        """Return (result dim, factor, offset) of a position along one dim; no dim: several."""
        offset = position.constant.evaluate(self.fusion.hints)
        if len(position.terms) != 1 or not isinstance(position.terms[0][0], Var):
            return None, 0, offset
        variable, factor = position.terms[0]
        assert isinstance(variable, Var)
        return _axis(variable), factor.evaluate(self.fusion.hints), offset

    def _read(
        self, operand: Operand, coordinates: Coordinates, region: Region, value: Value
    ) -> set[Region]:
        """Return the regions of a value that are read at coordinates computed from a region's."""
        if operand is not value or not region.count:
            return set()
        ranges: list[Range] = []
        loaded, mixed, plain = set[int](), set[int](), set[int]()
        axes = [frozenset(_axis(v) for v in position.variables) for position in coordinates]
        for dim, position in enumerate(coordinates):
            axis, by, offset = self._along(position)
            if position.loaded:
                loaded.add(dim)
                ranges.append((0, self.shape(value)[dim], 1))
            elif not position.terms:
                ranges.append((offset, offset + 1, 1))
            elif axis is not None:
                plain.add(dim)
                ranges.append(scaled(region.box[axis], by, offset))
            else:
                mixed.add(dim)
                ranges.append((*self._interval(position, region.box), 1))
        box = tuple(clipped(r, 0, e) for r, e in zip(ranges, self.shape(value), strict=True))
        direct = _joined(axes, plain)
        used = _joined(axes, plain | mixed | loaded)
        steps = prod(extent(region.box[a]) for a in _joined(axes, mixed))
        if region.picked.isdisjoint(_joined(axes, mixed)) and steps == volume(
            tuple(box[d] for d in mixed)
        ):
            mixed.clear()  # the map is one to one: it covers the whole box
        inner = _joined(axes, mixed | loaded) - direct - region.picked
        picked = loaded | mixed | {d for d in plain if axes[d] & region.picked}
        if not picked:
            return {Region(box, sure=region.sure)}
        picks, sure = prod(extent(region.box[a]) for a in inner), region.sure
        by = By.INDEX if loaded else By.MAP
        if region.picked & used:
            picks, by = picks * region.places, by if loaded else region.by
            sure = sure and region.picked <= used
        return {Region(box, frozenset(picked), picks, sure, by)}

    def _interval(self, position: Index, box: Box) -> tuple[int, int]:
        """Return bounds (low, end) of a position over the points of a box."""
        hints = self.fusion.hints
        low = high = position.constant.evaluate(hints)
        for atom, factor in position.terms:
            by = factor.evaluate(hints)
            if isinstance(atom, Var):
                start, _, step = box[_axis(atom)]
                ends = start, start + (extent(box[_axis(atom)]) - 1) * step
            elif isinstance(atom, Loaded):
                ends = 0, max(0, atom.extent.evaluate(hints) - 1)
            else:
                ends = self._divided(
                    self._interval(atom.inner, box), atom.divisor, isinstance(atom, Quotient)
                )
            moved = sorted(by * e for e in ends)
            low, high = low + moved[0], high + moved[1]
        return low, high + 1

    def _divided(self, inner: tuple[int, int], divisor: Dim, quotient: bool) -> tuple[int, int]:
        low, high = inner[0], inner[1] - 1
        by = max(1, divisor.evaluate(self.fusion.hints))
        if quotient:
            return low // by, high // by
        return (low % by, high % by) if low // by == high // by else (0, by - 1)


def _joined(axes: list[frozenset[int]], dims: set[int]) -> frozenset[int]:
    """Return the result's dims that the positions along some dims depend on."""
    return frozenset[int]().union(*(axes[d] for d in dims))


def _axis(variable: Var) -> int:
    return int(variable.name)


_PULLED: WeakKeyDictionary[Node, Pulled] = WeakKeyDictionary()
_MOVED: WeakKeyDictionary[
    Node, dict[tuple[Region, Value, tuple[tuple[str, int], ...]], frozenset[Region]]
] = WeakKeyDictionary()


def _pulled(node: Node) -> Pulled:
    """Return the reads of a node's result, at coordinates named by their dim."""
    found = _PULLED.get(node)
    if found is None:
        at = tuple(of_var(Var(str(k), e)) for k, e in enumerate(node.output.shape))
        assert node.op.access is not None
        found = _PULLED[node] = node.op.access.pull(node, at)
    return found


_DEMANDS = IdentityCache[Demand]()


def demand(fusion: Fusion) -> Demand:
    """Return the needs of a fusion's outputs, computed once per fusion."""
    return _DEMANDS.of(fusion, "outputs", lambda: Demand(fusion))
