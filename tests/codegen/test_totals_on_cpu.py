"""Products whose kernel reduces rows and columns of the result: on the host, and wrong ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gpu_check import check_on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly
from paths import ROOT
from test_hopper_on_cpu import dies, wrong
from test_persistent_on_cpu import PLAIN, TURNS, plan_of

from fusec import lowering
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes.rewrite import rewrite
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.family import Matmul
from fusec.segment.protocol import Redefinition
from fusec.segment.segmented import SegmentedFusion, extract
from fusec.target import find

TARGET = find("sm_90a")
SUMS = {
    "s": "sum(f, dims=[-1])",
    "q": "sum(mul(f, f), dims=[-1])",
    "c": "sum(f, dims=[-2])",
    "t": "max(y, dims=[-1])",
    "b": "sum(f, dims=[0, 1])",
    "u": "sum(y, dims=[-1])",
}


@cache
def summed(m: int, n: int, k: int, outputs: str, batches: int = 0, dtype: str = "bf16") -> Fusion:
    """Return a product, what is made of it, and reductions of that over rows and columns."""
    x, bias = (f"[{batches}, {m}, {k}]", "") if batches else (f"[{m}, {k}]", ", bias")
    w = f"[{batches}, {k}, {n}]" if batches else f"[{n}, {k}]"
    made = "".join(f"  - {name} = {SUMS[name]}\n" for name in SUMS if name in outputs.split(", "))
    return read_text(
        f"fusion: product\ninputs:\n  a: {dtype}{x}\n  w: {dtype}{w}\n  bias: {dtype}[{n}]\nops:\n"
        f"  - p = {'matmul' if batches else 'linear'}(a, w{bias})\n  - y = add(relu(p), bias)\n"
        f"  - f = cast(y, f32)\n{made}outputs: [{outputs}]\n"
    )


def offered(fusion: Fusion) -> list[Redefinition]:
    """Return the ways to reduce in the product's kernel."""
    (product,) = (n for n in fusion.nodes if n.op.family == "contraction")
    alone = extract(fusion, [product], fusion.name)
    found = Matmul().redefinitions(alone, fusion, TARGET)
    return [r for r in found if r.name == "in_epilogue"]


def redefined(fusion: Fusion) -> Fusion:
    """Return the fusion whose product's kernel may reduce its results."""
    (found,) = offered(fusion)
    assert found.rule is not None
    return rewrite(fusion, found.rule)


