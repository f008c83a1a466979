"""The order of memory accesses in rendered kernels: all keep the rules, and each rule catches.

Every edit drops, moves or changes one barrier, fence, wait, count or parity in the text of a real
kernel or device header; the checker names its line.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fences import Violation, check
from fences.effects import EFFECTS
from fences.places import Access, aligned, apart
from fences.syntax import functions_of
from fences.values import Pointer
from nightly import mostly_nightly
from paths import ROOT
from spaces import CASES, space_of

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.binary.headers import device_headers
from fusec.schedule.registry import find_scheduler

CORPUS = ROOT.parent / "shared" / "corpus" / "graphs"
GOLDENS = sorted((ROOT / "examples" / "golden").glob("*/*.cu"))
FILES = [
    *sorted((ROOT / "examples").glob("*.yaml")),
    *sorted((ROOT / "tests" / "corpus").glob("*.yaml")),
]
FAMILIES = {
    "topk": ("x: f32[R, C]", "values, places = topk(x, k=16, dim=-1)", "values, places", 65536),
    "sort_rows": ("x: f32[R, C]", "values, places = sort(x, dim=-1)", "values, places", 1000),
    "sort_tiles": ("x: f32[R, C]", "values, places = sort(x, dim=-1)", "values, places", 100000),
    "scan_rows": ("x: f32[R, C]", "values = cumsum(x, dim=-1)", "values", 4096),
    "scan_tiles": ("x: f32[R, C]", "values = cumsum(x, dim=-1)", "values", 4194304),
    "scan_columns": ("x: f32[C, R]", "values = cumsum(x, dim=0)", "values", 4096),
    "ring": ("x: f32[2000, C]", "values = softmax(x, dim=-1)", "values", 16384),
    "ring_cluster": ("x: f32[R, C]", "values = softmax(x, dim=-1)", "values", 65536),
    "ring_pieces": (
        "x: f32[64, R, C]",
        "values = sub(x, mean(x, dims=[0, 2], keepdim=true))",
        "values",
        2048,
    ),
    "matmul_simt": ("x: f32[R, C]", "values = matmul(x, x_t)", "values", 256),
}

PRODUCTS = {
    "turns": "tile_m: 128, tile_n: 128, stages: 4, cluster_k: 8, splits: 3, "
    "split_method: serial_tma",
    "turns_by_stores": "tile_n: 64, stages: 2, cluster_k: 2, splits: 3, split_method: serial",
    "slices": "tile_n: 64, stages: 2, cluster_k: 2, splits: 7, split_method: slices",
    "parallel": "tile_n: 64, stages: 2, cluster_k: 2, splits: 3, split_method: parallel",
    "two_pass": "tile_n: 64, stages: 2, cluster_k: 2, splits: 3, split_method: two_pass",
    "swap_ab": "tile_m: 32, tile_n: 128, stages: 2, cluster_k: 1, splits: 1",
    "persistent": "kernel: wgmma, tile_n: 64, stages: 8, ping_pong: false, epilogue_smem: false",
    "epilogue_smem": "kernel: wgmma, tile_n: 64, stages: 8, ping_pong: false, epilogue_smem: true",
    "pairs": "kernel: wgmma, tile_n: 64, stages: 8, ping_pong: false, cluster_m: 2",
}
"""Schedules of a product with a long K, of kernel `split_k` where nothing else is said."""


@cache
def kernels_of(file: Path, target: str) -> tuple[str, ...]:
    """Return the kernels' texts of a file."""
    options = CompileOptions(targets=(target,), targets_given=True, jobs=1)
    plans = driver.programs(str(file), options)
    return tuple(s.text for plan in plans for each in plan.sources for s in each)


@cache
def violations(text: str) -> list[Violation]:
    """Return what is wrong with a kernel: half of them are the same for two targets."""
    return check(text)


@cache
def family(name: str) -> tuple[str, ...]:
    """Return the kernels' texts of a fusion of one family."""
    given, operation, outputs, columns = FAMILIES[name]
    second = "  x_t: f32[C, R]\n" if name.startswith("matmul") else ""
    text = (
        f"fusion: {name}\ndims: {{R: 8, C: {columns}}}\ninputs:\n  {given}\n{second}"
        f"ops:\n  - {operation}\noutputs: [{outputs}]\n"
    )
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    plan = driver.plan(read_text(text, "family.yaml"), options)
    return tuple(s.text for each in plan.sources for s in each)


