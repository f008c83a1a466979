"""Products of 10 bits of f32 by wgmma: on the host, wrong ones, and operands that are copied."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from gpu_check import check_on_gpu
from nightly import mostly_nightly
from test_fast_math import dense
from test_hopper_on_cpu import dies, model_of, wrong
from test_persistent_on_cpu import PLAIN, TURNS, plan_of
from test_tf32_on_cpu import SHAPES, product

from fusec import target
from fusec.driver import Compilation
from fusec.ir.annotations import Override
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.plan import KernelPlan, TensorMapArgument
from fusec.segment.roofline import tensor_flops

SM_90A = target.find("sm_90a")


@cache
def batched(m: int, n: int, k: int) -> Fusion:
    """Return three products along K."""
    return read_text(
        f"fusion: product\ninputs:\n  a: f32[3, {m}, {k}]\n  b: f32[3, {n}, {k}]\nops:\n"
        "  - y = matmul(tf32(a), permute(tf32(b), [0, 2, 1]))\noutputs: [y]\n"
    )


@cache
def joined(m: int, n: int, k: int, second: str = "tf32(x), tf32(w)") -> Fusion:
    """Return two products of one operand, whose results are multiplied."""
    return read_text(
        f"fusion: product\ninputs:\n  x: f32[{m}, {k}]\n  v: f32[{n}, {k}]\n  w: f32[{n}, {k}]\n"
        f"ops:\n  - g = linear(tf32(x), tf32(v))\n  - u = linear({second})\n"
        "  - y = mul(relu(g), u)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (product(136, 80, 100), {"tile_n": 72}),
            (product(300, 72, 68), {"tile_m": 256}),
            (product(400, 72, 100), {"tile_m": 192}),
            (product(136, 83, 36), {"tile_n": 128, "cluster_n": 2}),
            (product(300, 200, 68), {"cluster_m": 2, "cluster_n": 2}),
            (product(600, 136, 68), {"cluster_m": 4, "cluster_n": 2}),
            (batched(72, 40, 68), {}),
            (joined(136, 72, 36), {"tile_n": 64, "cluster_m": 2}),
        ],
        3,
    ),
)
def test_tiles(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **{**PLAIN, **changes}), tmp_path) == ""


@pytest.mark.nightly
def test_warpgroups_in_turn(tmp_path: Path) -> None:
    fusion = product(200, 136, 100)
    plan = plan_of(fusion, **{**TURNS, "cluster_m": 2})
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.parametrize(
    ("m", "fields"),
    mostly_nightly(
        [
            (20, {"tile_m": 32, "tile_n": 128, "cluster_k": 2, "splits": 2}),
            (70, {"tile_m": 80, "tile_n": 256, "splits": 2, "split_method": "two_pass"}),
            (130, {"tile_m": 128, "tile_n": 64, "splits": 3, "split_method": "serial_tma"}),
        ],
        3,
    ),
)
def test_split_products(m: int, fields: dict[str, object], tmp_path: Path) -> None:
    fusion = product(m, 72, 196)
    plan = Matmul().build(fusion, SM_90A, {"kernel": "split_k", "stages": 2, **fields})
    assert wrong(fusion, plan, tmp_path) == ""


WRONG = {
    "a step of K is left out": ("step < 4; ++step", "step < 3; ++step"),
    "the steps of an operand": ("kDescriptorStepK = 32 >> 4", "kDescriptorStepK = 16 >> 4"),
    "the further rows": ("a_tile + block * kBlockBytes", "a_tile"),
    "what is added to": ("wgmma_tf32<kTileN>(d, a, b, step > 0 ? 1 : adds)",
                         "wgmma_tf32<kTileN>(d, a, b, adds)"),
    "sums are read early": ("wgmma_wait<0>();", "wgmma_wait<1>();"),
    "no fence before products": ("    wgmma_fence();", ""),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 72, 68)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_m": 256}), *WRONG[name], tmp_path)


def just_below(fusion: Fusion) -> dict[str, StridedArray]:
    """Return factors right below a number of 10 bits, and no bias."""
    shapes = {i.value.name: tuple(d.value for d in i.value.shape) for i in fusion.inputs}
    value = {"bias": 0.0}
    return {
        name: dense(np.full(shape, value.get(name, 1 + 2**-10 - 2**-23), np.float32))
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize(("data_type", "ok"), [("TFLOAT32", True), ("", False)])
def test_copies_round(data_type: str, ok: bool, tmp_path: Path) -> None:
    """What wgmma cuts off of floats is more than `tf32` says."""
    fusion = product(128, 64, 256)
    plan = plan_of(fusion, **PLAIN)
    (kernel,) = plan.kernels
    assert {a.data_type for a in maps_of(plan)} == {"TFLOAT32"}
    arguments = tuple(
        replace(a, data_type=data_type) if isinstance(a, TensorMapArgument) else a
        for a in kernel.arguments
    )
    plan = replace(plan, kernels=(replace(kernel, arguments=arguments),))
    inputs = just_below(fusion)
    found = run_plan(plan, inputs, tmp_path)
    assert compare(fusion, fusion.hints, inputs, found, model=model_of(fusion, plan)).ok == ok


def maps_of(plan: KernelPlan) -> list[TensorMapArgument]:
    """Return the tensor maps of a plan's first kernel."""
    return [a for a in plan.kernels[0].arguments if isinstance(a, TensorMapArgument)]


