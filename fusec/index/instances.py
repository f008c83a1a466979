"""Values at index maps: a kernel's computation as a DAG of instances, memoised by (value, map)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import inf

from fusec.dataclasses import dataclass
from fusec.diagnostics import Unsupported
from fusec.index.domain import Domain, stored_at
from fusec.index.movement import KEPT, pull, pull_elementwise
from fusec.ir.access import Condition, Conditions, Coordinates, needed
from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL, I32, I64, DType
from fusec.ir.expression import Index, Loaded, Var, contiguous_strides, index, linearize
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops import find_op
from fusec.ops.checks import CHECK_INDEX


@lru_cache(KEPT)
def _held(node: Node, value: Value, given: Const) -> bool | int | float | complex:
    """Return a constant as it is stored in a tensor of `value`'s type."""
    # NumPy costs more than planning a small fusion: only constants that fill tensors need it.
    import numpy as np

    from fusec.ir.evaluate import settle

    return settle(node, value, np.asarray(given.value)).item()


def _fits_index(start: Operand, step: Operand, length: Dim) -> bool:
    """Return whether the numbers of an iota are known to fit in a 32-bit index."""
    if not isinstance(start, Const) or not isinstance(step, Const):
        return False
    first, apart = int(start.value.real), int(step.value.real)
    if (first, apart) == (0, 1):
        return True
    if not length.is_const:
        return False
    return first in I32.integers and first + apart * length.value in I32.integers


@dataclass(frozen=True, eq=False)
class Instance:
    """A value at a map.

    kind: what the instance is.
        `load`: an element of an input (address, conditions).
        `op`: a node on operands.
        `reduced`: result number `result` of a reduction whose input is operands[0].
        `select`: operands[k] where branches[k] hold, else the last operand.
        `index`: an integer from the loop variables.
        `dim`: an integer from sizes.
        `constant`: a literal.
        `scalar`: a kernel parameter.
    gathered: the loaded integers in the address, conditions and branches, and what loads them (also
        operands).
    variables: the loop variables it depends on.
    depth: how many reductions lie before it.
    """

    kind: str
    dtype: DType
    name: str
    operands: tuple[Instance, ...] = ()
    value: Value | None = None
    node: Node | None = None
    result: int = 0
    address: Index | None = None
    conditions: Conditions = ()
    branches: tuple[Conditions, ...] = ()
    constant: bool | int | float | complex | None = None
    dim: Dim | None = None
    gathered: tuple[tuple[Loaded, Instance], ...] = ()
    variables: frozenset[Var] = frozenset()
    depth: int = 0


def instances_under(roots: Iterable[Instance]) -> list[Instance]:
    """Return the instances that roots are computed from, up to reductions, in a fixed order."""
    found: dict[Instance, None] = {}
    stack = list(roots)
    while stack:
        instance = stack.pop()
        if instance in found:
            continue
        found[instance] = None
        if instance.kind != "reduced":
            stack.extend(instance.operands)
    return list(found)


def reading_order(load: Instance) -> tuple[int, str, str]:
    """Return a key that sorts loads by name, those with gathered indices after their indices."""
    return _gathers(load), load.name, str(load.address)


def _gathers(instance: Instance) -> int:
    """Return the length of the chain of dependent loads before a value, 0 for a plain load."""
    deepest, seen = 0, dict[Instance, int]()
    stack = [(instance, 0)]
    while stack:
        each, above = stack.pop()
        if seen.get(each, -1) >= above:
            continue
        seen[each] = above
        deepest = max(deepest, above)
        stack += [(o, above + (each.kind == "load")) for o in each.operands]
    return deepest


Key = tuple[Value, Coordinates, Conditions]


