"""Rewrite a divided fusion into the one that a rank runs: local shapes, and exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fusec.diagnostics import InternalError, Unsupported
from fusec.ir.annotations import Override, Pin
from fusec.ir.dim import Dim, Shape, product
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Fusion, Input, Node, Operand, Output, Value, needed_nodes
from fusec.ir.recent import Recent
from fusec.ir.sharding import STREAM, Sharding
from fusec.ops.find import find_op
from fusec.shard.asked import Asked
from fusec.shard.axes import Axes, axes_of, distinct_sizes, is_filled, is_reshape
from fusec.shard.choose import (
    Choice,
    carried_dependence,
    check_loop,
    choose,
    ends_loop,
    part_of,
)
from fusec.shard.graph import LocalGraph
from fusec.shard.loops import settle_loops
from fusec.shard.place import local_shape, share
from fusec.shard.reshard import Held, Resharder
from fusec.shard.sizes import local_strides, with_shares
from fusec.shard.tensors import Tensor


@dataclass(frozen=True, eq=False)
class Partition:
    """The fusion that one rank runs.

    placed: how ranks hold each input and output, by name. sums: how ranks compute the results that
    they sum or multiply, by name. local: by the name of a value what a rank calls its own result,
    partial or whole. values: how each tensor of the whole fusion is divided. several: those
    computed for each reader, in more than one division or in none.
    """

    fusion: Fusion
    placed: Mapping[str, Sharding]
    sums: Mapping[str, RankSum] = field(default_factory=dict[str, "RankSum"])
    local: Mapping[str, str] = field(default_factory=dict[str, str])
    values: Mapping[str, Sharding] = field(default_factory=dict[str, Sharding])
    several: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RankSum:
    """How ranks compute a result that is a sum, or a product, over ranks.

    reduction: `sum` or `prod`. operands: how each operand is divided, None for scalars. axes: of
    the mesh, over which partial results are combined one after the other. results: the local name
    of each combined result. bias: the operand that is added to the last of them, if any.
    """

    reduction: str
    operands: tuple[Sharding | None, ...]
    axes: tuple[str, ...]
    results: tuple[str, ...]
    bias: int | None = None


def partition(fusion: Fusion) -> Fusion:
    """Return the fusion that one rank runs; the fusion itself where nothing is divided."""
    return partitioned(fusion).fusion if fusion.shardings else fusion


def partitioned(fusion: Fusion) -> Partition:
    """Return the fusion that one rank runs, with how inputs and outputs are divided."""
    if not fusion.shardings:
        entries = (*fusion.inputs, *fusion.outputs)
        whole = {e.value.name: Sharding.whole(e.value.rank) for e in entries}
        return Partition(fusion, whole)
    return _partitions.of(fusion, None, lambda: _partitioned(with_shares(fusion)))


def _partitioned(fusion: Fusion) -> Partition:
    """Return how a fusion is divided whose extents are divided as it says.

    A second walk is needed where values are not asked for in the order in which they are made.
    """
    asked = Asked()
    found = _Partitioner(fusion, asked).run()
    plan = asked.plan
    return found if plan is None else _Partitioner(fusion, Asked(plan)).run()


_partitions = Recent[Partition]()


@dataclass(frozen=True)
class _Added:
    """A bias, and the dims of the product along which it lies."""

    value: Value
    dims: tuple[int, ...]


class _Partitioner:
    """The fusion half rewritten."""

    def __init__(self, fusion: Fusion, asked: Asked) -> None:
        """Take a fusion whose extents are divided as it says, and what is to be asked of it."""
        self.fusion, self.asked = fusion, asked
        self.graph = LocalGraph()
        self.reshard = Resharder(self.graph, fusion.mesh)
        self.sizes = distinct_sizes(fusion)
        self.tensors: dict[Value, Tensor] = {}
        self.scalars: dict[Value, Operand] = {}
        self.said = {
            name: replace(said, span=None).normal.over(fusion.mesh).with_turns
            for name, said in fusion.shardings.items()
        }
        self.computed: dict[Value, Value] = {}
        self.deferred: dict[Value, tuple[Node, Axes]] = {}
        self.as_needed: set[Value] = set()
        self.order: list[Value] = []
        self.sums: dict[str, tuple[RankSum, list[Value]]] = {}
        self.readers: dict[Value, list[tuple[Node, bool]]] = {}
        self._agree_with_aliases()

    def _agree_with_aliases(self) -> None:
        """Let outputs be divided as the inputs are that they are written into."""
        shapes = {i.value.name: i.value for i in self.fusion.inputs}
        for output in self.fusion.outputs:
            if output.alias is None:
                continue
            name, target = output.value.name, shapes[output.alias]
            given = self._said(target) or Sharding.whole(target.rank)
            own = self.said.setdefault(name, given.without(STREAM))
            where = self.fusion.shardings.get(name)
            span = output.span if where is None or where.span is None else where.span
            if own.along(STREAM) is not None:
                raise Unsupported(
                    f"output `{name}` is written to `{output.alias}` slice by slice", span=span
                )
            if own.dims != given.without(STREAM).dims:
                raise Unsupported(
                    f"output `{name}` is written to `{output.alias}`, which is divided otherwise",
                    span=span,
                    notes=[f"`{name}`: {own}", f"`{output.alias}`: {given}"],
                )

    def _said(self, value: Value) -> Sharding | None:
        return self.said.get(value.name)

    def _spanned(self, value: Operand) -> Sharding | None:
        """Return how the file divides a value, with its place."""
        return self.fusion.shardings.get(value.name) if isinstance(value, Value) else None

    # -- the walk

    def run(self) -> Partition:
        """Return the local fusion."""
        inputs = tuple(self._input(entry) for entry in self.fusion.inputs)
        kept = [*self._pinned(), *(output.value for output in self.fusion.outputs)]
        live = set(needed_nodes(self.fusion.nodes, kept))
        for node in self.fusion.nodes:
            self.graph.span, self.asked.counts = node.span, node in live
            self._visit(node)
        self.asked.counts = True
        self._check_input_loops()
        return self._finish(inputs)

    def _pinned(self) -> list[Value]:
        """Return the values that pins of the fusion name."""
        names = {name for pin in self.fusion.pins for name in pin.values}
        return [v for v in self.fusion.values if v.name in names]

    def _input(self, entry: Input) -> Input:
        value = entry.value
        if value.is_scalar:
            self.scalars[value] = value
            return entry
        sharding = self._said(value) or Sharding.whole(value.rank)
        memory = sharding.without(STREAM)
        shape = local_shape(value.shape, memory)
        own = value
        if shape != value.shape:
            own = Value(value.name, replace(value.type, shape=shape))
        tensor = self.tensors[value] = Tensor(value, sharding)
        tensor.keep(Held(own, memory))
        strides = local_strides(entry, shape, memory, self.fusion.hints)
        if sharding.ranks is not None:
            self.graph.hold(own, sharding.ranks)
        return replace(entry, value=own, strides=strides, ranks=sharding.ranks)

    def _visit(self, node: Node) -> None:
        if node.output.is_scalar:
            self._scalar(node)
            return
        if _repeats(node) or self._is_as_needed(node):
            self.as_needed.update(node.outputs)
        given = self._adapted(node, [self._given(o) for o in node.operands])
        axes = axes_of(node, self.sizes)
        known = next((v for v in node.outputs if v.name in self.said), node.output)
        check_loop(node, axes, self._spanned(known))
        self._note_ends(node, axes)
        said = self._take_turns(node, axes, given, known)
        there = None if said is None else self._of_what_is_there(node, axes, given, said)
        choice = there or choose(node, axes, given, said, self.fusion.hints)
        if self._defers(node, said):
            self.deferred[node.output] = node, axes
            self.tensors[node.output] = Tensor(node.output, said or choice.result)
            return
        self._make(node, axes, choice)

    def _of_what_is_there(
        self, node: Node, axes: Axes, given: list[Sharding | None], said: Sharding
    ) -> Choice | None:
        """Return how a result is computed as the file divides it, if operands are there for that.

        None where they would be exchanged, but for those that are less than the result.
        """
        choice = part_of(node, axes, given, said)
        if _repeats(node):
            return choice
        pairs = zip(node.operands, choice.operands, strict=True)
        is_there = node.output in self.as_needed and all(
            (v in self.deferred and v.name not in self.said)
            or _is_sliced(self.tensors[v].sharding, needed)
            for v, needed in pairs
            if isinstance(v, Value) and needed is not None
        )
        return choice if is_there else None

    def _adapted(self, node: Node, given: list[Sharding | None]) -> list[Sharding | None]:
        """Return how operands are divided, those that are computed as needed as the others are.

        Each of these is divided as it would be in the dims that no other operand divides.
        """
        if not node.op.is_elementwise:
            return given
        free = [isinstance(o, Value) and o in self.deferred for o in node.operands]
        taken = {
            k
            for sharding, adapts in zip(given, free, strict=True)
            if sharding is not None and not adapts
            for _, k in sharding.axes
        }
        return [
            _without_dims(s, taken) if s is not None and adapts else s
            for s, adapts in zip(given, free, strict=True)
        ]

    def _take_turns(
        self, node: Node, axes: Axes, given: list[Sharding | None], known: Value
    ) -> Sharding | None:
        """Return what the file says of a result, its slices in the order in which operands are.

        That is where they are the operands' own: the file tells none.
        """
        said = self._said(known)
        if said is None or len(said.streamed) < 2:
            return said
        inferred = choose(node, axes, given, None, self.fusion.hints).wanted
        if inferred.without_turns.dims == said.without_turns.dims:
            said = replace(said, dims=inferred.dims)
            self.said |= {v.name: said for v in node.outputs if v.name in self.said}
        return said

    def _note_ends(self, node: Node, axes: Axes) -> None:
        """Keep whether a node follows the slices of the inputs that it reads, or needs them all."""
        for k, value in enumerate(node.operands):
            if not isinstance(value, Value) or value not in self.fusion.input_of:
                continue
            said = self._spanned(value)
            if said is not None and said.streamed:
                readers = self.readers.setdefault(value, [])
                readers.append((node, any(ends_loop(node, axes, k, at) for at in said.streamed)))

    def _check_input_loops(self) -> None:
        """Raise FusecError for slices of an input all of whose readers need them at once."""
        for value, readers in self.readers.items():
            said, (first, _) = self._spanned(value), readers[0]
            at = None if said is None else said.along(STREAM)
            if said is not None and at is not None and all(ends for _, ends in readers):
                raise carried_dependence(first, at, value.name, said)

    def _make(self, node: Node, axes: Axes, choice: Choice) -> None:
        """Add what a rank computes of a node."""
        bias = node.op.product.bias if node.op.product is not None and choice.partial else None
        operands = self._operands(node, choice, bias)
        in_loop = any(self.graph.varies(o) for o in operands)
        if (
            choice.result.along(STREAM) is not None
            and not in_loop
            and node.output not in self.deferred
        ):
            choice = choice.outside
            operands = self._operands(node, choice, bias)
        operands = self._on_their_ranks(node, choice, operands)
        shape = self._local(node.output.shape, choice.result)
        attributes = self._localised(node, choice.result, shape)
        names = [f"{v.name}{self._suffix(v, choice)}" for v in node.outputs]
        made = self.graph.add(node.op, operands, attributes, names)
        for value, own in zip(node.outputs, made, strict=True):
            if own.shape != self._local(value.shape, choice.result):
                raise InternalError(f"`{value}` is {own.type} on a rank", span=node.span)
            added = None if bias is None else self._added(node, bias, axes)
            combined = self._settle(value, own, choice, added)
            if choice.reduction in ("sum", "prod") and combined:
                place = None if added is None else bias
                how = RankSum(choice.reduction, choice.operands, choice.partial, (), place)
                self.sums[value.name] = how, combined

    def _on_their_ranks(self, node: Node, choice: Choice, operands: list[Operand]) -> list[Operand]:
        """Return operands that all ranks hold that compute a node.

        These are those that the file says of its results; else those that hold all operands, or the
        largest one. Where ranks have parts of it, all others along these axes are among them.
        """
        values = [o for o in operands if isinstance(o, Value)]
        held = [(v, ranks) for v in values if (ranks := self.graph.held(v)) is not None]
        if not held:
            return operands
        said = next((s for v in node.outputs if (s := self._said(v)) is not None), None)
        everywhere = frozenset(self.reshard.all_ranks)
        if said is not None:
            on = everywhere if said.ranks is None else frozenset(said.ranks)
        else:
            on = held[0][1].intersection(*(ranks for _, ranks in held[1:]))
            hints = self.fusion.hints
            on = on or max(held, key=lambda h: product(h[0].shape).evaluate(hints))[1]
        mesh = self.fusion.mesh
        assert mesh is not None
        on = self.reshard.among(mesh.closure(on, choice.partial), choice.result)
        return [self.reshard.on_ranks(o, on) if isinstance(o, Value) else o for o in operands]

    def _defers(self, node: Node, said: Sharding | None) -> bool:
        """Return whether each reader has its part of a node's result computed, as far as it needs.

        So it is with what repeats elements, and with what is made of whole inputs one by one. Of
        what the file divides, slices of repeated elements are made in the loop that reads them.
        """
        if _repeats(node):
            return said is None or bool(said.streamed)
        return said is None and self._is_of_whole_inputs(node)

    def _is_of_whole_inputs(self, node: Node) -> bool:
        """Return whether elements are computed one by one of what every rank has, or repeats."""
        read = (v for v in node.inputs if not v.is_scalar)
        return _is_one_by_one(node) and all(
            (v in self.deferred and v.name not in self.said) or self._is_whole_input(v)
            for v in read
        )

    def _is_as_needed(self, node: Node) -> bool:
        """Return whether that is so, or would be if the file said nothing of what is computed."""
        read = (v for v in node.inputs if not v.is_scalar)
        return _is_one_by_one(node) and all(
            v in self.as_needed or self._is_whole_input(v) for v in read
        )

    def _is_whole_input(self, value: Value) -> bool:
        return value in self.fusion.input_of and self.tensors[value].sharding.is_whole

    def _part(self, value: Value, wanted: Sharding) -> Held:
        """Compute the part of a deferred value that is wanted, as far as that can be."""
        (node, axes), span = self.deferred[value], self.graph.span
        choice = part_of(node, axes, [self._given(o) for o in node.operands], wanted)
        held = self.tensors[value].held
        if choice.result.dims not in held:
            self.graph.span = node.span
            self._make(node, axes, choice)
            self.graph.span = span
        return held[choice.result.dims]

    def _suffix(self, value: Value, choice: Choice) -> str:
        """Return what a computed value is beside the one that has the name."""
        if choice.partial:
            return "_partial"
        if choice.result.along(STREAM) is not None and value in self.fusion.output_of:
            return "_slice"
        return "" if choice.result.dims == choice.wanted.dims else "_part"

    def _given(self, operand: Operand) -> Sharding | None:
        return self.tensors[operand].sharding if operand in self.tensors else None  # pyright: ignore

    def _local(self, shape: Shape, sharding: Sharding) -> Shape:
        pairs = zip(shape, sharding.dims, strict=True)
        return tuple(share(extent, parts) for extent, parts in pairs)

    def _localised(self, node: Node, result: Sharding, shape: Shape) -> dict[str, Any]:
        """Return a node's attributes with the extents that a rank's results have."""
        attributes = dict(node.attributes)
        if node.op.extents:
            whole: tuple[Dim, ...] = attributes[node.op.extents]
            attributes[node.op.extents] = tuple(
                own if parts or is_reshape(node) else extent
                for extent, own, parts in zip(whole, shape, result.dims, strict=True)
            )
        return attributes

    def _settle(
        self, value: Value, own: Value, choice: Choice, added: _Added | None
    ) -> list[Value]:
        """Note a result, combined over ranks and divided as it is to be; return what is so."""
        combined = list[Value]()
        self.graph.lies(own, choice.result)
        held, name = Held(own, choice.result), value.name
        wanted = self._said(value) or choice.result
        self.computed[value] = own
        for axis in choice.partial:
            if axis == choice.sent:
                held = self.reshard.sent(held, axis, choice.reduction, name)
            else:
                held = self.reshard.reduced(held, axis, choice.reduction, wanted, name)
            combined.append(held.value)
        if added is not None:
            held = Held(self._sum(held, added), held.sharding)
        tensor = self.tensors.setdefault(value, Tensor(value, wanted))
        tensor.keep(held)
        outside = held.sharding.along(STREAM) is None
        last = self._converted(value, wanted.without(STREAM) if outside else wanted)
        if value not in self.as_needed:  # others stand before what reads them first
            self.order += [own, *combined, held.value, last.value]
        return combined

    def _added(self, node: Node, bias: int, axes: Axes) -> _Added | None:
        """Return a product's bias where ranks have parts of the sums: it is added once, to all."""
        if bias >= len(node.operands):
            return None
        value = node.operands[bias]
        assert isinstance(value, Value)
        return _Added(value, tuple(axes.same[bias, a] for a in range(value.rank)))

    def _sum(self, held: Held, added: _Added) -> Value:
        own = Sharding(tuple(held.sharding.dims[k] for k in added.dims))
        bias = self._held(added.value, own).value
        at = {"shape": held.value.shape, "broadcast_dims": added.dims}
        (wide,) = self.graph.add(find_op("broadcast_in_dim"), [bias], at)
        self.graph.lies(wide, held.sharding)
        name = held.value.name
        (total,) = self.graph.add(find_op("add"), [held.value, wide], {}, [f"{name}_biased"])
        self.graph.lies(total, held.sharding)
        return total

    # -- values

    def _operands(self, node: Node, choice: Choice, left_out: int | None) -> list[Operand]:
        pairs = enumerate(zip(node.operands, choice.operands, strict=True))
        return [self._operand(o, needed) for k, (o, needed) in pairs if k != left_out]

    def _operand(self, operand: Operand, needed: Sharding | None) -> Operand:
        if isinstance(operand, Const):
            return operand
        if needed is None:
            return self.scalars[operand]
        return self._held(operand, needed).value

    def _held(self, value: Value, wanted: Sharding) -> Held:
        """Return what a rank has of a value, divided as it is wanted."""
        for sharding in self.asked.of(value, wanted):
            self._converted(value, sharding)
        return self.tensors[value].held[wanted.dims]

    def _converted(self, value: Value, wanted: Sharding) -> Held:
        """Return a division of a value, made of what a rank has of it if it is not there."""
        tensor = self.tensors[value]
        if wanted.dims not in tensor.held:
            deferred = value in self.deferred
            start = self._part(value, wanted) if deferred else tensor.nearest(wanted)
            ranks = self.graph.held(start.value)
            if ranks is not None:  # those among which it is divided have parts of their own
                ranks = self.reshard.among(ranks, wanted)
                start = replace(start, value=self.reshard.on_ranks(start.value, ranks))
            for held in self.reshard.steps(start, wanted, value.name):
                tensor.keep(held)
        return tensor.held[wanted.dims]

    def _scalar(self, node: Node) -> None:
        """Keep a scalar: all ranks have the same."""
        if any(not v.is_scalar for v in node.inputs):  # its size
            made = (self._size(node),)
        else:
            operands = [self._operand(o, None) for o in node.operands]
            names = [v.name for v in node.outputs]
            made = self.graph.add(node.op, operands, node.attributes, names)
        self.order += made
        self.scalars.update(zip(node.outputs, made, strict=True))
        self.computed.update(zip(node.outputs, made, strict=True))

    def _size(self, node: Node) -> Value:
        """Return the extent of a whole tensor, found by any that is as long, or a part of it."""
        (value,) = node.inputs
        axis: int = node.attributes["dim"]
        extent, name = value.shape[axis], node.output.name
        whole = (self.tensors[v] for v in (value, *self.tensors))
        once = (h for tensor in whole for h in tensor.along(extent) if not self.graph.varies(h[0]))
        for held, k in once:
            ranks = extent.divide(held.shape[k])
            if ranks == 1:
                return self.graph.apply("size", held, name, dim=k)
            if ranks is not None and ranks.is_const:
                size = self.graph.apply("size", held, f"{name}_part", dim=k)
                factor = Const(ranks.value, I64)
                return self.graph.add(find_op("mul"), [size, factor], {}, [name])[0]
        held = self._held(value, Sharding.whole(value.rank)).value
        return self.graph.apply("size", held, name, dim=axis)

    def _computed_as(self, tensor: Tensor) -> Sharding:
        """Return how a value is divided, as its only reader has it where it is computed for that.

        It has the ranks that compute it, where these are not all.
        """
        held = [h.sharding for h in tensor.held.values()]
        alone = tensor.value in self.deferred and len(held) == 1
        sharding, own = held[0] if alone else tensor.sharding, self.computed.get(tensor.value)
        ranks = None if own is None else self.graph.held(own)
        listed = None if ranks is None else tuple(sorted(ranks))
        return replace(sharding, ranks=listed).over(self.fusion.mesh)

    # -- the end

    def _finish(self, inputs: tuple[Input, ...]) -> Partition:
        placed = {i.value.name: self.tensors[v].sharding.without(STREAM)
                  for i, e in zip(inputs, self.fusion.inputs, strict=True)
                  if (v := e.value) in self.tensors}  # fmt: skip
        outputs = list[tuple[Output, Value]]()
        named = {i.value: i.value.name for i in inputs}
        for output in self.fusion.outputs:
            value = output.value
            self.graph.span = output.span
            memory = self.tensors[value].sharding.without(STREAM)
            placed[value.name] = memory
            held = self._held(value, memory)
            said = self._said(value)
            if said is not None and said.ranks is not None:
                held = replace(held, value=self.reshard.on_ranks(held.value, frozenset(said.ranks)))
            ranks = self.graph.held(held.value)
            if ranks is not None:
                placed[value.name] = replace(memory, ranks=tuple(sorted(ranks)))
            outputs.append((output, held.value))
            named[held.value] = value.name
        for value, tensor in self.tensors.items():
            if value.name not in named.values() and tensor.sharding.dims in tensor.held:
                named[tensor.held[tensor.sharding.dims].value] = value.name
        kept = [self.computed[v] for v in self._pinned() if v in self.computed]
        kept += [own for _, own in outputs]
        taken = (d.name for d in self.fusion.dims)
        nodes, now = self.graph.finish(named, taken, kept, [*self.order, *kept])
        renamed = {value.name: now[own].name for value, own in self.computed.items() if own in now}
        fusion = replace(
            self.fusion,
            inputs=inputs,
            nodes=nodes,
            outputs=tuple(replace(o, value=now[v]) for o, v in outputs),
            pins=tuple(_renamed_pin(p, renamed) for p in self.fusion.pins),
            schedules=tuple(_renamed_override(s, renamed) for s in self.fusion.schedules),
            shardings={},
        )
        sums = {
            name: replace(each, results=tuple(now[v].name for v in combined))
            for name, (each, combined) in self.sums.items()
            if all(v in now for v in combined)
        }
        values = {v.name: self._computed_as(tensor) for v, tensor in self.tensors.items()}
        several = frozenset(v.name for v in self.deferred if len(self.tensors[v].held) != 1)
        return Partition(settle_loops(fusion), placed, sums, renamed, values, several)


