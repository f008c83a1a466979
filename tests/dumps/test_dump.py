"""Dumps of segmented fusions: both dialects by the letter, and the seed's own dump read back."""

from __future__ import annotations

import json

import pytest
from dump_parser import Dump, check, parse
from fake_schedulers import H200, FakeScheduler, everything, one_signature, only_injective, usual
from paths import ROOT, TESTS

from fusec.diagnostics import FusecError
from fusec.dumps.graphs import segmented_fusion_dot, segmented_fusion_json
from fusec.dumps.nvfuser import fusion_math_text, segmented_fusion_text
from fusec.parse import read_file, read_text
from fusec.segment.search import segment
from fusec.segment.segmented import SegmentedFusion

SEED = TESTS / "seeds" / "2146.dump"
EXAMPLE = ROOT / "examples" / "seed_2146.yaml"

TEXT = """
fusion: boundary
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]"}
ops:
  - t = sum(cast(x, f32), dims=[1])
  - y = cast(segment_set(t), bf16)
outputs: [y]
"""


def dumped(text: str, style: str, *schedulers: FakeScheduler) -> str:
    return segmented_fusion_text(segment(read_text(text), schedulers or usual(), H200), style)


def pinned_seed(*, rematerialise: bool = False) -> SegmentedFusion:
    fakes = [
        FakeScheduler(name, lambda s: None) for name in ("reduction", "inner_outer_persistent")
    ]
    return segment(read_file(str(EXAMPLE)), fakes, H200, rematerialise=rematerialise)


def test_the_present_dialect_by_the_letter() -> None:
    # Trailing blanks belong to the grammar.
    assert dumped(TEXT, "head") == "\n".join(
        [
            "Segmented_Fusion Dump: -- fusion segments:",
            "Segmented_Fusion{ ",
            "groups: ",
            "  reduction{0, 1, 2}",
            "  pointwise{3}",
            "edges: ",
            "  e{ reduction{0, 1, 2} -> pointwise{3}(T3_g_float[iS6{i0}]) }",
            "",
            "group details:",
            "g{(reduction)",
            "group id: 0",
            "inputs:",
            "  T0_g___bfloat[iS0{i0}, iS1{i1}] __bfloat",
            "outputs:",
            "  T3_g_float[iS6{i0}] float",
            "",
            "",
            "T1_l_float[iS2{i0}, iS3{i1}]",
            "   = __bfloat2float(T0_g___bfloat[iS0{i0}, iS1{i1}]);",
            "(0)",
            "T2_l_float[iS4{i0}, rS5{i1}]",
            "   = reduction( T1_l_float[iS2{i0}, iS3{i1}], op = add, initial value = float(0), "
            "allreduce = false )",
            "(1)",
            "T3_g_float[iS6{i0}]",
            "   = SegmenterSet( T2_l_float[iS4{i0}, rS5{i1}] )",
            "(2)",
            "}",
            "",
            "g{(pointwise)",
            "group id: 1",
            "inputs:",
            "  T3_g_float[iS6{i0}] float",
            "outputs:",
            "  T4_g___bfloat[iS7{i0}] __bfloat",
            "",
            "",
            "T4_g___bfloat[iS7{i0}]",
            "   = __float2bfloat(T3_g_float[iS6{i0}]);",
            "(3)",
            "}",
            "",
            "} //Segmented_Fusion",
            "",
        ]
    )


def test_the_dialect_of_june_2024_by_the_letter() -> None:
    assert dumped(TEXT, "2024") == "\n".join(
        [
            "Segmented_Fusion Dump: -- fusion segments:",
            "Segmented_Fusion{ ",
            "groups: ",
            "g{0, 1, 2}",
            "",
            "g{3}",
            "",
            "edges: ",
            "e{ g{0, 1, 2}",
            " -> g{3}",
            "(T3_g[ iS6{i0} ]) }",
            "",
            "group details:",
            "g{(reduction)",
            "inputs: ",
            "T0_g[ iS0{i0}, iS1{i1} ] __bfloat",
            "outputs: ",
            "T3_g[ iS6{i0} ] float",
            "",
            "T1_l[ iS2{i0}, iS3{i1} ]",
            "   = __bfloat2float(T0_g[ iS0{i0}, iS1{i1} ]);",
            "(0)",
            "T2_l[ iS4{i0}, rS5{i1} ]",
            "   = reduction( T1_l[ iS2{i0}, iS3{i1} ], op = add, initial value = float(0), "
            "allreduce = false )",
            "(1)",
            "T3_g[ iS6{i0} ]",
            "   = SegmenterSet( T2_l[ iS4{i0}, rS5{i1} ] )",
            "(2)",
            "}",
            "",
            "g{(pointwise)",
            "inputs: ",
            "T3_g[ iS6{i0} ] float",
            "outputs: ",
            "T4_g[ iS7{i0} ] __bfloat",
            "",
            "T4_g[ iS7{i0} ]",
            "   = __float2bfloat(T3_g[ iS6{i0} ]);",
            "(3)",
            "}",
            "",
            "} //Segmented_Fusion",
            "",
        ]
    )