@cache
def products(name: str) -> tuple[str, ...]:
    """Return the kernels' texts of a product with a long K and one schedule."""
    kernel = "" if "kernel:" in PRODUCTS[name] else "kernel: split_k, "
    text = (
        f"fusion: {name}\ndims: {{M: 256, N: 256, K: {{default: 65536, multiple_of: 64}}}}\n"
        "inputs:\n  a: bf16[M, K]\n  b: bf16[K, N]\nops:\n  - c = matmul(a, b)\noutputs: [c]\n"
        f"schedules:\n  c: {{{kernel}{PRODUCTS[name]}}}\n"
    )
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    plan = driver.plan(read_text(text, "split.yaml"), options)
    return tuple(s.text for each in plan.sources for s in each)


def is_left_to_the_emulator(text: str) -> bool:
    """Return whether a kernel's products hide in descriptors and registers what they read, or its
    warpgroups take turns at tiles, or its warps at stages.

    The emulator runs these in drawn orders, also wrong ones: test_attention_on_cpu.py,
    test_attention_decode_on_cpu.py, test_computed_on_cpu.py, test_converted_on_cpu.py and
    test_persistent_on_cpu.py.
    """
    headers = ("attention", "attention_decode", "matmul_computed", "matmul_converted")
    by_hand = (*(f'"{name}.cuh"' for name in headers), "wait_for_first_tile<")
    return any(sign in text for sign in by_hand)


@pytest.mark.parametrize("seed", range(100))
def test_places_that_lie_apart_do_not_overlap(seed: int) -> None:
    """As the comparison of every place says, from which it spares most accesses."""
    rng = np.random.default_rng(seed)

    def access() -> Access:
        start, step, length = (int(n) for n in rng.integers((0, 0, 1), (40, 5, 9)))
        index = start + step * np.arange(8) if seed % 3 else start
        mask, none = rng.random(8) < 0.7, np.zeros(8, bool)
        place = Pointer("a", "shared", (index,))
        return Access("write", place, length, mask, 1, none, none, none)

    old, new = access(), access()
    if apart(old, new):
        a, b, exact = aligned(old, new) or (None, None, False)
        assert exact
        assert not np.isin(a, b).any()


@pytest.mark.parametrize("name", mostly_nightly(PRODUCTS, 4))
def test_products_keep_the_order(name: str) -> None:
    for text in products(name):
        assert check(text) == []


@pytest.mark.parametrize("file", GOLDENS, ids=lambda f: f.stem)
def test_golden_kernels_keep_the_order(file: Path) -> None:
    text = file.read_text()
    assert is_left_to_the_emulator(text) or check(text) == []


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("file", mostly_nightly(FILES, 4), ids=lambda f: f.stem)
def test_kernels_keep_the_order(file: Path, target: str) -> None:
    goldens = {f.read_text() for f in GOLDENS}
    for text in kernels_of(file, target):
        assert text in goldens or is_left_to_the_emulator(text) or violations(text) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_families_keep_the_order(name: str) -> None:
    for text in family(name):
        assert check(text) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_spaces_keep_the_order(name: str) -> None:
    space, case = space_of(name), CASES[name]
    family: Any = find_scheduler(case.scheduler)
    problem = family.built(space.fusion)
    for record in space.covering:
        for source in plan_sources(family.plan(problem, record, case.gpu)):
            assert is_left_to_the_emulator(source.text) or check(source.text) == [], record


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")
@pytest.mark.parametrize("part", range(4))
def test_corpus_kernels_keep_the_order(part: int) -> None:
    from benchmarks.corpus_graph import read_graph
    from benchmarks.corpus_inputs import prepare

    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    for file in sorted(CORPUS.glob("*.json"))[part * 9 :: 72]:
        try:
            plan = driver.plan(prepare(read_graph(file), "graph").fusion, options)
        except FusecError:
            continue  # refused: test_corpus tells which
        for each in plan.sources:
            checked = (s.text for s in each if not is_left_to_the_emulator(s.text))
            assert [v for text in checked for v in check(text)] == [], file.stem


# --- the table -----------------------------------------------------------------------------------

