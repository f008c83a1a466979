"""Sizes that one build leaves open: its kernels are run at several of them, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from emulated import can_run, emulated
from rows_on_cpu import OPTIONS

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.hostir.coverage import coverage
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A fusion, by the families of its segments; others: sizes to run what is built once at."""

    families: tuple[str, ...]
    dims: str
    inputs: str
    ops: str
    outputs: str
    covers: str
    others: Sequence[Sizes]

    @property
    def fusion(self) -> Fusion:
        parts = [f"fusion: sizes\ndims: {{{self.dims}}}\ninputs:", *_lines("  ", self.inputs)]
        parts += ["ops:", *_lines("  - ", self.ops), f"outputs: [{self.outputs}]", ""]
        return read_text("\n".join(parts), "sizes.yaml")


def _lines(prefix: str, text: str) -> list[str]:
    return [prefix + part.strip() for part in text.split(";")]


NORM = "m = mean(x, dims=[2], keepdim=true); y = sub(x, m)"
CASES = {
    "rows of two dims": Case(
        ("inner_persistent",), "B: 3, S: 5, H: 64", "x: 'f32[B, S, H]'",
        f"{NORM}; z = mul(y, y)", "z", "dynamic: B, S; specialized: H = 64",
        [{"B": 1, "S": 9}, {"B": 7, "S": 1}, {"B": 2, "S": 33}],
    ),
    "rows that share a bias": Case(
        ("inner_persistent",), "B: 3, S: 5, H: 64", "x: 'f32[B, S, H]'; w: 'f32[S, H]'",
        f"{NORM}; z = mul(y, broadcast(w, [true, false, false]))", "z",
        "dynamic: B, S; specialized: H = 64",
        [{"B": 4, "S": 3}, {"B": 1, "S": 17}],
    ),
    "scores of any number of heads": Case(
        ("inner_persistent",), "B: 2, NH: 3, Q: 4, K: 32",
        "x: 'f32[B, NH, Q, K]'; keep: 'bool[B, K]'",
        "k = broadcast(keep, [false, true, true, false]); "
        "s = where(k, x, -9.0); y = softmax(s, -1)",
        "y",
        "dynamic: B, NH, Q; specialized: K = 32",
        [{"B": 3, "NH": 1, "Q": 5}, {"B": 1, "NH": 5, "Q": 2}],
    ),
    "rows written into their input": Case(
        ("inner_persistent",), "B: 3, S: 16, H: 64", "x: 'f32[B, S, H]'",
        f"{NORM}; z = mul(y, y)", "z: {alias: x}", "dynamic: B, S; specialized: H = 64",
        # Whole blocks of 8 rows: rows past the end read the last one, which is written meanwhile,
        # and drop what they read. The emulator takes no such read.
        [{"B": 1, "S": 8}, {"B": 2, "S": 32}],
    ),
    "row sums of two dims": Case(
        ("reduction",), "B: 3, S: 5, H: 64", "x: 'f32[B, S, H]'", "y = sum(x, dims=[2])", "y",
        "dynamic: B, S; specialized: H = 64", [{"B": 2, "S": 1}, {"B": 5, "S": 11}],
    ),
    "mean of all": Case(
        ("reduction",), "T: 96", "x: 'f32[T]'", "y = mean(x, dims=[0])", "y", "dynamic: T",
        [{"T": 1}, {"T": 7}, {"T": 1000}],
    ),
    "mean of rows of two dims": Case(
        ("reduction",), "B: 8, S: 12", "x: 'f32[B, S]'", "y = mean(x, dims=[0, 1])", "y",
        "dynamic: B, S", [{"B": 1, "S": 1}, {"B": 3, "S": 35}],
    ),
    "column sums": Case(
        ("reduction",), "B: 40, H: 64", "x: 'f32[B, H]'", "y = mean(x, dims=[0])", "y",
        "dynamic: B; specialized: H = 64", [{"B": 1}, {"B": 77}],
    ),
    "column sums of two dims": Case(
        ("reduction",), "B: 5, S: 8, H: 64", "x: 'f32[B, S, H]'", "y = sum(x, dims=[0, 1])",
        "y", "dynamic: B, S; specialized: H = 64", [{"B": 2, "S": 1}, {"B": 7, "S": 9}],
    ),
    "columns kept beside others": Case(
        ("outer_persistent",), "B: 8, S: 6, H: 64", "x: 'f32[B, S, H]'",
        "m = mean(x, dims=[0], keepdim=true); y = sub(x, m)", "y",
        "dynamic: S; specialized: B = 8, H = 64",
        [{"S": 1}, {"S": 13}],
    ),
    "elements in rows of two dims": Case(
        ("pointwise",), "B: 3, NH: 2, S: 6, D: 16", "x: 'f32[B, NH, S, D]'; c: 'f32[S, D]'",
        "k = broadcast(c, [true, true, false, false]); y = mul(x, k)", "y",
        "dynamic: B, NH; specialized: S = 6, D = 16", [{"B": 1, "NH": 7}, {"B": 4, "NH": 1}],
    ),
    "transposed tiles": Case(
        ("transpose",), "B: 2, S: 3, M: 48, N: 40", "x: 'f32[B, S, M, N]'",
        "t = permute(x, [0, 1, 3, 2]); y = mul(t, 2.0)", "y",
        "dynamic: B, S; specialized: M = 48, N = 40",
        [{"B": 1, "S": 5}, {"B": 3, "S": 1}],
    ),
    "scanned rows": Case(
        ("scan",), "B: 2, S: 3, H: 48", "x: 'f32[B, S, H]'", "y = cumsum(x, 2)", "y",
        "dynamic: B, S; specialized: H = 48", [{"B": 1, "S": 7}, {"B": 4, "S": 2}],
    ),
    "scanned columns": Case(
        ("scan",), "B: 2, T: 20, H: 32", "x: 'f32[B, T, H]'", "y = cumsum(x, 1)", "y",
        "dynamic: B; specialized: T = 20, H = 32", [{"B": 5}],
    ),
    "rows of a product": Case(
        ("matmul",), "B: 2, S: 9, H: 24, N: 16",
        "x: 'f32[B, S, H]'; w: 'f32[N, H]'; c: 'f32[S, N]'",
        "p = linear(x, w); y = add(p, broadcast(c, [true, false, false]))", "y",
        "dynamic: B, S; specialized: H = 24, N = 16", [{"B": 1, "S": 70}, {"B": 5, "S": 3}],
    ),
    "products of heads": Case(
        ("matmul",), "B: 2, NH: 3, S: 9, H: 16", "x: 'f32[B, NH, S, H]'; w: 'f32[NH, H, H]'",
        "y = matmul(x, broadcast(w, [true, false, false, false]))", "y",
        "dynamic: B, NH, S; specialized: H = 16",
        [{"B": 3, "NH": 1, "S": 70}, {"B": 1, "NH": 5, "S": 2}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_build_runs_at_other_sizes(name: str, tmp_path: Path) -> None:
    """The guards hold at them, and the results are those of the reference."""
    case = CASES[name]
    fusion = case.fusion
    found = driver.plan(fusion, OPTIONS)
    assert tuple(p.scheduler for p in found.plans) == case.families
    assert coverage(found.host.guards, fusion.dims).split(" (")[0] == case.covers
    device: Any = emulated(found, tmp_path)
    for other in ({}, *case.others):
        _run(found, choose_sizes(fusion, other), device)


def _run(found: driver.Compilation, sizes: Sizes, device: Any) -> None:
    assert can_run(found, sizes)
    arrays = random_inputs(found.original, sizes, 1)
    cubins = {launch.kernel: b"" for launch in found.host.launches}
    with Executable(device, found.host, cubins).bind(arrays, sizes) as bound:
        for _ in range(2):
            bound.reset()
            bound.run()
            verdict = compare(found.original, sizes, arrays, bound.outputs())
            assert verdict.ok, f"{sizes}: {verdict.text()}"


def test_a_sum_of_nothing_is_not_covered() -> None:
    found = driver.plan(CASES["mean of all"].fusion, OPTIONS)
    with pytest.raises(FusecError, match="nothing would be reduced"):
        found.host.check_guards({"T": 0})


def test_what_elements_would_divide_by_is_a_number() -> None:
    """In a flat loop each vector would divide by the number of rows that share a factor."""
    found = driver.plan(CASES["elements in rows of two dims"].fusion, OPTIONS)
    assert found.plans[0].specialised == {"S": 6, "D": 16}
