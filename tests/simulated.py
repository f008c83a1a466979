"""A stand-in for kernels: the fusion computed in f32, sums in blocks, half values rounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion
from tools.single import evaluate_single, stored


def simulate(fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes) -> dict[str, Array]:
    """Return the outputs as kernels would: f32 arithmetic, serial sums of blocks."""
    return stored(fusion, evaluate_single(fusion, inputs, sizes))
