"""Which segments are attention of few queries, what a block has of them, and what else is asked."""

from __future__ import annotations

import pytest
from attentions import PLAIN, RECOGNISED, SOFTMAX, attention
from decodes import DECODES, GROUPED

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_cuda
from fusec.schedule.attention.decode.family import AttentionDecodes
from fusec.segment.protocol import Refusal

REFUSED = {
    "many queries": (attention(*PLAIN, m=17), "17 queries per head"),
    "odd features": (attention(*PLAIN, m=1, d=72), "72 features per head"),
    "computed keys": (
        attention(
            "kx = mul(k, k)",
            "s = mul(cast(matmul(q, permute(kx, [0, 1, 3, 2])), f32), 0.125)",
            SOFTMAX,
            m=1,
        ),
        "is computed",
    ),
    "features far apart": (
        attention(
            "s = mul(cast(matmul(q, permute(kx, [0, 1, 3, 2])), f32), 0.125)",
            "  - o = matmul(cast(softmax(s, -1), bf16), v)",
            m=1,
        ).replace("  k: bf16[1, 2, 90, 64]", "  kt: bf16[1, 2, 64, 90]").replace(
            "ops:\n", "ops:\n  - kx = permute(kt, [0, 1, 3, 2])\n"
        ),
        "are not aligned to 16 bytes",
    ),
    "f32": (attention(*PLAIN, m=1, dtype="f32"), "not all bf16"),
}  # fmt: skip


def fusion_of(text: str) -> Fusion:
    """Return a fusion after the passes."""
    return run_pipeline(read_text(text, "decode.yaml"))


@pytest.mark.parametrize("name", DECODES)
def test_an_attention_is_recognised_and_cheaper_than_with_tiles_of_queries(name: str) -> None:
    compilation = Compilation(read_text(DECODES[name], "decode.yaml"), CompileOptions())
    (segment,) = compilation.segmented.segments
    assert segment.scheduler == "attention_decode"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_nearly_one_is_refused(name: str) -> None:
    text, because = REFUSED[name]
    found = AttentionDecodes().problem(fusion_of(text))
    assert isinstance(found, Refusal)
    assert because in found.because


@pytest.mark.parametrize("name", [n for n in RECOGNISED if n != "one query"])
def test_many_queries_have_tiles_of_their_own(name: str) -> None:
    compilation = Compilation(read_text(RECOGNISED[name], "attention.yaml"), CompileOptions())
    assert "attention_decode" not in {s.scheduler for s in compilation.segmented.segments}


@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries", "group"),
    [(8, 8, 1, 1), (8, 2, 1, 4), (8, 2, 3, 4), (8, 2, 5, 2), (24, 1, 1, 12), (64, 1, 16, 1)],
)
def test_heads_that_share_keys_are_rows_together(
    heads: int, kv_heads: int, queries: int, group: int
) -> None:
    text = attention(*GROUPED, heads=heads, kv_heads=kv_heads, m=queries)
    found = AttentionDecodes().problem(fusion_of(text))
    assert not isinstance(found, Refusal), found
    assert (found.decode.group, found.decode.rows) == (group, group * queries)


def test_older_gpus_run_it_too() -> None:
    plan = AttentionDecodes().build(fusion_of(attention(*PLAIN, m=1)), target.find("sm_80"))
    assert plan.parameters.splits == 1


@pytest.mark.parametrize(("heads", "more"), [(2, False), (16, False), (24, True), (64, True)])
def test_keys_of_more_heads_than_rows_are_read_again(heads: int, more: bool) -> None:
    text = attention(*GROUPED, m=1, heads=2 * heads, kv_heads=2)
    found = AttentionDecodes().problem(fusion_of(text))
    assert not isinstance(found, Refusal), found
    assert found.decode.shares_more == more


@pytest.mark.parametrize(("batch", "heads"), [(1, 2), (1, 8), (3, 8), (64, 8)])
def test_splits_fill_the_gpu(batch: int, heads: int) -> None:
    fusion = fusion_of(attention(*PLAIN, m=1, n=32768, d=128, batch=batch, heads=heads))
    plan = AttentionDecodes().build(fusion, target.find("sm_90a"))
    (kernel,) = plan.kernels
    blocks = kernel.grid[0].evaluate({})
    assert blocks == batch * heads * plan.parameters.splits
    waves = blocks / 132
    assert waves > 0.9
    assert waves / -(-waves // 1) > 0.9


def test_heads_of_256_features_compile_without_spills() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    fusion = fusion_of(attention(*GROUPED, m=1, n=16384, d=256, heads=32, kv_heads=8))
    (source,) = plan_sources(AttentionDecodes().build(fusion, target.find("sm_90a")))
    headers = headers_for(source.text)
    built = compile_cuda(source.text, name="kernel", arch="sm_90a", headers=headers)
    assert (built.warnings, built.spill_bytes) == ((), 0)
