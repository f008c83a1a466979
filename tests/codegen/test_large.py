"""Tensors above 2^31 elements: grids that CUDA allows, kernels that build, and their numbers.

The numbers come from a few blocks of each kernel, the last ones among them, run on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from nightly import mostly_nightly
from rows_on_cpu import OPTIONS
from sparse_on_cpu import PERIOD, Memory, run_blocks

from fusec import driver
from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.run.build import Source, build
from fusec.run.launch import geometry

Function = Callable[[np.ndarray], np.ndarray]


def fusion_of(inputs: str, ops: str, outputs: str = "y", pinned: str = "") -> Fusion:
    """Return a fusion; inputs and ops are separated by semicolons."""
    declared = "".join(f"  {i.strip()}\n" for i in inputs.split(";"))
    lines = "".join(f"  - {o.strip()}\n" for o in ops.split(";"))
    text = f"fusion: large\ninputs:\n{declared}ops:\n{lines}outputs: [{outputs}]\n"
    text += f"segments: {{s: [{pinned}]}}\n" if pinned else ""
    return read_text(text, "large.yaml")


PLANS = {
    "pointwise, flat": ("x: u8[2147483659]", "y = add(x, 1)"),
    "pointwise, rows": ("x: u8[65537, 32771]; w: u8[32771]", "y = add(x, w)"),
    "pointwise, two rows": ("x: u8[2, 1073741827]; w: u8[1073741827]", "y = add(x, w)"),
    "pointwise, short rows": ("x: u8[4294967299, 2]; w: u8[2]", "y = add(x, w)"),
    "pointwise, padded": ("x: u8[2147483659]", "y = pad(x, [1, 3], 7)"),
    "transpose": ("x: u8[65537, 32771]", "y = add(permute(x, [1, 0]), 1)"),
    "transpose, batched": ("x: u8[9, 16387, 16387]", "y = add(permute(x, [0, 2, 1]), 1)"),
    "reduction, inner": ("x: bf16[2097155, 1030]", "y = sum(x, [1])"),
    "reduction, long": ("x: bf16[3, 1073741827]", "y = sum(x, [1])"),
    "reduction, whole": ("x: u8[2147483659]", "y = sum(x, [0])"),
    "reduction, outer": ("x: bf16[515, 4194306]", "y = sum(x, [0])"),
    "reduction, outer, long": ("x: bf16[1073741827, 3]", "y = sum(x, [0])"),
    "reduction, argmax": ("x: bf16[3, 1073741827]", "y = argmax(x, 1)"),
    "reduction, of what cannot be stored": (
        "x: f32[65537, 1]; w: f32[1, 65537]", "y = sum(mul(x, w), [0, 1])",
    ),
    "inner_persistent": ("x: bf16[2097155, 1030]", "y = softmax(x, 1)"),
    "outer_persistent": ("x: bf16[600, 4194306]", "y = softmax(x, 0)"),
    "inner_outer_persistent": (
        "x: bf16[2097155, 1032]",
        "s = sum(x, [1], keepdim=true); c = sum(mul(x, s), [0]); y = cast(sub(x, c), bf16)",
    ),
    "scan, rows": ("x: bf16[2097155, 1030]", "y = cumsum(x, 1)"),
    "scan, tiles": ("x: u8[2147483659]", "y = cumsum(x, 0)"),
    "scan, columns": ("x: bf16[600, 4194306]", "y = cumsum(x, 0)"),
    "sort": ("x: bf16[2097155, 1030]", "y, i = sort(x, 1)"),
    "sort, long": ("x: bf16[1030, 2097155]", "y, i = sort(x, 1)"),
    "topk": ("x: bf16[2097155, 1030]", "y, i = topk(x, 5, 1)"),
    "gather": ("x: u8[2147483659]; i: i64[100]", "y = index_select(x, i, 0)"),
    "scatter": ("x: u8[2147483659]; i: i64[100]; s: u8[100]", "y = scatter(x, i, s, 0)"),
    "matmul": ("a: bf16[65537, 64]; b: bf16[64, 65537]", "y = matmul(a, b)"),
    "matmul, long": ("a: bf16[64, 64]; b: bf16[64, 2147483712]", "y = matmul(a, b)"),
    "matmul, deep": ("a: bf16[8, 2147483712]; b: bf16[2147483712, 8]", "y = matmul(a, b)"),
    "matmul, batched": ("a: bf16[131075, 129, 64]; b: bf16[131075, 64, 129]", "y = matmul(a, b)"),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_nightly(PLANS, 4))
def test_indices_have_64_bits_grids_are_allowed_and_kernels_build(name: str) -> None:
    fusion = fusion_of(*PLANS[name])
    planned = driver.plan(fusion, OPTIONS)
    for launch in planned.host.launches:
        geometry(launch, fusion.hints)
    wide = [s for s in planned.kernel_sources if "fusec::i64" in s.text]
    assert wide, name
    sources = [Source(s.name, s.text) for s in planned.kernel_sources]
    for artifact in build(sources, ["sm_90a"], 1).values():
        assert (artifact.warnings, artifact.spill_bytes) == ((), 0)


def test_tensor_maps_have_coordinates_of_32_bits() -> None:
    (plan,) = driver.plan(fusion_of(*PLANS["matmul, long"]), OPTIONS).plans
    assert plan.kernels[0].template == "matmul_mma"


@pytest.mark.parametrize(
    ("inputs", "ops"),
    [
        ("x: bf16[3, 1073741827]", "y, i = sort(x, 1)"),
        ("x: u8[2147483651, 2]", "y, i = sort(x, 1)"),
        ("x: u8[2147483659]; i: i64[2147483659]", "y = scatter(x, i, x, 0)"),
    ],
)
def test_what_is_too_large_is_refused_by_name(inputs: str, ops: str) -> None:
    with pytest.raises(Unsupported, match=r"`(sort|scatter)`"):
        driver.plan(fusion_of(inputs, ops), OPTIONS)


@dataclass(frozen=True)
class Case:
    """A fusion of one input `x` and one output, and a number of it from numbers of the input.

    first, step, count: the elements of x that element k of the output is made of, as functions of
    k: x[first(k) + step * j] for j < count. make: from those, in f64. pinned: values of the
    one segment, where several would be faster.
    """

    inputs: str
    ops: str
    scheduler: str
    first: Callable[[np.ndarray], np.ndarray]
    make: Callable[[np.ndarray, np.ndarray], np.ndarray]
    step: int = 1
    count: int = 1
    exact: bool = True
    pinned: str = ""


def same(k: np.ndarray) -> np.ndarray:
    """Return the positions."""
    return k


CASES = {
    "flat": Case(*PLANS["pointwise, flat"], "pointwise", same, lambda x, k: x[:, 0] + 1),
    "padded": Case(
        *PLANS["pointwise, padded"], "pointwise", lambda k: k - 1,
        lambda x, k: np.where((k < 1) | (k > 2147483659), 7, x[:, 0]),
    ),
    "transposed": Case(
        *PLANS["transpose"], "transpose", lambda k: k % 65537 * 32771 + k // 65537,
        lambda x, k: x[:, 0] + 1,
    ),
    "transposed, batched": Case(
        *PLANS["transpose, batched"], "transpose",
        lambda k: k // 16387**2 * 16387**2 + k % 16387 * 16387 + k // 16387 % 16387,
        lambda x, k: x[:, 0] + 1,
    ),
    "transposed, long": Case(
        "x: u8[65, 67108867]", "y = add(permute(x, [1, 0]), 1)", "transpose",
        lambda k: k % 65 * 67108867 + k // 65, lambda x, k: x[:, 0] + 1,
    ),
    "inner": Case(
        "x: u8[2097155, 1030]", "y = sum(x, [1])", "reduction", lambda k: k * 1030,
        lambda x, k: x.sum(1), 1, 1030,
    ),
    "outer": Case(
        "x: u8[515, 4194306]", "y = sum(x, [0])", "reduction", same,
        lambda x, k: x.sum(1), 4194306, 515,
    ),
    "persistent": Case(
        "x: u8[2097155, 1030]", "y = cast(sub(sum(x, [1], keepdim=true), x), i32)",
        "inner_persistent", lambda k: k // 1030 * 1030,
        lambda x, k: x.sum(1) - x[np.arange(len(k)), k % 1030], 1, 1030,
    ),
    "persistent, columns": Case(
        "x: u8[600, 4194306]", "y = cast(sub(sum(x, [0], keepdim=true), x), i32)",
        "outer_persistent", lambda k: k % 4194306,
        lambda x, k: x.sum(1) - x[np.arange(len(k)), k // 4194306], 4194306, 600,
    ),
    "scan": Case(
        "x: u8[2097155, 1030]", "y = cumsum(x, 1)", "scan", lambda k: k // 1030 * 1030,
        lambda x, k: np.cumsum(x, 1)[np.arange(len(k)), k % 1030], 1, 1030,
    ),
    "scan, columns": Case(
        "x: u8[600, 4194306]", "y = cumsum(x, 0)", "scan", lambda k: k % 4194306,
        lambda x, k: np.cumsum(x, 1)[np.arange(len(k)), k // 4194306], 4194306, 600,
    ),
}  # fmt: skip
CASES |= {
    "rows": Case(
        "x: u8[65537, 32771]", "y = cast(add(cast(x, i32), cast(select(x, 1, 0), i32)), i32)",
        "pointwise", same, lambda x, k: x[:, 0] + PATTERN[(32771 + k % 32771) % PERIOD],
    ),
    "rows far apart": Case(
        "x: u8[3, 1073741827]", "y = add(slice(x, [0, 5], [3, 70]), 1)", "pointwise",
        lambda k: k // 65 * 1073741827 + 5 + k % 65, lambda x, k: x[:, 0] + 1,
    ),
    "persistent, transposed": Case(
        "x: u8[1030, 2097155]",
        "t = permute(x, [1, 0]); y = cast(sub(sum(t, [1], keepdim=true), t), i32)",
        "outer_persistent", lambda k: k // 1030,
        lambda x, k: x.sum(1) - x[np.arange(len(k)), k % 1030], 2097155, 1030, pinned="t, y",
    ),
    "gathered": Case(
        "x: u8[2147483659]", "y = index_select(x, add(mul(iota(101, 0, 1, i64), 21474836), 11), 0)",
        "pointwise", lambda k: k * 21474836 + 11, lambda x, k: x[:, 0],
    ),
    "sorted": Case(
        "x: u8[2097155, 1030]", "y, i = sort(x, 1)", "sort", lambda k: k // 1030 * 1030,
        lambda x, k: np.sort(x, 1)[np.arange(len(k)), k % 1030], 1, 1030,
    ),
    "largest": Case(
        "x: u8[2097155, 1030]", "y, i = topk(x, 5, 1)", "sort", lambda k: k // 5 * 1030,
        lambda x, k: np.sort(x, 1)[np.arange(len(k)), 1029 - k % 5], 1, 1030,
    ),
    "position of the largest": Case(
        "x: u8[2097155, 1030]", "y = argmax(x, 1)", "reduction", lambda k: k * 1030,
        lambda x, k: np.argmax(x, 1), 1, 1030,
    ),
}  # fmt: skip
PATTERN = np.random.default_rng(7).integers(1, 100, PERIOD).astype(np.uint8)
"""Never 0, so that what is written can be told from what is not."""
SAMPLES = 500


@pytest.mark.parametrize("name", mostly_nightly(CASES, 2))
def test_numbers_of_the_last_blocks(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    fusion = fusion_of(case.inputs, case.ops, pinned=case.pinned)
    planned = driver.plan(fusion, OPTIONS)
    assert [s.scheduler for s in planned.segmented.segments] == [case.scheduler]
    (plan,) = planned.plans
    (kernel,) = plan.kernels
    elements = int(np.prod([e.value for e in fusion.inputs[0].value.shape]))
    output = plan.fusion.outputs[0].value
    length = int(np.prod([e.value for e in output.shape]))
    with Memory() as memory:
        memory.repeat("x", PATTERN, elements)
        memory.holes("y", length * output.dtype.size)
        grid = [g.evaluate({}) for g in kernel.grid]
        blocks = {(0, 0, 0), tuple(g - 1 for g in grid), (grid[0] // 2 + 1, 0, 0)}
        # The last row is that of one of the last blocks, where vectors are shifted.
        last_ones = range(min(17, grid[0]))
        blocks |= {(grid[0] - 1 - k, grid[1] - 1, grid[2] - 1) for k in last_ones}
        run_blocks(plan, memory, tmp_path, {0: sorted(blocks)})
        checked = last = 0
        for start, values in memory.written("y", output.dtype.numpy):
            inside = np.flatnonzero(values)
            picked = inside[:: max(1, len(inside) // SAMPLES)]
            if not len(picked):
                continue
            found, k = values[picked], start + picked.astype(np.int64)
            last = max(last, start + int(inside[-1]))
            at = case.first(k)[:, None] + case.step * np.arange(case.count)
            expected = case.make(PATTERN[at % PERIOD].astype(np.int64), k)
            np.testing.assert_array_equal(found.astype(np.int64), expected)
            checked += len(picked)
        assert checked >= 3
        assert last == length - 1
