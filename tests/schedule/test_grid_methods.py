"""The registry of methods by which blocks combine results: its page and its examples."""

from __future__ import annotations

import re
from functools import cache

import pytest
from paths import ROOT

from fusec import driver
from fusec.explain.record import explain
from fusec.explain.text import explanation
from fusec.options import CompileOptions
from fusec.run.binary.headers import headers_for
from fusec.run.binary.nvrtc import compile_ptx
from fusec.schedule.grid_methods import (
    BULK_OPERATIONS,
    MATMUL,
    METHODS,
    REDUCTION,
    GridMethod,
)
from fusec.schedule.registry import find_scheduler

EXAMPLES = {
    MATMUL: ROOT / "examples" / "split_k",
    REDUCTION: ROOT / "examples" / "grid_reduce",
}
FIELDS = {MATMUL: "split_method", REDUCTION: "grid_reduce"}
OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, use_cache=False)
INSTRUCTIONS = {
    "adds floats in bulk": r"cp\.reduce\.async\.bulk\S*\.add\.f32",
    "adds halves in bulk": r"cp\.reduce\.async\.bulk\S*\.add\.noftz\.f16",
    "keeps maxima in bulk": r"cp\.reduce\.async\.bulk\S*\.max\.u32",
    "counts": r"atom\.inc\.acq_rel",
    "releases a turn": r"st\.release\.gpu",
}
REDUCTIONS = {
    "last_block": {"counts"},
    "tree": {"counts"},
    "serial_tma": {"adds floats in bulk", "counts", "releases a turn"},
    "serial_tma_half": {"adds halves in bulk", "counts", "releases a turn"},
    "two_pass": {"adds floats in bulk", "counts", "releases a turn"},
    "parallel": {"adds floats in bulk", "counts"},
    "extremes": {"keeps maxima in bulk", "counts"},
    "serial": {"counts", "releases a turn"},
}
VARYING = {"parallel"}
"""Examples whose bits differ from run to run."""


@cache
def planned(family: str, name: str) -> driver.Compilation:
    """Return the program of an example."""
    return driver.plan(driver.load(str(EXAMPLES[family] / f"{name}.yaml")), OPTIONS)


def test_every_method_has_an_example() -> None:
    """By the manifests, which test_golden.py compares with what is planned."""
    for family, folder in EXAMPLES.items():
        used: set[str] = set()
        for path in folder.glob("*.yaml"):
            kept = (folder / "golden" / path.stem / "manifest.json").read_text()
            used |= {*re.findall(rf'"{FIELDS[family]}": "(\w+)"', kept)}
        assert used >= {m.name for m in METHODS if m.family == family}
    assert {p.stem for p in EXAMPLES[REDUCTION].glob("*.yaml")} == REDUCTIONS.keys()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_kernels_have_the_instructions_of_their_method(name: str) -> None:
    sources = [s for s in planned(REDUCTION, name).kernel_sources if "reduction" in s.name]
    ptx = "".join(
        compile_ptx(s.text, name=s.name, arch="sm_90a", headers=headers_for(s.text))
        for s in sources
    )
    found = {what for what, pattern in INSTRUCTIONS.items() if re.search(pattern, ptx)}
    assert found == REDUCTIONS[name]


@pytest.mark.parametrize("family", EXAMPLES)
def test_explain_tells_which_bits_vary(family: str) -> None:
    for path in EXAMPLES[family].glob("*.yaml"):
        text = " ".join(explanation(explain(planned(family, path.stem))).split())
        assert ("bits vary between runs" in text) == (path.stem in VARYING), path
        assert ("rounds to f16" in text) == path.stem.endswith("_half"), path


def row_of(method: GridMethod) -> str:
    """Return a method's row of the page."""
    cells = [
        f"`{method.name}`",
        method.about,
        method.order.value,
        f"`{method.instruction}`" if method.instruction else "",
        "all" if method.operations is None else "sums, maxima, minima",
        method.halves.value,
        f"{method.capability / 10:.1f}" if method.capability else "any",
        "yes" if method.compared else "no",
    ]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_page_shows_the_registry() -> None:
    page = (ROOT / "docs" / "grid-reduce.md").read_text()
    rows = re.findall(r"^\| `(?!split_method|grid_reduce).*$", page, re.MULTILINE)
    assert rows == [row_of(method) for method in METHODS]
    (types,) = re.findall(r"maxima and minima in ([^;]+);", page)
    for dtypes in BULK_OPERATIONS.values():
        assert re.findall(r"`(\w+)`", types) == [d.name for d in dtypes]


def test_fields_of_families_are_those_of_the_registry() -> None:
    for family, name in (*FIELDS.items(), ("inner_outer_persistent", "grid_reduce")):
        chosen = find_scheduler(family)
        assert chosen.name == family
        own = [m.name for m in METHODS if m.family == family]
        assert len(set(own)) == len(own) > 1
        assert any(m.compared for m in METHODS if m.family == family), name
