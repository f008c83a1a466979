"""Check that values can be sharded as a fusion specifies."""

from __future__ import annotations

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Value
from fusec.ir.sharding import STREAM, Mesh, Parts, Sharding

EQUAL_SHARDS = "shards are equal, and so are slices and factors within them"
"""Why an extent must be divisible."""


def check_shardings(fusion: Fusion) -> None:
    """Raise FusecError at the first sharding that does not fit its value and the mesh."""
    known = {value.name: value for value in fusion.values}
    for name, sharding in fusion.shardings.items():
        if name not in known:
            raise FusecError(f"no operation produces the sharded `{name}`", span=sharding.span)
        check_sharding(known[name], sharding, fusion.mesh)


def check_sharding(value: Value, sharding: Sharding, mesh: Mesh | None) -> None:
    """Raise FusecError unless a value can be sharded this way over a mesh and streams."""
    where, span = f"`{value.name}`", sharding.span
    if value.is_scalar or len(sharding.dims) != value.rank:
        raise FusecError(f"{where} is {value.type} and cannot be divided as {sharding}", span=span)
    if sharding.ranks is not None:
        _check_ranks(where, sharding, sharding.ranks, mesh)
    sizes = {} if mesh is None else dict(mesh.axes)
    seen: set[tuple[str, int]] = set()
    for axis, at in sharding.axes:
        place = axis, at if axis == STREAM else 0
        if place in seen:
            raise FusecError(f"{where} is divided twice along `{axis}`", span=span)
        seen.add(place)
        parts = next(p.parts for p in sharding.dims[at] if p.axis == axis)
        if axis != STREAM and axis not in sizes:
            raise FusecError(
                f"{where} is sharded along `{axis}`, which is not an axis of the mesh", span=span
            )
        if axis != STREAM and parts.is_const and parts != sizes[axis]:
            raise FusecError(
                f"{where} has {parts} parts along `{axis}`, an axis of {sizes[axis]} ranks",
                span=span,
            )
    for at, factors in enumerate(sharding.dims):
        extent, parts = value.shape[at], product(f.parts for f in factors)
        if [f.axis for f in factors] == [STREAM] and len(sharding.streamed) == 1:
            continue  # slices need not be equal
        if extent.is_const and parts.is_const and extent.value % parts.value:
            raise FusecError(
                f"dim {at} of {where} has {extent} elements, not divisible by {parts}",
                span=span,
                notes=[_why_equal(sharding, factors)],
                help=f"an extent that is a multiple of {parts}, or another dim",
            )


def _why_equal(sharding: Sharding, factors: Parts) -> str:
    """Return the rule that requires equal parts of a dim."""
    if any(f.axis not in (None, STREAM) for f in factors):
        return EQUAL_SHARDS
    if len(sharding.streamed) > 1:
        return "slices of several dims are equal; those of one dim need not be"
    return "slices after a factor that is not sharded are equal"


def _check_ranks(where: str, sharding: Sharding, ranks: tuple[int, ...], mesh: Mesh | None) -> None:
    """Raise FusecError unless these ranks of a mesh can hold a value without the others."""
    span = sharding.span
    if mesh is None:
        raise FusecError(f"{where} is on some ranks, but the fusion has no mesh", span=span)
    wrong = next((r for r in ranks if r not in mesh.ranks), None)
    if wrong is not None or not ranks:
        found = "no rank" if wrong is None else f"rank {wrong}"
        raise FusecError(f"{where} is on {found}, of a mesh of {mesh.size} ranks", span=span)
    if len(set(ranks)) < len(ranks):
        raise FusecError(f"{where} is on a rank twice: {list(ranks)}", span=span)
    if set(ranks) == set(mesh.ranks):
        return
    for axis, _ in sharding.axes:
        if axis == STREAM or axis not in dict(mesh.axes):
            continue
        missing = mesh.closure(ranks, [axis]) - set(ranks)
        if missing:
            raise Unsupported(
                f"{where} is divided over some of the ranks along `{axis}`: {sorted(ranks)}, "
                f"without {min(missing)}",
                span=span,
                help=_blocks(ranks, mesh),
            )


def _blocks(ranks: tuple[int, ...], mesh: Mesh) -> str:
    """Return the declaration of a mesh in which these ranks form a block, if there is one."""
    size, first = len(ranks), min(ranks)
    if len(mesh.axes) == 1 and sorted(ranks) == [*range(first, first + size)]:
        groups, rest = divmod(mesh.size, size)
        if size > 1 and not rest and not first % size:
            ((axis, _),) = mesh.axes
            return (
                f"`mesh: {{stage: {groups}, {axis}: {size}}}`: a value is divided along `{axis}` "
                f"over all ranks of a stage, and over all ranks along `[stage, {axis}]`"
            )
    return "`ranks` lists all ranks along the axes that divide the value"
