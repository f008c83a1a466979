"""Which kernels take 8-bit operands and joined products, and why others do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_block_scales_on_cpu import block_scaled
from test_converted_on_cpu import weighted
from test_dual_on_cpu import RESIDUAL, joined
from test_fp8_on_cpu import scaled
from test_weights_on_cpu import CAT, SHIFTED, grouped
from weight_forms import Form, text_of, weights_of

from fusec import driver, target
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.errors.order import Order, Stage, roundings
from fusec.schedule.matmul.family import Matmul, MatmulParameters, MatmulProblem
from fusec.segment.protocol import Refusal

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
HOPPER, AMPERE = target.find("sm_90a"), target.find("sm_80")


def kernel(fusion: Fusion, gpu: target.Target = HOPPER) -> MatmulParameters:
    """Return the parameters of the plan of a segment."""
    return Matmul().build(fusion, gpu).parameters


def why(fusion: Fusion, **fields: str | int | bool) -> str:
    """Return why a segment has no plan with some fields."""
    offer = Matmul().offer(fusion, HOPPER, fields)
    assert isinstance(offer, Refusal)
    return offer.because


def reasons(fusion: Fusion, gpu: target.Target = HOPPER) -> dict[str, str]:
    """Return for each kernel why it cannot run a segment."""
    problem = Matmul().problem(fusion)
    assert isinstance(problem, MatmulProblem)
    return dict(problem.kernels(gpu))


def test_8_bit_floats_are_multiplied_as_they_are() -> None:
    chosen = kernel(scaled(4096, 4096, 4096))
    assert (chosen.kernel, chosen.tile_k, chosen.ping_pong) == ("wgmma", 128, False)
    assert kernel(scaled(64, 8192, 8192)).kernel == "split_k"
    assert kernel(scaled(4096, 4096, 4096), AMPERE).kernel == "mma"
    text = str(Matmul().build(scaled(256, 256, 1024), HOPPER).orders["p"])
    assert text == "groups of 32 with 13 bits, then chains of 4, then chains of 8"


def test_8_bit_floats_across_k_have_another_kernel() -> None:
    fusion = read_text(
        "fusion: product\ninputs:\n  a: f8e4m3[512, 512]\n  b: f8e4m3[512, 512]\nops:\n"
        "  - y = matmul(cast(a, f32), cast(b, f32))\noutputs: [y]\n"
    )
    found = reasons(fusion)
    assert "contiguous along K, and `b` is not" in found["wgmma"]
    assert found["split_k"] == found["wgmma"]
    assert not found["mma"]


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"ping_pong": True, "tile_m": 128, "tile_n": 128}, "the other promotes its accumulators"),
        ({"tile_m": 128, "tile_n": 256}, "including promoted ones"),
        ({"tile_m": 256, "tile_n": 192}, "a thread would need"),
    ],
)
def test_promoted_sums_need_registers(fields: dict[str, int | bool], because: str) -> None:
    assert because in why(scaled(4096, 4096, 4096), kernel="wgmma", **fields)


def test_what_tensor_cores_cut_off_is_expected() -> None:
    cut = Order((Stage(4), Stage(8, 0, 1)), 32, 13)
    whole = replace(cut, bits=0)
    lost, kept = (float(roundings(1000.0, 1000.0, 1000, o, 2.0**-24)) for o in (cut, whole))  # pyright: ignore[reportArgumentType]
    assert lost > 1e3 * kept
    assert lost**0.5 < 0.01 * 1000  # of a sum of terms of one sign, a hundredth at most


def test_products_of_one_operand_are_joined() -> None:
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    for by in (None, RESIDUAL):
        fusion = joined(512, 2048, 1024, *([by] if by else []))
        (plan,) = driver.plan(fusion, options).plans
        assert isinstance(plan.parameters, MatmulParameters)
        assert plan.parameters.dual
        assert 2 * plan.parameters.columns == plan.parameters.tile_n
        assert len(plan.kernels[0].arguments) >= 4


def test_other_products_are_not_joined() -> None:
    found = Matmul().problem(
        read_text(
            "fusion: product\ninputs:\n  x: bf16[256, 256]\n  v: bf16[256, 256]\n"
            "  w: bf16[256, 256]\n  r: bf16[256, 256]\nops:\n  - g = linear(x, v)\n"
            "  - u = linear(r, w)\n  - y = mul(silu(g), u)\noutputs: [y]\n"
        )
    )
    assert isinstance(found, Refusal)
    assert "without a common first operand" in found.because


def test_joined_products_have_two_kernels() -> None:
    fusion = joined(512, 2048, 1024)
    alone = "only kernels `wgmma` and `split_k` support a dual GEMM"
    assert set(reasons(fusion).values()) == {"", alone}
    assert [k for k, why in reasons(fusion).items() if not why] == ["wgmma", "split_k"]
    assert all("sm_80 has no wgmma" in r for r in reasons(fusion, AMPERE).values())
    assert "staged epilogue" in why(fusion, kernel="wgmma", epilogue_smem=False, tile_n=128)
    assert "not a multiple of 16" in why(fusion, kernel="wgmma", epilogue_smem=True, tile_n=72)
    assert "aligned rows" in reasons(joined(64, 33, 64))["wgmma"]


def test_weights_are_scaled_behind_the_product() -> None:
    chosen = kernel(weighted(24, 8192, 8192))
    assert (chosen.kernel, chosen.converted, chosen.swap_ab) == ("split_k", True, True)
    assert kernel(weighted(16, 8192, 8192)).kernel == "gemv"
    assert kernel(weighted(128, 8192, 8192)).tile_m <= 128
    assert kernel(weighted(128, 8192, 8192), AMPERE).kernel == "mma"
    found = reasons(weighted(16, 512, 512))
    assert "only kernel `split_k`" in found["wgmma"]
    assert not found["gemv"]


def test_rows_across_k_are_not_multiplied_by_weights() -> None:
    fusion = read_text(
        "fusion: product\ninputs:\n  x: bf16[512, 64]\n  w: i8[512, 512]\n  s: bf16[512]\n"
        "ops:\n  - y = matmul(permute(x, [1, 0]), mul(cast(w, bf16), s))\noutputs: [y]\n"
    )
    found = reasons(fusion)
    assert "contiguous along K, and `x` is not" in found["split_k"]
    assert "`x` is not contiguous along K" in found["gemv"]


@pytest.mark.parametrize(
    ("form", "kernels", "because"),
    [
        (Form(packed="n"), ("split_k",), "packs two adjacent columns per byte"),
        (Form(packed="n"), ("gemv",), "packs two adjacent columns per byte"),
        (
            Form(group=48),
            ("split_k",),
            "scale blocks of 48 elements of K do not match a stage of 128",
        ),
        (
            Form(group=12),
            ("gemv",),
            "scale blocks of 12 elements of K do not match the 16 elements per lane",
        ),
        (Form(packed="k", group=48), ("gemv",), "the 32 elements per lane"),
    ],
)
def test_forms_of_weights_are_refused(form: Form, kernels: tuple[str, ...], because: str) -> None:
    found = reasons(weights_of(form, 8, 144, 768))
    assert all(because in found[kernel] for kernel in kernels)


@pytest.mark.parametrize("along", ["k", "n"])
@pytest.mark.parametrize("zeros", ["", "bytes", "halves", "packed"])
@pytest.mark.parametrize("packed", ["", "k", "n"])
@pytest.mark.parametrize("rows", [4, 64])
def test_forms_of_weights_are_one_kernel(along: str, zeros: str, packed: str, rows: int) -> None:
    if (along, packed) == ("k", "n"):
        return
    fusion = weights_of(Form(along, packed, 64, zeros), rows, 512, 1024)
    (segment,) = driver.plan(fusion, OPTIONS).segmented.segments
    assert segment.scheduler == "matmul"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cast(z, i32)", "cast(bitwise_and(z, 127), i32)"),
        ("cast(z, i32)", "add(cast(z, i32), 300)"),
        ("sub(g,", "add(g,"),
        ("sub(g,", "bitwise_xor(g,"),
        ("cast(w, i32)", "cast(w, i16)"),
    ],
)
def test_other_zero_points_are_taken_off_before(old: str, new: str) -> None:
    text = text_of(Form(group=128, zeros="bytes"), 4, 256, 1024)
    assert old in text
    found = Matmul().problem(read_text(text.replace(old, new)))
    assert isinstance(found, Refusal) == ("i16" not in new)


def test_scales_along_k_stay_with_the_operand() -> None:
    fusion = read_text(
        "fusion: product\ninputs:\n  x: bf16[16, 512]\n  w: i8[512, 512]\n  s: bf16[1, 512]\n"
        "ops:\n  - y = linear(x, mul(cast(w, bf16), s))\noutputs: [y]\n"
    )
    found = Matmul().problem(fusion)
    assert isinstance(found, Refusal)
    assert "`s` does not have one scale per block along K" in found.because


def test_scales_of_blocks_are_applied_where_sums_are_promoted() -> None:
    assert kernel(block_scaled(128, 7168, 2048)).kernel == "wgmma"
    fusion = block_scaled(128, 256, 512)
    found, older = reasons(fusion), reasons(fusion, AMPERE)
    assert (found["wgmma"], found["split_k"], older["wgmma"]) == ("", "", "sm_80 has no wgmma")
    assert all("wgmma accumulators are promoted" in found[k] for k in ("gemv", "mma", "simt"))
    assert Matmul().build(fusion, HOPPER).unrounded == ()


@pytest.mark.parametrize("unpacked", [CAT, SHIFTED])
def test_bytes_are_unpacked_on_the_way(unpacked: str) -> None:
    fusion = grouped(4, 256, 1024, unpacked)
    assert kernel(fusion).kernel == kernel(fusion, AMPERE).kernel == "gemv"
    assert "only kernels `gemv` and `split_k`" in reasons(fusion)["wgmma"]
    assert kernel(grouped(128, 8192, 8192, unpacked)).kernel == "split_k"
    assert reasons(grouped(4, 256, 1152, unpacked))["split_k"] == ""
    found = weights_of(Form(packed="k", group=64), 4, 256, 1088)
    assert "1088 elements of K are not a multiple of a stage of 128" in reasons(found)["split_k"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", 8)", ", 7)"),
        ("[lo, hi]", "[hi, lo]"),
        ("(w, 15)", "(w, 7)"),
        ("shift(w, 4)", "shift(add(w, 1), 4)"),
    ],
)
def test_other_codes_are_unpacked_before(old: str, new: str) -> None:
    unpacked = CAT.replace(old, new)
    assert unpacked != CAT
    found = Matmul().problem(grouped(4, 256, 1024, unpacked))
    assert isinstance(found, Refusal)
    assert "computed by `mul`" in found.because


def test_sums_that_are_scaled_are_not_rounded_before() -> None:
    assert Matmul().build(weighted(24, 512, 512), HOPPER).unrounded == ("v",)
    assert Matmul().build(grouped(4, 512, 512), HOPPER).unrounded == ()
