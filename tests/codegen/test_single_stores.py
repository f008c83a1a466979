"""Stores of plans: one point of the loops stores each element, and no thread past the end does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import build_all, run_plan
from families import plan_of
from nightly import mostly_nightly
from paths import ROOT

from fusec import driver
from fusec.codegen.dispatch import kernel_source, plan_sources
from fusec.diagnostics import Unsupported
from fusec.files import with_planned_strides
from fusec.index import instances
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.access import Condition, Conditions
from fusec.ir.expression import (
    Atom,
    Index,
    Quotient,
    Remainder,
    Var,
    contiguous_strides,
    linearize,
    of_var,
)
from fusec.ir.graph import Fusion, Value
from fusec.kernel.lowering.nest import Nest, StoreKind
from fusec.kernel.names import Names
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.binary.headers import device_headers
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from tools.draw import ALL, draw_fusion

OPTIONS = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
MOST_POINTS = 1 << 21
"""Points of loops that are gone through one by one."""
FILES = sorted(
    [*(ROOT / "examples").glob("*.yaml"), *(ROOT / "tests" / "regressions").glob("*.yaml")]
)
REPEATS = re.compile(r" : \w+ - (1|kVec|kWidth);|= min\(\w+, \w+ - 1\)")
"""How kernels repeat the last row or column in threads past the end."""
TESTED_BY = {"m < M && n < N": "fusec::visit_pieces<Config, kWidth>(M - tile_m, N - tile_n, "}
"""Tests that a device function makes of what it visits, by which a kernel's own text has none."""


@dataclass
class Seen:
    """What the views of a plan planned and emitted.

    places: where an output is stored, and whether in the loops over what is reduced; guards: of
    each output that is stored past shared memory, how it stays inside, and by which test.
    """

    places: dict[Value, tuple[Lowering, bool]] = field(
        default_factory=dict[Value, tuple[Lowering, bool]]
    )
    guards: list[tuple[str, StoreKind, str]] = field(
        default_factory=list[tuple[str, StoreKind, str]]
    )


