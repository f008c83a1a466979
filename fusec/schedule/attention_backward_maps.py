"""The tensor maps of attention's backward: all operands in panels of 64 features."""

from __future__ import annotations

from fusec.schedule.attention_backward_choice import BackwardParameters
from fusec.schedule.attention_backward_problem import Backward
from fusec.schedule.attention_maps import operand_map
from fusec.schedule.plan import TensorMapArgument


def map_names(backward: Backward) -> tuple[str, str, str, str]:
    """Return the names of the maps of queries, gradients, keys and values.

    They are their buffers', with the side where two are the same.
    """
    sides = ("queries", "gradients", "keys", "values")
    operands = (backward.queries, backward.gradients, backward.keys, backward.values)
    names = [o.buffer.name for o in operands]
    return tuple(  # pyright: ignore[reportReturnType]
        f"{n}_{side}_map" if names.count(n) > 1 else f"{n}_map"
        for n, side in zip(names, sides, strict=True)
    )


def tensor_maps(
    backward: Backward, p: BackwardParameters, *, of_keys: bool
) -> tuple[TensorMapArgument, ...]:
    """Return the maps of queries, gradients, keys and values for the kernel that owns one side."""
    own, others = p.rows, p.others(of_keys=of_keys)
    queries, keys = (others, own) if of_keys else (own, others)
    sides = (
        (backward.queries, backward.features, backward.m, queries),
        (backward.gradients, backward.value_features, backward.m, queries),
        (backward.keys, backward.features, backward.n, keys),
        (backward.values, backward.value_features, backward.n, keys),
    )
    return tuple(
        operand_map(name, operand, operand.row, (features, rows), box)
        for name, (operand, features, rows, box) in zip(map_names(backward), sides, strict=True)
    )
