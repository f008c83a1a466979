"""Convolutions in NumPy: functions for the external calls of imported models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from fusec.models.read import Imported, Part
from fusec.reference.evaluate import evaluate


def convolution(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Any:
    """Return `aten.convolution`, summed in f64."""
    assert not transposed
    assert not any(output_padding)
    rank = weight.ndim - 2
    steps, pads, gaps = ([*v] * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation))
    wide = np.pad(np.asarray(input, "f8"), [(0, 0), (0, 0), *((p, p) for p in pads)])
    sides = weight.shape[2:]
    space = [
        (extent - gap * (side - 1) - 1) // step + 1
        for extent, side, gap, step in zip(wide.shape[2:], sides, gaps, steps, strict=True)
    ]
    batch, outputs = len(wide), len(weight)
    parts = wide.reshape(batch, groups, -1, *wide.shape[2:])
    weights = np.asarray(weight, "f8").reshape(groups, outputs // groups, *weight.shape[1:])
    total = np.zeros((batch, groups, outputs // groups, *space))
    for tap in product(*map(range, sides)):
        places = tuple(
            slice(at * gap, at * gap + step * (count - 1) + 1, step)
            for at, gap, step, count in zip(tap, gaps, steps, space, strict=True)
        )
        total += np.einsum("ngc...,goc->ngo...", parts[:, :, :, *places], weights[..., *tap])
    found = total.reshape(batch, outputs, *space)
    found = found if bias is None else found + np.reshape(bias, (-1, *[1] * rank))
    return found.astype(np.float32)


def conv(
    input: Any, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,),
    dilation: Any = (1,), groups: int = 1,
) -> Any:  # fmt: skip
    """Return `aten.conv2d` and its kind."""
    return convolution(input, weight, bias, stride, padding, dilation, groups=groups)


FUNCTIONS = {"aten.conv2d.default": conv, "aten.convolution.default": convolution}


def values_of(found: Imported, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return all values that cross the fusions and external calls of a model."""
    known = dict(inputs)
    for step in found.steps:
        if isinstance(step, Part):
            own = {i.value.name: known[i.value.name] for i in step.fusion.inputs}
            known |= evaluate(step.fusion, own, dict(step.fusion.hints))
            continue
        positional, named = step.bind(known.__getitem__)
        results = FUNCTIONS[step.target](*positional, **named)
        (name,) = step.results
        assert name is not None
        known[name] = results
    return known
