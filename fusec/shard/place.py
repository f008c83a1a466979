"""Each rank's part of a whole tensor, and the whole tensor from all parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, Shape
from fusec.ir.graph import Fusion, Node
from fusec.ir.sharding import STREAM, Mesh, Parts, Sharding
from fusec.shard.axes import is_reshape

Array = NDArray[Any]
NO_SIZES: Mapping[str, int] = {}


def share(extent: Dim, parts: Parts) -> Dim:
    """Return the extent of one part of a dim: of one slice of it if a stream also divides it."""
    for part in parts:
        if part.axis is not None:
            extent = part.share(extent)
    return extent


def local_shape(shape: Shape, sharding: Sharding) -> Shape:
    """Return the shape of a rank's part of a tensor: streams do not divide memory."""
    return part_shape(shape, sharding.without(STREAM))


def part_shape(shape: Shape, sharding: Sharding) -> Shape:
    """Return the shape of one part of a tensor; in a loop, that of a slice."""
    return tuple(share(extent, parts) for extent, parts in zip(shape, sharding.dims, strict=True))


def local_attributes(node: Node, result: Sharding, shape: Shape) -> dict[str, Any]:
    """Return a node's attributes with the extents of a rank's results, given their shape."""
    attributes = dict(node.attributes)
    if node.op.extents:
        whole: tuple[Dim, ...] = attributes[node.op.extents]
        attributes[node.op.extents] = tuple(
            own if parts or is_reshape(node) else extent
            for extent, own, parts in zip(whole, shape, result.dims, strict=True)
        )
    return attributes


def local_part(
    array: Array, sharding: Sharding, mesh: Mesh, rank: int, sizes: Mapping[str, int] = NO_SIZES
) -> Array:
    """Return a rank's part of a whole array; FusecError if it is not evenly divisible.

    array: any type with `shape`, `reshape` and indexing. sizes: of the symbols in factors that stay
    whole, as the rank knows them.
    """
    factored, places = _factored(array, sharding, mesh, rank, sizes)
    own = factored[places]
    shape = (n // _ranks(p, mesh) for n, p in zip(array.shape, sharding.dims, strict=True))
    return own.reshape(tuple(shape))


def assemble(
    parts: Mapping[int, Array],
    sharding: Sharding,
    mesh: Mesh,
    sizes: Mapping[str, int] = NO_SIZES,
) -> Array:
    """Return the whole array from ranks' parts; of replicas, the last rank's is used."""
    first = next(iter(parts.values()))
    shape = [n * _ranks(p, mesh) for n, p in zip(first.shape, sharding.dims, strict=True)]
    whole: Array = np.empty(shape, first.dtype)
    for rank, part in parts.items():
        factored, places = _factored(whole, sharding, mesh, rank, sizes)
        factored[places] = np.reshape(part, np.shape(factored[places]))
    return whole


def local_sizes(original: Fusion, local: Fusion, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a rank's fusion, given those of the whole one."""
    own = dict(sizes)
    for name, ranks in _divided(original, local).items():
        if name not in sizes:
            continue
        if sizes[name] % ranks:
            raise FusecError(
                f"dim `{name}` is {sizes[name]}, not divisible by {ranks} ranks",
                help=f"a multiple of {ranks}",
            )
        own[name] = sizes[name] // ranks
    return own


def whole_sizes(original: Fusion, local: Fusion, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the whole fusion, given those of a rank's."""
    ranks = _divided(original, local)
    return {name: size * ranks.get(name, 1) for name, size in sizes.items()}


def _divided(original: Fusion, local: Fusion) -> dict[str, int]:
    """Return the number of ranks that each symbol is divided by."""
    whole = original.hints
    return {n: whole[n] // own if own else 1 for n, own in local.hints.items()}


def _ranks(parts: Parts, mesh: Mesh) -> int:
    """Return the number of ranks that a dim is divided over."""
    count = 1
    for part in parts:
        count *= mesh.extent(part.axis) if part.axis not in (None, STREAM) else 1
    return count


def _factored(
    array: Array, sharding: Sharding, mesh: Mesh, rank: int, sizes: Mapping[str, int]
) -> tuple[Array, tuple[int | slice, ...]]:
    """Return a view of an array with a dim for each factor, and the index of a rank's part in it.

    The factors after the last one along the mesh stay one dim.
    """
    place = mesh.place(rank)
    shape, places = list[int](), list[int | slice]()
    for extent, parts in zip(array.shape, sharding.without(STREAM).dims, strict=True):
        left = extent
        for part in parts:
            size = mesh.extent(part.axis) if part.axis is not None else part.parts.evaluate(sizes)
            if left % size:
                raise FusecError(f"an extent of {extent} is not divisible into {size} equal parts")
            left //= size
            shape.append(size)
            places.append(slice(None) if part.axis is None else place[part.axis])
        shape.append(left)
        places.append(slice(None))
    return array.reshape(tuple(shape)), tuple(places)
