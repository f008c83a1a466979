"""Plans a fusion that is one segment, runs its kernels on the host, and compares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cuda_on_cpu import run_plan
from families import assert_kernels_build

from fusec import driver
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.arguments import bind
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.find import find_op
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.build import Source
from fusec.run.inputs import choose_sizes, random_inputs

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)


def one_operation(
    op: str, dtype: DType, shape: tuple[int, ...], *arguments: Any, **keywords: Any
) -> Fusion:
    """Return a fusion of one operation on an input; all its results are outputs."""
    builder = GraphBuilder(op)
    extents = [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    x = builder.input("x", dtype, extents)
    operands, attributes = bind(find_op(op), [x, *arguments], keywords)
    for result in builder.call(op, operands, attributes):
        builder.output(result)
    return builder.finish()


def planned(fusion: Fusion, scheduler: str) -> driver.Compilation:
    """Return the plan of a fusion that must be one segment of the given scheduler."""
    found = driver.plan(fusion, OPTIONS)
    assert [s.scheduler for s in found.segmented.segments] == [scheduler]
    return found


def check_on_cpu(
    fusion: Fusion,
    scheduler: str,
    folder: Path,
    inputs: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Run a fusion's kernels on the host, in both orders of threads, and compare."""
    plan = planned(fusion, scheduler).plans[0]
    sizes = choose_sizes(fusion, None)
    given = {**random_inputs(fusion, sizes, 0), **(inputs or {})}
    # A library that is loaded cannot be replaced: every run has a folder of its own.
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    outputs = run_plan(plan, given, folder)
    for name, again in run_plan(plan, given, folder, backwards=True).items():
        assert again.tobytes() == outputs[name].tobytes(), (
            f"`{name}` depends on the order of threads"
        )
    verdict = compare(fusion, sizes, given, outputs)
    assert verdict.ok, f"{plan.parameters}\n{verdict.text()}"
    return outputs


def check_build(fusion: Fusion, scheduler: str) -> None:
    """Assert that every kernel builds without spills and warnings."""
    program = planned(fusion, scheduler)
    sources = [Source(s.name, s.text) for s in program.kernel_sources]
    assert_kernels_build(sources, program.plans[0].parameters)