class Lowering:
    """Creates instances of a segment on its domain, whose axes are bound to loop variables."""

    def __init__(
        self,
        fusion: Fusion,
        domain: Domain,
        binding: Mapping[Var, Index],
        most: float = inf,
        inside: frozenset[Var] = frozenset(),
    ) -> None:
        """Bind each axis of `domain` to an index in loop variables.

        inside: the loops in which overwritten inputs are read, at any position: outside of them run
        threads without an element, while others may already have stored theirs. The attribute has
        the loops of each such input; more may be added. most: average instances per node of the
        fusion above which Unsupported is raised; a node of many operands counts as the pairs of
        these.
        """
        self.fusion = fusion
        self.most = most * sum(max(1, len(n.operands) - 1) for n in fusion.nodes)
        self.inside = dict.fromkeys(fusion.effects.overwritten, inside)
        self.domain = domain
        self.binding = binding
        self.made: dict[Key, Instance] = {}
        self._homes: dict[Value, tuple[Coordinates, Conditions]] = {}
        self._bound: dict[Index, Index] = {}

    def home(self, value: Value) -> tuple[Coordinates, Conditions]:
        """Return a value's home coordinates and conditions in loop variables.

        In-place results are computed only where they are stored: other threads must not read there.
        """
        if value not in self._homes:
            home = self.domain.homes[value]
            at = tuple(map(self._bind, home.coordinates))
            in_place = value in self.fusion.effects.into
            where = (*home.conditions, *(self._once(value) if in_place else ()))
            self._homes[value] = (at, self.bind(where))
        return self._homes[value]

    def _once(self, value: Value, *, in_loop: bool = False) -> Conditions:
        """Return the condition that selects one of the points at which a value is equal."""
        points = stored_at(value, self.domain, reduced=in_loop)
        once = tuple(c for c in points.values() if c is not None)
        assert len(once) == len(points), f"`{value.name}` would be stored repeatedly"
        return once

    def stored_where(self, value: Value, *, in_loop: bool = False) -> Conditions:
        """Return the conditions under which exactly one point of the loops stores a value.

        in_loop: whether the store is inside the loops over reduced axes.
        """
        return needed(*self.home(value)[1], *self.bind(self._once(value, in_loop=in_loop)))

    def bind(self, conditions: Conditions) -> Conditions:
        """Return conditions in loop variables."""
        moved = (Condition(self._bind(c.position), c.low, c.end) for c in conditions)
        return needed(*moved)

    def _bind(self, at: Index) -> Index:
        """Return an index in loop variables, cached: many homes use few distinct indices."""
        bound = self._bound.get(at)
        if bound is None:
            bound = self._bound[at] = at.substitute(self.binding)
        return bound

    def at_home(self, value: Value) -> Instance:
        """Return a value at its home."""
        if value.is_scalar:
            return self.at(value, (), ())
        coordinates, conditions = self.home(value)
        return self.at(value, coordinates, conditions)

    def address(self, value: Value, strides: tuple[Dim, ...]) -> Index:
        """Return the address of a value's home with the given strides."""
        return linearize(self.home(value)[0], strides)

    def operand(self, operand: Operand, coordinates: Coordinates, where: Conditions) -> Instance:
        """Return an operand at coordinates."""
        if isinstance(operand, Const):
            return Instance("constant", operand.dtype, "", constant=operand.value)
        return self.at(operand, coordinates, where)

    def at(self, value: Value, coordinates: Coordinates, where: Conditions) -> Instance:
        """Return `value` at `coordinates`, needed only where the conditions hold.

        A value without dims is the same everywhere and always exists: it takes no conditions, so
        that it is computed once per kernel and not by each element of an arm.
        """
        where = where if coordinates else ()
        key = (value, coordinates, where)
        made = self.made.get(key)
        if made is None:
            if len(self.made) > self.most:
                message = f"`{value.name}` is read at too many index maps for one kernel"
                raise Unsupported(message, span=None)
            made = self.made[key] = self._make(value, coordinates, where)
        return made

    def _make(self, value: Value, at: Coordinates, where: Conditions) -> Instance:
        if value.dim is not None:
            return Instance("dim", value.dtype, value.name, value=value, dim=value.dim)
        if value.is_empty and not any(c.loaded for c in at):
            # No element exists: its placeholder must not be read ahead of an empty loop.
            return Instance(
                "constant", value.dtype, "", constant=False if value.dtype == BOOL else 0
            )
        node = self.fusion.producer.get(value)
        if node is None:
            return self._input(value, at, where)
        if node.op.family in ("pointwise", "random"):
            return self._op(node, value, at, where)
        if node.op.access is not None:
            return self._moved(node, value, at, where)
        if node.op.family == "reduction":
            return self._reduced(node, value, at)
        if node.op.family == "factory":
            filled = bool(node.op.extents)
            return self._filled(node, value) if filled else self._iota(node, value, at, where)
        raise Unsupported(f"`{node.op.name}` inside a memory-bound kernel", span=node.span)

    def _filled(self, node: Node, value: Value) -> Instance:
        """Return the single value of a filled tensor, converted to the tensor's type."""
        given = node.operands[0]
        if isinstance(given, Const):
            held = _held(node, value, given)
            return Instance("constant", value.dtype, "", constant=held)
        instance = self.at(given, (), ())
        if given.dtype == value.dtype:
            return instance
        cast = Node(find_op("cast"), (given,), {"dtype": value.dtype}, (value,))
        return Instance("op", value.dtype, value.name, (instance,), value=value, node=cast)

    def _input(self, value: Value, at: Coordinates, where: Conditions) -> Instance:
        if value.is_scalar:
            return Instance("scalar", value.dtype, value.name, value=value)
        address = linearize(at, self.fusion.input_of[value].strides)
        variables = address.variables.union(*(c.position.variables for c in where))
        variables |= self.inside.get(value.name, frozenset())
        gathered = self._gather(address, where)
        return Instance(
            "load",
            value.dtype,
            value.name,
            tuple(i for _, i in gathered),
            value=value,
            address=address,
            conditions=where,
            gathered=gathered,
            variables=variables,
            depth=max((i.depth for _, i in gathered), default=0),
        )

    def _gather(self, address: Index, where: Conditions) -> tuple[tuple[Loaded, Instance], ...]:
        """Return the loads of the integers in an address and in conditions."""
        return self._loads(address.loaded.union(*(c.position.loaded for c in where)), where)

    def _loads(
        self, atoms: Iterable[Loaded], where: Conditions
    ) -> tuple[tuple[Loaded, Instance], ...]:
        """Return the loads of some integers, under the conditions that are known before them."""
        loads: list[tuple[Loaded, Instance]] = []
        for atom in sorted(atoms, key=str):
            before = frozenset[Loaded]().union(*(c.loaded for c in atom.coordinates))
            known = tuple(c for c in where if c.position.loaded <= before)
            loads.append((atom, self.at(atom.tensor, atom.coordinates, known)))
        return tuple(loads)

    def _op(self, node: Node, value: Value, at: Coordinates, where: Conditions) -> Instance:
        operands = tuple(self.operand(o, pull_elementwise(o, at), where) for o in node.operands)
        if node.op.family == "random":
            operands = (*operands, self._position(value, at, where))
        if node.op is CHECK_INDEX:
            return self._checked(node, value, operands[0], where)
        return Instance(
            "op",
            value.dtype,
            value.name,
            operands,
            value=value,
            node=node,
            result=node.outputs.index(value),
            variables=frozenset[Var]().union(*(o.variables for o in operands)),
            depth=max((o.depth for o in operands), default=0),
        )

    def _checked(self, node: Node, value: Value, operand: Instance, where: Conditions) -> Instance:
        """Return an index that is checked only where it is needed: elsewhere it is arbitrary."""
        positions = [c.position for c in where]
        gathered = self._loads(frozenset[Loaded]().union(*(p.loaded for p in positions)), where)
        tested = (p.variables for p in positions)
        operands = (operand, *(i for _, i in gathered))
        return Instance(
            "op",
            value.dtype,
            value.name,
            operands,
            value=value,
            node=node,
            conditions=where,
            gathered=gathered,
            variables=frozenset[Var]().union(*(o.variables for o in operands), *tested),
            depth=max(o.depth for o in operands),
        )

    def _moved(self, node: Node, value: Value, at: Coordinates, where: Conditions) -> Instance:
        pulled = pull(node, at)
        if len(pulled.branches) == 1 and not pulled.branches[0].conditions:
            branch = pulled.branches[0]
            return self.operand(branch.operand, branch.coordinates, where)
        operands: list[Instance] = []
        branches: list[Conditions] = []
        for branch in pulled.branches:
            inside = needed(*where, *branch.conditions)
            operands.append(self.operand(branch.operand, branch.coordinates, inside))
            branches.append(branch.conditions)
        if pulled.fill is not None:
            rest = self.operand(pulled.fill, (), where)
        else:
            branches.pop()  # the last operand of a cat covers the rest
            rest = operands.pop()
        positions = [c.position for conditions in branches for c in conditions]
        gathered = self._loads(frozenset[Loaded]().union(*(p.loaded for p in positions)), where)
        operands += [*(i for _, i in gathered), rest]
        tested = (p.variables for p in positions)
        return Instance(
            "select",
            value.dtype,
            value.name,
            tuple(operands),
            value=value,
            branches=tuple(branches),
            gathered=gathered,
            variables=frozenset[Var]().union(*(o.variables for o in operands), *tested),
            depth=max(o.depth for o in operands),
        )

    def _reduced(self, node: Node, value: Value, at: Coordinates) -> Instance:
        if at != self.home(value)[0]:
            raise Unsupported(
                f"`{value.name}` is read at an index map other than its own inside one kernel",
                span=node.span,
            )
        tensor = self.at_home(node.inputs[0])
        return Instance(
            "reduced",
            value.dtype,
            value.name,
            (tensor,),
            value=value,
            node=node,
            result=node.outputs.index(value),
            variables=frozenset[Var]().union(*(c.variables for c in at)),
            depth=tensor.depth + 1,
        )

    def _position(self, value: Value, at: Coordinates, where: Conditions) -> Instance:
        """Return the row-major position of an element, which determines its random number."""
        position = linearize(at, contiguous_strides(value.shape))
        return self._integer(f"{value.name}_index", I64, position, where)

    def _iota(self, node: Node, value: Value, at: Coordinates, where: Conditions) -> Instance:
        start, step = node.operands[0], node.operands[1]
        if value.dtype.is_integer and _fits_index(start, step, value.shape[0]):
            assert isinstance(start, Const)
            assert isinstance(step, Const)
            position = at[0] * int(step.value.real) + index(int(start.value.real))
            return self._integer(value.name, value.dtype, position, where)
        operands = [self.operand(o, (), where) for o in (start, step)]
        position = self._integer(f"{value.name}_index", I64, at[0], where)
        return Instance(
            "op",
            value.dtype,
            value.name,
            (*operands, position),
            value=value,
            node=node,
            variables=position.variables,
            depth=position.depth,
        )

    def _integer(self, name: str, dtype: DType, position: Index, where: Conditions) -> Instance:
        """Return an integer from the loop variables, and from integers that are loaded."""
        gathered = self._loads(position.loaded, where)
        loads = tuple(i for _, i in gathered)
        return Instance(
            "index",
            dtype,
            name,
            loads,
            address=position,
            gathered=gathered,
            variables=position.variables.union(*(i.variables for i in loads)),
            depth=max((i.depth for i in loads), default=0),
        )
