"""Random graphs with random annotations: shardings, lists of ranks, and loop domains of scripts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Fusion, Value
from fusec.ir.sharding import STREAM, Mesh, Part, Sharding
from fusec.parse.twin import to_python
from fusec.shard.partition import partitioned
from tools.draw import draw_with, with_pin
from tools.sketch import Sketch

SHAPES: dict[tuple[tuple[str, int], ...], int] = {
    (): 24,
    (("mesh", 1),): 4, (("mesh", 2),): 22, (("mesh", 3),): 8, (("mesh", 4),): 18,
    (("dp", 2), ("tp", 2)): 18, (("a", 1), ("b", 3)): 2, (("a", 2), ("b", 1)): 2,
    (("a", 1), ("b", 2), ("c", 2)): 2,
}  # fmt: skip
"""Axes of meshes, with how often they are drawn; none: loops over streams alone."""
EXTENTS = (1, 2, 4, 4, 6, 8, 8, 12, 12, 16, 16, 24, 24, 32, 48, 48, 64, 96)
"""Extents that ranks mostly divide."""
UNEVEN = (3, 5, 7, 9, 10, 15, 33)
THEMES = (
    "plain", "movement", "rows", "gradients", "reductions", "products", "places", "scans", "sorts",
    "scatters", "losses", "transposes", "gemm", "gemm_chain", "attention", "reshapes",
)  # fmt: skip
PASSES = (
    "loops_by_cost", "scattered_sums", "peer_reads", "sink_joins", "sink_waits", "order_segments",
    "slice_buffers", "remove_copies", "share_expressions", "merge_casts", "remove_dead",
)  # fmt: skip
"""Names for --without."""


@dataclass(frozen=True)
class Drawn:
    """An annotated fusion, or a script that says one, and the options to compile it with."""

    fusion: Fusion
    script: str = ""
    without: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    streams: int = 4
    as_written: bool = False
    sum_chunks: int = 0


class EvenSketch(Sketch):
    """A sketch whose extents are mostly divided by ranks."""

    def _extent(self) -> int:
        return self.pick(UNEVEN) if self.chance(0.12) else self.pick(EXTENTS)

    def _named_dim(self, name: str) -> Dim:
        return self.builder.declare_dim(name, self._extent())

    def extent(self, budget: int) -> Dim:
        """Return an extent of at most `budget`: a named size, or a number."""
        named = [d for d in self.dims if self.size_of(d) <= budget]
        if named and self.chance(0.7):
            return self.pick(named)
        size = self._extent()
        return dim(size if size <= budget else 1)


def draw(seed: int, number: int) -> Drawn:
    """Return program `number` of a seed; the same in every run."""
    fusion = draw_with(EvenSketch, seed, number, THEMES, cap=1 << 12)
    rng = random.Random(f"{seed}:{number}:annotations")
    return annotate(with_pin(fusion, rng) if rng.random() < 0.05 else fusion, rng)


def annotate(fusion: Fusion, rng: random.Random) -> Drawn:
    """Return a fusion with annotations: of a file, or of a script."""
    (axes,) = rng.choices(list(SHAPES), list(SHAPES.values()))
    mesh = Mesh(axes, tuple(range(prod(size for _, size in axes)))) if axes else None
    options = _options(rng, mesh)
    script = _script(fusion, mesh, rng) if rng.random() < 0.3 else ""
    if script:
        return replace(options, fusion=fusion, script=script)
    said = dict[str, Sharding]()
    for value, share in _annotated(fusion):
        if rng.random() < share:
            said[value.name] = _sharding(value, mesh, dict(fusion.hints), rng)
    return replace(options, fusion=replace(fusion, mesh=mesh, shardings=said))


def _options(rng: random.Random, mesh: Mesh | None) -> Drawn:
    nothing = Fusion("nothing", (), (), (), ())
    without = tuple(name for name in PASSES if rng.random() < 0.12)
    if rng.random() < 0.4:
        without = tuple(dict.fromkeys(("loops_by_cost", *without)))
    asked = tuple(n for n in ("assign_streams", "reuse_in_place") if rng.random() < 0.15)
    streams = rng.choice([1, 2, 3, 4, 4, 4])
    chunks = 4 if mesh is not None and rng.random() < 0.06 else 0
    return Drawn(nothing, "", without, asked, streams, rng.random() < 0.06, chunks)


def _annotated(fusion: Fusion) -> Iterator[tuple[Value, float]]:
    """Yield the tensors that may be annotated, with how often they are."""
    entries, results = {i.value for i in fusion.inputs}, {o.value for o in fusion.outputs}
    for value in fusion.values:
        if not value.is_scalar and value.rank:
            yield value, 0.5 if value in entries else 0.4 if value in results else 0.2


def _sharding(
    value: Value, mesh: Mesh | None, sizes: dict[str, int], rng: random.Random
) -> Sharding:
    """Draw how a value is divided; mostly so that the parts are equal."""
    if mesh is not None and rng.random() < (0.15 if len(mesh.axes) == 1 else 0.4):
        ranks = rng.sample(mesh.ranks, rng.randint(1, mesh.size))
        own = Sharding.whole(value.rank)
        if rng.random() < (0.3 if len(mesh.axes) == 1 else 0.7):
            own = _sharding(value, mesh, sizes, rng)
        if rng.random() < 0.9:
            axes = (axis for axis, _ in own.axes if axis != STREAM)
            ranks = sorted(mesh.closure(ranks, axes if len(mesh.axes) > 1 else ()))
        return replace(own, ranks=tuple(ranks))
    dims: list[list[Part]] = [[] for _ in value.shape]
    axes = [(name, dim(size)) for name, size in (mesh.axes if mesh is not None else ())]
    axes = [a for a in axes if rng.random() < 0.7]
    if rng.random() < (0.85 if mesh is None else 0.35):
        at = rng.randrange(value.rank)
        count = rng.choice([dim(2), dim(2), dim(4), dim(4), dim(3), dim(7), value.shape[at]])
        axes.insert(rng.randint(0, len(axes)), (STREAM, count))
    rng.shuffle(axes)
    if value.rank > 1 and rng.random() < 0.2:
        axes += [(STREAM, dim(rng.choice([2, 2, 3, 4]))) for name, _ in axes if name == STREAM]
    for name, count in axes:
        careless = rng.random() < 0.05
        for _ in range(4):
            at = rng.randrange(value.rank)
            taken = prod(p.parts.evaluate(sizes) for p in dims[at])
            extent, parts = value.shape[at].evaluate(sizes), count.evaluate(sizes)
            whole = rng.choice([1, 1, 1, 1, 2])
            alone = name == STREAM and not dims[at] and whole == 1 and count.is_const
            fits = parts and extent and extent % (taken * parts * whole) == 0
            if fits or careless or alone:
                dims[at] += [Part(None, dim(whole)), Part(name, count)]
                break
    return Sharding(tuple(map(tuple, dims))).normal


# -- scripts


def _script(fusion: Fusion, mesh: Mesh | None, rng: random.Random) -> str:
    """Return a script of the fusion that transforms loop domains; empty where there is none."""
    try:
        text = to_python(fusion)
    except FusecError:
        return ""
    lines = [*_imports(mesh), text.rstrip()]
    for value, share in _annotated(fusion):
        if rng.random() < share:
            lines += [f"    {line}" for line in _transforms(fusion, value, mesh, rng)]
    return "\n".join(lines) + "\n"


def _imports(mesh: Mesh | None) -> Iterator[str]:
    yield "import numpy as np"
    yield "from nvfuser_direct import ParallelType"
    yield "from nvfuser_direct.multidevice import DeviceMesh"
    if mesh is not None:
        yield f"mesh = DeviceMesh(np.arange({mesh.size}).reshape({mesh.shape}))"


def _transforms(
    fusion: Fusion, value: Value, mesh: Mesh | None, rng: random.Random
) -> Iterator[str]:
    """Yield calls that split, merge, reorder and parallelize axes of a tensor."""
    name, sizes = value.name, [e.evaluate(fusion.hints) for e in value.shape]
    kinds = ["stream"] if rng.random() < (0.9 if mesh is None else 0.3) else []
    if mesh is not None:
        listed = mesh.size > 1 and len(mesh.axes) == 1 and rng.random() < 0.12
        own = sorted(rng.sample(mesh.ranks, rng.randint(1, mesh.size))) if listed else None
        yield f"{name}.set_device_mesh({'mesh' if own is None else f'DeviceMesh({own})'})"
        kinds += [f"mesh_{'xyz'[k]}" for k in range(len(mesh.axes)) if rng.random() < 0.7]
    counts = {f"mesh_{'xyz'[k]}": size for k, (_, size) in enumerate(reversed(mesh.axes))} if (
        mesh is not None) else {}  # fmt: skip
    rng.shuffle(kinds)
    free = list(range(len(sizes)))  # axes that are not parallel yet, by place
    if rng.random() < (0.3 if mesh is None else 0.15) and len(sizes) > 1:
        a, b = rng.sample(range(len(sizes)), 2) if rng.random() < 0.3 else (0, 1)
        yield f"{name}.merge({a}, {b})"
        sizes[a] *= sizes[b]
        del sizes[b]
        free = list(range(len(sizes)))
    for kind in kinds:
        count = counts.get(kind) or rng.choice([2, 2, 3, 4])
        fit = [k for k in free if sizes[k] and sizes[k] % count == 0]
        if not fit and rng.random() < 0.8:
            continue
        at = rng.choice(fit or free or [0])
        if sizes[at] != count or (kind == "stream" and rng.random() < 0.5):
            how = rng.choice(["outer_split", "outer_split", "inner_split", "split"])
            inner = how == "inner_split"
            if how == "split":
                inner = rng.random() < 0.3
                yield f"{name}.split({at}, {count}, inner_split={inner})"
            else:
                yield f"{name}.{how}({at}, {count})"
            rest = -(-sizes[at] // count)
            sizes[at : at + 1] = [rest, count] if inner else [count, rest]
            free = [k + (k > at) for k in free] + [at + (not inner)]
            at += inner
            if at not in free:
                free.append(at)
            free = sorted(set(free) | {at, at + (-1 if inner else 1)})
        yield f"{name}.axis({at}).parallelize(ParallelType.{kind})"
        if at in free:
            free.remove(at)
        if len(sizes) > 1 and rng.random() < 0.15:
            new = rng.randrange(len(sizes))
            yield f"{name}.reorder({{{at}: {new}}})"
            free = [k for k in range(len(sizes)) if k in free and k not in (at, new)]


# -- what is inferred


def inferred(fusion: Fusion) -> dict[str, Sharding]:
    """Return what is inferred of the values of which a fusion says nothing, where one can say it.

    Slices whose number is a symbol cannot be said, nor divisions of what each reader has made.
    """
    divided = partitioned(fusion)
    taken = {*fusion.shardings, *divided.several}
    return {
        name: said for name, said in divided.values.items()
        if name not in taken and all(p.parts.is_const for parts in said.dims for p in parts)
    }  # fmt: skip


def repeated(fusion: Fusion, rng: random.Random, most: int) -> Iterator[tuple[str, Fusion]]:
    """Yield fusions with one annotation more, which says what is inferred, and its value's name."""
    found = inferred(fusion)
    for name in rng.sample(list(found), min(most, len(found))):
        yield name, replace(fusion, shardings={**fusion.shardings, name: found[name]})


def repeated_all(fusion: Fusion) -> Fusion:
    """Return a fusion that says all that is inferred."""
    return replace(fusion, shardings={**fusion.shardings, **inferred(fusion)})