EXPRESSIONS = """
fusion: texts
dims: {B: 64}
inputs:
  x: f32[B, 32]
  w: {type: "f32[B, 32]", contiguity: [null, true]}
  h: f32[B]
  eps: f32 = 1e-5
ops:
  - wide = broadcast_in_dim(h, shape=[B, 32], broadcast_dims=[0])
  - a = pow(neg(x), 3.0)
  - b = where(gt(a, 0.5), exp(a), maximum(w, eps))
  - half = mul(eps, 0.5)
  - c = mul(add(b, wide), half)
  - v = reshape(permute(slice(c, [0, 2], [B, 10]), [1, 0]), [2, 4, B])
  - p = pad(v, [1, 2], 0.0)
  - m, n = var_mean(p, dims=[0], correction=0)
  - s = squeeze(max(p, dims=[1], keepdim=true), [1])
  - k = cat([s, s], 0)
outputs: [m, n, k]
"""

TEXTS = [
    "T1_g[ bS2{1 ex i0}, iS3{32} ]",
    "T3_l[ iS5{i0}, bS6{1} ]\n   = broadcast( T2_g[ iS4{i0} ] )",
    "T4_l[ iS7{i0}, bS8{1 ex 32} ] = expand( T3_l[ iS5{i0}, bS6{1} ], {i0, 32} )",
    "T5_l[ iS9{i0}, iS10{32} ]\n   = -T0_g[ iS0{i0}, iS1{32} ];",
    "\n   = pow(T5_l[ iS9{i0}, iS10{32} ]\n  , double(3));",
    "\n   = T6_l[ iS11{i0}, iS12{32} ]\n   > double(0.5);",
    "\n   = expf(T6_l[ iS11{i0}, iS12{32} ]);",
    "\n   = fmax(T1_g[ bS2{1 ex i0}, iS3{32} ]\n  , f1);",
    "\n   = where(T7_l[ iS13{i0}, iS14{32} ]\n  , T8_l[",
    "f2 = f1 * double(0.5);",
    ", { {0, i0, 1} {2, 10, 1} } )",
    "\n   = Set.Permute( ",
    " = view( ",
    ", {0, 0, 0, 0, 1, 2} )",
    "(Var),",
    " = Welford ( ",
    "op = fmax, initial value = float(-inf)",
    "\n   = squeeze( ",
    "\n   = cat( ",
]


@pytest.mark.parametrize("piece", TEXTS)
def test_expressions_as_nvfuser_prints_them(piece: str) -> None:
    assert piece in fusion_math_text(read_text(EXPRESSIONS))


def test_the_math_of_a_fusion_has_its_frame() -> None:
    text = fusion_math_text(read_text(TEXT))
    assert text.startswith("Inputs:\n  T0_g[ iS0{i0}, iS1{i1} ], __bfloat\nOutputs:\n  T4_g[")
    assert "\n\n%kernel_math {\nT1_l[" in text
    assert text.endswith("} // %kernel_math \n")


def test_nodes_in_two_segments_keep_their_number() -> None:
    text = """
fusion: shared
dims: {B: 64, H: 512}
inputs: {x: "bf16[B, H]"}
ops:
  - xf = cast(x, f32)
  - r = sum(exp(xf), dims=[1])
  - c = sum(sin(xf), dims=[0])
outputs: [r, c]
"""
    fakes = (FakeScheduler("pointwise", only_injective), FakeScheduler("reduction", one_signature))
    found = parse(dumped(text, "2024", *fakes))
    assert [g.numbers for g in found.groups] == [(0, 1, 2), (0, 3, 4)]


