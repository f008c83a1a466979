"""Divided fusions run on all ranks in lockstep, with NumPy: what ranks exchange goes by Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fusec.diagnostics import Span
from fusec.ir.dim import dim
from fusec.ir.effects import slices_overlap
from fusec.ir.evaluate import Array, evaluate_node
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.sharding import Mesh, Part, Parts, Sharding
from fusec.ir.verify import verify
from fusec.ops.communication import (
    BROADCAST,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
    communicates,
    places,
    slices_begun,
)  # fmt: skip
from fusec.reference.evaluate import evaluate, input_array, widen_input
from fusec.shard.divided import Partition
from fusec.shard.partition import partitioned
from fusec.shard.place import assemble, local_part, local_sizes

POISON = 55
"""What a rank has of an input that it does not hold."""
PLACE = Span("divided.yaml", 7, 5)


def mesh_of(**axes: int) -> Mesh:
    """Return a mesh of named axes, whose ranks count from 0."""
    return Mesh(tuple(axes.items()), tuple(range(prod(axes.values()))))


def sharding(rank: int, text: str, mesh: Mesh | None = None) -> Sharding:
    """Return the sharding that `0: dp tp, 1: stream/4` says; `_/2` is a whole factor."""
    divided = dict[int, Parts]()
    for entry in filter(None, text.split(",")):
        at, _, names = entry.partition(":")
        parts = list[Part]()
        for name in names.split():
            axis, _, count = name.partition("/")
            number = int(count) if count else mesh.extent(axis) if mesh is not None else 1
            parts.append(Part(None if axis == "_" else axis, dim(number)))
        divided[int(at) % rank] = tuple(parts)
    return Sharding.of(rank, divided, PLACE)


def divided(fusion: Fusion, mesh: Mesh | None = None, **said: str) -> Fusion:
    """Return a fusion over a mesh, with the shardings that texts say of values."""
    ranks = {v.name: v.rank for v in fusion.values}
    shardings = {name: sharding(ranks[name], text, mesh) for name, text in said.items()}
    return replace(fusion, mesh=mesh, shardings=shardings)


def small_integers(fusion: Fusion, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Return an input of small integers for each tensor: their sums are exact."""
    rng = np.random.default_rng(seed)
    found = dict[str, Array]()
    for entry in fusion.inputs:
        value = entry.value
        if value.is_scalar:
            continue
        shape = tuple(d.evaluate(sizes) for d in value.shape)
        drawn = rng.integers(0 if value.dtype.kind == "bool" else -3, 4, shape)
        found[value.name] = drawn.astype(value.dtype.numpy)
    return found