HOLDS = re.compile(
    r"cp\.(reduce\.)?async|mbarrier\.|fence\.|wgmma\.|red\.|\batom|ldmatrix|stmatrix|bar\.sync|"
    r"barrier\.cluster|elect\.sync|ld\.(acquire|shared|volatile)|st\.(release|shared|volatile)|"
    r"\batomic[A-Z]|\bvolatile [a-z]\w* |__threadfence|mapa\."
)


def test_every_function_with_such_an_instruction_is_in_the_table() -> None:
    missing: list[str] = []
    # What they do to what they are given is in the table.
    followed = {"count_digit", "offer", "load_rows", "load_columns", "add_share"}
    followed |= {"load_tf32_rows", "load_tf32_columns"}
    for file, text in device_headers().items():
        lines = text.split("\n")
        for function in functions_of(text):
            own = lines[function.tokens[0].line - 1 : function.tokens[-1].line]
            body = "\n".join(line.partition("//")[0] for line in own)
            if HOLDS.search(body) and function.name not in {*EFFECTS, *followed}:
                missing.append(f"{file}: {function.name}")
    macros = set(
        re.findall(r"^FUSEC_BULK_REDUCE\((\w+)", device_headers()["bulk_reduce.cuh"], re.M)
    )
    assert missing == []
    assert macros
    assert macros <= set(EFFECTS)


def test_the_table_names_functions_that_exist() -> None:
    known = {f.name for text in device_headers().values() for f in functions_of(text)}
    language = {n for n in EFFECTS if n.startswith(("__", "atomicA", "atomicM"))}
    reductions = {n for n in EFFECTS if n.startswith("bulk_reduce_")}
    assert set(EFFECTS) - known - language - reductions == set()


def test_a_new_function_with_an_instruction_is_missed() -> None:
    text = 'void f() {\n  asm volatile("fence.proxy.async;");\n}'
    assert [f.name for f in functions_of(text)] == ["f"]
    assert HOLDS.search(text)


# --- each rule catches ---------------------------------------------------------------------------