@contextmanager
def watched() -> Iterator[Seen]:
    """Record what views plan and emit."""
    seen, where, check = Seen(), Lowering.stored_where, Nest.check_store

    def stored_where(self: Lowering, value: Value, *, in_loop: bool = False) -> Conditions:
        seen.places[value] = self, in_loop
        return where(self, value, in_loop=in_loop)

    def check_store(self: Nest, name: str, kind: StoreKind) -> None:
        check(self, name, kind)
        seen.guards.append((name, kind, str(self.store_test)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lowering, "stored_where", stored_where)
        patch.setattr(Nest, "check_store", check_store)
        yield seen


def evaluate(index: Index, at: Mapping[Var, Any], sizes: Mapping[str, int]) -> Any:
    """Return an index at many points of loops."""

    def atom(each: Atom) -> Any:
        if isinstance(each, Var):
            return at[each]
        assert isinstance(each, Quotient | Remainder), each
        inner, divisor = evaluate(each.inner, at, sizes), each.divisor.evaluate(sizes)
        return inner // divisor if isinstance(each, Quotient) else inner % divisor

    terms = (atom(a) * c.evaluate(sizes) for a, c in index.terms)
    return sum(terms, np.int64(index.constant.evaluate(sizes)))


def holds(condition: Condition, at: Mapping[Var, Any], sizes: Mapping[str, int]) -> Any:
    """Return where a condition holds."""
    position = evaluate(condition.position, at, sizes)
    low, end = (d.evaluate(sizes) for d in (condition.low, condition.end))
    return (low <= position) & (position < end)


def wrong_places(value: Value, lowering: Lowering, *, in_loop: bool) -> str:
    """Return what is wrong with where the points of a kernel's domain store an output."""
    fusion, domain = lowering.fusion, lowering.domain
    sizes = fusion.hints
    # Whatever the loops are: a vector may begin before a row, and be stored in part.
    lowering = Lowering(fusion, domain, {a: of_var(a) for a in domain.axes})
    coordinates, _ = lowering.home(value)
    conditions = lowering.stored_where(value, in_loop=in_loop)
    loops = {a for a in domain.axes if in_loop or a not in domain.reduced_axes}
    loops = loops.union(*(c.variables for c in coordinates))
    loops = loops.union(*(c.position.variables for c in conditions))
    axes = [a for a in domain.axes if a in loops]
    extents = tuple(a.extent.evaluate(sizes) for a in axes)
    if np.prod(extents, dtype=float) > MOST_POINTS:
        return ""
    grid = np.meshgrid(*(np.arange(e, dtype=np.int64) for e in extents), indexing="ij")
    at = dict(zip(axes, grid, strict=True))
    stored = np.ones(extents, bool)
    for condition in conditions:
        stored = stored & holds(condition, at, sizes)
    for coordinate, extent in zip(coordinates, value.shape, strict=True):
        inside = evaluate(coordinate, at, sizes)
        if (stored & ((inside < 0) | (inside >= extent.evaluate(sizes)))).any():
            return f"`{value.name}` is stored outside of its shape"
    place = linearize(coordinates, contiguous_strides(value.shape))
    places = np.broadcast_to(evaluate(place, at, sizes), extents)[stored]
    count = int(np.prod([d.evaluate(sizes) for d in value.shape]))
    if len(np.unique(places)) != len(places):
        return f"`{value.name}` is stored repeatedly: {len(places)} stores of {count} elements"
    if value not in fusion.effects.updates and len(places) != count:
        return f"`{value.name}`: {len(places)} of {count} elements are stored"
    return ""


def wrong_stores(plan: KernelPlan) -> list[str]:
    """Return what is wrong with the stores of a plan's kernels."""
    wrong, texts = list[str](), list[str]()
    tests: list[tuple[str, StoreKind, str]] = []
    for kernel in plan.kernels:
        with watched() as seen:
            texts.append(" ".join(kernel_source(plan, kernel).text.split()))
        wrong += [wrong_places(v, at, in_loop=loop) for v, (at, loop) in seen.places.items()]
        tests += seen.guards
        if REPEATS.search(texts[-1]):
            exact = (name for name, kind, _ in seen.guards if kind is StoreKind.EXACT)
            wrong += [f"threads past the end store `{name}`, too" for name in exact]
    # Of two kernels that sum in parts, the second one alone has the epilogue.
    for name, kind, test in tests:
        if not any(test in text or TESTED_BY.get(test, test) in text for text in texts):
            wrong.append(f"`{name}` is {kind.value} by `{test}`, which is not tested")
    return [f"{plan.kernels[0].name}: {each}" for each in wrong if each]


def wrong_of(fusion: Fusion) -> list[str]:
    program = driver.plan(with_planned_strides(fusion), OPTIONS)
    return [w for plan in program.plans for w in wrong_stores(plan)]


FAMILIES = {
    "sort, a column of each": (
        "sort",
        'inputs: {x: "f32[6, 40]", b: "f32[40]"}\n'
        "ops:\n  - s, i = sort(x, dim=1)\n  - e = exp(b)\n  - y = mul(s, e)\noutputs: [y, e]\n",
    ),
    "sort, a row of each": (
        "sort",
        'inputs: {x: "f32[6, 40]", b: "f32[6, 1]"}\n'
        "ops:\n  - s, i = sort(x, dim=1)\n  - e = exp(b)\n  - y = mul(s, e)\noutputs: [y, e]\n",
    ),
    "sort in passes": (
        "sort",
        'inputs: {x: "f32[2, 9000]", b: "f32[9000]"}\n'
        "ops:\n  - s, i = sort(x, dim=1)\n  - e = exp(b)\n  - y = mul(s, e)\noutputs: [y, e]\n",
    ),
    "top-k of lanes, row sums": (
        "sort",
        'inputs: {x: "f32[6, 60]"}\n'
        "ops:\n  - s, i = topk(x, k=5, dim=1)\n  - z = sum(s, dims=[1])\n  - y = exp(s)\n"
        "outputs: [y, z]\n",
    ),
    "top-k of a block": (
        "sort",
        'inputs: {x: "f32[6, 400]", b: "f32[40]"}\n'
        "ops:\n  - s, i = topk(x, k=40, dim=1)\n  - e = exp(b)\n  - y = mul(s, e)\n"
        "outputs: [y, e]\n",
    ),
    "scan": (
        "scan",
        'inputs: {x: "f32[7, 50]", b: "f32[50]"}\n'
        "ops:\n  - c = cumsum(x, dim=1)\n  - e = exp(b)\n  - y = mul(c, e)\noutputs: [y, e]\n",
    ),
    "transpose": (
        "transpose",
        'inputs: {x: "f32[96, 64]", w: "f32[3, 64, 96]"}\n'
        "ops:\n  - t = permute(exp(x), [1, 0])\n  - z = add(w, t)\noutputs: [t, z]\n",
    ),
    "gemm, staged rows of all batches": (
        "matmul",
        'inputs: {a: "bf16[3, 127, 64]", b: "bf16[3, 64, 72]", r: "bf16[127, 72]"}\n'
        "ops:\n  - c = matmul(a, b)\n  - e = exp(r)\n  - y = add(c, e)\noutputs: [y, e]\n",
    ),
    "attention, a row of all heads": (
        "attention",
        'inputs: {q: "bf16[1, 2, 70, 64]", k: "bf16[1, 2, 96, 64]", v: "bf16[1, 2, 96, 64]", '
        't: "f32[70, 1]"}\n'
        "ops:\n  - kt = permute(k, [0, 1, 3, 2])\n  - e = exp(t)\n"
        "  - s = mul(cast(matmul(q, kt), f32), e)\n  - m = max(s, dims=[3], keepdim=true)\n"
        "  - p = exp(sub(s, m))\n  - l = sum(p, dims=[3], keepdim=true)\n"
        "  - o = matmul(cast(div(p, l), bf16), v)\noutputs: [o, e]\n",
    ),
    "attention_decode, a row of all heads": (
        "attention_decode",
        'inputs: {q: "bf16[1, 2, 4, 64]", k: "bf16[1, 2, 96, 64]", v: "bf16[1, 2, 96, 64]", '
        't: "f32[4, 1]"}\n'
        "ops:\n  - kt = permute(k, [0, 1, 3, 2])\n  - e = exp(t)\n"
        "  - s = mul(cast(matmul(q, kt), f32), e)\n  - m = max(s, dims=[3], keepdim=true)\n"
        "  - p = exp(sub(s, m))\n  - l = sum(p, dims=[3], keepdim=true)\n"
        "  - o = matmul(cast(div(p, l), bf16), v)\noutputs: [o, e]\n",
    ),
}
"""Outputs that are the same along an axis of a kernel's domain, one kernel for each family."""
QUICK = ("sort, a column of each", "top-k of lanes, row sums")
WITHOUT_TEST = ("top-k of lanes, row sums", "attention, a row of all heads")


def plan_for(name: str) -> tuple[Fusion, KernelPlan]:
    scheduler, text = FAMILIES[name]
    fusion = read_text(f"fusion: f\n{text}")
    return fusion, plan_of(scheduler, fusion)


@pytest.mark.parametrize("name", FAMILIES)
def test_stores_of_a_family(name: str) -> None:
    assert wrong_stores(plan_for(name)[1]) == []


def on_cpu(names: Sequence[str], folder: Path) -> None:
    """Run kernels on the CPU in two orders of threads, which must give the same bits."""
    plans = [plan_for(name) for name in names]
    sources = [[(s.kernel, s.text) for s in plan_sources(p)] for _, p in plans]
    built = iter(build_all([s for each in sources for s in each], folder))
    for (fusion, plan), each in zip(plans, sources, strict=True):
        functions = [next(built) for _ in each]
        inputs = random_inputs(fusion, fusion.hints, 0)
        first, second = (
            run_plan(plan, inputs, folder, built=functions, backwards=order)
            for order in (False, True)
        )
        assert all(first[n].tobytes() == second[n].tobytes() for n in first)
        assert not verdict_text(fusion, inputs, first)


def verdict_text(fusion: Fusion, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Return what is wrong by the verdict; attention rounds weights as no order of sums says."""
    if any(n.op.family == "contraction" for n in fusion.nodes):
        right = driver.reference(fusion, inputs, fusion.hints)
        near = (np.allclose(outputs[n].astype(float), right[n], atol=0.05) for n in outputs)
        return "" if all(near) else "not near the reference"
    verdict = compare(fusion, fusion.hints, inputs, outputs)
    return "" if verdict.ok else verdict.text()


def test_a_few_families_on_the_cpu(tmp_path: Path) -> None:
    on_cpu(QUICK, tmp_path)


@pytest.mark.nightly
def test_all_families_on_the_cpu(tmp_path: Path) -> None:
    on_cpu([n for n in FAMILIES if n not in QUICK], tmp_path)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_store_at_every_point_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "stored_at", lambda value, domain, *, reduced: {})
    assert any("is stored repeatedly" in each for each in wrong_stores(plan_for(name)[1]))


@pytest.mark.parametrize("name", WITHOUT_TEST)
def test_a_test_that_no_kernel_has_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nest, "store_test", "m < M && is_row")
    assert any("which is not tested" in each for each in wrong_stores(plan_for(name)[1]))


def test_a_row_past_the_end_that_is_stored_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nest, "store_test", "")
    wrong = wrong_stores(plan_for("top-k of lanes, row sums")[1])
    assert any("threads past the end store" in each for each in wrong)


def test_pieces_are_visited_within_the_tile() -> None:
    text = device_headers()["matmul_gemv.cuh"]
    (body,) = re.findall(r"void visit_pieces\(.*?\n\}", text, re.DOTALL)
    assert re.findall(r".*\bvisit\(.*", body.partition("{")[2]) == [
        "    if (row < rows && column < columns) visit(row, column, piece);"
    ]


@pytest.mark.parametrize("kind", [StoreKind.STAGED, StoreKind.EXACT])
def test_a_store_that_is_emitted_otherwise_than_planned_is_seen(kind: StoreKind) -> None:
    emitter = Nest((), Names(()), Facts({}), guard="is_row")
    with pytest.raises(AssertionError, match=f"`y` is planned as {kind.value}, stored as guarded"):
        emitter.check_store("y", kind)


@pytest.mark.parametrize("path", mostly_nightly(FILES, 24), ids=lambda p: p.stem)
def test_stores_of_a_file(path: Path) -> None:
    assert wrong_of(read_text(path.read_text(), path.name)) == []


@pytest.mark.parametrize("seed", mostly_nightly(range(20), 20))
def test_stores_of_random_fusions(seed: int) -> None:
    for number in range(5):
        with suppress(Unsupported):
            assert wrong_of(draw_fusion(seed, number, ALL)) == [], number
