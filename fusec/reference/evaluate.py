"""Evaluation of a whole fusion in double precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy

from fusec.diagnostics import FusecError
from fusec.ir.arrays import host, np
from fusec.ir.dim import shape_text
from fusec.ir.evaluate import (
    Array,
    Sizes,
    evaluate_node,
    extents,
    known_scalar,
    round_to,
    storage,
    widen,
)
from fusec.ir.graph import Fusion, Input, Node, Value, needed_nodes
from fusec.reference.gpu import chosen


def input_array(entry: Input, given: Mapping[str, Any], sizes: Sizes) -> Array:
    """Return an input on the host, as passed, by default or from sizes; its stored type is kept."""
    value = entry.value
    if value.name in given:
        array = numpy.asarray(given[value.name])
    else:
        scalar = known_scalar(value, sizes)
        if scalar is None and entry.default is None:
            raise FusecError(f"input `{value.name}` is missing")
        array = numpy.asarray(entry.default if scalar is None else host(scalar))
    expected = extents(value.type, sizes)
    if array.shape != expected:
        raise FusecError(
            f"input `{value.name}` has shape {list(array.shape)}, expected {list(expected)}",
            notes=(f"`{value.name}` is declared {value.dtype}{shape_text(value.shape)}",),
        )
    return array


def widen_input(value: Value, array: Array) -> Array:
    """Return an input as the reference holds it; a scalar is rounded to its type."""
    if value.is_scalar and value.dtype.is_rounded:
        wide = numpy.asarray(array, dtype=storage(value.dtype))
        return round_to(np.asarray(wide), value.dtype)
    return widen(array, value.dtype)


def last_uses(nodes: Sequence[Node], kept: Iterable[Value]) -> list[list[Value]]:
    """Return for each node the values that no later node reads."""
    seen, dead = set(kept), list[list[Value]]()
    for node in reversed(nodes):
        fresh = [v for v in dict.fromkeys((*node.inputs, *node.outputs)) if v not in seen]
        seen.update(fresh)
        dead.append(fresh)
    dead.reverse()
    return dead


def find_values(fusion: Fusion, wanted: Iterable[str] | None) -> list[Value]:
    """Return the values named `wanted`; the outputs if it is None."""
    if wanted is None:
        return list(dict.fromkeys(o.value for o in fusion.outputs))
    found = list[Value]()
    for name in wanted:
        value = fusion.find(name)
        if value is None:
            raise FusecError(f"fusion `{fusion.name}` has no value `{name}`")
        found.append(value)
    return found


def evaluate(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: Iterable[str] | None = None
) -> dict[str, Array]:
    """Return the values named `wanted` (the outputs if None), as the reference computes them."""
    with chosen():
        return _evaluated(fusion, inputs, sizes, wanted)


def _evaluated(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: Iterable[str] | None
) -> dict[str, Array]:
    values = find_values(fusion, wanted)
    nodes = needed_nodes(fusion.nodes, values)
    read = {v for n in nodes for v in n.inputs} | set(values)
    environment: dict[Value, Array] = {}
    for entry in fusion.inputs:
        if entry.value in read:
            raw = input_array(entry, inputs, sizes)
            environment[entry.value] = widen_input(entry.value, raw)
    for node, dead in zip(nodes, last_uses(nodes, values), strict=True):
        for value, array in zip(node.outputs, evaluate_node(node, environment, sizes), strict=True):
            environment[value] = array
        for value in dead:
            del environment[value]
    return {v.name: host(environment[v]) for v in values}
