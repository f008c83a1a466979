"""The tensor maps of attention's backward: all operands in panels of 64 features."""

from __future__ import annotations

from fusec.ir.graph import Fusion
from fusec.schedule.attention.backward.choice import BackwardParameters
from fusec.schedule.attention.backward.problem import Backward
from fusec.schedule.attention.maps import map_names, operand_map
from fusec.schedule.plan import TensorMapArgument


def tensor_maps(
    fusion: Fusion, backward: Backward, p: BackwardParameters, *, of_keys: bool
) -> tuple[TensorMapArgument, ...]:
    """Return the maps of queries, gradients, keys and values for the kernel that owns one side."""
    own, others = p.rows, p.others(of_keys=of_keys)
    queries, keys = (others, own) if of_keys else (own, others)
    names = map_names(
        fusion,
        {
            "queries": backward.queries,
            "gradients": backward.gradients,
            "keys": backward.keys,
            "values": backward.values,
        },
    )
    sides = (
        (backward.queries, backward.features, backward.m, queries),
        (backward.gradients, backward.value_features, backward.m, queries),
        (backward.keys, backward.features, backward.n, keys),
        (backward.values, backward.value_features, backward.n, keys),
    )
    return tuple(
        operand_map(name, operand, operand.row, (features, rows), box)
        for name, (operand, features, rows, box) in zip(names, sides, strict=True)
    )