LONG_K = "turns"
WGMMA = "persistent"
BACKWARD = "examples/layernorm_backward.yaml"
SYNC = "    __syncthreads();\n"
NAMED = "  named_barrier_sync<Config::kMultipliers>(1);\n"
FENCE = "  fence_proxy_async_shared_cta();\n"
RELEASE = "    store_release(semaphore, turn + 1);\n"
PASS = (
    "fusec::semaphore_release<Config>(slab, reinterpret_cast<float4*>(shared), semaphore, turn,\n"
    f"{' ' * 37}share);\n"
)
EDITS = [
    # 1: a shared store, the fence by the threads that stored, the barrier, the issue by one thread
    (WGMMA, "  if (threadIdx.x == 0) fusec::init_stages<Config, Config::kReaders>(shared);\n",
     "", 0, "barrier init"),
    (WGMMA, "  __syncthreads();\n", "", 0, "barrier init"),
    (WGMMA, "threadIdx.x == 128 * Config::kConsumers", "threadIdx.x >= 128 * Config::kConsumers", 0,
     "one issuer"),
    (LONG_K, "fusec::u32 parity = 1", "fusec::u32 parity = 0", 0, "waits for ever"),
    (LONG_K, "fusec::u32 parity = 0", "fusec::u32 parity = 1", 0, "waits for ever"),
    (LONG_K, f"    {PASS}", f"    {PASS}    sums_tile[0] = 0.0f;\n", 0, "bulk source"),
    # 4: cp.async, and what threads of a block hand each other
    (BACKWARD, "    fusec::copy_wait<kStages - 2>();\n", "", 0, "async copy"),
    (BACKWARD, "    fusec::copy_commit();\n", "", 0, "async copy"),
    (BACKWARD, "slot == 0 ? kStages - 1 : slot - 1", "slot", 0, "async copy"),
    ("examples/transpose.yaml", "  __syncthreads();\n", "", 0, "barrier before read"),
    ("scan_tiles", "  __syncthreads();\n", "", 0, "barrier before read"),
    ("sort_tiles", "  __syncthreads();\n", "", 0, "barrier between writes"),
    # clusters
    (LONG_K, "  fusec::cluster_sync();\n", "", 0, "cluster barrier"),
    (LONG_K, "  fusec::cluster_sync();\n", "", 1, "cluster barrier"),
    (LONG_K, "  fusec::cluster_sync();  // no CTA", "  // no CTA", 0, "cluster barrier"),
    # the ring of rows
    ("ring", "    fusec::fence_barrier_init();\n", "", 0, "barrier init"),
    ("ring", "  __syncthreads();\n", "", 0, "barrier init"),
    ("ring_cluster", "  fusec::cluster_sync();\n", "", 0, "barrier init"),
    ("ring", "        empty[slot].wait(parity);\n", "", 0, ""),
    ("ring", "      full[slot].wait(parity);\n", "", 0, "copy wait"),
    ("ring", "parity = 1", "parity = 0", 0, "waits for ever"),
    ("ring", "empty[i].init(kWarps)", "empty[i].init(1)", 0, ""),
    ("ring", "if (threadIdx.x % 32 == 0) empty[slot].arrive();", "", 0, "waits for ever"),
    ("ring", "threadIdx.x == kWorkers", "threadIdx.x >= kWorkers", 0, "one issuer"),
    ("ring", "expect_tx(kOwn * 4)", "expect_tx(kOwn * 2)", 0, "bytes"),
    ("ring_pieces", "kPiece * 4, &full", "kPiece * 2, &full", 0, "waits for ever"),
    ("ring_pieces", "piece < kOwn / kPiece", "piece < kOwn / kPiece - 1", 0, "waits for ever"),
]  # fmt: skip
HOPPER = [
    # 1: a shared store, the fence by the threads that stored, the barrier, the issue by one thread
    (LONG_K, "matmul_semaphores", FENCE, "", 0, "proxy fence"),
    (LONG_K, "matmul_semaphores", NAMED, "", 0, "proxy fence"),
    (LONG_K, "matmul_semaphores", f"{FENCE}{NAMED}", f"{NAMED}{FENCE}", 0, "proxy fence"),
    (LONG_K, "matmul_semaphores", FENCE, f"  if (threadIdx.x == 0) {FENCE}", 0, "proxy fence"),
    (LONG_K, "matmul_semaphores", f"{NAMED}  if (threadIdx.x == 0) {{\n    if",
     f"{NAMED}  if (threadIdx.x < 32) {{\n    if", 0, "one issuer"),
    (LONG_K, "matmul_semaphores", "      fence_proxy_async();\n", "", 0, "acquire fence"),
    (WGMMA, "matmul_hopper", "    full[stage].wait(parity);\n",
     "    full[stage].wait(parity);\n    shared[threadIdx.x] = 0;\n", 0, "proxy fence"),
    # 2: commit, full wait, release
    (LONG_K, "matmul_semaphores", "    commit_group();\n", "", 0, "full wait"),
    (LONG_K, "matmul_semaphores", "    wait_group<0>();\n", "", 0, "full wait"),
    (LONG_K, "matmul_semaphores", "wait_group<0>()", "wait_group_read<0>()", 0, "full wait"),
    (LONG_K, "matmul_semaphores", "wait_group<0>()", "wait_group<1>()", 0, "full wait"),
    (LONG_K, "matmul_semaphores", f"    wait_group<0>();\n{RELEASE}",
     f"{RELEASE}    wait_group<0>();\n", 0, "full wait"),
    (LONG_K, "matmul_semaphores", "    wait_group<0>();\n",
     "    owned[0] = share[0];\n    wait_group<0>();\n", 0, "bulk source"),
    # 3: mbarriers
    (LONG_K, "matmul_hopper", "  fence_barrier_init();\n", "", 0, "barrier init"),
    (WGMMA, "matmul_hopper", "    full[s].init(kFillers);\n", "", 0, "barrier init"),
    (LONG_K, "matmul_hopper", "kReaders = 4 * Config", "kReaders = Config", 0, ""),
    (LONG_K, "matmul_hopper", "kReaders = 4 * Config", "kReaders = 128 * Config", 0,
     "waits for ever"),
    (LONG_K, "matmul_hopper", "full[s].init(kFillers)", "full[s].init(kFillers + 1)", 0,
     "waits for ever"),
    (WGMMA, "matmul_hopper", "&& lane == 0", "", 0, ""),
    (LONG_K, "matmul_hopper", "expect_tx(Config::kStageBytes - kComputedBytes)",
     "expect_tx(Config::kATileBytes)", 0, "bytes"),
    (LONG_K, "matmul_hopper", "expect_tx(Config::kStageBytes - kComputedBytes)",
     "expect_tx(2 * Config::kStageBytes)", 0, "waits for ever"),
    (LONG_K, "matmul_hopper", "parity ^= stage == 0;", "", 0, ""),
    (LONG_K, "matmul_hopper", "parity ^= stage == 0;", "", 1, ""),
    (LONG_K, "matmul_hopper", "    empty[stage].wait(parity);\n", "", 0, ""),
    (LONG_K, "matmul_hopper", "    full[stage].wait(parity);\n", "", 0, "waits for ever"),
    (LONG_K, "matmul_hopper", "kColumns>(empty[previous])", "kColumns>(empty[stage])", 0, ""),
    (LONG_K, "matmul_hopper", "step > first && lane == 0", "lane == 0", 0, "refill"),
    (LONG_K, "matmul_hopper", "    wgmma_wait<1>();\n", "", 0, "refill"),
    # 4: cp.async, and what threads of a block hand each other
    ("sm_80", "matmul_mma", "    copy_wait<Config::kStages - 2>();\n", "", 0, "async copy"),
    ("sm_80", "matmul_mma", "copy_wait<Config::kStages - 2>", "copy_wait<Config::kStages - 1>", 0,
     "async copy"),
    ("sm_80", "matmul_mma", SYNC, "", 0, "barrier before read"),
    ("sm_80", "matmul_mma", SYNC, "", 0, "barrier before write"),
    ("sm_80", "matmul_mma", "    copy_commit();\n", "", 1, "async copy"),
    ("sm_80", "matmul_mma", "fill_stage<Config>(shared, a, b, depths, next)",
     "fill_stage<Config>(shared, a, b, depths, next + 1)", 0, "async copy"),
    ("matmul_simt", "matmul_simt", SYNC, "", 0, "barrier before read"),
    ("matmul_simt", "matmul_simt", SYNC, "", 1, "barrier before write"),
    # 5: other blocks
    (LONG_K, "matmul_semaphores", NAMED, "", 1, "acquire"),
    (LONG_K, "matmul_semaphores", "    spin_until(semaphore, turn);\n    *semaphore",
     "    *semaphore", 0, "acquire"),
    (LONG_K, "partial_quads", "__ldcg(at)", "__ldg(at)", 0, "constant read"),
    ("slices", "matmul_slices", NAMED, "", 0, "release"),
    ("slices", "matmul_slices", NAMED, "", 1, "acquire"),
    ("turns_by_stores", "matmul_semaphores", NAMED, "", 2, "acquire"),
    ("turns_by_stores", "matmul_semaphores", NAMED, "", 3, "release"),
    # 6: wgmma
    (LONG_K, "matmul_hopper", "    wgmma_fence();\n", "", 0, "wgmma fence"),
    (LONG_K, "matmul_hopper", "    wgmma_commit();\n", "", 0, ""),
    (LONG_K, "matmul_hopper", "  wgmma_wait<0>();\n", "", 0, "wgmma wait"),
    (WGMMA, "matmul_hopper", "  wgmma_wait<0>();\n  wgmma_pin(accumulators);\n",
     "  wgmma_pin(accumulators);\n  wgmma_wait<0>();\n", 0, "wgmma wait"),
]  # fmt: skip
HEADERS = [
    ("examples/softmax.yaml", "reduce.cuh", SYNC, 0, "barrier before read"),
    ("examples/softmax.yaml", "reduce.cuh", SYNC, 1, "barrier before write"),
    ("examples/column_mean.yaml", "reduce.cuh", SYNC, 2, "barrier before read"),
    ("examples/column_mean.yaml", "reduce.cuh", SYNC, 3, "barrier before write"),
    ("examples/column_mean.yaml", "grid.cuh", "  __syncthreads();\n", 2, "release"),
    ("examples/column_mean.yaml", "grid.cuh", "  __syncthreads();\n", 3, "barrier before read"),
    ("examples/column_mean.yaml", "grid.cuh", "  __syncthreads();\n", 3, "acquire"),
    ("scan_tiles", "grid.cuh", "  __syncthreads();\n", 0, "barrier before read"),
    ("scan_tiles", "grid.cuh", "  __syncthreads();\n", 2, "release"),
    ("scan_tiles", "scan_tiles.cuh", "    spin_until(flags + first + lane, 1);\n", 0, "acquire"),
    (BACKWARD, "reduce_in_turns.cuh", "  turn ^= 1;\n", 0, "barrier before write"),
    (BACKWARD, "reduce_in_turns.cuh", SYNC, 0, "barrier before read"),
    (BACKWARD, "reduce_strided.cuh", "      __syncthreads();\n", 0, "barrier before read"),
    (BACKWARD, "reduce_strided.cuh", "      __syncthreads();\n", 1, "barrier before write"),
    ("scan_rows", "scan.cuh", SYNC, 0, "barrier before read"),
    ("scan_columns", "scan.cuh", SYNC, 2, "barrier before read"),
    ("scan_columns", "scan.cuh", SYNC, 3, "barrier before write"),
    ("sort_rows", "sort.cuh", "  __syncthreads();\n", 0, "barrier before"),
    ("sort_rows", "sort.cuh", "  __syncthreads();\n", 1, "barrier before read"),
    ("sort_rows", "sort.cuh", "  __syncthreads();\n", 2, "barrier before read"),
    ("sort_rows", "sort.cuh", SYNC, 0, "barrier before read"),
    ("topk", "topk.cuh", "      __syncthreads();\n", 0, "barrier before"),
    ("ring", "reduce_group.cuh", "  named_barrier_sync<kWarps * 32>(place / 2 + 1);\n", 0,
     "barrier before read"),
]  # fmt: skip