def of_product(fusion: Fusion) -> Fusion:
    """Return what the product's kernel makes of a fusion: what stands before `segment_set`."""
    changed = redefined(fusion)
    ends = [n for n in changed.nodes if n.op.name == "segment_set"]
    behind = {n.output for n in changed.nodes if {*n.inputs} & {e.output for e in ends}}
    nodes = [n for n in changed.nodes if n.output not in behind and n not in ends]
    nodes = [n for n in nodes if not {*n.inputs} & behind]
    kept = {n.inputs[0] for n in ends} | {o.value for o in changed.outputs}
    made = {v for n in nodes for v in n.outputs}
    return extract(changed, nodes, fusion.name, frozenset(kept & made))


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (summed(72, 72, 40, "y, q, c"), PLAIN),
        (summed(200, 88, 40, "y, c"), {**TURNS, "tile_m": 128, "tile_n": 64}),
        (summed(136, 104, 40, "u", dtype="f16"), {**PLAIN, "tile_m": 256, "tile_n": 96}),
        (summed(80, 72, 72, "c, t"), {**TURNS, "cluster_n": 2}),
        (summed(72, 40, 72, "b, s", batches=3), PLAIN),
        (summed(72, 40, 72, "c", batches=3), TURNS),
    ],
)
def test_reduced_results(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    part = of_product(fusion)
    assert wrong(part, plan_of(part, **changes), tmp_path) == ""


WRONG = {
    "a part of a tile's columns": ("m < M && n < N) s", "m < M && n < N && n % 64 < 32) s"),
    "a part of a tile's rows": ("m < M && n < N) c", "m < M && n < N && m < 16) c"),
    "columns beyond the result": ("tile_n + column < N);", "true);"),
    "rows beyond the result": ("tile_m + warp_m + row < M);", "true);"),
    "the lanes of a row": ("warp_reduce<Op, 4>", "warp_reduce<Op, 2>"),
    "what a lane hands on": ("upper ? held[i] :", "upper ? held[i + count] :"),
    "the second of two rows": ("if (half == 0) own", "own"),
    "the second of two columns": ("(held[half], terms[i])", "(held[half], terms[0])"),
    "what was reduced before": ("      held[half] = Op::identity();\n", ""),
    "where rows are stored": ("tile_count(N, 32) + n / 32", "tile_count(N, 32) + n / 64"),
    "where columns are stored": ("(m / 16)", "(m / 32)"),
    "the column of a lane": ("number / 2 * 8", "number % 2 * 8"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(WRONG, 2))
def test_wrong_reductions_are_seen(name: str, tmp_path: Path) -> None:
    part = of_product(summed(40, 72, 40, "y, s, c"))
    dies(part, plan_of(part, **PLAIN), *WRONG[name], tmp_path)


@given(
    st.integers(2, 50), st.integers(1, 9).map(lambda n: 8 * n), st.sampled_from([0, 2, 3]),
    st.lists(st.sampled_from([*SUMS]), min_size=1, max_size=2, unique=True),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_the_redefinition_computes_the_same(m: int, n: int, batches: int, sums: list[str]) -> None:
    outputs = ", ".join(s for s in SUMS if s in sums and (batches or s != "b"))
    if not outputs:
        return
    fusion = summed(m, n, 8, outputs, batches)
    changed = redefined(fusion)
    inputs = random_inputs(fusion, fusion.hints, 1, "integers")
    found, expected = (evaluate(f, inputs, f.hints) for f in (changed, fusion))
    for name, values in expected.items():
        assert np.array_equal(np.asarray(found[name]), np.asarray(values)), name
    part = of_product(fusion)
    assert Matmul().build(part, TARGET).parameters.kernel == "wgmma"


@pytest.mark.parametrize(
    ("fusion", "because"),
    [
        (summed(64, 33, 64, "s"), "an odd number of columns"),
        (summed(64, 64, 63, "s"), "rows that no copies in bulk read"),
        (summed(64, 64, 64, "s", dtype="f32"), "multiply-adds"),
        (summed(64, 64, 64, "s, q, c"), "too many sums for registers"),
    ],
)
def test_where_no_kernel_reduces(fusion: Fusion, because: str) -> None:
    assert offered(fusion) == [], because


def segmented(fusion: Fusion) -> SegmentedFusion:
    return lowering.segment(fusion, CompileOptions(targets=("sm_90a",)))


def how(found: SegmentedFusion) -> list[tuple[str, str]]:
    """Return what was decided of reductions in the product's kernel."""
    decided = (d for d in found.decisions if d.because.startswith("in_epilogue"))
    return [(d.action, d.because) for d in decided]


def test_large_results_are_not_read_again() -> None:
    found = segmented(summed(16384, 4096, 2048, "y, c"))
    assert [s.scheduler for s in found.segments] == ["matmul", "reduction"]
    ((action, because),) = how(found)
    assert action == "redefine"
    assert "16 rows of a column for `c`" in because


def test_small_ones_are() -> None:
    ((action, _),) = how(segmented(summed(256, 256, 1024, "y, s")))
    assert action == "undo"


def test_reductions_apart_are_not_redefined() -> None:
    """A product's kernel that had to do too much leaves them where they were."""
    found = segmented(summed(8192, 8192, 512, "y, s, c"))
    assert how(found) == [("undo", "in_epilogue: no kernel becomes cheaper")]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("fusion", "schedulers"),
    [
        (summed(1000, 1032, 520, "y, q, c"), ["matmul", *["reduction"] * 2]),
        (summed(2050, 264, 1032, "u, c"), ["matmul", *["reduction"] * 2]),
        (summed(300, 4104, 64, "y, t", dtype="f16"), ["matmul", "reduction"]),
        (summed(200, 136, 72, "s, c", batches=5), ["matmul", *["reduction"] * 2]),
    ],
)
def test_reduced_results_on_a_gpu(fusion: Fusion, schedulers: list[str]) -> None:
    assert check_on_gpu(redefined(fusion), scheduler=schedulers, repeats=3).verdict.ok


@pytest.mark.gpu
def test_other_numbers_of_rows_on_a_gpu() -> None:
    """Rows stay open: what is reduced of columns depends on how many there are."""
    path = ROOT / "examples" / "linear_silu_backward.yaml"
    fusion = read_text(path.read_text(encoding="utf-8"), path.name)
    checked = check_on_gpu(fusion, run_sizes={"M": 1000})
    assert checked.schedulers == ["matmul", "reduction"]
