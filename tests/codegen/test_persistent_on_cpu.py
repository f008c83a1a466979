"""Persistent products on the host: staged rows, warpgroups that take turns, pairs of CTAs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_hopper_on_cpu import dies, find_matmul, product, wrong

from fusec import target
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.schedule.plan import KernelPlan

# With two SMs every CTA has several tiles; a cluster of four has all of a few more.
SMALL = replace(target.find("sm_90a"), sms=2)
FOUR = replace(SMALL, sms=5)
PLAIN = {
    "tile_m": 128,
    "tile_n": 64,
    "stages": 2,
    "ping_pong": False,
    "cluster_m": 1,
    "cluster_n": 1,
    "epilogue_smem": True,
}
SWAPPED = {**PLAIN, "tile_m": 96, "tile_n": 128, "epilogue_smem": False}
TURNS = {**PLAIN, "tile_m": 64, "ping_pong": True}


RESIDUAL = "  - y = mul(mul(silu(add(p, bias)), c), r)\noutputs: [y]\n"
TWO = "  - y = add(cast(p, f32), t)\n  - z = neg(p)\noutputs: [y, z]\n"
IN_PLACE = "  - y = add(cast(p, f32), t)\noutputs:\n  y: {alias: t}\n"


@cache
def followed(m: int, n: int, k: int, by: str) -> Fusion:
    """Return a product `p` and what follows it."""
    return read_text(
        f"fusion: product\ninputs:\n  a: bf16[{m}, {k}]\n  b: bf16[{n}, {k}]\n  bias: bf16[{n}]\n"
        f"  c: bf16[{m}, 1]\n"
        f"  r: bf16[{m}, {n}]\n  t: f32[{m}, {n}]\nops:\n  - p = linear(a, b)\n{by}"
    )


def plan_of(fusion: Fusion, **wanted: object) -> KernelPlan:
    """Return the plan of a persistent kernel for a GPU of two SMs, or of one cluster of four."""
    pairs = wanted.get("cluster_m"), wanted.get("cluster_n")
    gpu = FOUR if pairs == (2, 2) else SMALL
    return find_matmul().build(fusion, gpu, {"kernel": "wgmma", **wanted})


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (product(136, 80, 200), {"tile_n": 72}),
            (product(300, 72, 136, bias=True), {"tile_m": 256}),
            (product(72, 40, 136, batches=3), {}),
            (product(200, 136, 136, a_columns=True, b_columns=False), {"cluster_m": 2}),
            (
                product(136, 168, 136, a_columns=True, b_columns=False),
                {"cluster_n": 2, "tile_n": 80},
            ),
            (followed(136, 72, 200, RESIDUAL), {"stages": 3}),
            (followed(300, 136, 72, RESIDUAL), {"tile_m": 256, "cluster_m": 2}),
            (followed(136, 72, 136, TWO), {}),
            (product(136, 83, 72), {"tile_n": 128}),
            (product(300, 75, 136, bias=True), {"tile_m": 256}),
            (product(72, 70, 72, batches=3, bias=True), {}),
            (followed(136, 75, 136, TWO), {}),
            (followed(136, 5, 72, RESIDUAL), {}),
            (product(400, 72, 200), {"tile_m": 192}),
            (product(200, 136, 72, a_columns=True, bias=True), {"tile_m": 192, "cluster_n": 2}),
            (product(300, 200, 136), {"cluster_m": 2, "cluster_n": 2}),
            (followed(400, 72, 136, RESIDUAL), {"tile_m": 192, "cluster_m": 2, "cluster_n": 2}),
            (product(700, 136, 264), {"cluster_m": 4, "stages": 3}),
            (followed(300, 300, 136, RESIDUAL), {"cluster_n": 4}),
            (
                product(600, 72, 136, a_columns=True, b_columns=False),
                {"cluster_m": 4, "cluster_n": 2},
            ),
            (
                product(200, 264, 136, a_columns=True, b_columns=False),
                {"cluster_m": 2, "cluster_n": 4},
            ),
        ],
        3,
    ),
)
def test_tiles_of_both_warpgroups(
    fusion: Fusion, changes: dict[str, object], tmp_path: Path
) -> None:
    assert wrong(fusion, plan_of(fusion, **{**PLAIN, **changes}), tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (product(300, 136, 264), {}),
            (
                product(200, 136, 136, a_columns=True, b_columns=False),
                {"cluster_m": 2, "stages": 3},
            ),
            (followed(300, 136, 136, RESIDUAL), {"tile_m": 128, "cluster_n": 2}),
            (
                product(200, 200, 136, a_columns=True, b_columns=False),
                {"cluster_m": 2, "cluster_n": 2},
            ),
            (product(300, 136, 136), {"cluster_m": 4, "cluster_n": 2}),
            (followed(136, 136, 136, TWO), {"epilogue_smem": False, "vector_width": 2}),
        ],
        2,
    ),
)
def test_tiles_of_one_warpgroup(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **{**TURNS, **changes}), tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (product(200, 264, 136), {}),
            (product(96, 248, 136, a_columns=True, b_columns=False, bias=True), {"stages": 3}),
            (product(150, 75, 72), {"tile_m": 80, "tile_n": 256}),
            (product(250, 140, 136), {"tile_m": 88, "cluster_m": 2}),
            (product(248, 264, 72, a_columns=True), {"tile_m": 24}),
            (product(170, 300, 264), {"cluster_m": 2, "cluster_n": 2}),
            (product(296, 500, 136, a_columns=True), {"cluster_n": 4, "tile_m": 32}),
            (product(72, 300, 136, batches=2), {"tile_m": 48, "ping_pong": True}),
            (
                followed(136, 264, 136, RESIDUAL),
                {"tile_n": 64, "ping_pong": True, "cluster_m": 2},
            ),
            (followed(136, 72, 72, IN_PLACE), {}),
        ],
        2,
    ),
)
def test_swapped_tiles(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **{**SWAPPED, **changes}), tmp_path) == ""


def test_rows_that_are_written_where_they_were_read(tmp_path: Path) -> None:
    fusion = followed(136, 72, 72, IN_PLACE)
    assert wrong(fusion, plan_of(fusion, **PLAIN), tmp_path) == ""


STAGED = {
    "fetched rows are not waited for": ("  copy_wait<0>();\n", ""),
    "no barrier after the wait": ("copy_wait<0>();\n  __syncwarp();", "copy_wait<0>();"),
    "copies that are not committed": ("  copy_commit();\n}", "}"),
    "no barrier before rows are stored": ("      __syncwarp();\n      leave(", "      leave("),
    "the rows of a warp": ("threadIdx.x / 32 * (Config::kS", "threadIdx.x / 32 % 4 * (Config::kS"),
    "the columns of a pair": ("column + lane % 4 * 2", "column + lane % 4"),
    "the rows of a pair": ("lane / 4 + 8 * half", "lane / 4 + 4 * half"),
    "the sums of a pair": ("/ 2 + 2 * half", "/ 2"),
    "the sums of further rows": ("block * (Config::kTileN / 2) + (", "("),
    "further rows": ("64 * block + row", "row"),
    "the fetched rows": ("line / 16 * 64 + line % 16", "line"),
    "the stored rows": ("leave(64 * block", "leave(0 * block"),
    "the bound of stored rows": ("if (row < rows) store(", "store("),
    "the bound of columns": ("if (column >= columns) return;", ""),
    "the rows that lanes store": ("first + line + i * kRows", "first + line + i"),
    "the place of a row": (
        "vectors[i] = load<kVector>(staged + row", "vectors[i] = load<kVector>(staged + first",
    ),
    "the last row": ("M - 1);", "M);"),
    "the last columns": ("N - kWidth);", "N);"),
}  # fmt: skip
PING_PONG = {
    "nobody waits for its turn": ("named_barrier_sync<256>(kTurns + warpgroup);", "{}"),
    "a turn is not passed on": ("named_barrier_arrive<256>(kTurns + 1 - warpgroup);", "{}"),
    "a turn is passed on to oneself": ("kTurns + 1 - warpgroup", "kTurns + warpgroup"),
    "the first turn": ("  named_barrier_arrive<256>(kTurns);\n", ""),
    "the stages before the first tile": (
        "kTurns);\n  skip_stages<Config>(steps,", "kTurns);\n  skip_stages<Config>(0,",
    ),
    "the stages of the other": (
        "parity);\n      fusec::skip_stages<Config>(steps, stage, parity);", "parity);",
    ),
    "the parity of skipped stages": ("next / Config::kStages % 2", "0"),
    "the tiles of a warpgroup": ("blockIdx.x + warpgroup * gridDim.x", "blockIdx.x"),
    "the tiles of both": ("index += 2 * gridDim.x", "index += gridDim.x"),
    "the rows of a warp": ("threadIdx.x / 32 % 4 * 16", "threadIdx.x / 32 * 16"),
    "the readers of a stage": ("kReaders = 4", "kReaders = 8"),
}  # fmt: skip
SHIFTED = {
    "elements where rows begin": (
        "+\n                       fusec::shift_of<", "+ 0 * fusec::shift_of<",
    ),
    "the place of a vector": ("kStagedPitch + shift + column));", "kStagedPitch + column));"),
    "the first vector": ("* kVector + (kVector - shift) % kVector;", "* kVector;"),
    "the last vector": ("column + kVector <= count", "column < count"),
    "the rows of vectors": ("16 * kVectors && row < rows) {", "16 * kVectors) {"),
    "the elements before": ("place >= kVector || column < before", "place >= kVector"),
    "the elements behind": ("(place >= kVector ||", "(place < 0 ||"),
    "the end of a row": ("if (column < count && (", "if (("),
    "the second element": ("column + 1, place + 1,", "column + 1, place,"),
    "no barrier before rows are stored": ("      __syncwarp();\n      leave(", "      leave("),
}  # fmt: skip
PAIRS = {
    "a stage is handed back to one": ("    empty.arrive_at(1);", "    empty.arrive_at(0);"),
    "a stage is handed back by one": ("    empty.arrive_at(1);", ""),
    "the half of a rank": ("own.part * (kExtent / kParts)", "0"),
    "the place of a half": ("tile + first * 128, map", "tile, map"),
    "a half for one": ("kColumn = (1 << kRows) - 1;", "kColumn = 1;"),
    "the tile of a rank": ("first.row * kRows + rank % kRows", "first.row * kRows"),
    "the pairs of rows": ("(tile_rows + kRows - 1) / kRows", "tile_rows / kRows"),
    "no cluster barrier at the start": (
        "kReaders>(shared);\n  fusec::cluster", "kReaders>(shared);\n  __syncthreads();  // ",
    ),
    "no cluster barrier at the end": ("fusec::cluster_sync();  // no CTA", "// no CTA"),
    "the readers of a stage": ("kReaders = 16", "kReaders = 8"),
    "the pairs of a cluster": ("index = blockIdx.x / 2;", "index = blockIdx.x;"),
}  # fmt: skip
FOURS = {
    "a stage is handed back to two": ("column < kColumns; ++column", "column < 1; ++column"),
    "a stage is handed back across": ("cluster_rank() ^ row);", "cluster_rank() ^ (row + 2));"),
    "the readers of a stage": ("kReaders = 24", "kReaders = 16"),
    "the part of A": ("return {column,", "return {row,"),
    "the part of B": ("return {row,", "return {column,"),
    "who shares A": ("kRow << row", "kRow << column"),
    "who shares B": ("kColumn << column * kRows", "kColumn << row * kRows"),
    "the tiles of a cluster": ("index = blockIdx.x / 4;", "index = blockIdx.x / 2;"),
}
TURNED = {
    "the columns of a warp": ("threadIdx.x / 32 % 4 * 16;", "threadIdx.x / 32 % 4 * 8;"),
    "the columns of a warpgroup": ("threadIdx.x / 128 * (Config", "0 * (Config"),
    "the column of a lane": ("lane % 4 * 4 + j", "lane % 4 * 2 + j"),
    "the row of a lane": ("* 8 + lane / 4", "* 8 + lane % 8"),
    "the columns of a block": ("i / kBlockAccumulators * 64", "0"),
    "the rows of a block": ("i % kBlockAccumulators / 4 * 8", "i / 4 * 8"),
    "which element a lane gives": ("permute_quad(v, row % 4)", "permute_quad(v, row % 2)"),
    "which element a lane has": ("permute_quad(v, wanted)", "permute_quad(v, 0)"),
    "which lane has it": ("(i ^ wanted)", "i"),
    "the bound of rows": ("m < M && n < N", "n < N"),
    "the bound of columns": ("m < M && n < N", "m < M"),
}
EIGHTS = {
    "a stage is handed back to one too few": ("row < kRows; ++row) empty", "row < 3; ++row) empty"),
    "a stage is handed back to its row alone": (
        "row < kRows; ++row) empty",
        "row < 1; ++row) empty",
    ),
    "the CTAs of another row": ("cluster_rank() ^ column * kRows", "cluster_rank() ^ column"),
    "the readers of a stage": ("kReaders = 40", "kReaders = 32"),
    "a column without its last": ("kColumn << column", "(kColumn >> 1) << column"),
    "a row without its last": ("kRow << row", "1 << row"),
    "the part of a rank": ("(kExtent / kParts)", "(kExtent / 8)"),
    "the tiles of a cluster": ("index = blockIdx.x / 8;", "index = blockIdx.x / 4;"),
}
DEPTHS = {
    "the half of a rank along K": ("own.part * (64 / kParts)", "0"),
    "the place of a half along K": ("kBlockBytes + first * 128", "kBlockBytes"),
}


UNEVEN = {
    "the bound of stored rows": ("16 * kVectors && row < rows &&", "16 * kVectors &&"),
    "the bound of columns": ("&& column < columns) {\n", ") {\n"),
    "the place of a row": (
        "      store(at(row, column), load<kVector>(staged + row * Config::kStagedPitch",
        "      store(at(row, column), load<kVector>(staged + row * kVectors",
    ),
    "the last columns of a tile": ("first + column >= kColumns", "false"),
    "the last columns that are stored": (
        "min(N - tile_n, static_cast<Index>(Config::kTileN))", "N - tile_n",
    ),
}  # fmt: skip
REST = {name: edit for name, edit in UNEVEN.items() if name.startswith("the last")}


@pytest.mark.nightly
@pytest.mark.parametrize("name", UNEVEN)
def test_wrong_rows_of_uneven_parts_are_seen(name: str, tmp_path: Path) -> None:
    columns = 88 if name in REST else 72
    fusion = product(300, 192, 72) if name in REST else product(136, 128, 72)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_n": columns}), *UNEVEN[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(STAGED, 3))
def test_wrong_staged_rows_are_seen(name: str, tmp_path: Path) -> None:
    fusion = followed(300, 72, 136, RESIDUAL)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_m": 256}), *STAGED[name], tmp_path)


def test_rows_that_are_overwritten_early_are_seen(tmp_path: Path) -> None:
    edit = ("kStagedPitch);\n      __syncwarp();", "kStagedPitch);")
    dies(
        product(136, 192, 72),
        plan_of(product(136, 192, 72), **{**PLAIN, "tile_n": 128}),
        *edit,
        tmp_path,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(SHIFTED, 2))
def test_wrong_shifted_rows_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(136, 75, 72)
    dies(fusion, plan_of(fusion, **PLAIN), *SHIFTED[name], tmp_path)


@pytest.mark.parametrize("name", mostly_nightly(PING_PONG, 2))
def test_wrong_turns_at_tiles_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 72, 264)
    dies(fusion, plan_of(fusion, **{**TURNS, "stages": 3}), *PING_PONG[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(PAIRS, 2))
def test_wrong_pairs_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 72, 264)
    dies(fusion, plan_of(fusion, **{**PLAIN, "cluster_m": 2}), *PAIRS[name], tmp_path)


@pytest.mark.parametrize(
    ("fusion", "changes", "sms"),
    mostly_nightly(
        [
            (product(300, 64, 264), PLAIN, 2),
            (product(300, 64, 264, bias=True), TURNS, 2),
            (product(400, 64, 328), {**PLAIN, "tile_m": 192, "splits": 3}, 4),
            (followed(600, 64, 200, RESIDUAL), {**PLAIN, "cluster_m": 2, "tile_n": 64}, 4),
            (product(200, 60, 200, batches=3), {**TURNS, "splits": 4}, 5),
            (product(200, 300, 200), {**SWAPPED, "tile_m": 80}, 4),
            (product(200, 300, 200), {**SWAPPED, "tile_n": 64, "ping_pong": True}, 4),
            (product(900, 64, 200), {**PLAIN, "cluster_m": 4}, 8),
        ],
        2,
    ),
)
def test_the_last_wave_in_parts(
    fusion: Fusion, changes: dict[str, object], sms: int, tmp_path: Path
) -> None:
    gpu = replace(SMALL, sms=sms)
    plan = find_matmul().build(fusion, gpu, {"kernel": "wgmma", "splits": 2, **changes})
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes", "sms", "grid"),
    mostly_nightly(
        [
            (product(200, 64, 264), {**PLAIN, "splits": 3}, 8, 6),
            (product(200, 64, 264, bias=True), {**TURNS, "splits": 2}, 8, 8),
            (followed(200, 64, 328, RESIDUAL), {**PLAIN, "cluster_m": 2, "splits": 4}, 9, 8),
            (
                product(150, 200, 200),
                {**SWAPPED, "tile_m": 80, "cluster_n": 2, "splits": 2},
                8,
                8,
            ),
            (product(200, 64, 264), {**PLAIN, "splits": 4}, 6, 6),
        ],
        2,
    ),
)
def test_fewer_tiles_than_sms_in_parts(
    fusion: Fusion, changes: dict[str, object], sms: int, grid: int, tmp_path: Path
) -> None:
    """The last one's parts would not fit, so that tiles are whole."""
    plan = find_matmul().build(fusion, replace(SMALL, sms=sms), {"kernel": "wgmma", **changes})
    assert plan.kernels[0].grid[0].evaluate({}) == grid
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.nightly
def test_wrong_parts_of_few_tiles_are_seen(tmp_path: Path) -> None:
    fusion = product(200, 64, 264)
    plan = find_matmul().build(
        fusion, replace(SMALL, sms=8), {"kernel": "wgmma", **PLAIN, "splits": 3}
    )
    dies(fusion, plan, "(number + 1) * steps / kParts}", "number * steps / kParts + 1}", tmp_path)


