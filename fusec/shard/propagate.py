"""Propagate shardings from results to operands, as nvFuser does."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.sharding import STREAM, Sharding
from fusec.shard.axes import Axes, axes_of, distinct_sizes, is_reshape, reshaped
from fusec.shard.partition import partitioned


def with_readers_shardings(fusion: Fusion, *, outputs: bool = True) -> Fusion:
    """Return the fusion with more shardings: of outputs and sums over ranks, by their readers.

    outputs: whether those of outputs may change too.

    Inputs and values with a sharding in the fusion are unchanged. A sum over ranks whose reader is
    divided becomes a reduce-scatter if it was an all-reduce. Other values need no communication for
    it: readers take their parts of what each rank computes.
    """
    if fusion.mesh is None or not fusion.shardings:
        return fusion
    sizes, divided = distinct_sizes(fusion), partitioned(fusion)
    now = dict(divided.values)
    more = dict[str, Sharding]()
    for node in reversed(fusion.nodes):
        if node.output.is_scalar:
            continue
        result = max((now[v.name] for v in node.outputs), key=_axis_count)
        axes = axes_of(node, sizes)
        for k, operand in enumerate(node.operands):
            if not isinstance(operand, Value) or operand.is_scalar:
                continue
            name = operand.name
            if operand in fusion.input_of or name in fusion.shardings:
                continue
            if operand in fusion.output_of and not outputs:
                continue
            own = _divided_further(node, axes, k, now[name], result.without(STREAM))
            if own.dims == now[name].dims:
                continue
            now[name] = own
            if operand in fusion.output_of or name in divided.sums:
                more[name] = own
    return replace(fusion, shardings={**fusion.shardings, **more}) if more else fusion


def _divided_further(node: Node, axes: Axes, k: int, own: Sharding, result: Sharding) -> Sharding:
    """Return an operand's sharding plus the axes of the result that it does not have yet."""
    if is_reshape(node):
        back, _ = reshaped(result, node.output.shape, node.operands[k].shape)
        wanted = dict(enumerate(back.dims))
    else:
        wanted = {a: result.dims[at] for (i, a), at in axes.same.items() if i == k}
    dims = list(own.dims)
    for a, parts in wanted.items():
        used = {x for d, other in enumerate(dims) if d != a for p in other if (x := p.axis)}
        free = Sharding((parts,)).without(*used).dims[0]
        if len(free) > len(dims[a]) and free[: len(dims[a])] == dims[a]:
            dims[a] = free
    return Sharding(tuple(dims)).normal


def _axis_count(sharding: Sharding) -> int:
    return sum(1 for _ in sharding.axes)