def test_an_unknown_style_lists_the_known_ones() -> None:
    with pytest.raises(FusecError) as caught:
        dumped(TEXT, "2019")
    assert caught.value.diagnostic.help == "one of 2024, head"


@pytest.mark.parametrize("style", ["2024", "head"])
def test_the_dump_of_the_pinned_seed_hangs_together(style: str) -> None:
    dump = parse(segmented_fusion_text(pinned_seed(), style))
    check(dump)
    assert [g.scheduler for g in dump.groups] == ["reduction", "inner_outer_persistent"]


@pytest.mark.parametrize("style", ["2024", "head"])
def test_what_is_computed_again_stands_in_both_groups(style: str) -> None:
    segmented = pinned_seed(rematerialise=True)
    dump = parse(segmented_fusion_text(segmented, style))
    check(dump)
    assert dump.edges == []
    first, second = ({e.number for e in g.expressions} for g in dump.groups)
    again = [r.value.name for r in segmented.rematerialised]
    assert len(again) == 3
    assert len(first & second) >= 3


@pytest.fixture
def seed() -> Dump:
    return parse(SEED.read_text())


def test_the_parser_reads_the_dump_in_the_seed(seed: Dump) -> None:
    check(seed)
    assert [g.scheduler for g in seed.groups] == ["reduction", "inner_outer_persistent"]
    assert [len(g.expressions) for g in seed.groups] == [29, 47]


def test_pinned_our_dump_has_the_groups_and_edges_of_the_seed(seed: Dump) -> None:
    ours = parse(segmented_fusion_text(pinned_seed(), "2024"))
    for mine, theirs in zip(ours.groups, seed.groups, strict=True):
        assert mine.scheduler == theirs.scheduler
        # Inputs have the same numbers in both; results are numbered after more or fewer steps.
        inputs = [{n: d for n, d in g.inputs.items() if int(n[1:]) < 7} for g in (mine, theirs)]
        assert inputs[0] == inputs[1]
        assert sorted(mine.outputs.values()) == sorted(theirs.outputs.values())
    shapes = [
        sorted(tuple(i.split("{")[0][0] + i.split("{")[1] for i in e.value.ids) for e in d.edges)
        for d in (ours, seed)
    ]
    assert shapes[0] == shapes[1]


def test_a_broken_dump_is_noticed() -> None:
    text = segmented_fusion_text(pinned_seed(), "2024")
    start = text.index("e{ g{")
    edge = text[start : text.index("e{ g{", start + 1)]
    broken = {
        "an edge too few": text.replace(edge, "", 1),
        "another number": text.replace("\n(5)\n", "\n(555)\n", 1),
        "another extent": text.replace("iS31{1024}", "iS31{1023}", 1),
        "another operand": text.replace("= T10_g[", "= T67_l[", 1),
    }
    for what, changed in broken.items():
        assert changed != text, what
        with pytest.raises((AssertionError, KeyError)):
            check(parse(changed))


def test_json_tells_segments_edges_and_reasons() -> None:
    data = json.loads(segmented_fusion_json(segment(read_text(TEXT), usual(), H200)))
    assert [s["scheduler"] for s in data["segments"]] == ["reduction", "pointwise"]
    assert data["edges"] == [
        {"from": 0, "to": 1, "value": "segment_set_1", "type": "f32[B]", "bytes": 256}
    ]
    assert data["segments"][0]["nodes"][1].startswith("t = sum(cast_1, dims=[1]")
    assert {r["scheduler"] for r in data["segments"][1]["refusals"]} >= {"matmul", "reduction"}
    assert data["decisions"][-1]["because"] == "segment_set forces a boundary"


def test_dot_has_a_box_per_segment_and_an_arrow_per_edge() -> None:
    text = segmented_fusion_dot(segment(read_text(TEXT), usual(), H200))
    assert text.count("subgraph cluster_") == 2
    assert "rank=source" in text
    assert "rank=sink" in text
    assert '  s0 -> s1 [label="segment_set_1 f32[B]\\n256 bytes"];' in text
    assert '  "end:x" -> s0;' in text
    assert text.count("{") == text.count("}")


def test_dumps_are_the_same_each_time() -> None:
    for write in (segmented_fusion_text, segmented_fusion_json, segmented_fusion_dot):
        first, second = (write(segment(read_text(TEXT), [everything()], H200)) for _ in range(2))
        assert first == second
