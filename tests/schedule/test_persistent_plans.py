"""Plans of persistent products: pairs of CTAs, tiles of warpgroups, staged rows, and refusals."""

from __future__ import annotations

import pytest
from test_matmul_plans import HOPPER, bias_gelu, built, plain

from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import Unsupported
from fusec.ir.dtype import BF16, F32, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.plan import KernelPlan, TensorMapArgument

SQUARES = {
    "kernel": "wgmma",
    "tile_m": 128,
    "tile_n": 128,
    "stages": 2,
    "ping_pong": False,
    "cluster_m": 1,
    "cluster_n": 1,
    "epilogue_smem": False,
    "vector_width": 2,
}


def plan_of(fusion: Fusion, **wanted: object) -> KernelPlan:
    """Return a plan with tiles of 128 x 128 but for what is wanted."""
    return Matmul().build(fusion, HOPPER, {**SQUARES, **wanted})


def turned(g: GraphBuilder):
    y = g.apply("matmul", g.input("x", BF16, [256, 512]), g.input("w", BF16, [512, 384]))
    return g.apply("permute", y, dims=[1, 0])


PLAIN, GELU, TURNED = plain(1024, 1024, 512), bias_gelu(4096, 4096, 1024), built(turned)


@pytest.mark.parametrize("along", ["cluster_m", "cluster_n"])
def test_a_cluster_takes_two_tiles(along: str) -> None:
    plan = plan_of(PLAIN, **{along: 2})
    assert plan.kernels[0].cluster == (2, 1, 1)
    assert "__cluster_dims__(2)" in plan_sources(plan)[0].text


@pytest.mark.parametrize(
    ("cluster_m", "cluster_n", "rows", "ctas"),
    [(2, 1, 129, 64), (2, 1, 128, 64), (1, 2, 128, 32), (1, 1, 128, 32)],
)
def test_the_tiles_of_a_pair_may_be_beyond_the_result(
    cluster_m: int, cluster_n: int, rows: int, ctas: int
) -> None:
    plan = plan_of(GELU, cluster_m=cluster_m, cluster_n=cluster_n)
    assert plan.kernels[0].grid[0].evaluate({"M": rows}) == ctas


@pytest.mark.parametrize(("along", "boxes"), [("cluster_n", (64, 128)), ("cluster_m", (128, 64))])
def test_each_cta_loads_half_of_what_a_cluster_shares(along: str, boxes: tuple[int, int]) -> None:
    arguments = plan_of(GELU, **{along: 2}).kernels[0].arguments
    maps = [a for a in arguments if isinstance(a, TensorMapArgument)]
    assert tuple(m.box[1] for m in maps) == boxes


def test_an_output_lies_where_an_input_of_its_size_was_read() -> None:
    def residual(g: GraphBuilder):
        y = g.apply("linear", g.input("x", BF16, [256, 512]), g.input("w", BF16, [384, 512]))
        g.output(g.apply("add", y, g.input("r", BF16, [256, 384])))
        g.output(g.apply("neg", y))

    plan = plan_of(built(residual), epilogue_smem=True)
    names = [name for name, _, _ in plan.kernels[0].layout.constants]  # type: ignore[attr-defined]
    assert [n for n in names if n.startswith("kStaged")][-2:] == ["kStaged0", "kStaged1"]
    text = plan_sources(plan)[0].text
    assert text.count("shared + Config::kStaged0") == 2  # r, and the sum


@pytest.mark.parametrize("columns", range(64, 249, 8))
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_pairs_of_eight_staged_rows_are_in_all_banks(columns: int, dtype: DType) -> None:
    """A warp writes eight rows by four pairs, in as many turns as its bytes take (staged_rows)."""

    def biased(g: GraphBuilder):
        y = g.apply("linear", g.input("x", BF16, [256, 512]), g.input("w", BF16, [2048, 512]))
        return g.apply("add", g.apply("cast", y, dtype=dtype), g.input("r", dtype, [256, 2048]))

    plan = plan_of(built(biased), tile_m=128, tile_n=columns, stages=2, epilogue_smem=True)
    layout = plan.kernels[0].layout
    constants = {name: value for name, value, _ in layout.constants}  # type: ignore[attr-defined]
    assert constants["kStagedColumns"] == columns
    words = [
        (lane // 4 * constants["kStagedPitch"] + lane % 4 * 2) * dtype.size // 4 + word
        for lane in range(32)
        for word in range(2 * dtype.size // 4)
    ]
    turns = len(words) // 32
    banks = [word % 32 for word in words]
    assert all(banks.count(bank) == turns for bank in range(32))


@pytest.mark.parametrize(("columns", "width"), [(300, 2), (301, 1), (304, 2)])
def test_rows_that_begin_anywhere_are_shifted(columns: int, width: int) -> None:
    def linear(g: GraphBuilder):
        return g.apply("linear", g.input("x", BF16, [256, 512]), g.input("w", BF16, [columns, 512]))

    plan = plan_of(built(linear), epilogue_smem=True, vector_width=width)
    text = plan_sources(plan)[0].text
    assert ("store_shifted_rows" in text) == (columns % 8 != 0)
    assert ("visit_elements" in text) == (width == 1)


@pytest.mark.parametrize(
    ("fusion", "wanted", "words"),
    [
        (PLAIN, {"kernel": "split_k", "epilogue_smem": True}, "parameters of kernel `wgmma`"),
        (PLAIN, {"tile_m": 64}, "needs tile_m 128 or 192 or 256, not 64"),
        (PLAIN, {"tile_m": 256, "ping_pong": True}, "needs tile_m 64 or 128, not 256"),
        (PLAIN, {"tile_m": 256, "tile_n": 200}, "would need 200 accumulators"),
        (GELU, {"tile_m": 256, "tile_n": 192}, "128 fit with"),
        (PLAIN, {"tile_n": 72, "cluster_m": 2}, "aligned to the swizzle"),
        (PLAIN, {"tile_n": 72, "vector_width": 8}, "a multiple of 32"),
        (PLAIN, {"epilogue_smem": True, "vector_width": 8}, "vector_width must be 2"),
        (TURNED, {"epilogue_smem": True}, "has rows along"),
    ],
)
def test_fields_that_no_kernel_has_together(
    fusion: Fusion, wanted: dict[str, object], words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        plan_of(fusion, **wanted)
