"""Sums over ranks in a fixed number of chunks, which are added in order.

Each chunk is summed separately and rounded to the type of the result. The chunks are added
sequentially, 16-bit floats in f32, and rounded once. The result depends neither on the number of
ranks that share the chunks nor on the order in which a library adds. Ranks send chunks by copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim, Shape, dim, product
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.sharding import STREAM, Part, Sharding
from fusec.ir.substitute import substitute_dims
from fusec.ops.find import find_op
from fusec.ops.reduction.reductions import sum as sum_
from fusec.shard.divided import RankSum
from fusec.shard.graph import LocalGraph
from fusec.shard.partition import partitioned

OPTION = "--sum-chunks"


def with_sum_chunks(fusion: Fusion, count: int) -> Fusion:
    """Return the fusion with its sums over ranks in `count` chunks; FusecError if impossible.

    The extents of these sums become numbers, and loops over streams are removed.
    """
    if not fusion.shardings or count < 1:
        return fusion
    fusion = _with_parts(fusion, lambda p: Part(None, p.parts) if p.axis == STREAM else p)
    rounded = {node.output.name for node in fusion.nodes if node.output.dtype.is_rounded}
    found = partitioned(_as_if_divided(fusion, count)).sums
    sums = {name: how for name, how in found.items() if name in rounded}
    if not sums:
        return fusion
    fixed = _with_fixed_extents(fusion, sums)
    work = _Chunker(fixed, count)
    for node in fixed.nodes:
        how = sums.get(node.output.name)
        work.keep(node) if how is None else work.divide(node, how)
    return work.finish()


def _as_if_divided(fusion: Fusion, count: int) -> Fusion:
    """Return a fusion with the same sums over ranks as this one, if no axis had a single rank."""
    mesh = fusion.mesh
    alone = {name for name, size in mesh.axes if size == 1} if mesh is not None else set[str]()
    if mesh is None or not alone:
        return fusion
    axes = tuple((name, count if name in alone else size) for name, size in mesh.axes)
    ranks = tuple(range(prod(size for _, size in axes)))

    found = _with_parts(fusion, lambda p: Part(p.axis, dim(count)) if p.axis in alone else p)
    larger = tuple(replace(d, default=d.default * count, buckets=()) for d in fusion.dims)
    return replace(found, mesh=replace(mesh, axes=axes, ranks=ranks), dims=larger)


def _with_parts(fusion: Fusion, change: Callable[[Part], Part]) -> Fusion:
    """Return a fusion with other factors in its shardings."""
    shardings = {
        name: replace(said, dims=tuple(tuple(map(change, parts)) for parts in said.dims)).stated
        for name, said in fusion.shardings.items()
    }
    return replace(fusion, shardings=shardings)


def _with_fixed_extents(fusion: Fusion, sums: Mapping[str, RankSum]) -> Fusion:
    """Return the fusion with numbers for the symbols of the extents that ranks sum over."""
    values = dict[str, Dim]()
    for node in fusion.nodes:
        how = sums.get(node.output.name)
        for k, axis in () if how is None else _summed(how):
            symbols = node.operands[k].shape[axis].symbols
            values |= {name: dim(fusion.hints[name]) for name in symbols}
    fixed = _with_parts(fusion, lambda p: Part(p.axis, p.parts.substitute(values)))
    return substitute_dims(fixed, values)


def _summed(how: RankSum) -> list[tuple[int, int]]:
    """Return the operands, each with its dim that ranks sum over."""
    pairs = ((k, s.along(how.axes[0])) for k, s in enumerate(how.operands) if s is not None)
    return [(k, axis) for k, axis in pairs if axis is not None]


def _has_chunks(node: Node) -> bool:
    """Return whether a node is a GEMM or a simple sum."""
    is_gemm = node.op.product is not None and node.op.lookup is None
    return is_gemm or node.op is sum_


class _Chunker:
    """The partially rewritten fusion."""

    def __init__(self, fusion: Fusion, count: int) -> None:
        self.fusion, self.count = fusion, count
        self.graph = LocalGraph()
        self.now: dict[Value, Value] = {}
        self.said: dict[Value, Sharding] = {}

    def current(self, operand: Operand) -> Operand:
        return self.now.get(operand, operand) if isinstance(operand, Value) else operand

    def keep(self, node: Node) -> None:
        """Add a node unchanged."""
        self.graph.span = node.span
        operands = [self.current(o) for o in node.operands]
        made = self.graph.add(node.op, operands, node.attributes, [v.name for v in node.outputs])
        self.now.update(zip(node.outputs, made, strict=True))

    def divide(self, node: Node, how: RankSum) -> None:
        """Add the chunks of a node's sums, and their sum in order."""
        self.graph.span = node.span
        self._check(node, how)
        if node.op.family == "contraction":
            chunks = self._products(node, how)
        else:
            chunks = self._sums(node, how)
        total = self._added(node, chunks)
        if how.bias is not None:
            total = self._biased(node, node.operands[how.bias], total)
        self.now[node.output] = total

    def _check(self, node: Node, how: RankSum) -> None:
        name = node.output.name

        def refused(why: str, help: str) -> Unsupported:
            return Unsupported(f"{OPTION}: `{name}` {why}", span=node.span, help=help)

        axis_name, *others = how.axes
        if others:
            raise refused(f"is summed over {len(how.axes)} mesh axes", "shard it along one")
        if how.reduction != "sum" or not _has_chunks(node):
            raise refused(
                f"is a `{node.op.name}` over ranks", "only matmul, linear and sum support chunks"
            )
        assert self.fusion.mesh is not None
        ranks = self.fusion.mesh.extent(axis_name)
        if self.count % ranks:
            raise FusecError(
                f"{OPTION} {self.count}: {self.count} chunks are not divisible among {ranks} "
                f"ranks along `{axis_name}`", span=node.span, help=f"a multiple of {ranks}",
            )  # fmt: skip
        for k, axis in _summed(how):
            sharding = how.operands[k]
            assert sharding is not None
            extent = node.operands[k].shape[axis]
            if len(sharding.dims[axis]) > 1:
                raise refused(
                    f"is sharded inside a `whole` factor: {sharding}", "shard the outer factor"
                )
            if extent.divide(self.count) is None:
                raise FusecError(
                    f"{OPTION} {self.count}: `{name}` sums over {extent} elements, "
                    f"not divisible into {self.count} equal chunks",
                    span=node.span, help="a divisor of it",
                )  # fmt: skip

    def _split(self, operand: Operand, axis: int) -> Value:
        """Return a tensor with the chunks of a dim as its dim 0."""
        value = self.current(operand)
        assert isinstance(value, Value)
        shape = value.shape
        rest = shape[axis].divide(self.count)
        assert rest is not None
        split = (*shape[:axis], dim(self.count), rest, *shape[axis + 1 :])
        value = self.graph.apply("reshape", value, new_shape=split)
        order = (axis, *(k for k in range(len(split)) if k != axis))
        if order == tuple(range(len(split))):
            return value
        return self.graph.apply("permute", value, dims=order)

    def _sums(self, node: Node, how: RankSum) -> Value:
        ((_, axis),) = _summed(how)
        operand = self._split(node.operands[0], axis)
        attributes = {**node.attributes, "dims": tuple(d + 1 for d in node.attributes["dims"])}
        (made,) = self.graph.add(node.op, [operand], attributes, [f"{node.output.name}_chunks"])
        return made

    def _products(self, node: Node, how: RankSum) -> Value:
        """Return the GEMMs of all chunks, as one batched GEMM."""
        places = dict(_summed(how))
        a, b = (self._split(node.operands[k], places[k]) for k in (0, 1))
        assert node.op.product is not None
        if node.op.product.transposed and b.rank == 3:
            b = self.graph.apply("permute", b, dims=(0, 2, 1))
        if a.rank < 3 or b.rank < 3:
            raise Unsupported(
                f"{OPTION}: `{node.output.name}` is a matrix-vector product", span=node.span,
                help="add a dim of one element",
            )  # fmt: skip
        rows = a.shape[1:-1]
        if a.rank > b.rank == 3:
            flat = (a.shape[0], product(rows), a.shape[-1])
            a = self.graph.apply("reshape", a, new_shape=flat)
        if a.rank != b.rank:
            raise Unsupported(
                f"{OPTION}: the batches of `{node.output.name}` are broadcast", span=node.span,
                help="expand the operand with fewer dims",
            )  # fmt: skip
        name = f"{node.output.name}_chunks"
        (made,) = self.graph.add(find_op("matmul"), [a, b], {}, [name])
        whole = (dim(self.count), *node.output.shape)
        return made if made.shape == whole else self._reshaped(made, whole)

    def _reshaped(self, value: Value, shape: Shape) -> Value:
        return self.graph.apply("reshape", value, new_shape=shape)

    def _added(self, node: Node, chunks: Value) -> Value:
        """Return the sum of the chunks in order, in the sharding of the node's results."""
        value, shape = node.output, node.output.shape
        said = self.fusion.shardings.get(value.name)
        total: Value | None = None
        for number in range(self.count):
            window: dict[str, Any] = {
                "start_indices": (dim(number), *(dim(0) for _ in shape)),
                "end_indices": (dim(number + 1), *shape),
                "strides": (1,) * (len(shape) + 1),
                "manual_normalization": False,
            }
            (part,) = self.graph.add(find_op("slice"), [chunks], window, [f"{value.name}_chunk"])
            if said is not None:
                self.said[part] = Sharding(((), *said.dims))
            part = self._reshaped(part, shape)
            if value.dtype.is_half:
                part = self.graph.apply("cast", part, dtype=value.dtype.compute)
            if total is None:
                total = part
            else:
                (total,) = self.graph.add(find_op("add"), [total, part], {}, [value.name])
        assert total is not None
        if value.dtype.is_half:
            total = self.graph.apply("cast", total, value.name, dtype=value.dtype)
        return total

    def _biased(self, node: Node, bias: Operand, total: Value) -> Value:
        operand = self.current(bias)
        assert isinstance(operand, Value)
        dims = tuple(range(total.rank - operand.rank, total.rank))
        at = {"shape": total.shape, "broadcast_dims": dims}
        (wide,) = self.graph.add(find_op("broadcast_in_dim"), [operand], at)
        return self.graph.add(find_op("add"), [total, wide], {}, [node.output.name])[0]

    def finish(self) -> Fusion:
        """Return the fusion."""
        current = self.now.get
        wanted = [current(o.value, o.value) for o in self.fusion.outputs]
        named = {i.value: i.value.name for i in self.fusion.inputs}
        named |= {own: value.name for value, own in self.now.items()}
        taken = (d.name for d in self.fusion.dims)
        nodes, now = self.graph.finish(named, taken, wanted)
        outputs = tuple(
            replace(output, value=now[own])
            for output, own in zip(self.fusion.outputs, wanted, strict=True)
        )
        shardings = dict(self.fusion.shardings)
        shardings |= {now[own].name: said for own, said in self.said.items() if own in now}
        return replace(self.fusion, nodes=nodes, outputs=outputs, shardings=shardings)
