"""Examples of the methods that sum a tile whose K several CTAs share."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT
from test_hopper_on_cpu import wrong

from fusec import driver
from fusec.files import with_sizes
from fusec.options import CompileOptions
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_ptx
from fusec.schedule.matmul.choice import SPLIT_METHODS, MatmulParameters
from fusec.schedule.plan import KernelPlan

FOLDER = ROOT / "examples" / "split_k"
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, use_cache=False)
INSTRUCTIONS = {
    "reduces floats in bulk": r"cp\.reduce\.async\.bulk\S*\.add\.f32",
    "reduces halves in bulk": r"cp\.reduce\.async\.bulk\S*\.add\.noftz\.f16",
    "adds atomically": r"atom\.global\.add\.v4\.f32",
    "counts": r"atom\.inc\.acq_rel",
    "releases a turn": r"st\.release\.gpu",
    "waits for a kernel": r"griddepcontrol\.wait",
    "reads a peer": r"ld\.shared::cluster\.v4",
}
METHODS = {
    "serial_tma": {"reduces floats in bulk", "counts", "releases a turn", "reads a peer"},
    "serial_tma_half": {"reduces halves in bulk", "counts", "releases a turn", "reads a peer"},
    "serial": {"counts", "releases a turn", "reads a peer"},
    "slices": {"counts", "reads a peer"},
    "two_pass": {"waits for a kernel", "reads a peer"},
    "parallel": {"adds atomically", "counts", "reads a peer"},
    "cluster": {"reads a peer"},
    "stream_k": {"counts"},
}


@cache
def planned(name: str, **sizes: int) -> tuple[driver.Compilation, KernelPlan]:
    """Return an example, of other sizes where these are given, and its plan."""
    program = driver.plan(with_sizes(driver.load(str(FOLDER / f"{name}.yaml")), sizes), OPTIONS)
    (plan,) = program.plans
    return program, plan


def test_every_method_has_an_example() -> None:
    assert {p.stem for p in FOLDER.glob("*.yaml")} == METHODS.keys()
    for name in METHODS:
        parameters = planned(name)[1].parameters
        assert isinstance(parameters, MatmulParameters)
        if name == "cluster":
            assert (parameters.splits, parameters.cluster_k) == (1, 8)
        else:
            assert parameters.split_method == name.removesuffix("_half")
    assert {n for n in METHODS if n in SPLIT_METHODS} == {*SPLIT_METHODS}


@pytest.mark.parametrize("name", METHODS)
def test_kernels_have_the_instructions_of_their_method(name: str) -> None:
    sources = planned(name)[0].kernel_sources
    ptx = "".join(
        compile_ptx(s.text, name=s.name, arch="sm_90a", headers=headers_for(s.text))
        for s in sources
    )
    assert {what for what, pattern in INSTRUCTIONS.items() if re.search(pattern, ptx)} == (
        METHODS[name]
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in METHODS if n != "stream_k"])
def test_examples_are_right_on_the_host(name: str, tmp_path: Path) -> None:
    """At smaller sizes; tests/codegen/test_stream_k_on_cpu.py runs ranges."""
    program, plan = planned(name, M=72, N=136, K=64 * 29)
    assert wrong(program.fusion, plan, tmp_path) == ""


def test_only_the_half_work_buffer_rounds_in_each_turn() -> None:
    rounding = {name for name in METHODS for o in planned(name)[1].orders.values() if o.rounded_to}
    assert rounding == {"serial_tma_half"}
    (order,) = planned("serial_tma_half")[1].orders.values()
    assert str(order).endswith("then chains of 7, each turn rounds to f16")