def texts_of(source: str) -> tuple[str, ...]:
    """Return the kernels that an edit is tried on."""
    if source in FAMILIES:
        return family(source)
    if source in PRODUCTS:
        return products(source)
    if source == "sm_80":
        return kernels_of(ROOT / "examples/matmul_long_k.yaml", "sm_80")
    return kernels_of(ROOT / source, "sm_90a")


def replaced(text: str, old: str, new: str, number: int) -> str:
    """Return `text` with one occurrence of `old` replaced."""
    parts = text.split(old)
    assert len(parts) > number + 1, f"{old!r} is not {number + 1} times in the text"
    return old.join(parts[: number + 1]) + new + old.join(parts[number + 1 :])


@pytest.mark.parametrize(("source", "old", "new", "number", "rule"), mostly_nightly(EDITS, 2))
def test_an_edited_kernel_is_caught(
    source: str, old: str, new: str, number: int, rule: str
) -> None:
    text = next(t for t in texts_of(source) if old in t)
    found = check(replaced(text, old, new, number), until=rule)
    lines = len(text.splitlines())
    assert any(rule in v.rule for v in found), found
    assert all(0 < v.line <= lines for v in found)


@pytest.mark.parametrize(("source", "header", "old", "number", "rule"), HEADERS)
def test_an_edited_header_is_caught(
    source: str, header: str, old: str, number: int, rule: str
) -> None:
    caught(source, header, old, "", number, rule)


