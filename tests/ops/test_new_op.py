"""An operation registered in a test goes all the way: files, scripts, reference, CUDA, prices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from declared import temporary_ops
from families import GPU, estimate, run_on_host

from fusec import driver
from fusec.cli import run_main
from fusec.ir.graph import Fusion
from fusec.ir.op import Cost
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.build import Source, build
from fusec.run.inputs import random_inputs

YAML = """
fusion: squares
dims: {B: 12, H: 40}
inputs:
  x: bf16[B, H]
  w: f32[H]
ops:
  - y = smooth_square(add(x, w))
outputs: [y]
"""
SCRIPT = """
from fusec import DataType, FusionDefinition

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[12, 40], dtype=DataType.Float)
    fd.add_output(fd.ops.smooth_square(x))
"""


@pytest.fixture(autouse=True)
def smooth_square() -> Iterator[None]:
    with temporary_ops():

        @pointwise(
            cuda={"f32": "{x} * {x} / (1.0f + fabsf({x}))", "f64": "{x} * {x} / (1.0 + fabs({x}))"},
            dtype=FLOAT,
            cost=Cost(5, 1),
            domain=(-3.0, 3.0),
            accuracy=4,
        )
        def smooth_square(x: Array) -> Array:
            """Return x squared over one plus its magnitude."""
            return x * x / (1 + np.abs(x))

        yield


def fusion() -> Fusion:
    return read_text(YAML)


def test_a_file_and_a_script_may_call_it(tmp_path: Path) -> None:
    assert [n.op.name for n in fusion().nodes][-1] == "smooth_square"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    loaded = driver.load(str(script))
    assert loaded.nodes[-1].op.name == "smooth_square"


def test_it_is_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["ops"]) == 0
    assert "smooth_square(x)" in capsys.readouterr().out
    assert run_main(["ops", "smooth_square"]) == 0
    assert "over one plus its magnitude" in capsys.readouterr().out


def test_the_reference_computes_it() -> None:
    made = fusion()
    inputs = random_inputs(made, made.hints)
    (found,) = evaluate(made, inputs, made.hints).values()
    x = np.asarray(inputs["x"]).astype(np.float64) + np.asarray(inputs["w"])
    np.testing.assert_allclose(found, x * x / (1 + np.abs(x)), rtol=1e-6)


def test_its_text_is_in_the_kernel_and_builds() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    planned = driver.plan(fusion(), CompileOptions())
    (source,) = planned.kernel_sources
    assert "fabsf(" in source.text
    (artifact,) = build([Source(source.name, source.text)], ["sm_90a"]).values()
    assert artifact.cubin.startswith(b"\x7fELF")


def test_its_kernel_computes_it(tmp_path: Path) -> None:
    run_on_host("pointwise", fusion(), tmp_path)


def test_its_cost_counts() -> None:
    found = estimate("pointwise", fusion())
    assert found.flops == 12 * 40 * (5 + 1)
    assert found.sfu == 12 * 40
    assert found.seconds(GPU) > 0


def test_its_domain_is_where_random_inputs_lie() -> None:
    made = read_text(YAML.replace("add(x, w)", "w"))
    drawn = np.asarray(random_inputs(made, {**made.hints, "H": 10_000})["w"])
    assert drawn.min() < -2.9
    assert drawn.max() > 2.9
    assert np.abs(drawn).max() <= 3.0
