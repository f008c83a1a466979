"""A segment around its scatter: lines of elements whose destinations may collide."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain
from fusec.index.instances import Lowering
from fusec.ir.dim import dim, product
from fusec.ir.expression import Index, Var, delinearize, linearize, of_var
from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.schedule.common import INT32_MAX, is_empty, specialise
from fusec.schedule.problem import Problem
from fusec.schedule.scatter.after import TOO_EARLY, After, find_after
from fusec.schedule.scatter.siblings import Siblings, siblings
from fusec.schedule.sort.parts import needed
from fusec.segment.protocol import Refusal

VECTOR_BYTES = 16
"""Bytes of a thread's widest access."""
MOST_SIBLINGS = 8
"""Most elementwise outputs that are fused with a scatter."""


@dataclass(frozen=True, eq=False)
class Scatter(Problem):
    """A segment around a scatter, or several with the same destinations in similar tensors.

    All sizes are specialized. source: the fusion of what is read at each element: the index and the
    sources. axis: the dim along which destinations may collide; shape: of the elements. siblings:
    the outputs that are not scattered. after: the consumers of the scattered tensor, if it is not
    an output itself.
    """

    nodes: tuple[Node, ...]
    source: Fusion
    axis: int
    shape: tuple[int, ...]
    siblings: Siblings | None = None
    after: After | None = None

    @property
    def node(self) -> Node:
        """Return the first scatter, which determines the destinations."""
        return self.nodes[0]

    @property
    def stored(self) -> tuple[Value, ...]:
        """Return the values that are written at the destinations."""
        if self.after is None:
            return tuple(n.output for n in self.nodes)
        return tuple(o.value for o in self.after.fusion.outputs)

    @property
    def adds(self) -> bool:
        """Return whether elements are added to the existing ones."""
        return self.node.op.combine is not None

    @property
    def in_place(self) -> bool:
        """Return whether the tensor already is in the result's memory."""
        return bool(self.fusion.effects.updates)

    @property
    def of_slices(self) -> bool:
        """Return whether all lines have the same destinations, as far as kernels exploit it."""
        if of_slices(self.node):
            return True
        index = self.node.operands[1]
        if not self.in_place or not isinstance(index, Value):
            return False
        where = self.lowering.at(index, self.at(of_var(Var("element", dim(self.length)))), ())
        return self.line not in where.variables

    @property
    def length(self) -> int:
        """Return how many elements of a line may collide."""
        return self.shape[self.axis]

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return product(e for k, e in enumerate(self.shape) if k != self.axis).value

    @property
    def elements(self) -> int:
        """Return the number of elements of the source that are written."""
        return self.lines * self.length

    @property
    def places(self) -> int:
        """Return the number of elements of the result."""
        return product(self.node.output.shape).value

    @property
    def placed(self) -> int:
        """Return how many elements of the index are treated separately."""
        return self.length * (1 if self.of_slices else self.lines)

    @property
    def sorted_elements(self) -> int:
        """Return the number of elements that are sorted."""
        return self.length * (1 if of_slices(self.node) else self.lines)

    @property
    def line(self) -> Var:
        """Return the loop variable of lines."""
        return Var("line", dim(self.lines))

    @property
    def lowering(self) -> Lowering:
        """Return the lowering of the source."""
        reference = self.node.operands[1]
        assert isinstance(reference, Value)
        return Lowering(self.source, Domain(reference, (), {}, {}), {})

    def vectors(self, width: int) -> tuple[Var, Var]:
        """Return the loop variables of adjacent lines: vectors, and lines of one."""
        return Var("vector", dim(self.lines // width)), Var("v", dim(width))

    def at(self, place: Index, width: int = 1) -> tuple[Index, ...]:
        """Return the coordinates of an element of a line; with a width, of one of a vector."""
        line = of_var(self.line)
        if width > 1:
            vector, lane = self.vectors(width)
            line = of_var(vector) * width + of_var(lane)
        others = [e for k, e in enumerate(self.shape) if k != self.axis]
        rest = iter(delinearize(line, others))
        return tuple(place if k == self.axis else next(rest) for k in range(len(self.shape)))

    def index_at(self, place: Index, width: int = 1) -> tuple[Index, ...]:
        """Return the coordinates in the index."""
        return (place,) if of_slices(self.node) else self.at(place, width)

    def takes_vectors(self, width: int) -> bool:
        """Return whether adjacent lines share a destination, with whole accesses."""
        last = len(self.shape) - 1
        if width == 1 or self.axis == last or self.shape[last] % width:
            return width == 1
        facts, (_, lane) = Facts(self.fusion.hints), self.vectors(width)
        element = of_var(Var("element", dim(self.length)))
        lowering = Lowering(self.source, self.lowering.domain, {})
        index = self.node.operands[1]
        if lane in lowering.operand(index, self.index_at(element, width), ()).variables:
            return False
        place = Var("target", self.node.output.shape[self.axis])
        coordinates = list(self.at(element, width))
        coordinates[self.axis] = of_var(place)
        for node in self.nodes:
            source = node.operands[2]
            lowering.operand(source, self.at(element, width) if source.shape else (), ())
        loads = [i for i in lowering.made.values() if i.kind == "load"]
        if self.after is None:
            strides = (self.fusion.effects.strides(n.output) for n in self.nodes)
            stores = [linearize(coordinates, s) for s in strides]
        else:
            at = tuple(coordinates)
            more = self.after.loads(self.after.at(at, place)[0])
            if any(width * i.dtype.size > VECTOR_BYTES for i in more):
                return False
            loads += more
            stores = [self.after.address(o, at) for o in self.after.fusion.outputs]
        kinds = [access_class(address, (), lane, width, facts) for address in stores]
        for each in loads:
            if each.address is not None:
                kinds.append(access_class(each.address, each.conditions, lane, width, facts))
        return "scalar" not in kinds and not facts.assumed


def of_slices(node: Node) -> bool:
    """Return whether an entry of the index selects a whole slice."""
    return node.op.lookup is not None and node.op.lookup.slices


def prepare(segment: Fusion) -> Scatter | Refusal:
    """Return a segment around its scatter, or why it has no kernels."""
    nodes = [n for n in segment.nodes if n.op.family == "scatter"]
    results = {n.output for n in nodes}
    others = tuple(o for o in segment.outputs if o.value not in results)
    is_read = any(not results.isdisjoint(n.inputs) for n in segment.nodes)
    if is_read and (len(nodes) != 1 or segment.effects.in_place):
        return TOO_EARLY
    if not is_read:
        if len(segment.outputs) - len(others) != len(nodes) or len(others) > MOST_SIBLINGS:
            return TOO_EARLY
        if (others or len(nodes) > 1) and (refusal := _why_separate(segment, nodes)):
            return refusal
    if is_empty(replace(segment, inputs=(), nodes=tuple(nodes))):
        return Refusal("empty", "the tensor has no elements")
    fusion, _ = specialise(segment)
    if not fusion.effects.updates:
        # The copy comes first: the scattered values may depend on overwritten data.
        fusion = replace(fusion, outputs=tuple(replace(o, alias=None) for o in fusion.outputs))
    nodes = tuple(n for n in fusion.nodes if n.op.family == "scatter")
    node = nodes[0]
    axis: int = node.attributes["dim"]
    arg, index = node.operands[0].shape, node.operands[1].shape
    shape = node.operands[2].shape if of_slices(node) else index
    for k, extent in enumerate(shape):
        if k != axis and extent.value > arg[k].value:
            return Refusal("shape", f"extent {extent} of dim {k} exceeds the tensor's {arg[k]}")
    for each in nodes:
        if each.operands[2].shape and not of_slices(each):
            pairs = zip(shape, each.operands[2].shape, strict=True)
            if any(small.value > large.value for small, large in pairs):
                return Refusal("shape", "the index is larger than the source")
    read = [node.operands[1], *(n.operands[2] for n in nodes)]
    read = list(dict.fromkeys(o for o in read if isinstance(o, Value)))
    source = needed(fusion, tuple(Output(v) for v in read))
    made: Siblings | Refusal | None = None
    after = find_after(fusion, node) if is_read else None
    if isinstance(after, Refusal):
        return after
    if others and after is None:
        made = siblings(
            fusion, tuple(o for o in fusion.outputs if o.value not in fusion.effects.into)
        )
        if isinstance(made, Refusal):
            return made
    extents = tuple(e.value for e in shape)
    scatter = Scatter(segment, fusion, nodes, source, axis, extents, made, after)
    if scatter.elements > INT32_MAX // 2:
        return Refusal("size", "more than 2^30 elements are scattered")
    return scatter


def _why_separate(segment: Fusion, nodes: list[Node]) -> Refusal | None:
    """Return why one kernel cannot compute several scatters, or one and other outputs, or None."""
    first = nodes[0]
    alike = all(
        n.op is first.op
        and n.operands[1] is first.operands[1]
        and n.attributes["dim"] == first.attributes["dim"]
        and n.output.shape == first.output.shape
        for n in nodes
    )
    if not alike or first.op.combine is not None or of_slices(first):
        return Refusal("scatters", f"{len(nodes)} scatters differ in more than their destination")
    if len(segment.effects.updates) != len(nodes):
        return Refusal("scatters", f"{len(nodes)} scatters are not all in place")
    kept = segment.effects.overwritten | {n.output.name for n in nodes}
    read = [v for n in segment.nodes for v in n.inputs[1 if n in nodes else 0 :]]
    if any(v.name in kept for v in read):
        return Refusal("in_place", "a tensor that one of them overwrites is also read")
    return None
