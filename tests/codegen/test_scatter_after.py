"""What is computed of a sum at indices is computed by the kernels that write it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from nightly import mostly_nightly
from rows_on_cpu import OPTIONS, check_on_cpu, planned

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.inputs import choose_sizes, random_inputs

EMBEDDING = """fusion: embedding_gradient
inputs:
  tokens: {{type: "i64[{length}]", range: [0, {last}]}}
  g: {dtype}[{length}, {features}]
  b: {dtype}[{features}]
  x: f32[{places}, {features}]
ops:
  - zero = full([{places}, {features}], 0, f32)
  - wide = where(unsqueeze(ne(tokens, 3), 1), cast(g, f32), 0.0)
{ops}
outputs: [{outputs}]
"""
ROUNDED = "  - y = cast(index_add(zero, tokens, wide, 0), {dtype})"
ADDED = """\
  - sums = index_add(x, tokens, wide, 0)
  - y = cast(mul(add(sums, x), b), {dtype})"""
KEPT = """\
  - sums = index_add(zero, tokens, wide, 0)
  - y = cast(neg(sums), {dtype})"""
HALF = """\
  - sums = index_add(cast(x, {dtype}), tokens, cast(wide, {dtype}), 0)
  - y = exp(sums)"""
BY_ELEMENT = """\
  - at = expand(unsqueeze(tokens, 1), [{length}, {features}])
  - y = cast(scatter_add(zero, at, wide, 0), {dtype})"""
WRITTEN = [
    # operations, outputs, type, indices, places, features, vector width
    (ROUNDED, "y", "bf16", 90, 40, 16, 8),
    (BY_ELEMENT, "y", "f16", 60, 30, 8, 8),
    (ADDED, "y", "bf16", 70, 30, 12, 4),
    (KEPT, "y, sums", "f16", 50, 90, 7, 1),
    (HALF, "y", "bf16", 90, 9, 24, 4),
]


def fusion_of(
    ops: str, outputs: str, dtype: str, length: int, places: int, features: int
) -> Fusion:
    text = EMBEDDING.replace("{ops}", ops).format(
        dtype=dtype, length=length, places=places, features=features, last=places - 1,
        outputs=outputs,
    )  # fmt: skip
    return driver.Compilation(read_text(text), OPTIONS).fusion


def indices(seed: int, length: int, places: int) -> dict[str, Any]:
    """Return indices of which some are equal, and that leave out some places."""
    rng = np.random.default_rng(seed)
    present = rng.permutation(places)[: 1 + places // 2]
    chosen = rng.choice(present, length).astype(np.int64)
    return {"tokens": StridedArray(chosen, (length,), dense_strides((length,)))}


@pytest.mark.parametrize(
    ("ops", "outputs", "dtype", "length", "places", "features", "width"),
    mostly_nightly(WRITTEN, 2),
)
def test_sums_are_rounded_where_they_are_made(
    ops: str, outputs: str, dtype: str, length: int, places: int, features: int, width: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    fusion = fusion_of(ops, outputs, dtype, length, places, features)
    parameters = planned(fusion, "scatter").plans[0].parameters
    assert (parameters.algorithm, parameters.vector_width) == ("sorted", width)
    for seed in range(2):
        check_on_cpu(fusion, "scatter", tmp_path, indices(seed, length, places))


SMALL = [
    (ops, outputs, *extents)
    for ops, outputs in ((ROUNDED, "y"), (BY_ELEMENT, "y"), (ADDED, "y"), (HALF, "y"))
    for extents in product((1, 2), repeat=3)
    if ops != BY_ELEMENT or extents[0] > 1  # of one element it is a select
]
"""Extents of one leave nothing to index by: what is made of sums is made where they are known."""


@pytest.mark.parametrize(
    ("ops", "outputs", "length", "places", "features"), mostly_nightly(SMALL[::-1], 2)
)
def test_a_place_may_be_the_only_one(
    ops: str, outputs: str, length: int, places: int, features: int, tmp_path: Path
) -> None:
    fusion = fusion_of(ops, outputs, "bf16", length, places, features)
    check_on_cpu(fusion, "scatter", tmp_path, indices(0, length, places))


def verdict_of(fusion: Fusion, edits: Mapping[str, str], folder: Path) -> bool:
    """Return whether the results of an edited kernel are verified."""
    sizes = choose_sizes(fusion, None)
    given = {**random_inputs(fusion, sizes, 0), **indices(0, 90, 40)}

    def edited(text: str) -> str:
        for old, new in edits.items():
            text = text.replace(old, new)
        return text

    (plan,) = planned(fusion, "scatter").plans
    folder.mkdir()
    return compare(fusion, sizes, given, run_plan(plan, given, folder, edit=edited)).ok


def test_a_sum_without_its_first_element_is_noticed(tmp_path: Path) -> None:
    fusion = fusion_of(*WRITTEN[0][:-1])
    assert verdict_of(fusion, {}, tmp_path / "whole")
    edits = {"position = first; position <= last": "position = first; position < last"}
    assert not verdict_of(fusion, edits, tmp_path / "part")


TURNED = "  - y = cast(permute(index_add(zero, tokens, wide, 0), [1, 0]), {dtype})"
REVERSED = "  - y = flip(index_add(zero, tokens, wide, 0), [0])"
SUMMED = "  - y = sum(index_add(zero, tokens, wide, 0), [1])"
IN_PLACE = "  - y = add(index_add(x, tokens, wide, 0), 1.0)"
LAST_WRITTEN = """\
  - at = expand(unsqueeze(tokens, 1), [{length}, {features}])
  - y = neg(scatter(zero, at, wide, 0))"""
OTHER = """\
  - y = neg(index_add(zero, tokens, wide, 0))
  - z = neg(x)"""
APART = [
    # operations, outputs, and the one that is not the scatter's
    (TURNED, "y", "y"),
    (LAST_WRITTEN, "y", "y"),
    (REVERSED, "y", "y"),
    (SUMMED, "y", "y"),
    (IN_PLACE, "{y: {alias: x}}", "y"),
    (OTHER, "y, z", "z"),
]


@pytest.mark.parametrize(("ops", "outputs", "apart"), mostly_nightly(APART, 4))
def test_what_is_not_made_of_one_sum_has_a_kernel_of_its_own(
    ops: str, outputs: str, apart: str
) -> None:
    fusion = fusion_of(ops, outputs, "bf16", 60, 60, 60)
    segments = driver.plan(fusion, OPTIONS).segmented.segments
    (scattered,) = [s for s in segments if s.scheduler == "scatter"]
    assert apart not in {o.value.name for o in scattered.fusion.outputs}


def test_the_gradient_of_an_embedding_is_written_once() -> None:
    fusion = fusion_of(ROUNDED, "y", "bf16", 512, 32000, 1024)
    (segment,) = driver.plan(fusion, OPTIONS).segmented.segments
    assert segment.scheduler == "scatter"
    assert segment.estimate is not None
    moved = segment.estimate.bytes + segment.estimate.workspace_bytes
    assert moved < 1.05 * 32000 * 1024 * 2
