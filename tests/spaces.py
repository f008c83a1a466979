"""The spaces of small fusions, one for every template: each pair of values run, or all of it.

`python tests/spaces.py [CASE...]` runs every schedule of the cases, of all without any, and records
the figures with the tree of fusec (commit first; FUSEC_TREE names it where there is no git).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

from cuda_on_cpu import build_all, run_plan
from paths import TESTS

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Refusal

# With places for few clusters, so that each takes several rows.
GPU = replace(target.find("sm_90a"), clusters={1: 2, 2: 2, 4: 1})
RECORD = TESTS / "spaces_record.json"
AT_ONCE = 24
"""Kernels that are compiled together."""


@dataclass(frozen=True)
class Case:
    """A fusion for a scheduler, and the values that are tried of fields that have many.

    sms: the SMs of the GPU, where those of GPU are too many.
    """

    scheduler: str
    text: str
    values: dict[str, tuple[Setting, ...]]
    sms: int = 0

    @property
    def gpu(self) -> target.Target:
        """Return the GPU."""
        return replace(GPU, sms=self.sms) if self.sms else GPU

    @property
    def fusion(self) -> Fusion:
        """Return the fusion."""
        return read_text(f"fusion: small\n{self.text}")


def _case(
    scheduler: str, inputs: str, *ops: str, outputs: str = "y", sms: int = 0, **values: Any
) -> Case:
    lines = "".join(f"  - {op}\n" for op in ops)
    text = f"inputs:\n  {inputs}\nops:\n{lines}outputs: [{outputs}]\n"
    return Case(scheduler, text, values, sms)


X, Y = (1, 4, 32, 96), (1, 2, 8, 32)
CASES = {
    "pointwise": _case(
        "pointwise", "x: f32[13, 24]\n  w: f32[24]", "y = add(x, w)", break_point=(0, 1),
        threads_x=(1, 4, 32, 128), threads_y=(1, 8, 32),
    ),
    "transpose": _case("transpose", "x: f16[2, 56, 40]", "y = neg(permute(x, dims=[0, 2, 1]))"),
    "reduction_inner": _case(
        "reduction", "x: f32[5, 96]", "y, m = var_mean(x, dims=[1])", outputs="y, m",
        threads_x=X, threads_y=Y, splits=(1, 2, 5), tile_rows=(0, 8, 64),
        grid_reduce=("last_block", "tree"), workspace_dtype=("f32",),
    ),
    "reduction_outer": _case(
        "reduction", "x: f32[40, 24]", "y = sum(x, dims=[0])", "z = max(x, dims=[0])",
        outputs="y, z", unrolled=(4, 16), threads_x=X, threads_y=Y, splits=(1, 2, 5),
        tile_rows=(0,), grid_reduce=("last_block", "tree"), workspace_dtype=("f32",),
    ),
    "reduction_in_bulk": _case(
        "reduction", "x: f16[40, 24]", "y = sum(x, dims=[0])", threads_x=X, threads_y=Y,
        unrolled=(4,), splits=(2, 5), grid_reduce=("serial_tma", "parallel"), tile_rows=(0,),
    ),
    "reduction_rows_in_bulk": _case(
        "reduction", "x: f32[5, 96]", "y = sum(x, dims=[1])", "z = min(x, dims=[1])",
        outputs="y, z", threads_x=X, threads_y=Y, splits=(2, 5), tile_rows=(0,),
        grid_reduce=("serial_tma", "parallel"), workspace_dtype=("f32",),
    ),
    "reduction_by_stores": _case(
        "reduction", "x: f32[5, 96]", "y, m = var_mean(x, dims=[1])", outputs="y, m",
        threads_x=X, threads_y=Y, splits=(2, 5), tile_rows=(0,), grid_reduce=("serial",),
        workspace_dtype=("f32",),
    ),
    "reduction_columns_by_stores": _case(
        "reduction", "x: f32[40, 24]", "y = sum(x, dims=[0])", "z = prod(x, dims=[0])",
        outputs="y, z", unrolled=(4,), threads_x=X, threads_y=Y, splits=(2, 5), tile_rows=(0,),
        grid_reduce=("serial",), workspace_dtype=("f32",),
    ),
    "inner_persistent": _case(
        "inner_persistent", "x: f32[5, 96]", "e = exp(sub(x, max(x, dims=[1], keepdim=true)))",
        "y = div(e, sum(e, dims=[1], keepdim=true))", threads_x=X, threads_y=Y,
        storage=("registers", "shared", "none"), slots=(0,), groups=(1,), cluster=(1,),
        keep_columns=(False,), tile_rows=(0, 8, 64),
    ),
    "ring": _case(
        "inner_persistent", "x: f32[9, 256]\n  w: f32[256]",
        "e = exp(sub(x, max(x, dims=[1], keepdim=true)))",
        "y = mul(div(e, sum(e, dims=[1], keepdim=true)), w)", vector_width=(4, 8),
        storage=("ring",), threads_x=(32, 96), threads_y=(1,), slots=(1, 2, 3, 6),
        groups=(1, 2, 3), cluster=(1, 2, 4), keep_values=(False,), tile_rows=(0,),
    ),
    "outer_persistent": _case(
        "outer_persistent", "x: f32[40, 24]", "y = sub(x, mean(x, dims=[0], keepdim=true))",
        threads_x=(1, 4, 16), threads_y=(1, 2, 8, 32, 64),
    ),
    "inner_outer_persistent": _case(
        "inner_outer_persistent", "x: f32[70, 96]", "s = mean(x, dims=[1], keepdim=true)",
        "y = sub(x, s)", "c = sum(mul(x, y), dims=[0])", outputs="y, c",
        threads_x=X, threads_y=(1, 2, 8, 32), ranges=(1, 3, 7), blocks=(1, 2), stages=(0, 2, 5),
        grid_reduce=("overlap",),
    ),
    "column_accumulators": _case(
        "inner_outer_persistent", "x: f32[2, 35, 48]\n  w: f32[48]", "m = mul(x, w)",
        "a = sum(m, dims=[1])", "c = sum(m, dims=[0, 1])", outputs="a, c",
        threads_x=(2, 4, 32), threads_y=(1, 8, 32), ranges=(1, 3), blocks=(1,), stages=(0, 2, 5),
    ),
    "scan_rows": _case(
        "scan", "x: f32[5, 100]", "y = cumsum(x, dim=1)", threads_x=X, threads_y=Y,
        chunks=(1, 2, 5), tiles=(1, 2),
    ),
    "scan_columns": _case(
        "scan", "x: f32[40, 24]", "y = cumsum(x, dim=0)", threads_x=X, threads_y=Y,
        chunks=(1, 2, 5), tiles=(1,),
    ),
    "sort": _case(
        "sort", "x: f16[2, 700]", "y = argsort(x, dim=1)", threads=(64, 256, 512),
        items=(1, 2, 4, 16), tiles=(1, 2),
    ),
    "topk": _case(
        "sort", "x: f32[2, 1504]", "y, i = topk(mul(x, iota(1504, dtype=f32)), k=30, dim=1)",
        outputs="y, i", threads=(32, 64, 256), splits=(1, 2, 3), lanes=(0,), items=(1, 4),
        buffer=(512, 4096),
    ),
    "topk_lanes": _case(
        "sort", "x: f32[5, 60]", "p = softmax(x, 1)", "v, i = topk(p, k=4, dim=1)",
        "y = div(v, sum(v, dims=[1], keepdim=true))", outputs="y, i", threads=(32, 128),
        splits=(1,), lanes=(4, 8, 16, 32), items=(1, 2, 4, 8, 16), buffer=(512,),
    ),
    "scatter_add": _case(
        "scatter", "x: f32[7, 24]\n  i: {type: 'i64[5, 24]', range: [0, 6]}\n  s: f32[5, 24]",
        "y = scatter_add(x, i, s, dim=0, deterministic=false)",
    ),
    "scatter": _case(
        "scatter", "x: f32[7, 24]\n  i: {type: 'i64[5, 24]', range: [0, 6]}\n  s: f32[5, 24]",
        "y = scatter(x, i, s, dim=0)",
    ),
    "scatter_in_place": _case(
        "scatter", "x: f16[7, 24]\n  i: {type: 'i64[5, 24]', range: [0, 6]}\n  s: f16[5, 24]",
        "y = scatter_add(x, i, s, dim=0)", outputs="y: {alias: x}",
    ),
    "scatter_vectors": _case(
        "scatter", "x: f16[7, 24]\n  i: {type: 'i64[5]', range: [0, 6]}\n  s: f16[5, 24]",
        "at = expand(broadcast(i, [false, true]), [5, 24])", "y = scatter(x, at, s, dim=0)",
        outputs="y: {alias: x}",
    ),
    "scatter_sums": _case(
        "scatter", "x: f32[7, 24]\n  i: {type: 'i64[5]', range: [0, 6]}\n  s: f32[5, 24]",
        "y = index_add(x, i, s, dim=0)",
    ),
    "attention": _case(
        "attention", "q: bf16[1, 140, 64]\n  k: bf16[1, 150, 64]\n  v: bf16[1, 150, 64]",
        "y, lse, seed, offset = sdpfa_fwd(q, k, v, is_causal=true)", tile_keys=(64, 112),
        stages=(1, 2),
    ),
    "attention_decode": _case(
        "attention_decode", "q: bf16[3, 9, 64]\n  k: bf16[3, 350, 64]\n  v: bf16[3, 350, 64]",
        "y, lse, seed, offset = sdpfa_fwd(q, k, v)", tile_keys=(16, 64), warps=(1, 4),
        stages=(2, 3), splits=(1, 3, 5),
    ),
    "attention_backward": _case(
        "attention_backward",
        "g: bf16[1, 70, 64]\n  q: bf16[1, 70, 64]\n  k: bf16[1, 80, 64]\n  v: bf16[1, 80, 64]\n"
        "  lse: {type: 'f32[1, 70, 1]', range: [1, 3]}\n  delta: f32[1, 70, 1]",
        "s = exp(sub(cast(matmul(q, permute(k, [0, 2, 1])), f32), lse))",
        "w = cast(mul(s, sub(cast(matmul(g, permute(v, [0, 2, 1])), f32), delta)), bf16)",
        "y = matmul(w, k)", "dk = matmul(permute(w, [0, 2, 1]), q)",
        "dv = matmul(permute(cast(s, bf16), [0, 2, 1]), g)", outputs="y, dk, dv",
        tile_queries=(32,), query_stages=(2, 3), tile_keys=(32,), key_stages=(2,),
        warpgroups=(1,),
    ),
    "matmul": _case(
        "matmul", "a: f16[72, 136]\n  b: f16[136, 72]", "y = matmul(a, b)",
        tile_m=(32, 128), tile_n=(64, 128, 256), stages=(1, 2, 3), cluster_k=(1, 2), splits=(1, 2),
        ping_pong=(False,), cluster_m=(1,), cluster_n=(1,), epilogue_smem=(False,),
        raster_group=(8,), workspace_dtype=("f32",),
    ),
    "matmul_gemv": _case(
        "matmul", "a: f16[7, 328]\n  b: f16[40, 328]", "y = matmul(a, permute(b, [1, 0]))",
        kernel=("gemv",), tile_m=(8, 16, 32), tile_n=(16, 32, 64), stages=(1, 2, 4),
        splits=(1, 2, 3), split_method=("slices",), cluster_k=(1,), ping_pong=(False,),
        cluster_m=(1,), cluster_n=(1,), epilogue_smem=(False,), raster_group=(8,),
        workspace_dtype=("f32",),
    ),
    "matmul_persistent": _case(
        "matmul", "a: f16[152, 72]\n  b: f16[72, 136]\n  r: f16[152, 136]",
        "y = add(matmul(a, b), r)", kernel=("wgmma",), tile_m=(64, 88, 128, 256), tile_n=(64, 72),
        stages=(2,), cluster_k=(1,), splits=(1,), split_method=("slices",), vector_width=(2,),
        raster_group=(1, 8), workspace_dtype=("f32",),
    ),
    "matmul_stream_k": _case(
        "matmul", "x: bf16[40, 144]\n  w: i8[392, 144]\n  s: bf16[392, 1]",
        "y = linear(x, mul(cast(w, bf16), s))", sms=3, kernel=("split_k",),
        tile_m=(16, 48, 144, 256), tile_n=(128,), stages=(2, 3, 5), cluster_k=(1,), splits=(2,),
        split_method=("stream_k",), ping_pong=(False,), cluster_m=(1,), cluster_n=(1,),
        epilogue_smem=(False,), raster_group=(8,), workspace_dtype=("f32",),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """Every legal schedule of a case whose free fields have the values that are tried."""

    case: Case
    fusion: Fusion
    records: tuple[Any, ...]

    @property
    def pairs(self) -> frozenset[Any]:
        """Return every pair of values of two fields that some schedule has."""
        return frozenset(p for r in self.records for p in pairs_of(r))

    @cached_property
    def covering(self) -> list[Any]:
        """Return schedules, of which some has every pair: each time what has the most new ones."""
        left, chosen = set(self.pairs), list[Any]()
        pairs = {r: set(pairs_of(r)) for r in self.records}
        while left:
            best = max(self.records, key=lambda r: len(pairs[r] & left))
            chosen.append(best)
            left -= pairs[best]
        return chosen


def pairs_of(record: Any) -> Iterator[Any]:
    """Yield the pairs of values of a schedule's free fields."""
    return (
        combinations(record.settings.items(), 2)
        if len(record.free) > 1
        else iter([(item, item) for item in record.settings.items()])
    )


