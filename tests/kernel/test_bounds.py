"""Accesses to memory of rendered kernels: all are proven to lie in their buffers, none is run.

A guard that is dropped, a bound that is wrong, and a lane past the end that reads or stores are
found in the text, templates and device headers included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bounds import Access, check, sizes_of
from bounds.linear import Sum, Unknown, at_least_zero, contradict, least, proven, witness
from bounds.reader import Reader
from bounds.values import Pointer
from families import plan_of
from fences.syntax import functions_of
from nightly import mostly_nightly
from paths import ROOT
from spaces import CASES, space_of

from fusec import driver
from fusec.codegen import render
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.ir.access import Pulled
from fusec.kernel.lowering.nest import Nest
from fusec.kernel.nodes import TRUE
from fusec.ops.movement import access
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.binary.headers import device_headers
from fusec.schedule.plan import Guard
from fusec.schedule.registry import find_scheduler

CORPUS = ROOT.parent / "shared" / "corpus" / "graphs"
FILES = [
    *sorted((ROOT / "examples").glob("*.yaml")),  # as which the goldens are rendered
    *sorted((ROOT / "tests" / "corpus").glob("*.yaml")),
]
QUICK = ("cross_entropy", "gelu_bias", "rope")
TARGETS = ("sm_90a", "sm_80", "sm_120")
DATA = "data of|in memory|an element"
"""Reasons of an access whose place is data: an index, a key of a sort, a ticket in memory."""


@dataclass(frozen=True)
class Rendered:
    """A kernel: its plan, its source, and the guards of the program that it is in."""

    plan: Any
    source: Any
    guards: tuple[Guard, ...] = ()

    def accesses(self, **edited: Any) -> Iterator[Access]:
        """Yield its accesses at some sizes, each judged."""
        for sizes in sizes_of(self.plan, self.guards):
            yield from check(self.plan, self.source, sizes, **edited)

    def wrong(self, left: str = DATA, **edited: Any) -> list[Access]:
        """Return the accesses that may be outside, at some sizes, and are not left."""
        own = LEFT.get(self.source.kernel.template, DATA)
        undecided = re.compile(f"{DATA}|{own}|{left}")
        return [
            a
            for a in self.accesses(**edited)
            if a.verdict == "refuted" or (a.verdict != "proven" and not undecided.search(a.reason))
        ]


def kernels_in(program: Any) -> Iterator[Rendered]:
    """Yield the kernels of a program."""
    for part in program.parts:
        for plan, sources in zip(part.plans, part.sources, strict=True):
            for source in sources:
                yield Rendered(plan, source, tuple(program.host.guards))


@cache
def kernels_of(file: Path, target: str) -> tuple[Rendered, ...]:
    """Return the kernels of a file."""
    options = CompileOptions(targets=(target,), targets_given=True, jobs=1)
    return tuple(k for program in driver.programs(str(file), options) for k in kernels_in(program))


@cache
def kernels_of_space(name: str) -> tuple[Rendered, ...]:
    """Return the kernels of schedules that cover a space."""
    space, case = space_of(name), CASES[name]
    family: Any = find_scheduler(case.scheduler)
    problem = family.built(space.fusion)
    plans = (family.plan(problem, record, case.gpu) for record in space.covering)
    return tuple(Rendered(plan, source) for plan in plans for source in plan_sources(plan))


LEFT = {
    "attention_decode": r"nowhere|inequality|`ahead`",  # keys behind a length that is data
    "matmul_mma": r"nowhere|`scale",  # rows that are computed, factors of weights
    "matmul_stream_k": r"inequality|not known|`at`",  # steps of tiles by products of numbers
    "matmul_simt": r"nowhere",
    "matmul_split_k": r"nowhere|product",  # factors of converted stages
    "matmul_sum_slices": r"negative|inequality",  # which quad a lane has after an exchange
    "matmul_gemv": r"nowhere|inequality|product|unknown size|`\w*scale",  # weights of four bits
    "matmul_wgmma": r"nowhere|not known|product|`\.load`|negative",  # factors of converted stages
    "scatter_sorted": r"inequality",  # the end of a run, found by doubling steps
    "topk": r"`place_of",  # the place of a key, sorted with it
    "topk_lanes": r"`own`",
}
"""By template: reasons of what is not decided, and what it is."""
LEFT_IN = (
    (r"cross_entropy_fwd", r"inequality"),  # a label, converted before it is multiplied
    (r"^bug(_sim)?$", r"inequality"),  # quotients by numbers that are no powers of two
)
"""By the name of a file: the same, of what other files of its template have decided."""


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK)
def test_accesses_of_an_example(name: str) -> None:
    for kernel in kernels_of(ROOT / "examples" / f"{name}.yaml", "sm_90a"):
        assert kernel.wrong() == [], kernel.source.name


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_accesses_of_all_files(file: Path, target: str) -> None:
    left = next((reasons for name, reasons in LEFT_IN if re.search(name, file.stem)), DATA)
    for kernel in kernels_of(file, target):
        assert kernel.wrong(left) == [], kernel.source.name


@pytest.mark.parametrize("name", mostly_nightly(CASES, 5))
def test_accesses_of_the_first_schedule_of_a_space(name: str) -> None:
    assert kernels_of_space(name)[0].wrong() == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_accesses_of_a_space(name: str) -> None:
    for kernel in kernels_of_space(name):
        assert kernel.wrong() == [], f"{kernel.source.name}: {kernel.plan.parameters}"


@pytest.mark.nightly
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")
@pytest.mark.parametrize("part", range(8))
def test_accesses_of_the_corpus(part: int) -> None:
    from benchmarks.corpus_graph import read_graph
    from benchmarks.corpus_inputs import prepare

    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    verdicts = Counter[str]()
    for file in sorted(CORPUS.glob("*.json"))[part::8]:
        try:
            program = driver.plan(prepare(read_graph(file), "graph").fusion, options)
        except FusecError:
            continue  # refused: test_corpus tells which
        for kernel in kernels_in(program):
            found = list(kernel.accesses())
            assert [a for a in found if a.verdict == "refuted"] == [], file.stem
            verdicts.update(a.verdict for a in found)
    assert verdicts["undecided"] < 0.08 * verdicts["proven"], verdicts


# --- each kind of mistake is found ---------------------------------------------------------------

EDITS = [
    # A guard that is dropped.
    ("rope", "if (row >= rows) break;", ""),
    ("space pointwise", "if (chunk >= chunks) break;", ""),
    ("space transpose", "if (line >= lines) break;", ""),
    ("space reduction_outer", "is_column ? column_of_thread : columns - kVec", "column_of_thread"),
    ("space attention", "if (m < M) finish", "finish"),
    ("space pointwise", "if (column >= columns) return;", ""),
    ("space reduction_inner", "is_row ? row_of_thread : rows - 1", "row_of_thread"),
    ("space inner_persistent", "rows - first_row < kTileRows ? rows - first_row : kTileRows",
     "kTileRows"),
    ("space inner_outer_persistent", "min(first + kRangeRows, kGroupRows)", "first + kRangeRows"),
    ("space scan_rows", "is_row ? row_of_thread : rows - 1", "row_of_thread"),
    ("space scatter_vectors", "if (thread >= ", "if (thread < 0 && thread >= "),
    ("space matmul", "if (m < M && n < N) finish", "if (m < M) finish"),
    # A bound that is wrong.
    ("space pointwise", "chunk >= chunks", "chunk > chunks"),
    ("rope", "row * columns + column + q_half", "row * columns + column + 2 * q_half"),
    ("space ring", "row < rows", "row <= rows"),
    ("space transpose", "lines - kReadVec", "lines"),
    ("space scan_columns", "columns - kVec", "columns"),
    ("space matmul_persistent", "m < M &&", "m <= M &&"),
    ("space attention_backward", "m < M", "m <= M"),
]  # fmt: skip
HEADERS = [
    ("linear_decode", "matmul_gemv.cuh", "wanted < last ? wanted : last", "wanted"),
    ("space matmul", "matmul_fill.cuh", "r < rows && c", "c"),
    ("space inner_persistent", "row_tile.cuh", "i + kWide <= count", "i < count"),
]


def kernels_named(name: str) -> tuple[Rendered, ...]:
    """Return the kernels of an example, or of a space."""
    if name.startswith("space "):
        return kernels_of_space(name.removeprefix("space "))
    return kernels_of(ROOT / "examples" / f"{name}.yaml", "sm_90a")


@pytest.mark.parametrize(("name", "old", "new"), mostly_nightly(EDITS, 5))
def test_an_edited_kernel_is_found(name: str, old: str, new: str) -> None:
    edited = [k for k in kernels_named(name) if old in k.source.text]
    assert edited, "no kernel has it"
    assert any(k.wrong(text=k.source.text.replace(old, new)) for k in edited)


@pytest.mark.parametrize(("name", "header", "old", "new"), mostly_nightly(HEADERS, 2))
def test_an_edited_header_is_found(name: str, header: str, old: str, new: str) -> None:
    text = device_headers()[header]
    assert old in text
    changed = {header: text.replace(old, new)}
    assert any(k.wrong(headers=changed) for k in kernels_named(name))


def test_an_edited_template_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = render.environment().loader
    assert loader is not None
    source = loader.get_source

    def edited(environment: Any, name: str) -> Any:
        text, *rest = source(environment, name)
        return text.replace("    if (row >= rows) break;\n", ""), *rest

    monkeypatch.setattr(loader, "get_source", edited)
    plan = plan_of("pointwise", read_text(ADDED), break_point=1, threads_y=8)
    assert not is_inside(plan)


def test_a_condition_that_codegen_drops_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    padded = ADDED.replace("add(x, w)", "neg(pad(x, [2, 3], value=0))")
    assert is_inside(plan_of("pointwise", read_text(padded)))
    monkeypatch.setattr(Nest, "condition", lambda self, conditions, phase: TRUE)
    assert not is_inside(plan_of("pointwise", read_text(padded)))


ADDED = """
fusion: added
inputs: {x: "f32[13, 24]", w: "f32[24]"}
ops:
  - y = add(x, w)
