"""`fusec ops NAME`: signature, meaning, types, and an example that works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import fusec
from nightly import mostly_nightly

from fusec.ops import TABLE
from fusec.ops.examples import EXAMPLES
from fusec.pages.operations import describe, example_file
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.arrays import StridedArray
from fusec.run.inputs import random_inputs


@pytest.mark.parametrize("name", mostly_nightly(TABLE, 6))
def test_a_page_shows_the_example_and_its_results(name: str) -> None:
    page, text = describe(TABLE[name]), example_file(TABLE[name])
    assert page.endswith(text)
    for output in read_text(text).outputs:
        assert f"{output.value.name}: {output.value.type}" in page


@pytest.mark.parametrize("name", TABLE)
def test_the_example_of_an_operation_runs(name: str) -> None:
    """Its file calls the operation, and the reference makes what it declares."""
    text = example_file(TABLE[name])
    assert f"= {name}(" in text
    fusion = read_text(text)
    given = random_inputs(fusion, fusion.hints).items()
    inputs = {n: a.array if isinstance(a, StridedArray) else a for n, a in given}
    results = evaluate(fusion, inputs, fusion.hints)
    for output in fusion.outputs:
        value = output.value
        assert results[value.name].shape == tuple(d.evaluate(fusion.hints) for d in value.shape)
        assert np.isfinite(results[value.name]).all()


def test_there_are_no_examples_of_nothing() -> None:
    assert set(EXAMPLES) <= set(TABLE)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rsqrt", "types of x: f64 f32 f16 bf16 f8e4m3 f8e5m2 c64 c128 -> the same"),
        ("rsqrt", "types of x: i64 i32 i16 i8 u64 u32 u16 u8 bool -> f32"),
        ("bitwise_and", "types of a, b: i64 i32 i16 i8 u64 u32 u16 u8 bool -> the same"),
        ("cross_entropy", "types of t: i64 i32 i16 i8 u64 u32 u16 u8"),
        ("where", "types of c: bool -> f32"),
        ("lt", "a, b: f64"),
        ("sdpfa_fwd", "results: out, logsumexp, philox_seed, philox_offset"),
        ("layer_norm", "example, returns y: f32[B, H]:"),
        ("layer_norm", "  - y = layer_norm(x, [H], w, b)"),
    ],
)
def test_types_are_told(name: str, line: str) -> None:
    assert line in describe(TABLE[name])


def test_an_example_is_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What stands below the heading of a page is what `check` reads."""
    page = fusec(capsys, "ops", "softmax").out
    text = page.partition("example, returns y: f32[B, H]:\n\n")[2]
    file = tmp_path / "softmax.yaml"
    file.write_text(text)
    assert "y: f32[B, H]" in fusec(capsys, "check", file).out
