"""Sizes of sharded tensors: a rank passes its parts, and a definition has the whole sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import lcm

from fusec.dataclasses import replace
from fusec.ir.dim import Dim, product, symbol
from fusec.ir.graph import Fusion
from fusec.ir.sharding import STREAM, Sharding
from fusec.parse.dsl.inputs import Actual, bind, with_hints
from fusec.parse.dsl.steps import Sizes
from fusec.shard.partition import partition


def is_divided(fusion: Fusion) -> bool:
    """Return whether ranks hold parts of tensors; loops over streams do not shard memory."""
    return any(not s.without(STREAM).is_whole for s in fusion.shardings.values())


def bind_parts(fusion: Fusion, actuals: Sequence[Actual]) -> Fusion:
    """Return the fusion with sizes and scalars of a rank's inputs as defaults, once checked."""
    if not is_divided(fusion):
        return bind(fusion, actuals)
    local = partition(fusion)
    bound = bind(local, actuals)
    given = {i.value.name: i.default for i in bound.inputs if i.value.is_scalar}
    inputs = (replace(i, default=given.get(i.value.name, i.default)) for i in fusion.inputs)
    sizes = {
        name: size * (fusion.hints[name] // local.hints[name] if local.hints[name] else 1)
        for name, size in bound.hints.items()
        if name in fusion.hints
    }
    return with_hints(replace(fusion, inputs=tuple(inputs)), sizes)


def whole_sizes(sizes: Sizes, ranks: Mapping[str, Sequence[int]]) -> Sizes:
    """Return the sizes of whole inputs, given those of a rank's parts."""
    return {
        (name, axis): size * ranks[name][axis] if axis is not None and name in ranks else size
        for (name, axis), size in sizes.items()
    }


def with_divided_defaults(fusion: Fusion, unknown: int) -> Fusion:
    """Return the fusion with defaults of unknown sizes that its shardings divide."""
    needs: dict[str, int] = {}
    for extent, parts in _parts(fusion):
        for fact in fusion.dims:
            if fact.anonymous and fact.default == unknown and extent == symbol(fact.name):
                needs[fact.name] = lcm(needs.get(fact.name, 1), parts)
    facts = tuple(
        replace(f, default=-(-f.default // needs[f.name]) * needs[f.name]) if f.name in needs else f
        for f in fusion.dims
    )
    return replace(fusion, dims=facts)


def _parts(fusion: Fusion) -> Iterable[tuple[Dim, int]]:
    """Yield extents, and the number of parts of each, if that is a constant."""
    for value in fusion.values:
        sharding = fusion.shardings.get(value.name, Sharding.whole(value.rank))
        for extent, factors in zip(value.shape, sharding.dims, strict=True):
            parts = product(f.parts for f in factors if f.parts.is_const)
            if factors:
                yield extent, parts.value
