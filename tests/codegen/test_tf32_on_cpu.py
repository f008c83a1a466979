"""Products of 10 bits of f32, where these are asked for: on the host, and wrong ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gpu_check import check_on_gpu
from test_hopper_on_cpu import dies, model_of, wrong

from fusec import target
from fusec.diagnostics import Unsupported
from fusec.index.domain import Refusal
from fusec.ir.annotations import Override, Pin
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.plan import KernelPlan

SHAPES = {"nt": ("{m}, {k}", "{n}, {k}"), "nn": ("{m}, {k}", "{k}, {n}"),
          "tn": ("{k}, {m}", "{k}, {n}"), "tt": ("{k}, {m}", "{n}, {k}")}  # fmt: skip


@cache
def product(m: int, n: int, k: int, layout: str = "nt", *, few: bool = True) -> Fusion:
    """Return a product of f32 with an epilogue; few: whether 10 bits of both operands count."""
    a, b = (shape.format(m=m, n=n, k=k) for shape in SHAPES[layout])
    left = "a" if layout[0] == "n" else "permute(a, dims=[1, 0])"
    right = "b" if layout[1] == "n" else "permute(b, dims=[1, 0])"
    if few:
        left, right = f"tf32({left})", f"tf32({right})"
    return read_text(
        f"fusion: product\ninputs:\n  a: f32[{a}]\n  b: f32[{b}]\n  bias: f32[{n}]\nops:\n"
        f"  - p = matmul({left}, {right})\n  - y = relu(add(p, bias))\noutputs: [y]\n"
    )


def plan_of(fusion: Fusion, arch: str = "sm_80", kernel: str = "mma") -> KernelPlan:
    return Matmul().build(fusion, target.find(arch), {"kernel": kernel})


@pytest.mark.parametrize(
    "fusion",
    [
        product(136, 72, 40),
        product(72, 136, 40, "nn"),
        product(72, 40, 40, "tn"),
        product(70, 33, 37, "tt"),
    ],
)
def test_products_of_few_bits(fusion: Fusion, tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion), tmp_path) == ""


WRONG = {
    "the rows of A": ("(row + lane % 16) * kPitch", "(row + lane % 8) * kPitch"),
    "the depth of A": ("depth + lane / 16 * 4);", "depth + lane / 16 * 8);"),
    "the columns of B": ("lane % 8 + lane / 16 * 8;", "lane % 8;"),
    "the depth of B": ("lane / 8 % 2 * 4);", "lane / 16 * 4);"),
    "the pieces of B": ("b[j + p / 2][p % 2]", "b[j + p % 2][p / 2]"),
    "the rows of a warp": ("row + 16 * i, depth", "16 * i, depth"),
    "bits that do not count": ("b[p] = tf32_bits(__uint_as_float(b[p]));", "b[p] &= 0xffff0000;"),
    "the columns of a chunk": ("16 / static_cast<int>(sizeof(typename Config::T))", "8"),
}  # fmt: skip
ACROSS = {
    "the rows of A": ("row + lane / 4 + p % 2 * 8", "row + lane / 4 + p / 2 * 8"),
    "the depth of A": ("lane % 4 + p / 2 * 4", "lane % 4"),
    "the columns of B": ("column + lane / 4 + p / 2 * 8", "column + lane / 4"),
    "the depth of B": ("lane % 4 + p % 2 * 4", "lane % 4 + p / 2 * 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(72, 40, 72)
    dies(fusion, plan_of(fusion), *WRONG[name], tmp_path)


@pytest.mark.parametrize("name", ACROSS)
def test_wrong_ones_across_k_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(72, 40, 40, "tn")
    dies(fusion, plan_of(fusion), *ACROSS[name], tmp_path)


@pytest.mark.parametrize(
    "factors",
    ["tf32(a), b", "a, tf32(b)", "cast(tf32(a), f64), cast(tf32(b), f64)", "tf32(a), cast(h, f32)"],
)
def test_no_kernel_leaves_a_rounding_out(factors: str) -> None:
    """Factors that tensor cores do not take are rounded in memory."""
    fusion = read_text(
        "fusion: one\ninputs:\n  a: f32[64, 128]\n  b: f32[64, 128]\n  h: bf16[64, 128]\n"
        f"ops:\n  - y = linear({factors})\noutputs: [y]\n"
    )
    refused = Matmul().problem(fusion)
    assert isinstance(refused, Refusal)
    assert refused.rule == "operand"


@pytest.mark.parametrize("kernel", ["simt", "gemv"])
def test_kernels_that_do_not_round_are_refused(kernel: str) -> None:
    with pytest.raises(Unsupported, match=r"TF32 needs|the kernel does not support f32"):
        plan_of(product(64, 64, 64), kernel=kernel)


def test_other_bits_are_not_within_the_bound() -> None:
    """Factors of 9 bits, or of all, are told from those of 10."""
    fusion, exact = product(64, 64, 1000), product(64, 64, 1000, few=False)
    inputs = random_inputs(fusion, fusion.hints, 0)
    model = model_of(fusion, plan_of(fusion))
    for bits, ok in ((10, True), (9, False), (11, False), (22, False)):
        given = {n: _cut(np.asarray(x), bits) if n != "bias" else x for n, x in inputs.items()}
        outputs = evaluate(exact, given, fusion.hints)
        found = {n: np.asarray(x, np.float32) for n, x in outputs.items()}
        assert compare(fusion, fusion.hints, inputs, found, model=model).ok == ok


def test_numbers_in_the_middle_of_two_may_be_either() -> None:
    """cvt.rna rounds them away from 0, copies in bulk to the even one; others have one result."""
    fusion = read_text("fusion: few\ninputs:\n  x: f32[6]\nops:\n  - y = tf32(x)\noutputs: [y]\n")
    unit = 2.0**-10
    x = np.array([1 + unit / 2, -1 - unit / 2, 1 + unit / 2 + 2**-23, 3.0, 0.0, 2.0**-140])
    inputs = {"x": x.astype(np.float32)}
    away = np.array([1 + unit, -1 - unit, 1 + unit, 3.0, 0.0, 0.0], np.float32)
    even = np.array([1, -1, 1 + unit, 3.0, 0.0, 0.0], np.float32)
    for found, ok in ((away, True), (even, True), (away + unit * (x == 3), False)):
        assert compare(fusion, {}, inputs, {"y": found.astype(np.float32)}).ok == ok
    assert not compare(fusion, {}, inputs, {"y": np.where(x > 1 + unit / 2, 1, even)}).ok


def _cut(x: np.ndarray, bits: int) -> np.ndarray:
    """Return floats rounded to so many bits behind the point."""
    drop = 23 - bits
    words = x.astype(np.float32).view(np.uint32)
    return ((words + (1 << (drop - 1))) >> drop << drop).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_only_what_is_asked_for_has_few_bits(arch: str) -> None:
    own = Matmul().build(product(512, 512, 512), target.find(arch)).parameters.kernel
    assert own == {"sm_80": "mma", "sm_90a": "wgmma"}[arch]
    exact = product(512, 512, 512, few=False)
    assert Matmul().build(exact, target.find(arch)).parameters.kernel == "simt"


@pytest.mark.gpu
@pytest.mark.parametrize("layout", SHAPES)
def test_products_of_few_bits_on_a_gpu(layout: str) -> None:
    for shape in ((520, 1032, 2056), (67, 133, 1001)):
        fusion = product(*shape, layout)
        values = tuple(v.name for n in fusion.nodes for v in n.outputs)
        pinned = replace(
            fusion,
            pins=(Pin("whole", values, "matmul"),),
            schedules=(Override("matmul", "kernel", "mma"),),
        )
        assert check_on_gpu(pinned, scheduler="matmul").verdict.ok
