"""Norms with running statistics: as in nvFuser, the updated ones are written into the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.ir.op import OpDef
from fusec.parse.dsl.calls import named_arguments

if TYPE_CHECKING:
    from fusec.parse.dsl.definition import FusionDefinition

UPDATING: Mapping[str, str] = {"batch_norm": "training", "instance_norm": "use_input_stats"}
"""The argument that decides whether the running statistics are updated."""

_OWN = 3
"""Number of results for the caller: the tensor and its statistics."""


def call_updating(
    definition: FusionDefinition, op: OpDef, args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Call a norm; results beyond the first three become outputs written into inputs."""
    positional, named = named_arguments(op, args, options)
    given = {**dict(zip((p.name for p in op.params), positional, strict=False)), **named}
    running = [given.get(name) for name in op.results[_OWN:]]
    updates = given.get(UPDATING[op.name], True) and running[0] is not None
    count = len(op.results) if updates else _OWN
    results = definition.call(op.name, args, options, count=count)
    for new, old in zip(results[_OWN:], running, strict=False):
        definition.add_output(new, old)
    return results[:_OWN]
