"""Hopper's matrix products on the host: what they compute, and that wrong ones are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import run_plan
from nightly import mostly_nightly

from fusec import target
from fusec.ir.dtype import BF16, F16, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler

ORDERS = ({"seed": 0}, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True})
"""How tests run kernels: two orders, and copies that are done early."""
MORE_ORDERS = (*ORDERS, *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 12)))
"""Where a wrong kernel must fail in one of them."""


@cache
def product(
    m: int,
    n: int,
    k: int,
    *,
    dtype: DType = BF16,
    a_columns: bool = False,
    b_columns: bool = True,
    batches: int = 0,
    bias: bool = False,
) -> Fusion:
    """Return a matrix product; `a_columns` (`b_columns`): the operand is stored transposed."""
    builder = GraphBuilder("product")
    batch = (batches,) if batches else ()
    a = builder.input("a", dtype, (*batch, *((k, m) if a_columns else (m, k))))
    b = builder.input("b", dtype, (*batch, *((n, k) if b_columns else (k, n))))
    dims = (0, 2, 1) if batches else (1, 0)
    if a_columns:
        (a,) = builder.call("permute", [a], {"dims": dims})
    if b_columns:
        (b,) = builder.call("permute", [b], {"dims": dims})
    (c,) = builder.call("matmul", [a, b], names=["c"])
    if bias:
        c = builder.apply("relu", builder.apply("add", c, builder.input("bias", dtype, [n])))
    builder.output(c)
    return builder.finish()


def with_columns(m: int, n: int, columns: tuple[bool, bool]) -> Fusion:
    """Return a product with a bias, whose operands are contiguous along columns or not."""
    a_columns, b_columns = columns
    return product(m, n, 584, a_columns=a_columns, b_columns=b_columns, bias=True)


def plan_of(fusion: Fusion, kernel: str, **wanted: object) -> KernelPlan:
    """Return the plan with some of its parameters replaced."""
    return find_matmul().build(fusion, target.find("sm_90a"), {"kernel": kernel, **wanted})


def find_matmul():
    """Return the scheduler of matrix products."""
    return find_scheduler("matmul")


def model_of(fusion: Fusion, plan: KernelPlan) -> Model:
    """Return in what order a plan's sums are expected to be taken, and what is not rounded."""
    orders = {name: o.at(fusion.hints) for name, o in plan.orders.items()}
    return Model(orders, unrounded=frozenset(plan.unrounded))


def wrong(
    fusion: Fusion,
    plan: KernelPlan,
    folder: Path,
    orders: Iterable[Mapping[str, Any]] = ORDERS,
    edit: Callable[[str], str] = str,
) -> str:
    """Return what is wrong with a plan's kernels in some order; nothing where all is right."""
    inputs = random_inputs(fusion, fusion.hints, 0)
    model = model_of(fusion, plan)
    for order in orders:
        try:
            outputs = run_plan(plan, inputs, folder, edit=edit, **order)
        except AssertionError as error:
            return str(error) or repr(error)
        verdict = compare(fusion, fusion.hints, inputs, outputs, model=model)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


