"""The matrix product scheduler: the segments it takes, with which kernel, and that they compile."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from nightly import mostly_nightly

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.codegen.render import environment
from fusec.diagnostics import Unsupported
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.matmul.kernel import names as matmul_names
from fusec.schedule.plan import KernelPlan, TensorArgument, TensorMapArgument
from fusec.segment.protocol import Estimate, Refusal

BF16, F16, F32, F64, I32, I8 = (
    dtypes.BF16,
    dtypes.F16,
    dtypes.F32,
    dtypes.F64,
    dtypes.I32,
    dtypes.I8,
)
HOPPER, AMPERE = target.find("sm_90a"), target.find("sm_80")


def built(make: Callable[[GraphBuilder], object]) -> Fusion:
    """Return the fusion that `make` builds; what it returns is the output."""
    builder = GraphBuilder("product")
    made = make(builder)
    if made is not None:
        builder.output(made)  # pyright: ignore[reportArgumentType]
    return builder.finish()


def plain(m: int, n: int, k: int, dtype=BF16, batch: tuple[int, ...] = ()) -> Fusion:
    def make(g: GraphBuilder):
        x = g.input("x", dtype, [*batch, m, k])
        return g.apply("matmul", x, g.input("w", dtype, [*batch, k, n]))

    return built(make)


def bias_gelu(m: int, n: int, k: int, dtype=BF16) -> Fusion:
    def make(g: GraphBuilder):
        rows = g.declare_dim("M", m)
        x, w = g.input("x", dtype, [rows, k]), g.input("w", dtype, [n, k])
        y = g.apply("linear", x, w, g.input("bias", dtype, [n]))
        return g.apply("gelu", y)

    return built(make)


def residual(g: GraphBuilder):
    x, w = g.input("x", BF16, [96, 256]), g.input("w", BF16, [512, 256])
    y = g.apply("linear", x, w)
    wide = g.apply("cast", y, dtype=F32)
    g.output(g.apply("add", wide, g.input("r", F32, [96, 512])))
    g.output(y)


def transposed(g: GraphBuilder):
    x, w = g.input("x", BF16, [256, 512]), g.input("w", BF16, [256, 384])
    return g.apply("matmul", g.apply("permute", x, dims=[1, 0]), w)


def grouped_heads(g: GraphBuilder):
    q = g.input("q", BF16, [2, 8, 128, 64])
    keys = g.input("k", BF16, [2, 2, 200, 64])
    wide = g.apply("broadcast_in_dim", keys, shape=[2, 2, 4, 200, 64], broadcast_dims=[0, 1, 3, 4])
    merged = g.apply("reshape", wide, new_shape=[2, 8, 200, 64])
    return g.apply("matmul", q, g.apply("permute", merged, dims=[0, 1, 3, 2]))


def folded(g: GraphBuilder):
    return g.apply("matmul", g.input("x", BF16, [4, 96, 256]), g.input("w", BF16, [256, 512]))


def rows_of_a_batch(g: GraphBuilder):
    count = g.declare_dim("B", 4)
    y = g.apply("linear", g.input("x", BF16, [count, 96, 256]), g.input("w", BF16, [512, 256]))
    return g.apply("add", y, g.input("r", BF16, [count, 1, 512]))


def batch_of_any_size(g: GraphBuilder):
    count = g.declare_dim("B", 4)
    x, w = g.input("x", BF16, [count, 96, 256]), g.input("w", BF16, [count, 256, 512])
    return g.apply("matmul", x, w)


def heads_in_place(g: GraphBuilder):
    q, k = g.input("q", BF16, [2, 128, 8, 64]), g.input("k", BF16, [2, 200, 8, 64])
    q = g.apply("permute", q, dims=[0, 2, 1, 3])
    return g.apply("matmul", q, g.apply("permute", k, dims=[0, 2, 3, 1]))


def vector_rows(g: GraphBuilder):
    return g.apply("matmul", g.input("x", BF16, [4096]), g.input("w", BF16, [4096, 1024]))


def vector_columns(g: GraphBuilder):
    return g.apply("matmul", g.input("x", F16, [64, 4096]), g.input("w", F16, [4096]))


def clashes(g: GraphBuilder):
    tiles = g.declare_dim("tile", 300)
    x, w = g.input("sums", BF16, [tiles, 64]), g.input("stage", BF16, [128, 64])
    y = g.apply("linear", x, w, g.input("acc", BF16, [128]))
    return g.apply("mul", y, g.input("row", BF16, [tiles, 1]))


def same_operand(g: GraphBuilder):
    x = g.input("x", BF16, [256, 512])
    return g.apply("matmul", x, g.apply("permute", x, dims=[1, 0]))


def sliced_output(g: GraphBuilder):
    y = g.apply("matmul", g.input("x", BF16, [256, 512]), g.input("w", BF16, [512, 384]))
    g.output(g.apply("slice", y, start_indices=[0, 64], end_indices=[256, 192]))
    g.output(g.apply("permute", g.apply("neg", y), dims=[1, 0]))


def sliced_operand(g: GraphBuilder):
    x = g.input("x", BF16, [256, 1536])
    part = g.apply("slice", x, start_indices=[0, 512], end_indices=[256, 1024])
    return g.apply("matmul", part, g.input("w", BF16, [512, 384]))


def unknown_strides(g: GraphBuilder):
    x = g.input("x", BF16, [256, 512], contiguity=[False, True])
    return g.apply("matmul", x, g.input("w", BF16, [512, 384]))


def in_place(g: GraphBuilder):
    y = g.apply("matmul", g.input("x", BF16, [256, 512]), g.input("w", BF16, [512, 384]))
    total = g.input("total", F32, [256, 384])
    g.output(g.apply("add", g.apply("cast", y, dtype=F32), total), alias="total")


def dot(g: GraphBuilder):
    return g.apply("matmul", g.input("x", BF16, [4096]), g.input("w", BF16, [4096]))


def wide_index(g: GraphBuilder):
    rows = g.declare_dim("rows", 1 << 18)
    y = g.apply("linear", g.input("x", BF16, [rows, 8192]), g.input("w", BF16, [64, 8192]))
    return g.apply("relu", y)


CASES = {
    "plain": (plain(1024, 1024, 512), HOPPER, "wgmma"),
    "plain_mma": (plain(1024, 1024, 512), AMPERE, "mma"),
    "bias_gelu": (bias_gelu(4096, 4096, 1024), HOPPER, "wgmma"),
    "bias_gelu_mma": (bias_gelu(4096, 4096, 1024, F16), AMPERE, "mma"),
    "long_k": (plain(256, 256, 65536), HOPPER, "split_k"),
    "few_rows": (bias_gelu(16, 4096, 4096), HOPPER, "split_k"),
    "ragged": (plain(100, 101, 77), HOPPER, "mma"),
    "f32": (bias_gelu(256, 128, 96, F32), HOPPER, "simt"),
    "f64": (plain(64, 65, 66, F64), AMPERE, "simt"),
    "i32": (plain(64, 65, 66, I32), AMPERE, "simt"),
    "i8": (plain(64, 65, 66, I8), AMPERE, "simt"),
    "batch": (plain(256, 128, 64, BF16, (3, 5)), HOPPER, "wgmma"),
    "residual": (built(residual), HOPPER, "wgmma"),
    "transposed": (built(transposed), HOPPER, "wgmma"),
    "grouped_heads": (built(grouped_heads), HOPPER, "wgmma"),
    "grouped_heads_mma": (built(grouped_heads), AMPERE, "mma"),
    "folded": (built(folded), HOPPER, "wgmma"),
    "rows_of_a_batch": (built(rows_of_a_batch), HOPPER, "wgmma"),
    "batch_of_any_size": (built(batch_of_any_size), HOPPER, "wgmma"),
    "heads_in_place": (built(heads_in_place), HOPPER, "mma"),
    "vector_rows": (built(vector_rows), HOPPER, "split_k"),
    "vector_columns": (built(vector_columns), HOPPER, "split_k"),
    "clashes": (built(clashes), HOPPER, "wgmma"),
    "clashes_mma": (built(clashes), AMPERE, "mma"),
    "same_operand": (built(same_operand), HOPPER, "wgmma"),
    "sliced_output": (built(sliced_output), HOPPER, "wgmma"),
    "sliced_operand": (built(sliced_operand), HOPPER, "mma"),
    "unknown_strides": (built(unknown_strides), HOPPER, "wgmma"),
    "dot": (built(dot), HOPPER, "gemv"),
    "wide_index": (built(wide_index), HOPPER, "wgmma"),
    "wide_index_mma": (built(wide_index), AMPERE, "mma"),
    "in_place": (built(in_place), HOPPER, "wgmma"),
}


def plan_of(name: str) -> KernelPlan:
    fusion, gpu, _ = CASES[name]
    estimate = Matmul().propose(fusion, gpu)
    assert isinstance(estimate, Estimate), estimate
    assert estimate.seconds(gpu) > 0
    return Matmul().build(fusion, gpu)


@pytest.mark.parametrize("name", mostly_nightly(CASES, 3))
def test_plans_compile_without_spills(name: str):
    pytest.importorskip("cuda.bindings.nvrtc")
    from fusec.run.build import Source, build
    from fusec.run.cache import Cache

    _, gpu, kernel = CASES[name]
    plan = plan_of(name)
    assert plan.kernels[0].template == f"matmul_{kernel}"
    sources = plan_sources(plan)
    texts = [Source(source.name, source.text) for source in sources]
    artifacts = build(texts, [gpu.arch], cache=Cache(None)).values()
    for source, artifact in zip(sources, artifacts, strict=True):
        assert artifact.spill_bytes == 0
        assert artifact.stack_bytes == 0
        assert artifact.warnings == ()
        assert source.kernel.shared_bytes + artifact.shared_bytes <= gpu.shared


def arguments(name: str, kind: type) -> list:
    return [a for a in plan_of(name).kernels[0].arguments if isinstance(a, kind)]


def text_of(name: str) -> str:
    return plan_sources(plan_of(name))[0].text


def test_operands_behind_maps_have_no_pointer():
    assert [a.name for a in arguments("plain", TensorArgument)] == ["matmul_1"]
    assert [a.name for a in arguments("plain_mma", TensorArgument)] == ["x", "w", "matmul_1"]


def test_a_transposed_operand_keeps_its_memory():
    a, b = arguments("transposed", TensorMapArgument)
    assert [e.value for e in a.extents] == [512, 256, 1]
    assert a.box == (64, 64, 1)  # contiguous along M: blocks of 64 rows
    assert b.strides[0] == 384 * 2
    assert "constexpr bool kAKMajor = false;" in text_of("transposed")


SQUARES = {
    "kernel": "wgmma",
    "tile_m": 128,
    "tile_n": 128,
    "ping_pong": False,
    "cluster_m": 1,
    "cluster_n": 1,
}


def grid_of(name: str, **sizes: int) -> int:
    """Return the CTAs of a kernel with tiles of 128 x 128."""
    plan = Matmul().build(CASES[name][0], HOPPER, SQUARES)
    return plan.kernels[0].grid[0].evaluate(sizes)


def test_leading_dims_that_share_the_weight_become_rows():
    a, _ = arguments("folded", TensorMapArgument)
    assert [e.value for e in a.extents] == [256, 4 * 96, 1]
    assert grid_of("folded") == 3 * 4


def test_a_leading_dim_inside_the_rows_stays_a_parameter():
    assert plan_of("rows_of_a_batch").specialised == {}
    assert grid_of("rows_of_a_batch", B=1) == 4
    assert grid_of("rows_of_a_batch", B=2) == 2 * 4


def test_heads_of_a_group_read_one_slice():
    _, keys = arguments("grouped_heads", TensorMapArgument)
    assert [e.value for e in keys.extents] == [64, 200, 4]
    assert keys.strides[1] == 200 * 64 * 2
    assert "b_columns = {&k_map, n, tile.batch / 4};" in text_of("grouped_heads")


def test_the_rows_stay_a_parameter():
    assert "M" not in plan_of("bias_gelu").specialised
    assert grid_of("bias_gelu", M=100) == 32
    assert grid_of("bias_gelu", M=4096) == HOPPER.sms


def test_a_stride_known_at_run_time_is_guarded():
    guards = {str(g) for g in plan_of("unknown_strides").guards}
    assert "x.stride0 % 8 == 0" in guards


def test_the_product_is_rounded_before_the_epilogue():
    text = text_of("residual")
    assert re.search(r"= fusec::round_to<fusec::bf16>\(acc\[i\]\)", text)
    assert "round_to" not in text_of("f32")
    assert "fusec::convert<fusec::bf16>(acc[i])" in text_of("plain")


def test_large_tensors_are_addressed_with_64_bits():
    assert "using Index = fusec::i64;" in text_of("wide_index")
    assert "using Index = int;" in text_of("plain")


def test_a_quad_exchanges_its_columns_for_wide_accesses():
    settings = {"kernel": "wgmma", "epilogue_smem": False, "tile_m": 128}
    plan = Matmul().build(CASES["plain"][0], HOPPER, settings)
    assert plan.parameters.vector_width == 8
    assert "constexpr int kWidth = 8;" in plan_sources(plan)[0].text
    assert "constexpr int kWidth = 1;" in text_of("ragged")


def test_split_k_hands_its_work_out_by_ticket():
    settings = {"kernel": "split_k", "cluster_k": 4, "splits": 3, "split_method": "serial_tma"}
    plan = Matmul().build(CASES["long_k"][0], HOPPER, {**settings, "tile_m": 128, "tile_n": 128})
    chosen = plan.parameters
    partials, turns, tickets = plan.workspaces
    assert partials.size == 4 * 128 * 128
    assert turns.size == 4 * chosen.cluster_k
    assert (turns.init, tickets.init) == ("zeroed once", "zeroed once")
    assert plan.kernels[0].grid[0] == 4 * chosen.cluster_k * chosen.splits
    assert chosen.splits * chosen.cluster_k >= 8


def two_products(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    return g.apply("matmul", g.apply("matmul", x, x), x)


def computed_operand(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    return g.apply("matmul", g.apply("neg", x), x)


def reduced(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    return g.apply("sum", g.apply("matmul", x, x), dims=[1])


def added_to_its_transpose(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    y = g.apply("matmul", x, x)
    return g.apply("add", y, g.apply("permute", y, dims=[1, 0]))


def into_an_operand(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    g.output(g.apply("matmul", x, g.input("w", BF16, [64, 64])), alias="x")


def into_what_is_read_elsewhere(g: GraphBuilder):
    x, r = g.input("x", BF16, [64, 64]), g.input("r", BF16, [64, 64])
    y = g.apply("matmul", x, x)
    g.output(g.apply("add", y, g.apply("permute", r, dims=[1, 0])), alias="r")


def expanded_output(g: GraphBuilder):
    x = g.input("x", BF16, [64, 64])
    y = g.apply("matmul", x, x)
    return g.apply("broadcast_in_dim", y, shape=[3, 64, 64], broadcast_dims=[1, 2])


@pytest.mark.parametrize(
    ("make", "rule", "words"),
    [
        (two_products, "contraction", "found 2"),
        (computed_operand, "operand", "computed by `neg`: with more than 32 rows"),
        (reduced, "operation", "`sum` \\(reduction\\)"),
        (added_to_its_transpose, "index_map", "read at an index map other than its own"),
        (into_an_operand, "alias", "written to `x`, an operand"),
        (into_what_is_read_elsewhere, "alias", "`r` is read at other elements"),
        (expanded_output, "domain|store_map", "broadcast_in_dim_1"),
    ],
)
def test_refuses_with_a_reason(make, rule: str, words: str):
    refusal = Matmul().propose(built(make), HOPPER)
    assert isinstance(refusal, Refusal)
    assert re.fullmatch(rule, refusal.rule)
    assert re.search(words, refusal.because)


def test_parameters_are_overridable():
    fusion = CASES["plain"][0]
    chosen = Matmul().build(fusion, HOPPER, {"kernel": "split_k", "cluster_k": 4, "splits": 1})
    assert chosen.kernels[0].template == "matmul_split_k"
    assert chosen.kernels[0].cluster == (4, 1, 1)
    assert Matmul().build(fusion, HOPPER, {"tile_n": 128, "stages": 5}).parameters.stages == 5


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("plain_mma", {"kernel": "wgmma"}, "sm_80 has no wgmma"),
        ("f32", {"kernel": "mma"}, "f32 GEMMs do not use tensor cores"),
        ("ragged", {"kernel": "wgmma"}, "not aligned to 16 bytes"),
        ("plain", {"tile_n": 100}, "tile_n cannot be 100"),
        ("plain", {"kernel": "wgmma", "tile_n": 256, "stages": 12}, "bytes of shared memory"),
        ("plain", {"kernel": "wgmma", "cluster_k": 4}, "does not support so many splits"),
        ("ragged", {"vector_width": 2}, "101 columns are not divisible"),
    ],
)
def test_overrides_that_no_kernel_has_are_refused(name: str, overrides, words: str):
    fusion, gpu, _ = CASES[name]
    with pytest.raises(Unsupported, match=words):
        Matmul().build(fusion, gpu, overrides)


def test_no_rounding_of_the_rate_turns_a_large_product_into_a_split():
    plan = Matmul().build(plain(8192, 8192, 8192), HOPPER)
    assert plan.parameters.kernel == "wgmma"
    assert plan.parameters.tile_n >= 128


DECLARED = re.compile(
    r"(?:^|[(;,])\s*(?:const |constexpr )*(?:auto|int|bool|float|float4|Index|Sums|unsigned char|"
    r"(?:fusec|Config)::[\w:]+(?:<[^>]*>)?)[*&]* (?:const )?\**(\w+)(?=\[| =|\)|;|,)",
    re.MULTILINE,
)


@pytest.mark.parametrize("kernel", ["simt", "mma", "wgmma", "split_k", "sum_slices"])
def test_every_name_of_a_template_is_reserved(kernel: str):
    loader = environment().loader
    assert loader is not None
    files = [f"matmul_{kernel}.cu.j2", "_matmul.j2"]
    if kernel == "wgmma":
        files += ["_matmul_persistent.j2", "_matmul_tail.j2"]
    text = "".join(loader.get_source(environment(), file)[0] for file in files)
    declared = set(DECLARED.findall(text)) | set(re.findall(r"using (\w+)", text))
    assert declared >= {"M", "tile", "finish", "row"}
    assert declared - matmul_names.RESERVED == set()


def test_names_of_the_file_win_no_clash():
    text = text_of("clashes")
    assert "acc_tensor" in text
    assert "const int M = static_cast<int>(tile_size);" in text
