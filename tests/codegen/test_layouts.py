"""Inputs and outputs of every layout and kind, run on the host and compared with the reference.

Strided, expanded, transposed and overlapping inputs; outputs in a given order of strides, outputs
that are views of inputs, inputs themselves or twice the same, or that update inputs; one tensor as
several inputs; scalars in host memory; ranks 0 to 8; extents 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import can_run, emulated
from nightly import mostly_nightly
from rows_on_cpu import OPTIONS

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.files import with_planned_strides
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs


def check(
    inputs: str, ops: str, outputs: str, folder: Path, given: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Compile a file, run its kernels twice, compare each time, and return the outputs."""
    head = f"fusion: layouts\ninputs:\n{_lines('  ', inputs)}"
    body = f"ops:\n{_lines('  - ', ops)}" if ops else ""
    fusion = with_planned_strides(read_text(f"{head}{body}outputs: {outputs}\n", "layouts.yaml"))
    planned = driver.plan(fusion, OPTIONS)
    program = planned.host
    sizes = choose_sizes(fusion, None)
    assert can_run(planned, sizes)
    arrays = {**random_inputs(fusion, sizes, 1), **(given or {})}
    cubins = {launch.kernel: b"" for launch in program.launches}
    device: Any = emulated(planned, folder)
    with Executable(device, program, cubins).bind(arrays, sizes) as bound:
        for _ in range(2):
            bound.reset()
            bound.run()
            found = bound.outputs()
            verdict = compare(fusion, sizes, arrays, found)
            assert verdict.ok, f"{planned.segmented.segments}\n{verdict.text()}"
    return found


def _lines(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{part.strip()}\n" for part in text.split(";"))


def declared(name: str, type: str, strides: str) -> str:
    """Return an input with strides."""
    return f"{name}: {{type: '{type}', strides: {strides}}}"


BODIES = {
    "pointwise": "y = add(mul(x, 2.0), 1.0)",
    "sum of columns": "y = sum(x, [0])",
    "softmax": "y = softmax(x, 1)",
    "transpose": "y = add(permute(x, [1, 0]), 1.0)",
    "scan": "y = cumsum(x, 1)",
    "sort": "y, i = sort(x, 1)",
    "product": "y = matmul(x, permute(x, [1, 0]))",
}
STRIDES = {
    "dense": "[40, 1]",
    "columns first": "[1, 9]",
    "expanded rows": "[0, 1]",
    "expanded columns": "[1, 0]",
    "overlapping windows": "[1, 1]",
    "sliced": "[100, 2]",
}


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("body", mostly_nightly(BODIES, 2))
def test_strides_of_inputs(body: str, strides: str, tmp_path: Path) -> None:
    check(declared("x", "f32[9, 40]", STRIDES[strides]), BODIES[body], "[y]", tmp_path)


@pytest.mark.parametrize("order", ["[2, 1, 0]", "[0, 1, 2]", "[1, 2, 0]"])
@pytest.mark.parametrize("op", ["y = add(x, 1.0)", "y = softmax(x, 2)", "y = set(x)"])
def test_orders_of_strides_of_outputs(op: str, order: str, tmp_path: Path) -> None:
    found = check("x: f32[4, 5, 6]", op, f"[{{y: {{stride_order: {order}}}}}]", tmp_path)["y"]
    ranks = [int(n) for n in order.strip("[]").split(",")]
    strides = np.array(found.strides)
    assert list(np.argsort(np.argsort(strides))) == ranks


@pytest.mark.parametrize(
    "op",
    [
        "y = reshape(x, [20, 6])", "y = permute(x, [2, 0, 1])",
        "y = slice(x, [1, 0, 2], [3, 5, 6])", "y = select(x, 2, 0)", "y = flip(x, [1])",
        "y = expand(slice(x, [0, 0, 0], [1, 5, 6]), [7, 5, 6])",
        "y = squeeze(slice(x, [1, 0, 0], [2, 5, 6]), [0])",
    ],
)  # fmt: skip
def test_outputs_that_are_views_of_inputs(op: str, tmp_path: Path) -> None:
    check("x: f32[4, 5, 6]", op, "[y]", tmp_path)
    check("x: f32[4, 5, 6]", f"{op}; z = sum(x, [0]); u = neg(y)", "[y, z, u]", tmp_path)


@pytest.mark.parametrize(
    ("ops", "outputs"),
    [
        ("", "[x]"),
        ("", "[x, x, w]"),
        ("y = add(x, w)", "[x, y]"),
        ("y = add(x, w)", "[y, y]"),
        ("y = add(x, w); z = add(x, w)", "[y, z, x, w, y]"),
        ("y = permute(x, [1, 0]); z = permute(x, [1, 0])", "[y, z]"),
    ],
)
def test_inputs_and_the_same_value_as_outputs(ops: str, outputs: str, tmp_path: Path) -> None:
    check("x: f32[7, 8]; w: f32[7, 8]", ops, outputs, tmp_path)


UPDATES = [
    ("y = add(x, w)", "[{y: {alias: x}}]"),
    ("y = add(x, permute(x, [1, 0]))", "[{y: {alias: x}}]"),
    ("y = softmax(x, 1); z = sum(x, [0])", "[{y: {alias: x}}, z]"),
    ("y = add(x, 1.0); z = add(w, x)", "[{y: {alias: x}}, {z: {alias: w}}]"),
    ("y = set(w); z = set(x)", "[{y: {alias: x}}, {z: {alias: w}}]"),
    ("y = cumsum(x, 0); z = mul(y, w)", "[{y: {alias: x}}, z]"),
    ("y = add(x, w)", "[{y: {alias: x}}, y, x]"),
    ("y = add(mul(x, 0.9), mul(w, 0.1)); z = sub(w, y)", "[{y: {alias: x}}, z]"),
]


@pytest.mark.parametrize(("ops", "outputs"), UPDATES)
def test_outputs_that_update_inputs(ops: str, outputs: str, tmp_path: Path) -> None:
    check("x: f32[8, 8]; w: f32[8, 8]", ops, outputs, tmp_path)


@pytest.mark.parametrize("body", ["y = add(x, w)", "y = matmul(x, permute(w, [1, 0]))"])
def test_one_tensor_as_several_inputs(body: str, tmp_path: Path) -> None:
    tensor = np.random.default_rng(3).standard_normal((6, 9)).astype(np.float32)
    found = check("x: f32[6, 9]; w: f32[6, 9]", body, "[y]", tmp_path, {"x": tensor, "w": tensor})
    expected = tensor + tensor if body.startswith("y = add") else tensor @ tensor.T
    np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-5)


