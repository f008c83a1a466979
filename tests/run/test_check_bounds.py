"""`--check-bounds`: a bad index is an error that names it, on the device as in the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decodes import DECODES
from emulated import emulated
from host_json import from_json, to_json
from rows_on_cpu import OPTIONS

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ops import TABLE
from fusec.parse import read_text
from fusec.run.build import Source, build
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

CHECKED = replace(OPTIONS, check_bounds=True)
HEAD = """\
fusion: bounds
inputs:
  x: f32[7, 40]
"""
CASES = {
    "index_select": ("i: i64[5]", "index_select(x, i, dim=1)", 40),
    "select": ("i: i32[]", "select(x, i, dim=0)", 7),
    "gather": ("i: i64[3, 40]", "gather(x, i, dim=0)", 7),
    "gather under a pad": ("i: i64[7, 9]", "pad(neg(gather(x, i, dim=1)), [3, 2], 1.0)", 40),
    "take_along_axis": ("i: i32[7, 40]", "take_along_axis(x, i, dim=1)", 40),
    "take along rows of a sum": ("i: i64[7, 40]", "sum(take_along_axis(x, i, dim=1), [1])", 40),
    "take down columns of a sum": ("i: i64[7, 40]", "sum(take_along_axis(x, i, dim=0), [0])", 7),
    "softmax of a gather": ("i: i64[7, 40]", "softmax(gather(x, i, dim=1), 1)", 40),
    "embedding": ("i: i64[2, 3]", "embedding_fwd(i, x)", 7),
    "scatter": ("i: i64[7, 40]", "scatter(x, i, neg(x), dim=1)", 40),
    "scatter_add": ("i: i64[7, 40]", "scatter_add(x, i, neg(x), dim=1)", 40),
    "index_add": ("i: i64[7]", "index_add(x, i, neg(x), dim=0)", 7),
    "index_put_accumulate": ("i: i64[7, 1]", "index_put_accumulate(x, i, neg(x))", 7),
    "cross_entropy": ("i: i64[7]", "cross_entropy(x, i)", 40),
    "nll_loss": ("i: i64[7]", "nll_loss(x, i)", 40),
    "cumsum of a gather": ("i: i64[7, 40]", "cumsum(gather(x, i, dim=1), 1)", 40),
    "order of a gather": ("i: i64[7, 40]", "argsort(gather(x, i, dim=1), 1)", 40),
    "transposed": ("i: i64[7]", "permute(index_select(x, i, dim=0), [1, 0])", 7),
}


def fusion_of(declaration: str, call: str) -> Any:
    """Return a fusion of one call."""
    text = f"{HEAD}  {declaration}\nops:\n  - y = {call}\noutputs: [y]\n"
    return read_text(text, "bounds.yaml")


def planned(fusion: Any) -> driver.Compilation:
    """Return a fusion's program, which checks its indices."""
    return driver.plan(fusion, CHECKED)


def run(built: driver.Compilation, inputs: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the outputs of the kernels, run on the host."""
    cubins = {launch.kernel: b"" for launch in built.host.launches}
    executable = Executable(emulated(built, folder), built.host, cubins)  # pyright: ignore[reportArgumentType]
    with executable.bind(inputs, choose_sizes(built.original, None)) as bound:
        bound.reset()
        bound.run()
        return bound.outputs()


@pytest.mark.parametrize("name", CASES)
def test_a_bad_index_is_named_and_good_ones_are_not(name: str, tmp_path: Path) -> None:
    declaration, call, extent = CASES[name]
    fusion = fusion_of(declaration, call)
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 1)
    built = planned(fusion)
    expected = driver.reference(fusion, inputs, sizes)
    found = run(built, inputs, tmp_path)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-5, atol=1e-5)
    for bad in (extent, -1, -(2**31) + 5):
        index = np.array(inputs["i"].array)
        index.reshape(-1)[-1] = bad
        with pytest.raises(FusecError) as caught:
            run(built, {**inputs, "i": index}, tmp_path)
        text = caught.value.render()
        assert f"index {bad} of `i`" in text
        assert f"out of bounds for an extent of {extent}" in text
        assert "bounds.yaml:6:" in text
        assert f"`{name}`" in text or name not in TABLE
        with pytest.raises(FusecError, match="out of bounds"):
            driver.reference(fusion, {**inputs, "i": index}, sizes)


def test_the_ends_of_groups_are_checked(tmp_path: Path) -> None:
    fusion = fusion_of("i: i32[3]", "grouped_mm(x, permute(x, [1, 0]), i)")
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 1)
    ends = np.array([3, 17, 40], np.int32)  # 40 elements are summed: the last group may end there
    built = planned(fusion)
    good = {**inputs, "i": ends}
    expected = driver.reference(fusion, good, sizes)
    np.testing.assert_allclose(run(built, good, tmp_path)["y"], expected["y"], rtol=1e-5, atol=1e-5)
    with pytest.raises(FusecError, match="`grouped_mm`: index 41 of `i` is out of bounds"):
        run(built, {**inputs, "i": ends + np.array([0, 0, 1], np.int32)}, tmp_path)


def test_a_bad_page_of_a_cache_is_named(tmp_path: Path) -> None:
    fusion = read_text(DECODES["paged cache"], "bounds.yaml")
    sizes = choose_sizes(fusion, None)
    inputs = {**random_inputs(fusion, sizes, 1), "lengths": np.full((3, 1, 1, 1), 144, np.int32)}
    built = planned(fusion)
    run(built, inputs, tmp_path)
    table = np.array(inputs["table"].array)
    table[2, 8] = 40
    with pytest.raises(FusecError, match="index 40 of `table` is out of bounds"):
        run(built, {**inputs, "table": table}, tmp_path)


def test_without_the_flag_kernels_stay_as_they_are() -> None:
    fusion = fusion_of("i: i64[7]", "nll_loss(x, i)")
    sources = driver.plan(fusion, OPTIONS).kernel_sources
    assert all("check_index" not in s.text for s in sources)
    assert any("check_index" in s.text for s in driver.plan(fusion, CHECKED).kernel_sources)


def test_the_checks_of_a_compiled_folder_read_back() -> None:
    program = planned(fusion_of("i: i64[7]", "nll_loss(x, i)")).host
    (check,) = from_json(to_json(program)).checks
    assert (check.op, check.extent, check.place[:12]) == ("nll_loss", 40, "bounds.yaml:")
    assert from_json(to_json(program)) == program


def test_an_index_that_is_a_scalar_is_checked_before_anything_runs(tmp_path: Path) -> None:
    fusion = fusion_of("i: i64 = 3", "select(x, i, dim=0)")
    built = planned(fusion)
    assert all("check_index" not in s.text for s in built.kernel_sources)
    with pytest.raises(FusecError, match="index 7 of `i` is out of bounds for an extent of 7"):
        built.host.check_indices({"i": 7})
    built.host.check_indices({"i": 6})


@pytest.mark.parametrize("name", ["gather under a pad", "scatter_add", "cumsum of a gather"])
def test_checked_kernels_build(name: str) -> None:
    sources = driver.plan(fusion_of(*CASES[name][:2]), CHECKED).kernel_sources
    built = build([Source(s.name, s.text) for s in sources], ["sm_90a"], 1)
    assert all(a.warnings == () for a in built.values())
