"""The fuzzer's themes of GEMMs and attention: what they draw, and how far it goes without a GPU."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fusec.diagnostics import FusecError
from fusec.ir.annotations import Override
from fusec.ir.dim import dim
from fusec.ir.dtype import F32
from fusec.ir.graph import Const, Fusion, Node
from fusec.ir.text import to_text
from fusec.parse import read_text
from tools.draw import ALL, GENERAL, PRODUCTS, Run, draw_fusion, draw_runs
from tools.edits import candidates
from tools.fuzz import command
from tools.fuzzing import theme_options, themes_of
from tools.masks import Scores, biased, masked
from tools.schedules import is_repeatable
from tools.sketch import Sketch, Unfit
from tools.trial import Depth, Rejected, Trials, check_same

THEMES = tuple(PRODUCTS)


@cache
def of_theme(theme: str) -> tuple[Fusion, ...]:
    return tuple(draw_fusion(11, n, (theme,)) for n in range(40))


def of_all_themes() -> list[Fusion]:
    return [f for theme in THEMES for f in of_theme(theme)]


@pytest.mark.nightly
def test_fusions_read_back() -> None:
    for fusion in of_all_themes():
        assert read_text(to_text(fusion)) == fusion


def test_a_number_and_its_themes_give_one_fusion_and_one_variant() -> None:
    for number in (5,):
        texts = [[to_text(r.fusion) for r in draw_runs(3, number, ("gemm",))] for _ in range(2)]
        assert texts[0] == texts[1]
    assert to_text(draw_fusion(3, 2, ("gemm",))) != to_text(draw_fusion(3, 2, ("attention",)))


def ops(fusions: Iterable[Fusion]) -> set[str]:
    return {n.op.name for f in fusions for n in f.nodes}


def test_products_of_every_form_are_drawn() -> None:
    for theme in THEMES:
        assert all(any(n.op.family == "contraction" for n in f.nodes) for f in of_theme(theme))
    gemms = [f for theme in THEMES[:3] for f in of_theme(theme)]
    assert ops(gemms) >= {"matmul", "linear", "permute", "reshape", "flip", "slice", "sum", "max"}
    dtypes = {v.dtype.name for f in gemms for v in f.values}
    assert dtypes >= {"bf16", "f16", "f32", "f64", "f8e4m3", "i8"}
    extents = {e.evaluate(f.hints) for f in gemms for i in f.inputs for e in i.value.shape}
    assert extents >= {1, 2, 3, 5, 7, 8, 9, 63, 64, 65, 127, 128, 129}
    ranks = {i.value.rank for f in gemms for i in f.inputs}
    assert ranks >= {1, 2, 3}


def test_outputs_of_every_kind_are_drawn() -> None:
    assert {len(f.outputs) for f in of_all_themes()} >= {1, 2, 3, 4}
    assert any(o.alias for f in of_all_themes() for o in f.outputs)
    assert any(o.stride_order for f in of_all_themes() for o in f.outputs)
    makers = {
        n.op.name
        for f in of_all_themes()
        for n in f.nodes
        for o in f.outputs
        if o.value in n.outputs
    }
    assert makers >= {"matmul", "cast", "permute", "reshape", "flip", "slice", "sum", "max"}


def test_masks_of_every_kind_are_drawn() -> None:
    extents = dim(2), dim(3), dim(33), dim(40)
    fills, nodes, lengths = set[object](), list[Node](), set[int]()
    for number in range(250):
        sketch = Sketch(random.Random(number), "masks")
        scores = Scores(extents[:2], *extents[2:])
        values = sketch.builder.input("s", F32, extents)
        try:
            sketch.builder.output(masked(sketch, scores, biased(sketch, scores, values)))
        except Unfit:
            continue
        fusion = sketch.builder.finish()
        nodes += fusion.nodes
        fills.update(o.value for n in fusion.nodes for o in n.operands if isinstance(o, Const))
        lengths |= {i.value.rank for i in fusion.inputs if i.value.name == "n"}
    drawn = {n.op.name for n in nodes}
    assert drawn >= {"where", "iota", "le", "lt", "ge", "eq", "logical_and", "logical_or"}
    assert drawn >= {"logical_not", "bitwise_right_shift", "remainder", "maximum", "clamp", "mul"}
    positions = {n.output.dtype.name for n in nodes if n.op.name == "iota"}
    assert positions >= {"i64", "i32", "u32", "u64", "u8", "u16", "i8", "i16"}
    lowest = {-float("inf"), -65504.0, -1e9, -1e12, -1e20, -3.3895314e38, -3.4028234e38}
    assert lowest <= {float(f) for f in fills if isinstance(f, float)}
    assert lengths == {1}


def test_schedules_that_are_drawn_are_legal() -> None:
    variants = (draw_runs(4, number, ("gemm",))[1] for number in range(20))
    scheduled = next(v for v in variants if v.fusion.schedules)
    assert Trials(Depth(builds=False)).perform(scheduled).status == "ok"


@pytest.mark.parametrize("theme", THEMES)
def test_kernels_are_rendered(theme: str) -> None:
    outcome = Trials(Depth(builds=False)).perform(Run(of_theme(theme)[0]))
    assert outcome.status == "ok", outcome.message
    assert outcome.kernels


def test_two_runs_that_differ_are_reported() -> None:
    first = {"y": np.zeros(4, np.float32), "z": np.full(2, np.nan)}
    check_same(first, {name: array.copy() for name, array in first.items()})
    second = {**first, "y": np.array([0, 0, -0.0, 0], np.float32)}
    with pytest.raises(Rejected, match="y differ between two runs"):
        check_same(first, second)


def test_sums_in_the_order_of_arrival_need_not_repeat() -> None:
    fusion = of_theme("gemm")[0]
    assert is_repeatable(fusion)
    parallel = Override("matmul", "split_method", "parallel")
    assert not is_repeatable(replace(fusion, schedules=(parallel,)))
    text = (
        'fusion: f\ninputs: {x: "f32[8]", i: "i64[4]", s: "f32[4]"}\n'
        "ops:\n  - y = index_add(x, i, s, dim=0, deterministic=false)\noutputs: [y]\n"
    )
    assert not is_repeatable(read_text(text))


def test_settings_are_kept_and_dropped_when_a_case_is_shrunk() -> None:
    fusion = next(f for n in range(20) if (f := draw_runs(4, n, ("gemm",))[1].fusion).schedules)
    made = list(candidates(fusion))
    counts = {len(m.schedules) for m in made}
    assert counts >= {len(fusion.schedules), len(fusion.schedules) - 1}


def test_themes_have_names_and_groups() -> None:
    assert themes_of(()) == ALL
    assert themes_of(("general",)) == (*GENERAL, "reshapes", "repeats")
    assert themes_of(("attention", "contractions")) == (
        "attention",
        *(t for t in THEMES if t != "attention"),
    )
    assert theme_options(ALL) == ""
    assert theme_options(THEMES) == " --theme contractions"
    assert theme_options(("gemm", "rows")) == " --theme gemm --theme rows"
    with pytest.raises(FusecError, match="no theme is called `gem`"):
        themes_of(("gem",))


@pytest.mark.nightly
def test_the_counts_are_written_as_json(tmp_path: Path, capsys) -> None:
    file = tmp_path / "counts.json"
    words = [
        "--seed",
        "3",
        "--count",
        "1",
        "--no-build",
        "--jobs",
        "0",
        "--theme",
        "gemm",
        "--keep",
    ]
    command.main([*words, str(tmp_path), "--json", str(file)], standalone_mode=False)
    capsys.readouterr()
    found = json.loads(file.read_text())
    assert found["fusions"] == 1
    assert found["themes"] == ["gemm"]
    assert sum(found["runs"].values()) == 2
    assert any(kind.startswith("matmul_") for kind in found["kernels_by_kind"])
    assert sum(found["kernels_by_kind"].values()) == found["kernels"]