outputs: [y]
"""


def is_inside(plan: Any) -> bool:
    """Return whether all accesses of a plan are proven."""
    render.environment().cache.clear()  # type: ignore[union-attr]
    found = [a for source in plan_sources(plan) for a in check(plan, source)]
    assert found
    return all(a.verdict == "proven" for a in found)


def test_a_map_of_the_index_is_followed_into_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A movement that reads one element further, which its samples would have shown."""
    text = """
fusion: halves
inputs: {x: "f32[64, 48]"}
ops:
  - y = neg(slice(x, [0, 24], [64, 48]))
outputs: [y]
"""
    plan = plan_of("pointwise", read_text(text))
    assert is_inside(plan)
    right = access.SLICE.pull

    def one_on(node: Any, at: Any) -> Any:
        (branch,) = right(node, at).branches
        moved = (branch.coordinates[0] + 1, *branch.coordinates[1:])
        return Pulled((replace(branch, coordinates=moved),))

    object.__setattr__(access.SLICE, "pull", one_on)
    try:
        assert not is_inside(plan_of("pointwise", read_text(text)))
    finally:
        object.__setattr__(access.SLICE, "pull", right)


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_what_is_proven_holds_everywhere(seed: int) -> None:
    """Of drawn sums and conditions, by all values of their unknowns."""
    rng = np.random.default_rng(seed)
    unknowns = [Unknown(name, 0, int(rng.integers(1, 9))) for name in "abc"]

    def drawn() -> Sum:
        counts = zip(unknowns, (int(n) for n in rng.integers(-4, 5, 3)), strict=True)
        return Sum(int(rng.integers(-9, 20)), dict(counts))

    goal, facts = drawn(), [drawn() for _ in range(2)]
    values = [
        dict(zip(unknowns, v, strict=True)) for v in product(*(range(u.high + 1) for u in unknowns))
    ]  # type: ignore[operator]

    def at(each: Sum, place: Any) -> int:
        return each.constant + sum(c * place[u] for u, c in each.terms.items())

    held = [v for v in values if all(at(f, v) >= 0 for f in facts)]
    found = least(goal, facts)
    conditions = [at_least_zero(f) for f in facts]
    if held:
        assert found is not None
        assert found <= min(at(goal, v) for v in held)
    else:
        assert not contradict(facts) or found is not None
    negative = [v for v in held if at(goal, v) < 0]
    assert not (proven(goal, conditions) and negative)
    example = witness(goal, conditions)
    assert (example is not None) == bool(negative)


