"""Which rows of products are computed in their kernels, which are written first, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_computed_on_cpu import LAYER, RMS, ROUNDED, normalised, plan_of

from fusec import driver, target
from fusec.diagnostics import Unsupported
from fusec.driver import Compilation
from fusec.ir.annotations import Pin
from fusec.ir.dtype import BF16
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.matmul.family import Matmul, MatmulParameters, MatmulProblem
from fusec.schedule.matmul.hopper import SplitKParameters
from fusec.segment.protocol import Refusal

HOPPER, AMPERE = target.find("sm_90a"), target.find("sm_80")


def planned(fusion: Fusion) -> Compilation:
    """Return a fusion, segmented and planned."""
    return driver.plan(fusion, CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1))


def families(fusion: Fusion) -> list[str]:
    """Return the schedulers of a fusion's segments."""
    return [s.scheduler for s in planned(fusion).segmented.segments]


def chosen(fusion: Fusion) -> MatmulParameters:
    """Return the parameters of a fusion in one kernel, which a pin asks for."""
    values = tuple(v.name for n in fusion.nodes for v in n.outputs)
    (plan,) = planned(replace(fusion, pins=(Pin("whole", values, "matmul"),))).plans
    assert isinstance(plan.parameters, MatmulParameters)
    return plan.parameters


@pytest.mark.parametrize(("rows", "kernel"), [(1, "gemv"), (8, "gemv"), (32, "split_k")])
@pytest.mark.parametrize("by", [RMS, LAYER, ROUNDED])
def test_few_rows_are_computed_in_front(by: tuple[str, str], rows: int, kernel: str) -> None:
    assert chosen(normalised(rows, 4096, 4096, by)).kernel == kernel


def test_few_rows_are_computed_by_price() -> None:
    assert families(normalised(4, 4096, 4096)) == ["matmul"]


def test_more_rows_are_written_once() -> None:
    compiled = planned(normalised(33, 4096, 4096))
    assert [s.scheduler for s in compiled.segmented.segments] == ["pointwise", "matmul"]
    reasons = "".join(d.because for d in compiled.segmented.decisions)
    assert "with more than 32 rows (here 33) it is stored once" in reasons


def test_statistics_may_be_a_kernel_of_their_own() -> None:
    text = (
        "fusion: rms\ninputs: {x: 'bf16[4, 4096]', g: 'bf16[4096]', w: 'bf16[4096, 4096]'}\nops:\n"
        "  - v = cast(x, f32)\n"
        "  - r = rsqrt(add(mean(mul(v, v), dims=[1], keepdim=true), 0.00001))\n"
        "  - a = cast(mul(mul(v, r), cast(g, f32)), bf16)\n  - y = linear(a, w)\noutputs: [y]\n"
        "segments:\n  statistics: [v, r]\n  product: {values: [a, y], scheduler: matmul}\n"
    )
    assert families(read_text(text)) == ["reduction", "matmul"]


def test_other_gpus_stream() -> None:
    found = Matmul().problem(normalised(4, 256, 1024))
    assert isinstance(found, MatmulProblem)
    assert [k for k, why in found.kernels(AMPERE).items() if not why] == ["gemv"]
    assert Matmul().build(normalised(16, 256, 1024), AMPERE).parameters.tile_m == 16


def product(rows: str, call: str = "linear(a, w)", **inputs: str) -> Fusion:
    """Return a product of rows that are computed somehow."""
    given = {"x": "bf16[8, 256]", "w": "bf16[64, 256]", **inputs}
    lines = "".join(f"  {name}: {type_}\n" for name, type_ in given.items())
    text = f"fusion: f\ninputs:\n{lines}ops:\n  - a = {rows}\n  - y = {call}\noutputs: [y]\n"
    return read_text(text)


REFUSED = {
    "chunks": (
        product("neg(x)", x="bf16[8, 260]", w="bf16[64, 260]"), "columns are not a multiple of 8"
    ),
    "across": (
        product("neg(permute(x, [1, 0]))", x="bf16[256, 8]"), "`x` is not contiguous along K"
    ),
    "shifted": (
        product("neg(slice(x, [0, 1], [8, 257], [1, 1]))", x="bf16[8, 264]"),
        "not contiguous along K",
    ),
    "padded": (product("neg(pad(x, [0, 8], 0.0))", x="bf16[8, 248]"), "depend on conditions"),
    "f32": (
        product("neg(x)", x="f32[8, 256]", w="f32[64, 256]"), "reads its operands from memory"
    ),
    "weights": (
        product(
            "neg(x)",
            "linear(a, reshape(mul(reshape(cast(w, bf16), [64, 2, 128]), s), [64, 256]))",
            w="i8[64, 256]",
            s="bf16[64, 2, 1]",
        ),
        "a different type",
    ),
    "batches": (
        product("neg(x)", "matmul(a, w)", x="bf16[3, 8, 256]", w="bf16[3, 256, 64]"),
        "reads its operands from memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_rows_are_not_computed(name: str) -> None:
    fusion, because = REFUSED[name]
    found = Matmul().propose(fusion, HOPPER)
    assert isinstance(found, Refusal)
    assert because in found.because


def test_joined_products_read_their_rows() -> None:
    text = (
        "fusion: f\ninputs:\n  x: bf16[8, 256]\n  v: bf16[64, 256]\n  w: bf16[64, 256]\nops:\n"
        "  - a = neg(x)\n  - y = mul(linear(a, v), linear(a, w))\noutputs: [y]\n"
    )
    found = Matmul().propose(read_text(text), HOPPER)
    assert isinstance(found, Refusal)
    assert "not for dual GEMMs" in found.because


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"tile_m": 64, "tile_n": 128}, "3 warps compute 32 rows per stage, not 64"),
        ({"tile_m": 16, "tile_n": 128, "stages": 2}, "need a stage each, but there are 2"),
        ({"cluster_n": 2, "tile_m": 32, "tile_n": 128}, "copied, not computed"),
    ],
)
def test_tiles_without_a_kernel(fields: dict[str, int | str], because: str) -> None:
    with pytest.raises(Unsupported):
        plan_of(normalised(16, 256, 1024), "split_k", **fields)
    problem = Matmul().problem(normalised(16, 256, 1024))
    assert isinstance(problem, MatmulProblem)
    given = {"stages": 4, "cluster_k": 1, "splits": 1, **fields}
    p = Matmul().with_derived(problem, SplitKParameters(tile_k=64, **given))  # pyright: ignore
    refusal = Matmul().why_illegal(problem, p, HOPPER)
    assert refusal is not None
    assert because in refusal.because


def test_what_is_written_into_is_not_computed_from() -> None:
    builder = GraphBuilder("f")
    x, w = builder.input("x", BF16, (8, 256)), builder.input("w", BF16, (256, 256))
    builder.output(builder.apply("matmul", builder.apply("neg", x), w), alias="x")
    found = Matmul().propose(builder.finish(), HOPPER)
    assert isinstance(found, Refusal)
    assert "written to `x`, an operand" in found.because