@pytest.mark.parametrize(("a_columns", "b_columns"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_every_layout(a_columns: int, b_columns: int, tmp_path: Path) -> None:
    fusion = product(136, 72, 200, a_columns=bool(a_columns), b_columns=bool(b_columns))
    assert wrong(fusion, plan_of(fusion, "wgmma", tile_n=64, stages=2), tmp_path) == ""


@pytest.mark.parametrize("tile_n", [64, 128, 256])
def test_every_tile(tile_n: int, tmp_path: Path) -> None:
    fusion = product(64, 264, 72, dtype=F16)
    assert wrong(fusion, plan_of(fusion, "wgmma", tile_n=tile_n, stages=2), tmp_path) == ""


def test_the_plan_that_is_chosen(tmp_path: Path) -> None:
    fusion = product(136, 136, 136, bias=True)
    plan = find_matmul().build(fusion, target.find("sm_90a"))
    assert plan.parameters.kernel == "wgmma"
    assert wrong(fusion, plan, tmp_path) == ""


def test_batches(tmp_path: Path) -> None:
    fusion = product(72, 40, 136, batches=3)
    assert wrong(fusion, plan_of(fusion, "wgmma", tile_n=64, stages=3), tmp_path) == ""


@pytest.mark.parametrize(
    ("cluster", "splits", "tile_n"), mostly_nightly([(1, 3, 64), (2, 2, 128), (4, 1, 64)], 3, 1)
)
def test_split_products(cluster: int, splits: int, tile_n: int, tmp_path: Path) -> None:
    fusion = product(130, 72, 328, bias=True)
    method = "slices" if splits == 1 else "serial_tma"
    shape = {"tile_m": 128, "tile_n": tile_n, "cluster_k": cluster, "splits": splits, "stages": 2}
    plan = plan_of(fusion, "split_k", **shape, split_method=method)
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.parametrize(
    ("tile_m", "cluster", "splits", "columns"),
    mostly_nightly(
        [
            (64, 2, 2, (0, 1)),
            (64, 8, 1, (1, 0)),
            (32, 1, 3, (0, 0)),
            (16, 2, 1, (0, 1)),
            (48, 2, 1, (0, 1)),
            (160, 4, 1, (0, 0)),
            (240, 1, 2, (0, 1)),
            (192, 2, 1, (1, 1)),
        ],
        2,
    ),
)
def test_swapped_operands(
    tile_m: int, cluster: int, splits: int, columns: tuple[bool, bool], tmp_path: Path
) -> None:
    fusion = with_columns(24, 136, columns)
    shape = {"tile_m": tile_m, "tile_n": 128, "cluster_k": cluster, "splits": splits, "stages": 3}
    assert wrong(fusion, plan_of(fusion, "split_k", **shape), tmp_path) == ""


@pytest.mark.parametrize(
    ("tile_m", "cluster", "splits", "columns"),
    mostly_nightly(
        [(64, 2, 1, (1, 0)), (16, 2, 2, (0, 0)), (112, 4, 1, (0, 1)), (96, 1, 2, (0, 1))], 2
    ),
)
def test_swapped_operands_in_tiles_of_256_columns(
    tile_m: int, cluster: int, splits: int, columns: tuple[bool, bool], tmp_path: Path
) -> None:
    fusion = with_columns(104, 264, columns)
    shape = {"tile_m": tile_m, "tile_n": 256, "cluster_k": cluster, "splits": splits, "stages": 3}
    assert wrong(fusion, plan_of(fusion, "split_k", **shape), tmp_path) == ""


@pytest.mark.nightly
def test_sums_that_need_more_than_the_ring(tmp_path: Path) -> None:
    fusion = product(40, 264, 264)
    plan = plan_of(fusion, "split_k", tile_m=128, tile_n=256, cluster_k=2, splits=2, stages=2)
    assert wrong(fusion, plan, tmp_path) == ""


IN_PLACE = {
    "tile_m": 128,
    "tile_n": 64,
    "stages": 2,
    "ping_pong": False,
    "cluster_m": 1,
    "cluster_n": 1,
}
WGMMA = {
    "the parity of the loads": ("full[stage].wait(parity)", "full[stage].wait(parity ^ 1)"),
    "the parity of the stages": ("empty[stage].wait(parity)", "empty[stage].wait(parity ^ 1)"),
    "the first parity of the producer": ("u32 parity = 1;", "u32 parity = 0;"),
    "the parity of the next round": ("parity ^= stage == 0;", "parity ^= 0;"),
    "no wait for loads": ("full[stage].wait(parity);", ""),
    "no wait for stages": ("empty[stage].wait(parity);", ""),
    "a stage is not handed back": (
        "if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);", "",
    ),
    "a stage is handed back early": ("wgmma_wait<1>();", "wgmma_wait<2>();"),
    "sums are read early": ("wgmma_wait<0>();", "wgmma_wait<1>();"),
    "no fence before products": ("    wgmma_fence();", ""),
    "no commit": ("    wgmma_commit();", ""),
    "the row of the epilogue": ("tile_m + warp_m + row", "tile_m + warp_m + 1 + row"),
    "the rows of a warpgroup": ("threadIdx.x / 128 * (Config::kTileM / 2)", "0"),
    "the rows of a warp": ("threadIdx.x / 32 % 4 * 16", "threadIdx.x / 32 % 4 * 8"),
    "sums that begin anywhere": ("step > 0 ? 1 : adds", "1"),
    "the bound of rows": ("m < M && n < N", "n < N"),
    "the bound of columns": ("m < M && n < N", "m < M"),
    "the place of B": ("a_tile + Config::kATileBytes", "a_tile + Config::kATileBytes / 2"),
    "the bytes of a stage": ("(Config::kStageBytes - kComputedBytes)", "(Config::kATileBytes)"),
    "the arrivals of a stage": ("kReaders = 8", "kReaders = 7"),
    "barriers that are not shown": ("  fence_barrier_init();", ""),
    "no barrier after the first thread": ("  __syncthreads();\n", ""),
    "a swizzle that is not asked for": ("1ull << 62", "2ull << 62"),
    "the next elements along K": ("kDescriptorStepK = 32 >> 4", "kDescriptorStepK = 64 >> 4"),
}  # fmt: skip
CLUSTER = "fusec::cluster_sync();"
NAMED = "named_barrier_sync<Config::kMultipliers>(1);"
SPIN = "spin_until(semaphore, turn);"
SPLIT = {
    "no cluster barrier after sums": (f"over all CTAs.\n  {CLUSTER}", "over all CTAs."),
    "no cluster barrier before the end": ("fusec::cluster_sync();  // no CTA", "// no CTA"),
    "no cluster barrier after tickets": (f"{CLUSTER}\n  const int work", "const int work"),
    "no fence before a bulk copy": ("  fence_proxy_async_shared_cta();", ""),
    "no fence after a turn": ("      fence_proxy_async();", ""),
    "no barrier before a bulk copy": (f"{NAMED}\n  if (thr", "if (thr"),
    "the turn is passed on early": ("wait_group<0>();", "wait_group_read<0>();"),
    "nobody waits for a turn": (f"  {SPIN}\n      fence", "  fence"),
    "the last does not wait": (f"{SPIN}\n    *sem", "*sem"),
    "the others do not wait for the last": (f"{NAMED}\n#pragma", "\n#pragma"),
    "no commit": ("    commit_group();", ""),
    "the turn is not passed on": ("(semaphore, turn + 1)", "(semaphore, turn)"),
    "stages are overwritten early": (f"    fusec::{NAMED}  // all", "    // all"),
    "the share of a rank": ("Products * Config::kCluster + rank", "Products * Config::kCluster"),
    "the slab of a rank": ("(tile_index) * Config::kCluster + rank", "(tile_index) * 1"),
    "the columns of a quad": ("% (kColumns / 4) * 4;", "% (kColumns / 4) * 2;"),
    "the row of a sum": ("at + kRowDistance * Config::kSumsPitch", "at + 4 * Config::kSumsPitch"),
    "a step of K twice": ("(chunk + 1) / chunks", "(chunk + 1) / chunks + 1"),
}  # fmt: skip


def dies(fusion: Fusion, plan: KernelPlan, old: str, new: str, folder: Path) -> None:
    """Assert that an edited kernel computes something wrong, hangs or breaks a rule."""
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    found = wrong(fusion, plan, folder, MORE_ORDERS, edit)
    assert any(edited)
    assert "seed" in found  # what does not compile has none


@pytest.mark.parametrize("name", mostly_nightly(WGMMA, 3))
def test_a_wrong_product_is_seen(name: str, tmp_path: Path) -> None:
    fusion = product(136, 72, 264)
    plan = plan_of(fusion, "wgmma", **IN_PLACE, epilogue_smem=False)
    dies(fusion, plan, *WGMMA[name], tmp_path)


SWAPPED = {
    "the operand of a warpgroup": ("b_tile + own, a_tile", "b_tile, a_tile"),
    "the layouts of the operands": ("kBKMajor, Config::kAKMajor", "kAKMajor, Config::kBKMajor"),
    "the neighbour of a sum": (
        "at[Config::kSumsPitch] = accumulators[i + 1]",
        "at[0] = accumulators[i + 1]",
    ),
    "stages are overwritten early": SPLIT["stages are overwritten early"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SWAPPED)
def test_a_wrong_swapped_product_is_seen(name: str, tmp_path: Path) -> None:
    fusion = product(20, 72, 520, b_columns=False)
    shape = {"tile_m": 64, "tile_n": 128, "cluster_k": 2, "splits": 2, "stages": 2}
    dies(fusion, plan_of(fusion, "split_k", **shape), *SWAPPED[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(SPLIT, 3))
def test_a_wrong_split_product_is_seen(name: str, tmp_path: Path) -> None:
    dies(*split_in_three("serial_tma"), *SPLIT[name], tmp_path)


SERIAL = {
    "nobody waits for a turn": (f"    if (threadIdx.x == 0) {SPIN}\n    {NAMED}", ""),
    "the others do not wait for a turn": (f"{SPIN}\n    {NAMED}\n#pragma", f"{SPIN}\n#pragma"),
    "the turn is passed on early": (f"share[f];\n  {NAMED}\n  if (thr", "share[f];\n  if (thr"),
    "the turn is not passed on": ("(semaphore, turn + 1)", "(semaphore, turn)"),
}
SLICES = {
    "slices are counted early": (
        f"  {NAMED}\n  if (threadIdx.x == 0) *slot",
        "  if (threadIdx.x == 0) *slot",
    ),
    "the others do not wait for the count": (f"splits);\n  {NAMED}", "splits);"),
    "the counter does not start over": (
        "count_and_wrap(arrived, splits)",
        "count_and_wrap(arrived, splits + 1)",
    ),
    "the first to arrive sums": ("*slot == static_cast<u32>(splits) - 1", "*slot == 0"),
    "a slice is left out": ("split < splits;", "split < splits - 1;"),
    "the slice of a turn": ("slices + turn * Config::kSlab", "slices"),
    "the slices of an owner": ("owner * splits * C", "owner * C"),
    "the counter of an owner": ("arrivals + owner", "arrivals"),
}


def split_in_three(method: str, cluster_k: int = 2) -> tuple[Fusion, KernelPlan]:
    """Return a product and its plan with K split over three clusters."""
    fusion = product(66, 40, 520)
    shape = {"tile_m": 128, "tile_n": 64, "cluster_k": cluster_k, "splits": 3, "stages": 2}
    return fusion, plan_of(fusion, "split_k", **shape, split_method=method)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SERIAL)
def test_wrong_turns_by_stores_are_seen(name: str, tmp_path: Path) -> None:
    dies(*split_in_three("serial"), *SERIAL[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(SLICES, 2))
def test_wrong_slices_are_seen(name: str, tmp_path: Path) -> None:
    dies(*split_in_three("slices"), *SLICES[name], tmp_path)


ALONE = {
    "no barrier after sums": (f"  fusec::{NAMED}  // all partial", "  // all partial"),
    "the share goes where others read": (f"  fusec::{NAMED}  // the share", "  // the share"),
    "the row of a quad": ("tile + quad.row * Config::kSumsPitch", "tile + quad.row"),
    "no barrier after tickets": ("  __syncthreads();\n  const int work", "  const int work"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALONE)
def test_a_wrong_product_of_blocks_without_clusters_is_seen(name: str, tmp_path: Path) -> None:
    dies(*split_in_three("serial_tma", cluster_k=1), *ALONE[name], tmp_path)


@pytest.mark.parametrize(
    ("cluster", "tile_m", "tile_n", "splits", "method", "columns"),
    mostly_nightly(
        [
            ((1, 2), 48, 128, 2, "serial", (0, 0)),
            ((1, 2), 128, 128, 1, "slices", (1, 1)),
            ((2, 1), 128, 256, 2, "serial_tma", (0, 0)),
            ((1, 2), 64, 256, 2, "parallel", (1, 0)),
            ((2, 1), 128, 64, 3, "slices", (0, 1)),
        ],
        5,
    ),
)
def test_split_products_in_pairs(
    cluster: tuple[int, int], tile_m: int, tile_n: int, splits: int, method: str,
    columns: tuple[int, int],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Also of odd numbers of tiles, whose last pair has one alone."""
    fusion = product(
        264, 392, 520, a_columns=bool(columns[0]), b_columns=bool(columns[1]), bias=True
    )
    shape: dict[str, Any] = {"tile_m": tile_m, "tile_n": tile_n, "splits": splits}
    shape |= {"split_method": method}
    shape |= {"stages": 2, "cluster_m": cluster[0], "cluster_n": cluster[1], "cluster_k": 1}
    plan = plan_of(fusion, "split_k", **shape)
    assert wrong(fusion, plan, tmp_path) == ""


PAIRS = {
    "no cluster barrier before loads": (f"{CLUSTER}\n  const int work", "const int work"),
    "no cluster barrier before the end": ("fusec::cluster_sync();  // no CTA", "// no CTA"),
    "the arrivals of a stage": ("kReaders = 16", "kReaders = 8"),
    "the sums of a tile": ("* 2 + place", "* 2"),
    "stages are handed back to one": ("    empty.arrive_at(1);", "    empty.arrive_at(0);"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", PAIRS)
def test_a_wrong_split_product_in_pairs_is_seen(name: str, tmp_path: Path) -> None:
    fusion = product(264, 40, 520)
    shape = {"tile_m": 128, "tile_n": 64, "cluster_k": 1, "splits": 2, "stages": 2}
    dies(fusion, plan_of(fusion, "split_k", **shape, cluster_m=2), *PAIRS[name], tmp_path)


ARRIVING = {
    "sums are left for the next launch": ("    *at = make_float4(0.0f, 0.0f, 0.0f, 0.0f);\n", ""),
    "the first to arrive ends": ("*slot == static_cast<u32>(splits) - 1", "*slot == 0"),
    "the sums of an owner": ("+ owner * Config::kSlab", ""),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ARRIVING)
def test_wrong_sums_in_the_order_of_arrival_are_seen(name: str, tmp_path: Path) -> None:
    dies(*split_in_three("parallel"), *ARRIVING[name], tmp_path)


@pytest.mark.parametrize(
    "method", mostly_nightly(["parallel", "serial_tma", "serial", "two_pass", "slices"], 5)
)
def test_ways_to_sum_without_clusters(method: str, tmp_path: Path) -> None:
    fusion, plan = split_in_three(method, cluster_k=1)
    assert wrong(fusion, plan, tmp_path, MORE_ORDERS) == ""


def test_a_second_kernel_of_a_square_operand(tmp_path: Path) -> None:
    """N is K, of which the second kernel knows nothing."""
    text = (
        "fusion: f\ninputs:\n  a: bf16[16, 264]\n  b: bf16[264, 264]\nops:\n  - y = linear(a, b)\n"
    )
    fusion = read_text(f"{text}outputs: [y]\n")
    shape = {"tile_m": 16, "tile_n": 128, "cluster_k": 1, "splits": 2, "stages": 2}
    plan = plan_of(fusion, "split_k", **shape, split_method="two_pass")
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.parametrize("method", mostly_nightly(["two_pass", "serial", "slices", "parallel"], 4))
@pytest.mark.nightly
def test_other_ways_to_sum(method: str, tmp_path: Path) -> None:
    fusion, plan = split_in_three(method)
    assert wrong(fusion, plan, tmp_path, MORE_ORDERS) == ""
