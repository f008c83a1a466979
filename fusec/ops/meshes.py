"""Meshes by their names in files and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span
from fusec.ir.sharding import STREAM, Mesh
from fusec.ir.sharding_text import DEFAULT_AXES
from fusec.ops.names import check_name

MOST_RANKS = 65536


def mesh_of_shape(shape: Sequence[int], span: Span | None = None) -> Mesh:
    """Return a mesh of up to three axes with default names."""
    names = next((n for n in DEFAULT_AXES if len(n) == len(shape)), None)
    if names is None:
        raise FusecError(
            f"a mesh of {len(shape)} axes needs names for them" if shape else "a mesh without axes",
            span=span,
            help="write `mesh: [4]`, or `mesh: {a: 2, b: 2, c: 2, d: 2}`",
        )
    return mesh_of_axes(list(zip(names, shape, strict=True)), span)


def mesh_of_axes(axes: Sequence[tuple[str, int]], span: Span | None = None) -> Mesh:
    """Return the row-major mesh of all ranks, starting at 0."""
    if prod(size for _, size in axes) > MOST_RANKS:
        raise FusecError(f"a mesh of more than {MOST_RANKS} ranks", span=span)
    return Mesh(tuple(axes), tuple(range(prod(size for _, size in axes))), span)


def is_counted(mesh: Mesh) -> bool:
    """Return whether a mesh has the ranks 0, 1, ... in order."""
    return mesh.ranks == tuple(range(mesh.size))


def mesh_of_ranks(ranks: Sequence[int], span: Span | None = None) -> Mesh:
    """Return the mesh of one axis over some ranks, in their order."""
    for rank in ranks:
        if not 0 <= rank < MOST_RANKS:
            raise FusecError(
                f"a rank is at least 0 and below {MOST_RANKS}, found {rank}", span=span
            )
    if len(set(ranks)) < len(ranks):
        raise FusecError(f"a rank appears twice in a mesh: {list(ranks)}", span=span)
    return replace(mesh_of_shape([len(ranks)], span), ranks=tuple(ranks))


def resized(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """Return a mesh with the sizes of some axes replaced."""
    named = {name: size for name, size in sizes.items() if name in dict(mesh.axes)}
    if not named:
        return mesh
    for name, size in named.items():
        if size < 1:
            message = f"a mesh axis has at least 1 rank, found `{name}` of {size}"
            raise FusecError(message, span=mesh.span)
    return mesh_of_axes([(name, named.get(name, size)) for name, size in mesh.axes], mesh.span)


def check_axis(name: str, span: Span | None = None) -> None:
    """Raise FusecError unless an axis of a mesh may have this name."""
    check_name(name, "mesh axis", span)
    if name == STREAM:
        raise FusecError(f"mesh axis name `{name}` is reserved for loops over streams", span=span)
