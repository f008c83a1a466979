"""Kernels of every family write outputs in their place in a larger tensor, and nothing beside."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from complex_on_cpu import OPTIONS, fusion_of
from cuda_on_cpu import run_plan
from emulated import can_run, emulated
from test_hopper_on_cpu import plan_of, product

from fusec import driver
from fusec.diagnostics import InternalError
from fusec.ir.dim import dim
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Output
from fusec.ir.verify import verify
from fusec.reference.verdict import compare
from fusec.run.bound import POISON, Bound
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.common import needs_wide_index

PARTS = 4


def placed(output: Output, axis: int) -> Output:
    """Return an output as one of several parts of a dim, or of its last one."""
    shape = list(output.value.shape)
    shape[min(axis, len(shape) - 1)] *= dim(PARTS)
    return replace(output, strides=contiguous_strides(tuple(shape)))


def inside(fusion: Fusion, axis: int) -> Fusion:
    """Return the fusion whose outputs lie in tensors that have more along an axis."""
    return replace(fusion, outputs=tuple(placed(o, axis) for o in fusion.outputs))


def check_in_place(fusion: Fusion) -> list[str]:
    """Run the kernels on the host; what they write is right, and what lies between stays."""
    planned = driver.plan(fusion, OPTIONS)
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, 0)
    assert can_run(planned, sizes)
    with tempfile.TemporaryDirectory() as folder:
        device = emulated(planned, Path(folder))
        cubins = {kernel.name: b"" for plan in planned.plans for kernel in plan.kernels}
        executable = Executable(device, planned.host, cubins)  # pyright: ignore[reportArgumentType]
        with executable.bind(given, sizes) as bound:
            bound.reset()
            bound.run()
            outputs = bound.outputs()
            for name, array in outputs.items():
                check_between(bound, name, array)
    verdict = compare(fusion, sizes, given, outputs)
    assert verdict.ok, verdict.text()
    return [s.scheduler for s in planned.segmented.segments]


def check_between(bound: Bound, name: str, array: np.ndarray) -> None:
    """Fail where an output's memory outside of its elements is not as it was."""
    raw = bound.device.download(bound.address[name], bound.bytes_of(name))
    elements = raw.reshape(-1, array.itemsize)
    own = np.zeros(len(elements), bool)
    steps = [s // array.itemsize for s in array.strides]
    np.lib.stride_tricks.as_strided(own, array.shape, steps)[...] = True
    assert np.all(elements[~own] == POISON), name


CASES = {
    "pointwise": ("x: f32[7, 5]; b: f32[5]", "y = relu(add(x, b))", "y"),
    "pointwise vector": ("x: bf16[8, 64]", "y = mul(cast(x, f32), 2.0)", "y"),
    "transpose": ("x: f32[65, 3, 33]", "y = relu(permute(x, [2, 1, 0]))", "y"),
    "reduction": ("x: f32[16, 8]; b: f32[8]", "y = add(x, b); z = sum(x, dims=[0])", "y, z"),
    "inner_persistent": ("x: f32[16, 255]", "y = softmax(x, dim=1)", "y"),
    "outer_persistent": ("x: f32[64, 16]", "y = softmax(x, dim=0)", "y"),
    "inner_outer_persistent": (
        "x: f32[64, 256]; g: f32[64, 256]",
        "p = mul(x, g); y = mul(sub(x, sum(p, dims=[1], keepdim=true)), g); z = sum(p, dims=[0])",
        "y, z",
    ),
    "matmul": ("x: f32[2, 32, 16]; w: f32[2, 16, 24]", "y = relu(matmul(x, w))", "y"),
    "scan": ("x: f32[32, 16]", "y = cumsum(x, dim=1)", "y"),
    "sort": ("x: f32[32, 64]", "y, i = topk(x, 4, dim=1)", "y, i"),
    "scatter": (
        "x: f32[32, 16]; j: {type: 'i64[4, 16]', range: [0, 31]}; s: f32[4, 16]",
        "y = scatter(x, j, s, dim=0)",
        "y",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_family_writes_in_place(name: str) -> None:
    fusion = fusion_of(*CASES[name], dims="{}")
    found = check_in_place(inside(fusion, axis=1))
    assert found == [name.split()[0]]


HOPPER = {
    "wgmma": {"tile_n": 64, "stages": 2},
    "split_k": {"tile_m": 128, "tile_n": 64, "cluster_k": 1, "splits": 3, "stages": 2},
    "split_k turned": {"tile_m": 32, "tile_n": 128, "cluster_k": 1, "splits": 3, "stages": 3},
}


@pytest.mark.parametrize("name", HOPPER)
def test_products_of_hopper_write_in_place(name: str, tmp_path: Path) -> None:
    fusion = inside(product(72, 136, 328, bias=True), axis=1)
    plan = plan_of(fusion, name.split()[0], **HOPPER[name])
    inputs = random_inputs(fusion, fusion.hints, 0)
    outputs = run_plan(plan, inputs, tmp_path)
    verdict = compare(fusion, fusion.hints, inputs, outputs)
    assert verdict.ok, verdict.text()
    (array,) = outputs.values()
    assert array.strides == (136 * PARTS * 2, 2)
    rows = np.lib.stride_tricks.as_strided(array, (71, array.strides[0] // 2), array.strides)
    assert np.all(rows[:, 136:].view(np.uint8) == 0xFF)


def test_what_lies_between_is_looked_at() -> None:
    fusion = inside(fusion_of(*CASES["pointwise"], dims="{}"), axis=1)
    dense = replace(fusion, outputs=tuple(replace(o, strides=None) for o in fusion.outputs))
    planned = driver.plan(dense, OPTIONS)
    program = driver.Compilation(fusion, OPTIONS)
    broken = replace(program.host, instructions=planned.host.instructions)
    assert program.kernel_sources[0].text != planned.kernel_sources[0].text
    sizes = choose_sizes(fusion)
    given = random_inputs(fusion, sizes, 0)
    with tempfile.TemporaryDirectory() as folder:
        device = emulated(planned, Path(folder))
        cubins = {kernel.name: b"" for plan in planned.plans for kernel in plan.kernels}
        executable = Executable(device, broken, cubins)  # pyright: ignore[reportArgumentType]
        with executable.bind(given, sizes) as bound:
            bound.reset()
            bound.run()
            with pytest.raises(AssertionError):
                check_between(bound, "y", bound.outputs()["y"])


def test_addresses_in_a_larger_tensor_count_for_the_width_of_indices() -> None:
    fusion = fusion_of("x: bf16[4, 65536]", "y = relu(x)", "y", dims="{}")
    assert not needs_wide_index(fusion)[0]
    (output,) = fusion.outputs
    far = replace(output, strides=(dim(1 << 30), dim(1)))
    assert needs_wide_index(replace(fusion, outputs=(far,)))[0]


def test_strides_of_another_rank_are_a_bug() -> None:
    fusion = fusion_of("x: bf16[4, 8]", "y = relu(x)", "y", dims="{}")
    (output,) = fusion.outputs
    with pytest.raises(InternalError, match="rank 2 has 1 strides"):
        verify(replace(fusion, outputs=(replace(output, strides=(dim(1),)),)))