@cache
def space_of(name: str) -> Space:
    """Return the space of a case."""
    case = CASES[name]
    fusion, family = case.fusion, find_scheduler(case.scheduler)
    problem: Any = family.built(fusion)  # type: ignore[attr-defined]
    assert not isinstance(problem, Refusal), problem
    first = family.default_parameters(problem, case.gpu)  # type: ignore[attr-defined]
    assert not isinstance(first, Refusal), first
    values = [case.values.get(f.name, f.values) for f in first.free]
    found: dict[Any, None] = {}
    for chosen in product(*values):
        names = (f.name for f in first.free)
        made = family.with_settings(first, dict(zip(names, chosen, strict=True)))  # type: ignore[attr-defined]
        if isinstance(made, Refusal):
            continue
        record = family.with_derived(problem, made)  # type: ignore[attr-defined]
        if family.legal(problem, record, case.gpu) is None:  # type: ignore[attr-defined]
            found[record] = None
    return Space(case, fusion, tuple(found))


def failures(
    space: Space, records: Sequence[Any], folder: Path, edit: Callable[[str], str] = str
) -> list[str]:
    """Run schedules on the host; return what is wrong with their results."""
    family: Any = find_scheduler(space.case.scheduler)
    problem, sizes = family.built(space.fusion), space.fusion.hints
    inputs = random_inputs(space.fusion, sizes, 0)
    plans = [family.plan(problem, record, space.case.gpu) for record in records]
    kernels = [(s.kernel, s.text) for p in plans for s in plan_sources(p)]
    built: list[Any] = []
    for start in range(0, len(kernels), AT_ONCE):
        part = folder / str(start)
        part.mkdir()
        built += build_all(kernels[start : start + AT_ONCE], part, edit)
    wrong: list[str] = []
    for number, plan in enumerate(plans):
        own, built = built[: len(plan.kernels)], built[len(plan.kernels) :]
        try:
            backwards = number % 2 == 1
            outputs = run_plan(plan, inputs, folder, seed=number, backwards=backwards, built=own)
        except AssertionError as error:
            wrong.append(f"{plan.parameters}: {error}")
            continue
        orders = {name: order.at(sizes) for name, order in plan.orders.items()}
        model = Model(orders, early=plan.rounded_early, unrounded=frozenset(plan.unrounded))
        verdict = compare(space.fusion, sizes, inputs, outputs, model=model)
        if not verdict.ok:
            wrong.append(f"{plan.parameters}\n{verdict.text()}")
    return wrong


def main(names: Sequence[str]) -> int:
    """Run every schedule of some cases, or of all and record them."""
    from benchmarks.segmentation import tree

    measured = tree()
    families: dict[str, Any] = {}
    record: dict[str, Any] = json.loads(RECORD.read_text())
    for name in names or CASES:
        space = space_of(name)
        with tempfile.TemporaryDirectory() as folder:
            failed = failures(space, space.records, Path(folder))
        cases = len(space.records)
        families[name] = {"cases": cases, "passed": cases - len(failed), "failed": failed}
        print(name, cases, *failed, sep="\n  " if failed else " ", flush=True)
    record["trees"] |= dict.fromkeys(families, measured)
    record["families"] |= families
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(f["failed"] for f in families.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