class Lockstep:
    """All ranks of a partition. A value in a loop is a list: one array for each slice."""

    def __init__(self, local: Partition, mesh: Mesh | None, sizes: Mapping[str, int]) -> None:
        """Take the fusion that each rank runs, and its sizes."""
        self.local, self.sizes = local, sizes
        self.mesh = mesh or mesh_of(alone=1)
        self.values: dict[int, dict[Value, Any]] = {rank: {} for rank in self.mesh.ranks}
        self.loops: dict[Value, int] = {}
        self.loop, self.parts = 0, 0

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the whole outputs where whole inputs are given."""
        fusion, placed = self.local.fusion, self.local.placed
        for rank, values in self.values.items():
            for entry in fusion.inputs:
                name, given = entry.value.name, dict(inputs)
                if name in given and not entry.value.is_scalar:
                    part = local_part(given[name], placed[name], self.mesh, rank, self.sizes)
                    given[name] = part
                array = input_array(entry, given, self.sizes)
                if entry.ranks is not None and rank not in entry.ranks:
                    array = np.full_like(array, POISON)
                values[entry.value] = widen_input(entry.value, array)
        for node in fusion.nodes:
            self.step(node)
        found = dict[str, Array]()
        for output in fusion.outputs:
            name = output.value.name
            held = placed[name].ranks or self.mesh.ranks
            parts = {rank: self.values[rank][output.value] for rank in held}
            found[name] = assemble(parts, placed[name], self.mesh, self.sizes)
            for rank, part in parts.items():
                own = local_part(found[name], placed[name], self.mesh, rank, self.sizes)
                assert np.array_equal(own, part, equal_nan=True), (name, rank)
        return found

    def step(self, node: Node) -> None:
        """Run one node on all ranks."""
        first = self.values[self.mesh.ranks[0]]
        count = self.count_slices(node, first)
        if count is None:
            self.parts = 0
        elif count != self.parts:
            self.loop, self.parts = self.loop + 1, count
        for value in node.inputs:
            if value in self.loops:
                assert self.loops[value] == self.loop, f"{node}: `{value.name}` is of another loop"
        made = self.exchange(node, count) if communicates(node) else None
        for rank, values in self.values.items():
            if made is not None:
                results: Sequence[Any] = (made[rank],)
            elif places(node):
                results = (self.place(node, values, rank, count),)
            elif count is None:
                results = evaluate_node(node, values, self.sizes)
            else:
                each = [evaluate_node(node, at(node, values, p), self.sizes) for p in range(count)]
                results = [[r[k] for r in each] for k in range(len(node.outputs))]
            for value, result in zip(node.outputs, results, strict=True):
                slices = result if isinstance(result, list) else [result]
                for array in slices:
                    shape = tuple(d.evaluate(self.sizes) for d in value.shape)
                    assert array.shape == shape, f"{node}: {array.shape} is not {shape}"
                values[value] = result
                if isinstance(result, list):
                    self.loops[value] = self.loop

    def count_slices(self, node: Node, values: Mapping[Value, Any]) -> int | None:
        """Return how many slices the loop has that a node is in, None for one in no loop."""
        if node.op is STREAM_SLICE:
            begun = slices_begun(node)
            assert begun is not None
            return begun.evaluate(self.sizes)
        if node.op is RECEIVE_SLICE:
            return node.attributes["ranks"] * node.attributes["pieces"]
        lengths = {len(values[v]) for v in node.inputs if isinstance(values[v], list)}
        assert len(lengths) < 2, f"{node} is in two loops"
        return next(iter(lengths), None)

    def place(self, node: Node, values: Mapping[Value, Any], rank: int, count: int | None) -> Any:
        """Return a part of a tensor, or the whole of its parts."""
        (value,) = node.inputs
        at = node.attributes["dim"]
        if node.op is STREAM_STACK:
            shape = tuple(d.evaluate(self.sizes) for d in node.output.shape)
            whole = np.full(shape, -99, values[value][0].dtype)
            for number, part in enumerate(values[value]):
                begin = self.begin(node, number, part.shape[at], shape[at])
                np.moveaxis(whole, at, 0)[begin : begin + part.shape[at]] = np.moveaxis(part, at, 0)
            return whole
        parts = node.attributes["parts"].evaluate(self.sizes)
        if node.op is STREAM_SLICE:
            assert count is not None
            extent = node.output.shape[at].evaluate(self.sizes)
            inner = 1 if node.attributes["inner"] is None else (
                node.attributes["inner"].evaluate(self.sizes)
            )  # fmt: skip
            whole = as_slices(values[value]) * (1 if isinstance(values[value], list) else count)
            begins = (
                self.begin(node, k // inner % parts, extent, whole[k].shape[at])
                for k in range(count)
            )
            return [np.take(w, range(b, b + extent), axis=at)
                    for w, b in zip(whole, begins, strict=True)]  # fmt: skip
        own = self.mesh.place(rank)[node.attributes["axis"]]
        cut = [np.split(a, parts, axis=at)[own] for a in as_slices(values[value])]
        return cut if isinstance(values[value], list) else cut[0]

    @staticmethod
    def begin(node: Node, number: int, extent: int, whole: int) -> int:
        """Return where a slice of a loop begins, none behind the last that fits."""
        begin = number * extent
        if slices_overlap(node):
            return min(begin, whole - extent)
        assert begin + extent <= whole
        return begin

    def exchange(self, node: Node, count: int | None) -> dict[int, Any]:
        """Return what each rank gets."""
        (value,) = node.inputs
        axis = node.attributes["axis"]
        found = dict[int, Any]()
        for rank in self.mesh.ranks:
            group = self.mesh.group(rank, axis)
            own = self.mesh.place(rank)[axis]
            assert len(group) == node.attributes["ranks"]
            given = [self.values[r][value] for r in group]
            if node.op is BROADCAST:
                found[rank] = given[node.attributes["root"]]
            elif node.op is RECEIVE_SLICE:
                found[rank] = [p for g in given for p in np.split(g, node.attributes["pieces"])]
            elif node.op is SEND_SLICE:
                pieces = node.attributes["pieces"]
                sent = slice(own * pieces, (own + 1) * pieces)
                found[rank] = np.concatenate([p for slices in given for p in slices[sent]])
            elif count is None:
                found[rank] = collective(node, given, own)
            else:
                found[rank] = [collective(node, [g[p] for g in given], own) for p in range(count)]
        return found


def as_slices(value: Any) -> list[Array]:
    """Return the slices of a value; one outside of loops is its only one."""
    return value if isinstance(value, list) else [value]


def at(node: Node, values: Mapping[Value, Any], part: int) -> dict[Value, Array]:
    """Return the operands of a node in one iteration of its loop."""
    return {v: values[v][part] if isinstance(values[v], list) else values[v] for v in node.inputs}


def collective(node: Node, given: Sequence[Array], own: int) -> Array:
    """Return what the rank at a place gets of what the ranks along an axis give."""
    name, count = node.op.name, len(given)
    if name == "all_gather":
        return np.concatenate(given)
    if name == "all_to_all":
        return np.concatenate([np.split(g, count)[own] for g in given])
    combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    total = combine[node.attributes["reduction"]].reduce(np.stack(given))
    return total if name == "all_reduce" else np.split(total, count)[own]


def outputs_of(fusion: Fusion, inputs: Mapping[str, Array], local: Partition) -> dict[str, Array]:
    """Return the whole outputs of all ranks together, at the default sizes."""
    sizes = local_sizes(fusion, local.fusion, fusion.hints)
    verify(local.fusion)
    assert not local.fusion.shardings
    return Lockstep(local, fusion.mesh, sizes).run(inputs)


def agree(
    fusion: Fusion, local: Partition | None = None, *, exact: bool = True, seed: int = 0
) -> Fusion:
    """Assert that ranks together compute what the whole fusion means; return what one runs."""
    inputs = small_integers(fusion, fusion.hints, seed)
    local = local or partitioned(fusion)
    found = outputs_of(fusion, inputs, local)
    for name, wanted in evaluate(fusion, inputs, fusion.hints).items():
        if exact:
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-6, atol=1e-9, err_msg=name)
    return local.fusion


def ops_of(fusion: Fusion) -> list[str]:
    """Return the names of the operations, in order."""
    return [node.op.name for node in fusion.nodes]


def exchanges_of(fusion: Fusion) -> list[str]:
    """Return the names of the operations between ranks and along loops, in order."""
    return [node.op.name for node in fusion.nodes if communicates(node) or places(node)]
