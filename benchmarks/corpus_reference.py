"""Results against the evaluator that comes with a corpus: `reference.py` beside its graphs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import widen
from fusec.ir.graph import Fusion

UNITS = 8
"""Units of the coarsest type in the graph, of the largest element, that results may differ by."""
LEAST_PRECISION = 2.0**-17
EXCUSED_SHARE = 1e-3
"""Share of elements that may differ more, where a comparison or a rounding falls the other way."""


def load_reference(graphs: Path) -> Any:
    """Return the module `reference.py` beside the folder of graphs, or None."""
    path = graphs.parent / "reference.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("corpus_reference_py", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(
    reference: Any,
    graph: Mapping[str, Any],
    fusion: Fusion,
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
) -> tuple[str, str]:
    """Return (`agrees`, `differs` or `skipped`, why) for outputs in the order of the graph."""
    try:
        result = reference.evaluate(graph, _given(graph, fusion, inputs))
    except (reference.TooBig, reference.Unsupported, MemoryError) as error:
        return "skipped", f"{type(error).__name__}: {error}"
    epsilon = max([v.dtype.epsilon for v in fusion.values if v.dtype.is_rounded] or [0.0])
    random = 0
    for output, found, expected, comparable in zip(
        fusion.outputs, outputs, result.outputs, result.comparable, strict=True
    ):
        if not comparable:
            random += 1
            continue
        why = differs(found, expected, output.value.dtype, max(epsilon, LEAST_PRECISION))
        if why is not None:
            return "differs", f"`{output.value.name}`: {why}"
    if random == len(fusion.outputs) and random:
        return "skipped", "all outputs are random"
    return "agrees", ""


def _given(graph: Mapping[str, Any], fusion: Fusion, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs as the other evaluator takes them: floats in double precision."""
    flat: list[Any] = []
    for entry in fusion.given:
        given = inputs[entry.value.name]
        flat.append(given if entry.value.is_scalar else widen(np.asarray(given), entry.value.dtype))
    given_flat = iter(flat)
    return [
        [next(given_flat) for _ in entry["elements"]] if "elements" in entry else next(given_flat)
        for entry in graph["inputs"]
    ]


def differs(found: Any, expected: Any, dtype: DType, precision: float) -> str | None:
    """Return how results differ, or None; `precision` is the coarsest rounding in the graph."""
    a, b = widen(np.asarray(found), dtype), np.asarray(expected)
    if a.shape != b.shape:
        return f"shape {list(a.shape)}, the other reference has {list(b.shape)}"
    wide = np.complex128 if dtype.is_complex else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    slack = 0.0 if dtype.kind == "bool" else UNITS * precision if dtype.is_rounded else 1e-9
    with np.errstate(all="ignore"):
        wrong = finite & (np.abs(a - b) > slack * (np.abs(b) + scale))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    wrong |= ~finite & ~same & ~_overflows(a, b, dtype)
    count = int(np.count_nonzero(wrong))
    if count <= int(a.size * EXCUSED_SHARE):
        return None
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    at = [int(i) for i in place]
    return f"{count} of {a.size} elements differ, at {at} {a[place]:g}, expected {b[place]:g}"


def _overflows(a: Any, b: Any, dtype: DType) -> Any:
    """Return where one is infinite and the other nearly: a rounding decided over the overflow."""
    if not dtype.is_float:
        return np.zeros(a.shape, bool)
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    sizes = np.abs(a), np.abs(b)
    with np.errstate(all="ignore"):
        return (np.maximum(*sizes) == np.inf) & (np.minimum(*sizes) >= 0.99 * most)
