"""Every template at every pair of values of its free fields, run on the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nightly import mostly_nightly
from spaces import CASES, RECORD, Space, failures, space_of

from fusec import target
from fusec.schedule.registry import families, find_scheduler

SIZES = {
    "pointwise": (136, 119),
    "transpose": (381, 135),
    "attention": (40, 47),
    "attention_decode": (96, 70),
    "attention_backward": (4, 26),
    "reduction_inner": (270, 232),
    "reduction_outer": (480, 224),
    "inner_persistent": (252, 279),
    "outer_persistent": (54, 50),
    "inner_outer_persistent": (1800, 278),
    "column_accumulators": (1080, 225),
    "scan_rows": (94, 92),
    "scan_columns": (90, 81),
    "sort": (8, 18),
    "topk": (108, 80),
    "topk_lanes": (58, 93),
    "scatter_add": (3, 3),
    "scatter": (2, 2),
    "scatter_in_place": (2, 2),
    "scatter_vectors": (12, 12),
    "scatter_sums": (6, 6),
    "matmul": (263, 390),
    "matmul_gemv": (33, 211),
    "matmul_persistent": (182, 289),
    "matmul_stream_k": (36, 198),
    "ring": (192, 212),
    "reduction_in_bulk": (640, 225),
    "reduction_rows_in_bulk": (240, 186),
    "reduction_by_stores": (120, 167),
    "reduction_columns_by_stores": (120, 167),
}
"""Schedules and pairs of values of each case: a space that shrinks would be tested less."""


@pytest.mark.parametrize("name", mostly_nightly(CASES, len(CASES), 2))
def test_every_pair_of_values_computes_what_is_right(name: str, tmp_path: Path) -> None:
    space = space_of(name)
    assert (len(space.records), len(space.pairs)) == SIZES[name]
    assert failures(space, space.covering, tmp_path) == []


def test_the_record_is_of_every_schedule() -> None:
    record = json.loads(RECORD.read_text())
    assert record["trees"].keys() == SIZES.keys()
    assert all(len(tree) == 40 for tree in record["trees"].values())
    whole = {n: {"cases": c, "passed": c, "failed": []} for n, (c, _) in SIZES.items()}
    assert record["families"] == whole


@pytest.mark.nightly
def test_every_template_has_a_case() -> None:
    family: Any
    found: set[str] = set()
    for name, case in CASES.items():
        space, family = space_of(name), find_scheduler(case.scheduler)
        problem = family.built(space.fusion)
        for record in space.covering:
            plan = family.plan(problem, record, target.find("sm_90a"))
            found |= {k.template for k in plan.kernels}
    stated = {template for family in families() for template in type(family).templates}
    others = {"reduction", "inner_persistent_pushed"}  # of several ranks: run/test_pushed_rows.py
    assert found == stated - others


def test_every_family_declares_its_fields_as_data() -> None:
    family: Any
    for family in families():
        cases = [c for c in CASES.values() if c.scheduler == family.name]
        for case in cases:
            problem = family.built(case.fusion)
            gpu = target.find("sm_90a")
            first = family.default_parameters(problem, gpu)
            space = [*family.space(problem, gpu)]
            assert first == family.with_derived(problem, first) == space[0]
            assert len(space) == len({*space}) <= 64
            assert all(family.legal(problem, p, gpu) is None for p in space)
            assert {f.name for f in first.free} == {*first.settings}
        assert cases or family.name in ("no_op", "concat")  # there is nothing to choose


BROKEN = {
    "inner_persistent": ("column += kThreadsX * kVec", "column += 96 * kVec"),
    "reduction_inner": ("+ row * kSplits", "+ row * 2"),
    "topk": ("blockIdx.x % kSplits * kPart", "blockIdx.x % 2 * kPart"),
}
"""An edit that is right for one value of a field alone."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", BROKEN)
def test_a_template_that_is_wrong_for_some_values_is_seen(name: str, tmp_path: Path) -> None:
    old, new = BROKEN[name]
    space: Space = space_of(name)
    wrong = failures(space, space.covering, tmp_path, lambda text: text.replace(old, new))
    assert 0 < len(wrong) < len(space.covering)


LAST = {
    "pointwise": "u < kUnroll",
    "transpose": "i < kReads",
    "reduction_inner": "split < kSplits",
    "reduction_outer": "split < kSplits",
    "inner_persistent": "c < kChunks",
    "ring": "c < kOwn / kVec",
    "outer_persistent": "r < kRowsPerThread",
    "inner_outer_persistent": "c < kChunks",
    "column_accumulators": "range < kRanges",
    "scan_rows": "c < kChunks",
    "scan_columns": "c < kSpan",
    "sort": "i < kItems",
    "topk": "v < kVec",
    "topk_lanes": "item < kItems",
    "scatter_add": "element < kLength",
    "scatter_vectors": "v < kVec",
    "scatter_sums": "v < kVec",
    "scatter_in_place": "position < own",
}
"""A loop of each template, which loses its last turn where it has several."""


@pytest.mark.parametrize("name", mostly_nightly(LAST, 2))
def test_a_loop_without_its_last_turn_is_seen(name: str, tmp_path: Path) -> None:
    loop, bound = LAST[name], LAST[name].split(" < ")[1]

    def edit(text: str) -> str:
        is_kernel = 'extern "C"' in text
        return text.replace(f"{loop};", f"{loop} - ({bound} > 1);") if is_kernel else text

    space = space_of(name)
    covering = space.covering
    parts = [covering[start : start + 4] for start in range(0, len(covering), 4)]
    folders = [tmp_path / str(k) for k in range(len(parts))]
    for folder in folders:
        folder.mkdir()
    assert any(failures(space, p, f, edit) for p, f in zip(parts, folders, strict=True))
