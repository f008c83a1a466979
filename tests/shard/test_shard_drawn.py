"""Drawn graphs with drawn shardings: all ranks together compute what the whole graph means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from draws import drawn
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from lockstep import agree, mesh_of

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import dim
from fusec.ir.dtype import F32, I64
from fusec.ir.graph import Fusion, Value
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding
from fusec.ops.builder.build import GraphBuilder
from fusec.passes import run_pipeline
from fusec.shard.loops import settle_loops
from fusec.shard.partition import partition, partitioned

MESHES = (
    mesh_of(mesh=2), mesh_of(mesh=4), mesh_of(dp=2, tp=2), mesh_of(a=4, b=2), mesh_of(mesh=1),
)  # fmt: skip
SIZES = {"A": 16, "B": 24, "C": 8}
UNARY = ("neg", "abs", "relu", "sign")
BINARY = ("add", "sub", "mul", "minimum", "maximum", "gt")
REDUCTIONS = ("sum", "max", "min", "any", "argmax")


def _print(fusion: Fusion, printer: Any, cycle: bool) -> None:
    said = {name: str(sharding) for name, sharding in fusion.shardings.items()}
    printer.text("\n".join([*map(repr, (*fusion.inputs, *fusion.nodes)), f"{fusion.mesh}: {said}"]))


# Hypothesis prints a failing example field by field, which nobody can read.
Fusion._repr_pretty_ = _print  # type: ignore[attr-defined]


class Sketch:
    """A graph being drawn on tensors of small integers, whose results are exact."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.builder = draw, GraphBuilder("drawn")
        self.sizes = [self.builder.declare_dim(n, s) for n, s in SIZES.items()]
        self.sizes.append(dim(1))
        self.sizes.append(dim(8))
        self.tensors: list[Value] = []

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def input(self) -> None:
        rank = self.draw(st.integers(1, 3))
        shape = [self.pick(self.sizes) for _ in range(rank)]
        self.tensors.append(self.builder.input(f"x{len(self.tensors)}", F32, shape))

    def step(self) -> None:
        """Add an operation, if what is drawn fits."""
        x = self.pick(self.tensors)
        kind = self.pick(
            ["unary", "binary", "reduce", "reduce", "matmul", "linear", "linear", "permute",
             "reshape", "broadcast", "slice", "cat", "scan", "flip", "sort", "gather", "pad",
             "mean"]
        )  # fmt: skip
        try:
            made = getattr(self, kind)(x)
        except FusecError:
            return
        if isinstance(made, Value) and made.rank:
            self.tensors.append(made)

    def axis(self, x: Value) -> int:
        return self.draw(st.integers(0, max(0, x.rank - 1)))

    def unary(self, x: Value) -> Any:
        return self.builder.apply(self.pick(UNARY), self.small(x))

    def small(self, x: Value) -> Value:
        """Return a tensor as integers that are small: their products stay exact."""
        x = x if x.dtype == F32 else self.builder.apply("cast", x, dtype=F32)  # type: ignore[assignment]
        return self.builder.apply("fmod", x, 5.0)  # type: ignore[return-value]

    def binary(self, x: Value) -> Any:
        return self.builder.apply(self.pick(BINARY), self.small(x), self.another())

    def another(self) -> Value:
        return self.small(self.pick(self.tensors))

    def reduce(self, x: Value) -> Any:
        name = self.pick(REDUCTIONS)
        keep = self.draw(st.booleans())
        if name == "argmax":
            return self.builder.apply(name, self.small(x), dim=self.axis(x), keepdim=keep)
        dims = sorted({self.axis(x), self.axis(x)})
        return self.builder.apply(name, self.small(x), dims=dims, keepdim=keep)

    def mean(self, x: Value) -> Any:
        self.builder.apply("sum", self.small(x), dims=[self.axis(x)])
        size = self.builder.apply("size", x, dim=self.axis(x))
        return self.builder.apply("mul", self.small(x), size)

    def matmul(self, x: Value) -> Any:
        y: Any = self.another()
        if self.draw(st.booleans()) and y.rank > 1:
            y = self.builder.apply("permute", y, dims=[*range(y.rank - 2), y.rank - 1, y.rank - 2])
        return self.builder.apply("matmul", self.small(x), y)

    def linear(self, x: Value) -> Any:
        bias = [self.another()] if self.draw(st.booleans()) else []
        return self.builder.apply("linear", self.small(x), self.another(), *bias)

    def permute(self, x: Value) -> Any:
        return self.builder.apply("permute", x, dims=self.draw(st.permutations(range(x.rank))))

    def reshape(self, x: Value) -> Any:
        shape = list(x.shape)
        at = self.axis(x)
        if self.draw(st.booleans()) and x.rank > 1:
            at = min(at, x.rank - 2)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            known = [t for t in self.sizes if shape[at].divide(t) is not None]
            part = self.pick(known)
            rest = shape[at].divide(part)
            assert rest is not None
            shape[at : at + 1] = self.pick([[part, rest], [rest, part]])
        return self.builder.apply("reshape", x, new_shape=shape)

    def broadcast(self, x: Value) -> Any:
        at = self.draw(st.integers(0, x.rank))
        shape = list(x.shape)
        shape.insert(at, self.pick(self.sizes))
        places = [k for k in range(len(shape)) if k != at]
        return self.builder.apply("broadcast_in_dim", x, shape=shape, broadcast_dims=places)

    def slice(self, x: Value) -> Any:
        at, ends = self.axis(x), list(x.shape)
        starts = [1 if k == at else 0 for k in range(x.rank)]
        return self.builder.apply("slice", x, starts, ends, manual_normalization=True)

    def cat(self, x: Value) -> Any:
        return self.builder.apply("cat", [x, self.pick(self.tensors)], dim=self.axis(x))

    def scan(self, x: Value) -> Any:
        return self.builder.apply("cummax", self.small(x), dim=self.axis(x))

    def flip(self, x: Value) -> Any:
        return self.builder.apply("flip", x, dims=[self.axis(x)])

    def sort(self, x: Value) -> Any:
        return self.builder.apply("argsort", self.small(x), dim=self.axis(x))

    def gather(self, x: Value) -> Any:
        at, place = self.axis(x), self.builder.apply("abs", self.another())
        if x.shape[at] == 1:
            raise FusecError("an index goes up to 4")
        index = self.builder.apply("cast", place, dtype=I64)
        return self.builder.apply("take_along_axis", x, index, dim=at)

    def pad(self, x: Value) -> Any:
        return self.builder.apply("pad", x, [1, 2])


