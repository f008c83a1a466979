"""Rewrite a sharded fusion into the one that each rank runs: local shapes, and collectives."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.diagnostics import InternalError
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Input, Node, Operand, Output, Value, needed_nodes
from fusec.ir.identity_cache import IdentityCache
from fusec.ir.sharding import STREAM, Sharding
from fusec.shard.as_needed import is_one_by_one, is_sliced, repeats, without_dims
from fusec.shard.asked import Asked
from fusec.shard.axes import Axes, axes_of, distinct_sizes
from fusec.shard.bias import Added, added_to, with_bias
from fusec.shard.choose import (
    Choice,
    check_loop,
    choose,
    part_of,
)
from fusec.shard.divided import Partition, RankSum
from fusec.shard.graph import LocalGraph
from fusec.shard.inputs import InputLoops, said_of_aliases
from fusec.shard.loops import settle_loops
from fusec.shard.place import local_attributes, local_shape, part_shape
from fusec.shard.reshard import Held, Resharder
from fusec.shard.sizes import local_strides, with_shares
from fusec.shard.tensors import Tensor
from fusec.shard.values import Values


def partition(fusion: Fusion) -> Fusion:
    """Return the fusion that one rank runs; the fusion itself if nothing is divided."""
    return partitioned(fusion).fusion if fusion.shardings else fusion


def partitioned(fusion: Fusion) -> Partition:
    """Return the fusion that one rank runs, with how inputs and outputs are divided."""
    if not fusion.shardings:
        entries = (*fusion.inputs, *fusion.outputs)
        whole = {e.value.name: Sharding.whole(e.value.rank) for e in entries}
        return Partition(fusion, whole)
    return _partitions.of(fusion, None, lambda: _partitioned(with_shares(fusion)))


def _partitioned(fusion: Fusion) -> Partition:
    """Return the partition of a fusion whose extents are divided as declared.

    A second walk is needed if values are not requested in the order in which they are computed.
    """
    asked = Asked()
    found = _Partitioner(fusion, asked).run()
    plan = asked.plan
    return found if plan is None else _Partitioner(fusion, Asked(plan)).run()


_partitions = IdentityCache[Partition]()


class _Partitioner:
    """The partially rewritten fusion."""

    def __init__(self, fusion: Fusion, asked: Asked) -> None:
        """Take a fusion whose extents are divided as declared, and the record of requests."""
        self.fusion, self.asked = fusion, asked
        self.graph = LocalGraph()
        self.reshard = Resharder(self.graph, fusion.mesh)
        self.sizes = distinct_sizes(fusion)
        self.said = {
            name: replace(said, span=None).normal.over(fusion.mesh).with_turns
            for name, said in fusion.shardings.items()
        }
        self.computed: dict[Value, Value] = {}
        self.deferred: dict[Value, tuple[Node, Axes]] = {}
        self.values = Values(self.graph, self.reshard, asked, self._part)
        self.tensors = self.values.tensors
        self.order: list[Value] = []
        self.sums: dict[str, tuple[RankSum, list[Value]]] = {}
        self.loops = InputLoops(fusion)
        said_of_aliases(fusion, self.said)

    def _said(self, value: Value) -> Sharding | None:
        return self.said.get(value.name)

    def _spanned(self, value: Operand) -> Sharding | None:
        """Return the declared sharding of a value, with its source location."""
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
        self.loops.check()
        return self._finish(inputs)

    def _pinned(self) -> list[Value]:
        """Return the values named by pins of the fusion."""
        names = {name for pin in self.fusion.pins for name in pin.values}
        return [v for v in self.fusion.values if v.name in names]

    def _input(self, entry: Input) -> Input:
        value = entry.value
        if value.is_scalar:
            self.values.scalars[value] = value
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
        if repeats(node) or self._is_as_needed(node):
            self.values.as_needed.update(node.outputs)
        given = self._adapted(node, [self.values.given(o) for o in node.operands])
        axes = axes_of(node, self.sizes)
        known = next((v for v in node.outputs if v.name in self.said), node.output)
        check_loop(node, axes, self._spanned(known))
        self.loops.note(node, axes)
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
        """Return how a result is computed in the file's sharding, if the operands allow it.

        None if they would have to be communicated, except operands smaller than the result.
        """
        choice = part_of(node, axes, given, said)
        if repeats(node):
            return choice
        pairs = zip(node.operands, choice.operands, strict=True)
        is_there = node.output in self.values.as_needed and all(
            (v in self.deferred and v.name not in self.said)
            or is_sliced(self.tensors[v].sharding, needed)
            for v, needed in pairs
            if isinstance(v, Value) and needed is not None
        )
        return choice if is_there else None

    def _adapted(self, node: Node, given: list[Sharding | None]) -> list[Sharding | None]:
        """Return the shardings of operands, adapting operands computed on demand to the others.

        Each of these keeps its own sharding in the dims that no other operand divides.
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
            without_dims(s, taken) if s is not None and adapts else s
            for s, adapts in zip(given, free, strict=True)
        ]

    def _take_turns(
        self, node: Node, axes: Axes, given: list[Sharding | None], known: Value
    ) -> Sharding | None:
        """Return the declared sharding of a result, with slices in its operands' order.

        Only if they are the operands' own slices: the file does not state an order.
        """
        said = self._said(known)
        if said is None or len(said.streamed) < 2:
            return said
        inferred = choose(node, axes, given, None, self.fusion.hints).wanted
        if inferred.without_turns.dims == said.without_turns.dims:
            said = replace(said, dims=inferred.dims)
            self.said |= {v.name: said for v in node.outputs if v.name in self.said}
        return said

    def _make(self, node: Node, axes: Axes, choice: Choice) -> None:
        """Add a rank's computation of a node."""
        bias = node.op.product.bias if node.op.product is not None and choice.partial else None
        operands = self.values.operands(node, choice, bias)
        in_loop = any(self.graph.varies(o) for o in operands)
        if (
            choice.result.along(STREAM) is not None
            and not in_loop
            and node.output not in self.deferred
        ):
            choice = choice.outside
            operands = self.values.operands(node, choice, bias)
        operands = self._on_their_ranks(node, choice, operands)
        shape = part_shape(node.output.shape, choice.result)
        attributes = local_attributes(node, choice.result, shape)
        names = [f"{v.name}{self._suffix(v, choice)}" for v in node.outputs]
        made = self.graph.add(node.op, operands, attributes, names)
        for value, own in zip(node.outputs, made, strict=True):
            if own.shape != part_shape(value.shape, choice.result):
                raise InternalError(f"`{value}` is {own.type} on a rank", span=node.span)
            added = None if bias is None else added_to(node, bias, axes)
            combined = self._settle(value, own, choice, added)
            if choice.reduction in ("sum", "prod") and combined:
                place = None if added is None else bias
                how = RankSum(choice.reduction, choice.operands, choice.partial, (), place)
                self.sums[value.name] = how, combined

    def _on_their_ranks(self, node: Node, choice: Choice, operands: list[Operand]) -> list[Operand]:
        """Return operands held by all ranks that compute a node.

        These ranks are those declared for its results; else those that hold all operands, or the
        largest one. If ranks have parts of it, all other ranks along these axes are included.
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
        """Return whether each reader computes the part of a node's result that it needs.

        This holds for repeated elements, and for elementwise nodes on whole inputs. For values with
        a declared sharding, slices of repeated elements are computed in the loop that reads them.
        """
        if repeats(node):
            return said is None or bool(said.streamed)
        return said is None and self._is_of_whole_inputs(node)

    def _is_of_whole_inputs(self, node: Node) -> bool:
        """Return whether a node is elementwise on values that every rank has or repeats."""
        read = (v for v in node.inputs if not v.is_scalar)
        return is_one_by_one(node) and all(
            (v in self.deferred and v.name not in self.said) or self._is_whole_input(v)
            for v in read
        )

    def _is_as_needed(self, node: Node) -> bool:
        """Return whether that is so, or would be without the declared shardings of its operands."""
        read = (v for v in node.inputs if not v.is_scalar)
        return is_one_by_one(node) and all(
            v in self.values.as_needed or self._is_whole_input(v) for v in read
        )

    def _is_whole_input(self, value: Value) -> bool:
        return value in self.fusion.input_of and self.tensors[value].sharding.is_whole

    def _part(self, value: Value, wanted: Sharding) -> Held | None:
        """Compute the wanted part of a deferred value, as far as possible.

        None for a value that is computed once.
        """
        if value not in self.deferred:
            return None
        (node, axes), span = self.deferred[value], self.graph.span
        choice = part_of(node, axes, [self.values.given(o) for o in node.operands], wanted)
        held = self.tensors[value].held
        if choice.result.dims not in held:
            self.graph.span = node.span
            self._make(node, axes, choice)
            self.graph.span = span
        return held[choice.result.dims]

    def _suffix(self, value: Value, choice: Choice) -> str:
        """Return the suffix that distinguishes a computed value from the one that has the name."""
        if choice.partial:
            return "_partial"
        if choice.result.along(STREAM) is not None and value in self.fusion.output_of:
            return "_slice"
        wanted = self._said(value) or choice.result
        return "" if choice.result.dims == wanted.dims else "_part"

    def _settle(self, value: Value, own: Value, choice: Choice, added: Added | None) -> list[Value]:
        """Record a result, combined over ranks and divided as required; return what is combined."""
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
            own_bias = self.values.held(added.value, added.part(held.sharding)).value
            held = with_bias(self.graph, held, own_bias, added)
        tensor = self.tensors.setdefault(value, Tensor(value, wanted))
        tensor.keep(held)
        outside = held.sharding.along(STREAM) is None
        last = self.values.converted(value, wanted.without(STREAM) if outside else wanted)
        if value not in self.values.as_needed:  # others come before their first reader
            self.order += [own, *combined, held.value, last.value]
        return combined

    def _scalar(self, node: Node) -> None:
        """Keep a scalar: it is the same on all ranks."""
        if any(not v.is_scalar for v in node.inputs):  # its size
            made = (self.values.size(node),)
        else:
            operands = [self.values.operand(o, None) for o in node.operands]
            names = [v.name for v in node.outputs]
            made = self.graph.add(node.op, operands, node.attributes, names)
        self.order += made
        self.values.scalars.update(zip(node.outputs, made, strict=True))
        self.computed.update(zip(node.outputs, made, strict=True))

    def _computed_as(self, tensor: Tensor) -> Sharding:
        """Return the sharding of a value; if it is computed for its only reader, the reader's.

        It includes the ranks that compute it, unless all do.
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
            held = self.values.held(value, memory)
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
            pins=tuple(p.renamed(renamed) for p in self.fusion.pins),
            schedules=tuple(s.renamed(renamed) for s in self.fusion.schedules),
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