def test_copies_of_halves_do_not_round() -> None:
    fusion = read_text(
        "fusion: product\ninputs:\n  a: bf16[128, 64]\n  b: bf16[64, 64]\n"
        "ops:\n  - y = linear(a, b)\noutputs: [y]\n"
    )
    assert {a.data_type for a in maps_of(plan_of(fusion, **PLAIN, tile_k=64))} == {""}


def test_both_of_joined_products_are_asked_for() -> None:
    fusion = joined(136, 72, 36, second="x, w")
    found = Compilation(fusion, CompileOptions(targets=("sm_90a",))).segmented
    assert len([s for s in found.segments if s.scheduler == "matmul"]) == 2


def asked(fusion: Fusion) -> Fusion:
    """Return a fusion whose products are to be multiplied by wgmma."""
    return replace(fusion, schedules=(Override("matmul", "kernel", "wgmma"),))


@pytest.mark.parametrize(
    ("layout", "shape", "copies"),
    [
        ("nt", (512, 512, 512), 0),
        ("nn", (512, 512, 512), 1),
        ("tn", (512, 512, 512), 2),
        ("tt", (512, 512, 512), 1),
        ("nn", (1033, 1032, 1032), 1),
    ],
)
def test_operands_are_copied_to_lie_along_k(
    layout: str, shape: tuple[int, int, int], copies: int
) -> None:
    found = Compilation(asked(product(*shape, layout)), CompileOptions(targets=("sm_90a",)))
    *before, last = found.segmented.segments
    assert (len(before), last.scheduler) == (copies, "matmul")
    assert found.plans[-1].parameters.kernel in ("wgmma", "split_k")
    told = [d.because for d in found.segmented.decisions if "along_k" in d.because]
    assert len(told) == min(copies, 1)


def test_nothing_is_copied_without_wgmma() -> None:
    found = Compilation(product(1024, 1024, 1024, "nn"), CompileOptions(targets=("sm_80",)))
    assert [s.scheduler for s in found.segmented.segments] == ["matmul"]


def test_products_of_few_bits_take_twice_as_long() -> None:
    few, exact = product(64, 64, 64), product(64, 64, 64, few=False)
    assert (tensor_flops(few), tensor_flops(exact)) == (2 * 2 * 64**3, 0)


@pytest.mark.parametrize("layout", mostly_nightly(["nn", "tt"], 2))
@pytest.mark.nightly
def test_copies_along_k_are_right(layout: str, tmp_path: Path) -> None:
    """Each kernel of a program with copies, on the host."""
    fusion = asked(product(136, 72, 1000, layout))
    found = Compilation(fusion, CompileOptions(targets=("sm_90a",)))
    assert len(found.plans) == 2
    for plan in found.plans:
        assert wrong(plan.problem.segment, plan, tmp_path) == ""


def test_an_operand_across_k_is_read_by_mma() -> None:
    fusion = product(512, 512, 512, "nn")
    plan = Matmul().build(fusion, SM_90A)
    assert plan.parameters.kernel == "mma"
    assert "`b` is not" in plan.problem.kernels(SM_90A)["wgmma"]


@pytest.mark.gpu
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize(
    "shape", [(520, 1032, 2056), (67, 133, 1001), (1000, 1500, 1068), (16, 2048, 4096)]
)
def test_copies_and_products_on_a_gpu(layout: str, shape: tuple[int, int, int]) -> None:
    assert check_on_gpu(asked(product(*shape, layout))).verdict.ok


@pytest.mark.gpu
@pytest.mark.parametrize("fusion", [batched(520, 136, 264), joined(520, 264, 1032)])
def test_batches_and_pairs_on_a_gpu(fusion: Fusion) -> None:
    assert check_on_gpu(asked(fusion), scheduler="matmul").verdict.ok


@pytest.mark.gpu
def test_copies_round_on_a_gpu() -> None:
    fusion = product(128, 64, 256)
    assert check_on_gpu(asked(fusion), inputs=just_below(fusion)).verdict.ok
