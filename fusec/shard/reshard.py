"""Conversion between shardings of a tensor: collectives on blocks, and movements of dims."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, Shape, dim, product
from fusec.ir.dtype import I64
from fusec.ir.graph import Value
from fusec.ir.sharding import STREAM, Mesh, Part, Parts, Sharding
from fusec.ops.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    RANK_SLICE,
    RECEIVE_SLICE,
    REDUCE_SCATTER,
    SEND_SLICE,
    Ranks,
    joined,
)
from fusec.shard.axes import pieces_of
from fusec.shard.graph import LocalGraph
from fusec.shard.slices import cuts_of


@dataclass(frozen=True)
class Held:
    """A tensor on a rank, and the sharding of the whole that it is part of."""

    value: Value
    sharding: Sharding


class Resharder:
    """Adds nodes to a graph that change shardings over a mesh."""

    def __init__(self, graph: LocalGraph, mesh: Mesh | None) -> None:
        """Take the graph and the mesh, None if only streams divide."""
        self.graph, self.mesh = graph, mesh
        self._sent: dict[tuple[Value, Ranks], Value] = {}

    @property
    def all_ranks(self) -> tuple[int, ...]:
        """Return the ranks of the mesh."""
        return () if self.mesh is None else self.mesh.ranks

    def on_ranks(self, value: Value, ranks: Ranks) -> Value:
        """Return a value on some ranks: broadcast to them by the first rank that has it.

        If ranks have parts of it, each sends its own along the axes that do not divide it.
        """
        held = self.graph.held(value)
        if held is None or ranks <= held:
            return value
        if (value, ranks) not in self._sent:
            self._sent[value, ranks] = self._broadcast(value, held, ranks)
        return self._sent[value, ranks]

    def _broadcast(self, value: Value, held: Ranks, ranks: Ranks) -> Value:
        assert self.mesh is not None
        places: dict[str, frozenset[int]] = {
            axis: frozenset({place}) for axis, place in self.mesh.place(min(held)).items()
        }
        for axis, size in self.mesh.axes:
            everywhere = {**places, axis: frozenset(range(size))}
            if self.mesh.block(everywhere) <= held:
                places = everywhere
        sent = value
        for axis, size in self.mesh.axes:
            wanted = self.mesh.places(ranks, axis)
            if wanted <= places[axis]:
                continue
            (root,) = places[axis]
            places[axis] = wanted
            to = tuple(sorted(self.mesh.block(places)))
            how = {"axis": axis, "ranks": size, "root": root, "to": to}
            sent = self.graph.apply(BROADCAST, sent, f"{value.name}_sent", **how)
            self.graph.lies_as(sent, value)
        return sent

    def among(self, ranks: Ranks, *shardings: Sharding) -> Ranks:
        """Return ranks including all others along the axes that divide tensors."""
        assert self.mesh is not None
        axes = (axis for s in shardings for axis, _ in s.axes if axis != STREAM)
        return self.mesh.closure(ranks, axes)

    def ranks(self, axis: str) -> int:
        """Return the number of ranks along an axis."""
        assert self.mesh is not None
        return self.mesh.extent(axis)

    def steps(self, held: Held, wanted: Sharding, name: str) -> Iterator[Held]:
        """Yield the intermediate forms of a tensor and, last, the one in the wanted sharding."""
        while held.sharding.dims != wanted.dims:
            held = self._step(held, wanted, name)
            yield held

    def _step(self, held: Held, wanted: Sharding, name: str) -> Held:
        own = held.sharding
        if own.along(STREAM) is not None and _until_stream(own) != _until_stream(wanted):
            whole = self.graph.stacked(held.value, f"{name}_full")
            return Held(whole, own.without(STREAM))
        if own.along(STREAM) is None and wanted.along(STREAM) is not None:
            return self._slice(held, wanted, name)
        moved = self._moved(held, wanted, name)
        if moved is not None:
            return moved
        for k, (parts, aim) in enumerate(zip(own.dims, wanted.dims, strict=True)):
            if len(parts) > common(parts, aim):
                return self._gathered(held, k, name)
        k = next(k for k, parts in enumerate(own.dims) if parts != wanted.dims[k])
        return self._own_part(held, k, wanted.dims[k], name)

    # -- streams

    def _slice(self, held: Held, wanted: Sharding, name: str) -> Held:
        """Return an iteration's slice: of another rank's part, or of the rank's own tensor."""
        found = self._received(held, wanted, name)
        if found is not None:
            return found
        before = wanted.without(STREAM)
        if held.sharding.dims != before.dims:
            return self._step(held, before, name)
        return Held(self.graph.sliced(held.value, cuts_of(wanted), name), wanted)

    def _received(self, held: Held, wanted: Sharding, name: str) -> Held | None:
        """Return the slice as another rank's part, or a piece of it; None if it is neither."""
        own, at = held.sharding, wanted.along(STREAM)
        assert at is not None
        place = [p.axis for p in wanted.dims[at]].index(STREAM)
        part = wanted.dims[at][place]
        if part.turn is not None:
            return None
        ring = own.dims[at][place] if place < len(own.dims[at]) else part
        pieces = pieces_of(part, ring.parts, at, _outer(wanted.dims[at][:place]))
        same = own.dims[at][:place] == wanted.dims[at][:place] and pieces is not None
        # If other axes divide a rank's part too, its pieces are not parts of theirs.
        in_parts = pieces == 1 or len(own.dims[at]) == place + 1
        if not (same and in_parts) or ring.axis in (None, STREAM):
            return None
        axis, ranks = ring.axis, self.ranks(str(ring.axis))
        attributes = {"axis": axis, "ranks": ranks, "pieces": pieces, "begins": part.parts}
        value = self.graph.apply(RECEIVE_SLICE, held.value, f"{name}_slice", **attributes)
        return self._noted(value, _with_part(own, at, place, part))

    def _noted(self, value: Value, sharding: Sharding) -> Held:
        self.graph.lies(value, sharding)
        return Held(value, sharding)

    # -- ranks

    def _gathered(self, held: Held, k: int, name: str) -> Held:
        """Return the tensor without the innermost axis of dim k."""
        *parts, last = held.sharding.dims[k]
        axis, shape, inner = str(last.axis), held.value.shape, _outer(parts)
        ranks, plain = self.ranks(axis), k == 0 and inner == 1
        label = f"{name}_full" if plain else f"{name}_blocks"
        value = self.graph.apply(ALL_GATHER, held.value, label, axis=axis, ranks=ranks)
        if not plain:
            value = self._brought(value, dim(ranks), shape, k, inner, name)
        return self._noted(value, _with_parts(held.sharding, k, tuple(parts)))

    def _brought(
        self, value: Value, ranks: Dim, shape: Shape, k: int, inner: Dim, name: str
    ) -> Value:
        """Return a tensor of blocks of `shape`, with the blocks moved after `inner` of dim k."""
        rest = shape[k].divide(inner)
        assert rest is not None
        blocks = (ranks, *shape[:k], inner, rest, *shape[k + 1 :])
        order = (*range(1, k + 2), 0, *range(k + 2, len(blocks)))
        whole = (*shape[:k], shape[k] * ranks, *shape[k + 1 :])
        return self.graph.reordered(value, blocks, order, whole, name)

    def _blocks(self, value: Value, ranks: Dim, k: int, inner: Dim, name: str) -> Value:
        """Return a tensor with the factor `ranks` that follows `inner` of dim k moved to dim 0."""
        shape = value.shape
        rest = shape[k].divide(inner * ranks)
        assert rest is not None
        split = (*shape[:k], inner, ranks, rest, *shape[k + 1 :])
        order = (k + 1, *range(k + 1), *range(k + 2, len(split)))
        blocks = (ranks, *shape[:k], inner * rest, *shape[k + 1 :])
        return self.graph.reordered(value, split, order, blocks, name)

    def _own_part(self, held: Held, k: int, wanted: Parts, name: str) -> Held:
        """Return the tensor with the next axis of dim k."""
        own, value, shape = held.sharding, held.value, held.value.shape
        end = next(n for n in range(len(own.dims[k]), len(wanted)) if wanted[n].axis is not None)
        part, inner, at = wanted[end], _outer(wanted[:end]), k
        if inner != 1:
            rest = shape[k].divide(inner)
            assert rest is not None
            split = (*shape[:k], inner, rest, *shape[k + 1 :])
            value, at = self.graph.reshaped(value, split, f"{name}_split"), k + 1
        attributes = {"dim": at, "parts": part.parts, "axis": part.axis}
        value = self.graph.apply(RANK_SLICE, value, f"{name}_part", **attributes)
        given = shape[k].divide(part.parts)
        assert given is not None
        value = self.graph.reshaped(value, (*shape[:k], given, *shape[k + 1 :]), f"{name}_joined")
        return self._noted(value, _with_parts(own, k, wanted[: end + 1]))

    def _moved(self, held: Held, wanted: Sharding, name: str) -> Held | None:
        """Return the tensor with an axis moved to another dim, if one collective does it."""
        own = held.sharding
        for i, parts in enumerate(own.dims):
            last = parts[-1] if parts else None
            if last is None or last.axis in (None, STREAM):
                continue
            axis = str(last.axis)
            j = wanted.along(axis)
            left = Sharding((parts[:-1],)).normal.dims[0]
            if j is None or j == i or wanted.dims[i][: len(left)] != left:
                continue
            if (*own.dims[j], last) != wanted.dims[j][: len(own.dims[j]) + 1]:
                continue
            ranks = dim(self.ranks(axis))
            shape = held.value.shape
            given = shape[j].divide(ranks)
            assert given is not None
            value = self._blocks(held.value, ranks, j, _outer(own.dims[j]), name)
            attributes = {"axis": axis, "ranks": self.ranks(axis)}
            value = self.graph.apply(ALL_TO_ALL, value, f"{name}_exchanged", **attributes)
            block = (*shape[:j], given, *shape[j + 1 :])
            value = self._brought(value, ranks, block, i, _outer(parts[:-1]), name)
            after = _with_parts(own, i, parts[:-1])
            return self._noted(value, _with_parts(after, j, (*own.dims[j], last)))
        return None

    # -- partial results

    def reduced(self, held: Held, axis: str, reduction: str, wanted: Sharding, name: str) -> Held:
        """Return results combined over an axis: only the rank's own part if that is wanted."""
        attributes = {"axis": axis, "ranks": self.ranks(axis), "reduction": reduction}
        own, k = held.sharding, wanted.along(axis)
        others = {x for x, _ in wanted.axes} - {x for x, _ in own.axes} - {axis}
        aim = wanted.without(*others)
        if k is None or aim.without(axis).dims[k] != own.dims[k]:
            value = self.graph.apply(ALL_REDUCE, held.value, name, **attributes)
            return self._noted(value, own)
        place = [p.axis for p in aim.dims[k]].index(axis)
        value, shape, inner = held.value, held.value.shape, _outer(aim.dims[k][:place])
        ranks = dim(self.ranks(axis))
        if k == 0 and inner == 1:
            value = self.graph.apply(REDUCE_SCATTER, value, name, **attributes)
        else:
            given = shape[k].divide(ranks)
            assert given is not None
            value = self._blocks(value, ranks, k, inner, name)
            value = self.graph.apply(REDUCE_SCATTER, value, f"{name}_block", **attributes)
            value = self.graph.reshaped(value, (*shape[:k], given, *shape[k + 1 :]), name)
        return self._noted(value, _with_parts(own, k, aim.dims[k]))

    def sent(self, held: Held, axis: str, reduction: str, name: str) -> Held:
        """Return the rank's own slice of partial results, combined after the loop."""
        own, at = held.sharding, held.sharding.along(STREAM)
        assert at is not None
        place = [p.axis for p in own.dims[at]].index(STREAM)
        ranks, shape = self.ranks(axis), held.value.shape
        pieces = pieces_of(own.dims[at][place], dim(ranks), at, _outer(own.dims[at][:place]))
        assert pieces is not None
        attributes = {"axis": axis, "ranks": ranks, "pieces": pieces}
        blocks = self.graph.apply(SEND_SLICE, held.value, f"{name}_blocks", **attributes)
        shape = (joined(shape[0], dim(pieces)), *shape[1:])
        blocks = self.graph.reshaped(blocks, (dim(ranks), *shape), f"{name}_split")
        kept = blocks.dtype if blocks.dtype.is_integer and blocks.dtype != I64 else None
        how = {"dims": (0,), "dtype": kept}
        value = self.graph.apply(reduction, blocks, name, **how)
        part = Part(axis, dim(ranks))
        return Held(value, _with_part(own, at, place, part))


def _outer(parts: Parts | list[Part]) -> Dim:
    """Return the number of outer whole parts of a dim in a rank's memory."""
    return product(p.parts for p in parts if p.axis is None)


def common(parts: Parts, other: Parts) -> int:
    """Return how many factors two dims have in common, starting at the outermost."""
    pairs = zip(parts, other, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(parts), len(other)))


def _with_parts(sharding: Sharding, k: int, parts: Parts) -> Sharding:
    dims = list(sharding.dims)
    dims[k] = parts
    return Sharding(tuple(dims)).normal


def _with_part(sharding: Sharding, k: int, place: int, part: Part) -> Sharding:
    parts = sharding.dims[k]
    return _with_parts(sharding, k, (*parts[:place], part, *parts[place + 1 :]))


def _until_stream(sharding: Sharding) -> tuple[tuple[int, Parts], ...]:
    """Return the dims that a stream divides, each with its factors up to that one."""
    dims = ((k, sharding.dims[k]) for k in sharding.streamed)
    return tuple((k, p[: [each.axis for each in p].index(STREAM) + 1]) for k, p in dims)