@pytest.mark.parametrize(
    ("source", "header", "old", "new", "number", "rule"), mostly_nightly(HOPPER, 3)
)
def test_an_edited_product_is_caught(
    source: str, header: str, old: str, new: str, number: int, rule: str
) -> None:
    caught(source, f"{header}.cuh", old, new, number, rule)


def caught(source: str, header: str, old: str, new: str, number: int, rule: str) -> None:
    """Assert that an edit of a header is caught by a rule."""
    changed = {header: replaced(device_headers()[header], old, new, number)}
    found = [v for text in texts_of(source) for v in check(text, changed, until=rule)]
    assert any(rule in v.rule for v in found), found


TILED = """
fusion: tiled
inputs:
  x: f32[65536, 14]
ops:
  - r = rsqrt(add(mean(mul(x, x), dims=[1], keepdim=true), 1e-6))
  - y = mul(x, r)
outputs: [y]
"""


@pytest.mark.parametrize(
    ("dropped", "rule"),
    [("fusec::rows_arrived();", "async copy"), ("__syncthreads();", "barrier before read")],
)
def test_tiles_of_rows_arrive_and_are_left_in_order(dropped: str, rule: str) -> None:
    (source,) = driver.plan(read_text(TILED), CompileOptions()).kernel_sources
    assert check(source.text) == []
    assert source.text.count(dropped) == 1
    assert rule in {v.rule for v in check(source.text.replace(dropped, ""))}