def _without_dims(sharding: Sharding, taken: set[int]) -> Sharding:
    """Return the same where nothing divides some dims; a loop divides all of its dims, or none."""
    if len(sharding.streamed) > 1 and taken.intersection(sharding.streamed):
        sharding = sharding.without(STREAM)
    dims = (() if k in taken else parts for k, parts in enumerate(sharding.dims))
    return replace(sharding, dims=tuple(dims))


def _is_sliced(own: Sharding, needed: Sharding) -> bool:
    """Return whether what is needed is a slice of what a rank has, without an exchange."""
    pairs = zip(own.dims, needed.dims, strict=True)
    return all(needed_parts[: len(parts)] == parts for parts, needed_parts in pairs)


def _is_one_by_one(node: Node) -> bool:
    """Return whether each element of a node's result is computed of one element of each operand."""
    access = node.op.access
    moves = access is not None and access.along is not None and access.window is None
    return node.op.is_elementwise or moves


def _repeats(node: Node) -> bool:
    """Return whether a node makes any part of its result of as large a part of its operand."""
    access = node.op.access
    return is_filled(node) or (access is not None and access.repeats)


def _renamed_pin(pin: Pin, renamed: Mapping[str, str]) -> Pin:
    return replace(pin, values=tuple(renamed.get(v, v) for v in pin.values))


def _renamed_override(entry: Override, renamed: Mapping[str, str]) -> Override:
    return replace(entry, of=renamed.get(entry.of, entry.of))