PARTS = {
    "the tiles that are whole": ("return {tiles - left, tiles", "return {tiles, tiles"),
    "the parts of a wave": ("tiles - left + left * kParts", "tiles"),
    "the tile of a part": ("{units.whole + part / kParts, part", "{units.whole + part, part"),
    "where a part begins": ("part, number * steps / kParts,", "part, 0,"),
    "where a part ends": ("(number + 1) * steps / kParts}", "number * steps / kParts + 1}"),
    "the place of a part": ("slices + part * kSlice", "slices + 0 * part"),
    "the place of a thread": ("threadIdx.x % kThreads * 4", "threadIdx.x % 32 * 4"),
    "whoever is last": ("!= kParts - 1) return", "!= 0) return"),
    "all parts": ("each < kParts;", "each < kParts - 1;"),
    "sums begin as zeros": ("++i) accumulators[i] = 0.0f;", "++i) accumulators[i] += 0.0f;"),
    "no barrier before the count": (
        "  named_barrier_sync<kThreads>(kPartsBarrier);\n  if (threadIdx.x % kThreads == 0)",
        "  if (threadIdx.x % kThreads == 0)",
    ),
    "no barrier after the count": (
        "  named_barrier_sync<kThreads>(kPartsBarrier);\n  if (*slot", "  if (*slot",
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(PARTS, 2))
def test_wrong_parts_of_the_last_wave_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 64, 264)
    plan = find_matmul().build(fusion, SMALL, {"kernel": "wgmma", "splits": 2, **PLAIN})
    dies(fusion, plan, *PARTS[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(FOURS, 2))
def test_wrong_clusters_of_four_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 200, 264)
    dies(
        fusion, plan_of(fusion, **{**PLAIN, "cluster_m": 2, "cluster_n": 2}), *FOURS[name], tmp_path
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(TURNED, 2))
def test_wrong_swapped_tiles_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(190, 392, 72)
    dies(fusion, plan_of(fusion, **{**SWAPPED, "tile_n": 256}), *TURNED[name], tmp_path)


@pytest.mark.parametrize("name", mostly_nightly(EIGHTS, 2))
def test_wrong_clusters_of_eight_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(600, 136, 264)
    dies(
        fusion,
        plan_of(fusion, **{**PLAIN, "cluster_m": 4, "cluster_n": 2}),
        *EIGHTS[name],
        tmp_path,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(DEPTHS, 2))
def test_wrong_halves_along_k_are_seen(name: str, tmp_path: Path) -> None:
    fusion = product(300, 72, 136, b_columns=False)
    dies(fusion, plan_of(fusion, **{**PLAIN, "cluster_m": 2}), *DEPTHS[name], tmp_path)