def test_scalars_in_host_memory(tmp_path: Path) -> None:
    check(
        "x: f32[5, 6]; c: {type: 'f32[]', on_cpu: true}; n: i64 = 3; s: f32 = 0.5; b: bool = true",
        "y = mul(add(x, c), s); z = where(b, add(y, n), y)",
        "[y, z]",
        tmp_path,
    )


@pytest.mark.parametrize("rank", range(9))
def test_ranks(rank: int, tmp_path: Path) -> None:
    shape = [2, 3, 1, 4, 2, 1, 3, 2][:rank]
    thin = [e if k % 2 else 1 for k, e in enumerate(shape)]
    down = list(range(rank))[::-1]
    inputs = f"x: f32{shape}; w: f32{thin}"
    ops = f"y = exp(add(x, w)); z = set(w); u = neg(permute(x, {down})); v = sum(x)"
    check(inputs, f"{ops}; r = add(reshape(x, [-1]), 1.0)", "[y, z, u, v, r]", tmp_path)


SMALL = [[0], [1], [5, 0], [1, 7], [7, 1], [3, 0, 4]]
OPERATIONS = [
    "sum(x, [0])", "max(x)", "softmax(x, -1)", "cumsum(x, 0)", "argsort(x, -1)", "cat([x, x], 0)",
    "pad(x, [1, 2], 3.0)", "index_select(x, iota(0, 0, 1, i64), 0)",
    "scatter_add(x, full({shape}, 0, i64), x, 0)", "mul(x, sum(x, [0], keepdim=true))",
]  # fmt: skip


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("shape", mostly_nightly(SMALL, 2), ids=str)
def test_extents_of_0_and_1(op: str, shape: list[int], tmp_path: Path) -> None:
    if op.startswith("scatter") and shape[0] == 0 and 0 not in shape[1:]:
        shape = [1, *shape[1:]]
    if op.startswith("max") and 0 in shape:
        with pytest.raises(FusecError, match="no elements"):
            check(f"x: f32{shape}", f"y = {op}", "[y]", tmp_path)
        return
    check(f"x: f32{shape}", f"y = {op.format(shape=shape)}", "[y]", tmp_path)
