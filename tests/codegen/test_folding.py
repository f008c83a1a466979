"""Kernels say in few words what they compute: no equal arms, and copies of bits are copies."""

from __future__ import annotations

import pytest
from complex_on_cpu import check_on_cpu

from fusec import driver
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text

FUSIONS = {
    "halves of rows change places": (
        "x: 'bf16[6, 1024]'",
        ["y = cat([slice(x, [0, 512], [6, 1024]), slice(x, [0, 0], [6, 512])], 1)"],
        "y",
    ),
    "rows are moved": ("x: 'f16[6, 40]', i: 'i64[4]'", ["y = index_select(x, i, 0)"], "y"),
    "the largest": ("x: 'bf16[4, 96]'", ["y, places = topk(x, k=5, dim=1)"], "y, places"),
    "sorted": ("x: 'f16[3, 200]'", ["y, places = sort(x, dim=1)"], "y, places"),
}


def fusion_of(inputs: str, ops: list[str], outputs: str) -> Fusion:
    text = "fusion: moves\ninputs: {" + inputs + "}\nops:\n"
    return read_text(text + "".join(f"  - {o}\n" for o in ops) + f"outputs: [{outputs}]\n")


@pytest.mark.parametrize("name", FUSIONS)
def test_what_is_moved_is_not_converted(name: str) -> None:
    fusion = fusion_of(*FUSIONS[name])
    planned = driver.Compilation(fusion, CompileOptions(targets=("sm_90a",)))
    for source in planned.kernel_sources:
        assert "convert<fusec::f16>" not in source.text, source.text
        assert "convert<fusec::bf16>" not in source.text, source.text
    check_on_cpu(fusion)


def test_arms_of_one_place_need_no_test() -> None:
    fusion = fusion_of(*FUSIONS["halves of rows change places"])
    planned = driver.Compilation(fusion, CompileOptions(targets=("sm_90a",)))
    (source,) = planned.kernel_sources
    assert source.text.count("?") == 1, "where the vector lies"
    # The lane's number of the row has no reader, and no line.
    assert source.text.count("part_mod_") == 2