LOOPS = {
    "for (int i = 0; i < 10; ++i) y[i] = 0.0f;": True,
    "for (int i = 0; i <= 10; ++i) y[i] = 0.0f;": False,
    "for (int i = 9; i >= 0; --i) y[i] = 0.0f;": True,
    "int at = 0; for (int i = 0; i < 5; ++i) { y[at] = 0.0f; at += 2; }": True,
    "int at = 0; for (int i = 0; i < 6; ++i) { y[at] = 0.0f; at += 2; }": False,
    # A variable that adds up another one, which grows.
    "int by = 0; int at = 0; for (int i = 0; i < 5; ++i) { y[at] = 0.0f; at += by; ++by; }": False,
    "int at = 0; while (at < 10) { y[at] = 0.0f; at += n[0]; }": False,
    "int at = 0; if (n[0] > 3) at = 10; y[at] = 0.0f;": False,
    "int at = 0; if (n[0] > 3) { at = 10; return; } y[at] = 0.0f;": True,
    "for (int i = 0; i < 20; ++i) { if (i > 9) break; y[i] = 0.0f; }": True,
    "const auto set = [&](int i) { y[i] = 0.0f; }; if (threadIdx.x < 10) set(threadIdx.x);": True,
    "const auto set = [&](int i) { y[i] = 0.0f; }; set(threadIdx.x);": False,
    "for (int i = 1; i < 16; i *= 2) y[i] = 0.0f;": True,
    "for (int i = 1; i < 17; i *= 2) y[i] = 0.0f;": False,
    "float* rows[2]; for (int i = 0; i < 2; ++i) rows[i] = y + 5 * i; rows[1][4] = 0.0f;": True,
    "float* rows[2]; for (int i = 0; i < 2; ++i) rows[i] = y + 5 * i; rows[1][5] = 0.0f;": False,
    "const int at = threadIdx.x % 8; y[at / 4 * 4 + at % 4] = 0.0f;": True,
    "const int at = threadIdx.x - 1; if (at / 2 < 5) y[at] = 0.0f;": False,
}
"""Statements of a kernel with ten elements, and whether they stay inside of them."""


@pytest.mark.parametrize("body", LOOPS)
def test_statements_are_followed(body: str) -> None:
    text = f'extern "C" __global__ void k(float* y, const int* n) {{ {body} }}'
    reader = Reader({}, {"y": 40, "n": 4}, {"threadIdx.x": 32, "blockIdx.x": 2}, {}, {})
    (function,) = functions_of(text)
    reader.scope.values |= {
        "y": Pointer("y", "global", type="float"),
        "n": Pointer("n", "global", type="int"),
    }
    reader.run(function.body)
    judged = {a.verdict == "proven" for a in reader.found.values() if a.kind == "written"}
    assert judged == {LOOPS[body]}


def test_memory_that_is_used_nowhere_is_told() -> None:
    (kernel,) = kernels_of(ROOT / "examples" / "gelu_bias.yaml", "sm_90a")
    text = kernel.source.text.replace("fusec::store(y + column, y_vec);", "")
    assert [str(a.buffer) for a in kernel.wrong(text=text)] == ["y"] * 3
