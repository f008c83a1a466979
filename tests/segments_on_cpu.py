"""Runs whole fusions on the host, segment after segment: Hopper's kernels among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cuda_on_cpu import run_plan

from fusec import driver
from fusec.files import with_planned_strides
from fusec.ir.evaluate import extents
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import DIFFERS, compare
from fusec.run.arrays import lay_out
from fusec.run.inputs import choose_sizes, random_inputs

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
ORDERS = ({"seed": 0}, {"seed": 1, "backwards": True})
"""Two orders of threads: results must agree bit by bit."""


def planned(text: str, name: str = "fusion.yaml") -> driver.Compilation:
    """Return the program of a file's text for sm_90a, planned and rendered."""
    return driver.plan(with_planned_strides(read_text(text, name)), OPTIONS)


def run_segments(
    program: driver.Compilation,
    inputs: Mapping[str, Any],
    folder: Path,
    order: Mapping[str, Any] = ORDERS[0],
    edit: Callable[[str], str] = str,
) -> dict[str, np.ndarray]:
    """Return the outputs of a program's segments, each run on what those before it made."""
    sizes = dict(choose_sizes(program.local))
    made: dict[str, Any] = dict(inputs)
    for segment, plan in zip(program.segmented.segments, program.plans, strict=True):
        fusion = plan.fusion
        given = {
            entry.value.name: made[entry.value.name]
            if entry.value.is_scalar
            else _laid_out(fusion, entry.value, made[entry.value.name], sizes)
            for entry in segment.fusion.inputs
        }
        if segment.scheduler == "no_op":
            found = driver.reference(segment.fusion, given, sizes)
        else:
            found = run_plan(plan, given, folder, edit=edit, **order)
        for output in segment.fusion.outputs:
            result = np.array(found[output.value.name])
            made[output.value.name] = result
            if output.alias is not None:
                made[output.alias] = result
    return {o.value.name: made[o.value.name] for o in program.original.outputs}


def _laid_out(fusion: Fusion, value: Any, array: Any, sizes: Mapping[str, int]) -> Any:
    strides = [s.evaluate(sizes) for s in fusion.effects.strides(value)]
    return lay_out(np.asarray(array).reshape(extents(value.type, sizes)), strides)


def wrong(
    text: str,
    folder: Path,
    inputs: Mapping[str, Any] | None = None,
    orders: Iterable[Mapping[str, Any]] = ORDERS,
    name: str = "fusion.yaml",
    edit: Callable[[str], str] = str,
) -> str:
    """Return what is wrong with a file's kernels; nothing where all is as the reference says.

    Of what a verdict leaves open, elements are to be near those of the reference.

    Kernels and headers are edited first.
    """
    program = planned(text, name)
    fusion = program.original
    sizes = choose_sizes(fusion)
    given = {**random_inputs(fusion, sizes, 0), **(inputs or {})}
    model = driver.model_of(program.host, sizes)
    first: dict[str, bytes] = {}
    kinds = [s.scheduler for s in program.segmented.segments]
    for order in orders:
        try:
            outputs = run_segments(program, given, folder, order, edit)
        except AssertionError as error:
            return f"{kinds}: {str(error) or repr(error)}"
        verdict = compare(fusion, sizes, given, outputs, model=model)
        if verdict.word == DIFFERS:
            return f"{kinds}: {order}: {verdict.text()}"
        if not verdict.ok and (unlike := _unlike(outputs, fusion, given, sizes)):
            return f"{kinds}: {order}: {unlike}\n{verdict.text()}"
        found = {n: a.tobytes() for n, a in outputs.items()}
        if found != (first := first or found):
            return f"{kinds}: {order}: other bits"
    return ""


def _unlike(outputs: Mapping[str, Any], fusion: Fusion, given: Any, sizes: Any) -> str:
    """Return which output is not near the fp64 reference, NaN for NaN: for what is inconclusive."""
    for name, right in driver.reference(fusion, given, sizes).items():
        found, expected = (np.asarray(a).astype(np.float64) for a in (outputs[name], right))
        if not np.array_equal(np.isnan(found), np.isnan(expected)):
            return f"{name}: {np.isnan(found).sum()} NaN, expected {np.isnan(expected).sum()}"
        finite = np.isfinite(expected)
        if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
            return f"{name}: other infinities"
        error = np.abs(found - expected)[finite].max(initial=0)
        if not error <= 0.02 * np.abs(expected[finite]).max(initial=0):
            return f"{name}: error {error}"
    return ""


def kernels_of(program: driver.Compilation) -> list[str]:
    """Return the family of each segment."""
    return [s.scheduler for s in program.segmented.segments]
