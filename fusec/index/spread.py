"""Homes of values on a domain: carried from value to value by index maps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.index.movement import pull, pull_elementwise, push
from fusec.ir.access import Conditions, Coordinates, needed
from fusec.ir.dim import product
from fusec.ir.expression import Var, index, of_var
from fusec.ir.graph import Fusion, Node, Value


@dataclass(frozen=True)
class Home:
    """The position of a value on the domain: coordinates at an iteration point, under conditions.

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


class Spread:
    """Carries homes from value to value until nothing changes; complete homes first."""

    def __init__(self, fusion: Fusion, values: Iterable[Value], axes: tuple[Var, ...]) -> None:
        self.fusion = fusion
        self.axes = axes
        self.own = Home(tuple(of_var(a) for a in axes))
        self.homes: dict[Value, Home] = dict.fromkeys(values, self.own)
        self.reduced: dict[Node, frozenset[Var]] = {}
        self.refusals: dict[Node, str] = {}
        self.queue: deque[Value] = deque(self.homes)
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
        """Visit values until no home is left to assign."""
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
                if operand in self.homes or operand.is_scalar:
                    continue
                at = pull_elementwise(operand, home.coordinates)
                same = at is home.coordinates
                self.settle(operand, home if same else Home(at, home.conditions, home.complete))
            for sibling in node.outputs:
                self.settle(sibling, home)
        elif node.op.access is not None:
            if all(v in self.homes or v.is_scalar for v in node.inputs):
                return
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
        elif node.op.access is not None and node.output not in self.homes:
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
            self.refusals[node] = f"`{name}` both keeps and reduces parts of axis {shared}"
        elif not home.complete:
            self.refusals[node] = f"the domain does not cover all elements that `{name}` reduces"
        elif (kept_axes | gone_axes) < all_axes and not self._nested(node, kept_axes | gone_axes):
            self.refusals[node] = f"`{name}` reduces a value that does not span the domain"
        elif not home.conditions and product(
            e for i, e in enumerate(node.inputs[0].shape) if i in dims
        ) != product(a.extent for a in gone_axes):
            # The points reach every element, so if there are more of them, some reach it again.
            self.refusals[node] = f"the domain visits elements that `{name}` reduces more than once"
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
