"""Runs whole fusions on complex numbers on the host: every kernel, as the host program says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from emulated import can_run, emulated
from host_json import from_json, to_json

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import Verdict, compare
from fusec.run.execute import execute
from fusec.run.inputs import bind_sizes, choose_sizes, random_inputs

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)


def fusion_of(inputs: str, ops: str, outputs: str, dims: str = "{B: 3, H: 10}") -> Fusion:
    """Return a fusion; lines of inputs and ops are separated by `;`."""
    given = "\n".join(f"  {line.strip()}" for line in inputs.split(";"))
    lines = "\n".join(f"  - {line.strip()}" for line in ops.split(";") if line.strip())
    return read_text(
        f"fusion: complexes\ndims: {dims}\ninputs:\n{given}\nops:\n{lines}\noutputs: [{outputs}]\n"
    )


@lru_cache(1)
def _planned(fusion: Fusion) -> driver.Compilation:
    return driver.plan(fusion, OPTIONS)


def run_on_cpu(
    fusion: Fusion, inputs: Mapping[str, Any] | None = None, seed: int = 0
) -> tuple[dict[str, np.ndarray], Verdict, driver.Compilation]:
    """Return the outputs of the kernels, how they compare with the reference, and the plans."""
    planned = _planned(fusion)
    program = from_json(to_json(planned.host))
    sizes = choose_sizes(fusion)
    given = {**random_inputs(fusion, sizes, seed), **(inputs or {})}
    if inputs:
        sizes = bind_sizes(fusion, given)
    assert can_run(planned, sizes)
    with tempfile.TemporaryDirectory() as folder:
        device = emulated(planned, Path(folder))
        cubins = {kernel.name: b"" for plan in planned.plans for kernel in plan.kernels}
        outputs = execute(device, program, cubins, given, sizes)  # pyright: ignore[reportArgumentType]
    return outputs, compare(fusion, sizes, given, outputs), planned


def check_on_cpu(fusion: Fusion, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Return the outputs of the kernels, which must be as the reference says."""
    outputs, verdict, planned = run_on_cpu(fusion, inputs)
    kinds = [s.scheduler for s in planned.segmented.segments]
    assert verdict.ok, f"{kinds}\n{verdict.text()}"
    return outputs