@st.composite
def shardings(draw: Any, value: Value, mesh: Mesh, sizes: dict[str, int]) -> Sharding:
    """Draw how a value is divided: axes on dims that they divide, maybe a stream."""
    dims: list[list[Part]] = [[] for _ in value.shape]
    axes = [(name, dim(size)) for name, size in mesh.axes]
    if draw(st.booleans()):
        axes.append((STREAM, dim(draw(st.sampled_from([2, 4, 3, 7])))))
    for name, parts in axes:
        at = draw(st.integers(0, value.rank))
        if at == value.rank:
            continue
        left = value.shape[at].evaluate(sizes)
        for part in dims[at]:
            left //= part.parts.value
        whole = draw(st.sampled_from([1, 1, 1, 2])) if name != STREAM else 1
        uneven = name == STREAM and not dims[at]  # where nothing else divides the dim
        if (left % (parts.value * whole) and not uneven) or left == 0:
            continue
        if name == STREAM and any(p.axis is None for p in dims[at]):
            continue
        dims[at] += [Part(None, dim(whole)), Part(name, parts)]
    found = Sharding(tuple(map(tuple, dims))).normal
    if draw(st.integers(0, 2)):
        return found
    ranks = draw(st.sets(st.sampled_from(mesh.ranks)))  # none: all hold it
    ranks = mesh.closure(ranks, (axis for axis, _ in found.axes if axis != STREAM))
    return replace(found, ranks=tuple(sorted(ranks)) or None)


@st.composite
def divided_fusions(draw: Any) -> Fusion:
    """Draw a graph, a mesh, and shardings of some of its values."""
    sketch = Sketch(draw)
    for _ in range(draw(st.integers(1, 3))):
        sketch.input()
    inputs = len(sketch.tensors)
    for _ in range(draw(st.integers(1, 7))):
        sketch.step()
    if len(sketch.tensors) == inputs:
        sketch.tensors.append(sketch.unary(sketch.tensors[0]))
    for value in dict.fromkeys(sketch.tensors[inputs:][-2:]):
        sketch.builder.output(value)
    try:
        fusion = sketch.builder.finish()
    except FusecError:  # a maximum of no elements
        reject()
    mesh = draw(st.sampled_from(MESHES))
    said = dict[str, Sharding]()
    given = {entry.value for entry in fusion.inputs}
    for value in fusion.values:
        often = 0 if value in given else 2
        if not value.is_scalar and value.rank and draw(st.integers(0, often)) == 0:
            said[value.name] = draw(shardings(value, mesh, dict(fusion.hints)))
    return replace(fusion, mesh=mesh, shardings=said)


def refused(fusion: Fusion) -> bool:
    """Return whether a drawn fusion cannot be divided so, by name."""
    try:
        partition(fusion)
    except Unsupported:
        return True
    except FusecError as error:
        return any(text in str(error) for text in ("carries a dependence", "not divisible into"))
    return False


@drawn(30)
@given(divided_fusions())
def test_all_ranks_together_compute_what_the_whole_graph_means(fusion: Fusion) -> None:
    assume(not refused(fusion))
    local = partitioned(fusion)
    agree(fusion, local)
    agree(fusion, replace(local, fusion=settle_loops(run_pipeline(local.fusion))))
