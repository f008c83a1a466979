"""Splits a segment into rows with their sums, and the consumers of the column sums.

The main fusion holds everything that needs the rows; each set of reduced row axes has a separate
finish fusion, whose inputs are the column sums.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.index.domain import Domain
from fusec.index.instances import Lowering, instances_under
from fusec.ir.dim import Dim, product
from fusec.ir.expression import Index, Var, contiguous_strides, delinearize, linearize, of_var
from fusec.ir.graph import Fusion, Input, Node, Type, Value
from fusec.ops import TABLE
from fusec.ops.names import fresh_name
from fusec.schedule.problem import Problem
from fusec.schedule.rows.column_axes import Chosen, column_axes
from fusec.schedule.rows.domain import Nest, Rows, in_place_hazard, lowered
from fusec.segment.protocol import Refusal


@dataclass(frozen=True)
class Bands(Rows):
    """Rows of columns in groups.

    The axes in `outer` index the groups, the other kept axes the rows of a group. A group's rows
    are summed, so that a range of them has one partial sum per column.
    """

    outer: tuple[Var, ...]

    @property
    def inner(self) -> tuple[Var, ...]:
        """Return the axes of the rows of a group."""
        return self.kept[len(self.outer) :]

    @property
    def groups(self) -> Dim:
        """Return the number of groups."""
        return product(a.extent for a in self.outer)

    @property
    def height(self) -> Dim:
        """Return the rows of a group."""
        return product(a.extent for a in self.inner)

    @property
    def group(self) -> Var:
        """Return the loop variable of the groups."""
        return Var("group", self.groups)

    def variables(self, width: int, shifted: bool = False) -> tuple[Var, Var, Var]:
        """Return the loop variables row (of a group), chunk and lane for a vector width."""
        return Var("row", self.height), *self._vectors(width, shifted)

    def bind(self, width: int, shifted: bool = False) -> Mapping[Var, Index]:
        """Return the axes in loop variables."""
        return {
            **_places(self.outer, of_var(self.group)),
            **_places(self.inner, of_var(Var("row", self.height))),
            **_places(self.reduced, self._column(width, shifted)),
        }


def _places(axes: tuple[Var, ...], position: Index) -> dict[Var, Index]:
    return dict(zip(axes, delinearize(position, (a.extent for a in axes)), strict=True))


@dataclass(frozen=True)
class ColumnSet:
    """The reductions over one set of row axes.

    bands: its groups as rows of one height; sums: the column sum that replaces each reduction's
    result in `finish`, the fusion of its consumers.
    """

    nodes: tuple[Node, ...]
    bands: Bands
    sums: Mapping[Node, Value]
    finish: Fusion

    def lowering(self, domain: Domain) -> Lowering:
        """Return the lowering of the finish, one column at a time."""
        return Lowering(self.finish, domain, self.bands.bind(1))


@dataclass(frozen=True, eq=False)
class Split(Problem):
    """A segment (`fusion`) as its rows (`main`) and its column sets, the smallest set first.

    row_sums: the reductions along rows.
    """

    domain: Domain
    bands: Bands
    main: Fusion
    row_sums: tuple[Node, ...]
    sets: tuple[ColumnSet, ...]

    def loops(self, width: int) -> Nest:
        """Return the values in the loops over rows and vectors of a width, and their phases."""
        return *lowered(self.main, self.domain, self.bands, width), self.bands.variables(width)

    @property
    def column_nodes(self) -> tuple[Node, ...]:
        """Return the reductions over rows."""
        return tuple(n for each in self.sets for n in each.nodes)


def split_of(segment: Fusion) -> Split | Refusal:
    """Return the rows and column sets of a segment, or why it has none."""
    found = column_axes(segment)
    if isinstance(found, Refusal):
        return found
    fusion, domain, columns, chain = found
    every = tuple(_bands(domain, columns, chain, chosen) for chosen in chain)
    late = _late(fusion, domain, chain)
    if isinstance(late, Refusal):
        return late
    main = _main(fusion, domain, late)
    sets: list[ColumnSet] = []
    for number, bands in enumerate(every):
        made = _column_set(fusion, domain, bands, chain[number], late, number)
        if isinstance(made, Refusal):
            return made
        sets.append(made)
    inner = tuple(n for n in main.nodes if domain.reduced.get(n) == frozenset(columns))
    split = Split(segment, fusion, domain, every[0], main, inner, tuple(sets))
    return _why_illegal(split, columns) or split


def _bands(
    domain: Domain, columns: tuple[Var, ...], chain: tuple[Chosen, ...], chosen: Chosen
) -> Bands:
    """Return the rows with the axes of the smallest set innermost, grouped for `chosen`."""
    rows = [a for a in domain.axes if a.extent != 1 and a not in columns]
    rows.sort(key=lambda a: -next((k for k, s in enumerate(chain) if a in s), len(chain)))
    return Bands(tuple(rows), columns, tuple(a for a in rows if a not in chosen))


Late = Mapping[Value, int]


def _late(fusion: Fusion, domain: Domain, chain: tuple[Chosen, ...]) -> Late | Refusal:
    """Return the index of the column set that each value depends on, if it depends on one."""
    late: dict[Value, int] = {}
    for node in fusion.nodes:
        found = {late[v] for v in node.inputs if v in late}
        name = node.output.name
        if node in domain.reduced and found:
            return Refusal("column_sums", f"`{name}` reduces a value that depends on column sums")
        if domain.reduced.get(node) in chain:
            found = {chain.index(domain.reduced[node])}
        if len(found) > 1:
            return Refusal("column_sums", f"`{name}` needs the results of two column reductions")
        if found:
            late |= dict.fromkeys(node.outputs, next(iter(found)))
    return late


def _main(fusion: Fusion, domain: Domain, late: Late) -> Fusion:
    nodes = [n for n in fusion.nodes if n.output not in late or n in domain.reduced]
    outputs = tuple(o for o in fusion.outputs if o.value not in late)
    used = {v for n in nodes for v in n.inputs} | {o.value for o in outputs}
    inputs = fusion.effects.inputs_for(used, outputs)
    return replace(fusion, inputs=inputs, nodes=tuple(nodes), outputs=outputs)


def _column_set(
    fusion: Fusion, domain: Domain, bands: Bands, axes: Chosen, late: Late, number: int
) -> ColumnSet | Refusal:
    """Return a set's finish: the nodes that its outputs need, with its reductions as inputs."""
    outputs = tuple(o for o in fusion.outputs if late.get(o.value) == number)
    needed = {o.value for o in outputs}
    taken = fusion.names
    nodes: list[Node] = []
    sums: dict[Node, Value] = {}
    for node in reversed(fusion.nodes):
        if domain.reduced.get(node) == axes:
            total, cast = _total(node, taken)
            sums[node] = total
            nodes += cast
        elif needed & set(node.outputs):
            if node in domain.reduced:
                return Refusal(
                    "column_sums",
                    f"a value that depends on column sums also needs `{node.output.name}` per row",
                )
            nodes.append(node)
            needed |= set(node.inputs)
    inputs = fusion.effects.inputs_for(needed, outputs)
    inputs += tuple(Input(v, contiguous_strides(v.shape)) for v in sums.values())
    finish = replace(fusion, inputs=inputs, nodes=tuple(reversed(nodes)), outputs=outputs, pins=())
    return ColumnSet(tuple(reversed(sums)), bands, sums, finish)


