"""A stand-in for kernels: the fusion computed in f32, sums in blocks, half values rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, Sizes, constant, evaluate_attributes, known_scalar
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.reference.evaluate import input_array

BLOCK = 32


def computed(dtype: DType) -> Any:
    """Return the NumPy dtype that a kernel holds values of `dtype` in."""
    return np.dtype(np.float32) if dtype.is_half else dtype.numpy


def simulate(fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Array]:
    """Return the outputs as kernels would: f32 arithmetic, serial sums of blocks."""
    environment: dict[Value, Array] = {}
    for entry in fusion.inputs:
        raw = np.asarray(input_array(entry, inputs, sizes)).astype(entry.value.dtype.numpy)
        environment[entry.value] = raw.astype(computed(entry.value.dtype))
    for node in fusion.nodes:
        for value, result in zip(node.outputs, _results(node, environment, sizes), strict=True):
            environment[value] = result
    return {o.value.name: environment[o.value].astype(o.value.dtype.numpy) for o in fusion.outputs}


def _results(node: Node, environment: Mapping[Value, Array], sizes: Sizes) -> list[Array]:
    known = [known_scalar(v, sizes) for v in node.outputs]
    if known[0] is not None:
        return [k for k in known if k is not None]
    operands = [
        np.asarray(constant(o) if isinstance(o, Const) else environment[o]).astype(computed(d))
        for o, d in zip(node.operands, node.compute_dtypes, strict=True)
    ]
    attributes = evaluate_attributes(node.attributes, sizes)
    with np.errstate(all="ignore"):
        if node.op.name == "sum" and node.output.dtype.is_float:
            results: Sequence[Any] = [serial_sum(operands[0], attributes["dims"])]
        else:
            made = node.op.reference(*operands, **attributes)
            results = made if isinstance(made, tuple) else (made,)
        settled: list[Array] = []
        for value, result in zip(node.outputs, results, strict=True):
            stored = np.asarray(result).astype(value.dtype.numpy)
            settled.append(stored.astype(computed(value.dtype)))
    return settled


def serial_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the sum with one accumulator for each of `BLOCK` interleaved parts, each serial."""
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = [x.shape[a] for a in kept]
    flat = np.transpose(x, (*kept, *axes)).reshape(*shape, -1)
    parts = [
        np.cumsum(flat[..., k::BLOCK], axis=-1, dtype=flat.dtype)[..., -1:]
        for k in range(min(BLOCK, flat.shape[-1]))
    ]
    total = np.zeros(shape, flat.dtype)
    for part in parts:
        total = total + part[..., 0]
    return total
