"""Methods by which blocks combine results on the GPU: right, and in fixed order the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_check import DRY, check_on_gpu
from graphs import pinned, reduce
from paths import ROOT

from fusec.ir.annotations import Override, Setting
from fusec.ir.dtype import BF16, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.reader import read_file
from fusec.run.binary.sass import sass
from fusec.schedule.grid_methods import REDUCTION_METHODS

pytestmark = pytest.mark.gpu

EXAMPLES = sorted((ROOT / "examples" / "grid_reduce").glob("*.yaml"))
SHAPES = {"rows": ((5, 300_003), 1), "columns": ((40_003, 60), 0)}
"""Rows that end within vectors, and columns that do not fill the last block."""
CASES = [
    ("sum", F32), ("sum", I64), ("max", BF16), ("min", F64), ("max", I32), ("prod", F32),
    ("var_mean", F32),
]  # fmt: skip


def with_method(fusion: Fusion, settings: Mapping[str, Setting]) -> Fusion:
    """Return a fusion whose only segment is a reduction with some fields set."""
    overrides = tuple(Override("reduction", name, value) for name, value in settings.items())
    return replace(pinned(fusion, "reduction"), schedules=overrides)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", REDUCTION_METHODS)
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_methods(op: str, dtype: DType, method: str, shape: str) -> None:
    extents, axis = SHAPES[shape]
    fusion = reduce(op, dtype, extents, (axis,))
    known = REDUCTION_METHODS[method]
    combine = fusion.nodes[-1].op.combine
    if not known.combines(combine, fusion.outputs[0].value.dtype.compute):
        return
    given = {}
    if op == "prod":  # of others nothing is known after so many factors
        draw = np.random.default_rng(0)
        x = draw.choice(np.array([-1, 1], np.float32), extents)
        x[draw.random(extents) < 1e-4] = 1.5
        given = {"x": x}
    wanted = with_method(fusion, {"grid_reduce": method, "splits": 37})
    checked = check_on_gpu(
        wanted, inputs=given or None, scheduler="reduction", repeats=1 if known.on_request else 20
    )
    texts = [sass(artifact.cubin) for artifact in checked.compiled.artifacts.values()]
    assert any("UBLKRED" in text for text in texts) == known.in_memory


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", ["serial_tma", "parallel"])
def test_sums_in_sixteen_bits(method: str, shape: str) -> None:
    extents, axis = SHAPES[shape]
    builder = GraphBuilder("halves")
    x = builder.input("x", F16, list(extents))
    builder.output(builder.apply("sum", x, dims=[axis]))
    settings = {"grid_reduce": method, "splits": 9, "workspace_dtype": "half"}
    repeats = 20 if method == "serial_tma" else 1
    check_on_gpu(with_method(builder.finish(), settings), scheduler="reduction", repeats=repeats)


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("method", ["serial_tma", "parallel"])
def test_extremes_of_what_is_no_number(op: str, method: str) -> None:
    """NaN wins wherever it is, and infinities keep their signs; bits do not depend on arrival."""
    x = np.random.default_rng(0).standard_normal((5000, 64)).astype(np.float32)
    x[3, 0], x[4999, 1], x[:, 2], x[:, 3], x[77, 4] = np.nan, -np.nan, np.inf, -np.inf, -np.inf
    fusion = reduce(op, F32, x.shape, (0,))
    wanted = with_method(fusion, {"grid_reduce": method, "splits": 9})
    (found,) = check_on_gpu(wanted, inputs={"x": x}, repeats=20).outputs.values()
    expected = x.max(0) if op == "max" else x.min(0)
    assert DRY or np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    """At sizes that are verified whole within seconds, and that have the same segments."""
    fusion = read_file(path)
    rows = fusion.hints["R"]
    sizes = {"R": 2} if rows == 8 else {"C": 131072} if rows == 64 else {"R": 32768, "C": 64}
    check_on_gpu(fusion, sizes, repeats=1 if path.stem == "parallel" else 10)