def _total(node: Node, taken: set[str]) -> tuple[Value, list[Node]]:
    """Return the column sum of a reduction, and the cast to its result if that is 16 bits wide."""
    result = node.output
    wide = result.dtype.compute
    if wide == result.dtype:
        return result, []
    total = Value(fresh_name(taken, f"{result.name}_sum"), Type(wide, result.shape))
    return total, [Node(TABLE["cast"], (total,), {"dtype": result.dtype}, (result,), node.span)]


def _why_illegal(split: Split, columns: tuple[Var, ...]) -> Refusal | None:
    """Return why a split segment is not one pass over its rows and a finish per set, or None."""
    try:
        return _check_rows(split, columns) or _check_finish(split) or _check_aliases(split)
    except Unsupported as error:
        return Refusal("index_map", error.diagnostic.message)


def _check_rows(split: Split, columns: tuple[Var, ...]) -> Refusal | None:
    domain, main = split.domain, split.main
    lowering, phases, _ = split.loops(1)
    rows = frozenset(split.bands.kept)
    for node in (*split.row_sums, *split.column_nodes):
        home = domain.homes[node.inputs[0]]
        if not (rows | set(columns)) <= home.variables:
            return Refusal("domain", f"`{node.output.name}` reduces only a part of the domain")
        if home.conditions:
            return Refusal("conditions", f"`{node.output.name}` reads only a part of the domain")
        lowering.at_home(node.inputs[0])
    for output in main.outputs:
        found = domain.homes[output.value].variables
        if not rows <= found or (found & set(columns) and not found >= set(columns)):
            return Refusal("domain", f"`{output.value.name}` does not span rows or rows of columns")
        lowering.at_home(output.value)
    return in_place_hazard(main, lowering, phases=phases)


def _check_finish(split: Split) -> Refusal | None:
    for each in split.sets:
        lowering = each.lowering(split.domain)
        _, chunk, _ = each.bands.variables(1)
        bound = frozenset({each.bands.group, chunk})
        place = {
            total: linearize(lowering.home(node.output)[0], contiguous_strides(total.shape))
            for node, total in each.sums.items()
        }
        for output in each.finish.outputs:
            name = output.value.name
            home = split.domain.homes[output.value].variables
            if home != frozenset({*each.bands.outer, *each.bands.reduced}):
                return Refusal("column_sums", f"`{name}` has different axes than its column sums")
            for instance in instances_under([lowering.at_home(output.value)]):
                if not instance.variables <= bound:
                    return Refusal(
                        "column_sums", f"`{name}` needs the rows again after column sums"
                    )
                if instance.value in place and place[instance.value] != instance.address:
                    return Refusal("index_map", f"`{name}` reads a column sum at another index")
        # Each column is finished once.
        hazard = in_place_hazard(each.finish, lowering, once=True)
        if hazard is not None:
            return hazard
    return None


def _check_aliases(split: Split) -> Refusal | None:
    """Return a refusal if in-place results are read later, or concurrently by another set."""
    stages = [split.main, *(s.finish for s in split.sets)]
    for stage in stages:
        for other in stages[1:]:
            for given in other.inputs if other is not stage else ():
                if given.value.name in stage.effects.overwritten:
                    name = given.value.name
                    return Refusal("in_place", f"`{name}` is written before its last read")
    return None
