"""The cost of device functions: instructions per thread; of main loops, as functions of a Config.

Functions of operations cost what the operations declare (`fusec/ops`), which a test compares with
machine code. Functions in neither table are `NOT_COUNTED`; explain names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import ceil, log2

from fusec.kernel.counting.call_sites import COMBINED, NO_INSTRUCTIONS, Cost, Site, UnknownNumber
from fusec.kernel.counting.instructions import (
    ATOMIC,
    BARRIER,
    BRANCH,
    CONVERT,
    COPY,
    FLOAT,
    GLOBAL,
    INTEGER,
    SHARED,
    SHUFFLE,
    SPECIAL,
    TENSOR,
    Counts,
    accesses,
    added,
    times,
)
from fusec.kernel.device import HEADERS, device_name
from fusec.kernel.formulas import parsed
from fusec.kernel.nodes import Call
from fusec.ops import TABLE

WARP = 32


Costs = Counts | Callable[[Site], Counts | Cost]


def _accessed(*, store: bool) -> Callable[[Site], Counts]:
    def cost(site: Site) -> Counts:
        elements = site.vector if store else int(site.argument(0)) if site.about else 1
        return accesses(site.space, elements * site.element, store=store)

    return cost


def _reduced_in_warp(site: Site, width: float) -> Counts:
    steps = log2(width)
    return times(steps, added({SHUFFLE: site.words}, site.combine))


def _reduced_in_rows(site: Site) -> Counts:
    """Return the cost of a sum over the threads of a row (reduce.cuh)."""
    threads = site.argument(1)
    if threads <= WARP:
        return _reduced_in_warp(site, threads)
    warps = threads / WARP
    loads = accesses(SHARED, int(4 * warps * site.words))
    last = times(warps - 1, site.combine)
    stored = accesses(SHARED, 4 * site.words, store=True)
    return added(_reduced_in_warp(site, WARP), stored, loads, last, {BARRIER: 2})


def _reduced_in_columns(site: Site) -> Counts:
    """Return the cost of a tree sum over the threads of a column (reduce.cuh)."""
    steps = ceil(log2(site.argument(2))) if site.argument(2) > 1 else 0
    size = 4 * site.words
    moved = added(accesses(SHARED, size), accesses(SHARED, size, store=True))
    each = added(moved, site.combine, {BARRIER: 2})
    return added(times(steps, each), moved if steps else {}, {BARRIER: 2 if steps else 0})


def _reduced_in_group(site: Site) -> Counts:
    words = accesses(SHARED, 4 * site.words)
    kept = accesses(SHARED, 4 * site.words, store=True)
    return added(times(2, _reduced_in_warp(site, WARP)), words, kept, {BARRIER: 1})


def _scanned_span(site: Site) -> Counts:
    vectors = site["kChunks"] * site["kVec"]
    steps = log2(site.argument(1))
    return added(
        times(2 * vectors, site.combine),
        times(site["kChunks"], {SHUFFLE: steps + 2, FLOAT: steps}),
    )


def _scanned_warps(site: Site) -> Counts:
    warps = site.argument(1) / WARP
    if warps <= 1:
        return site.combine
    loads = accesses(SHARED, int(4 * warps))
    each = times(warps, {FLOAT: 1, INTEGER: 1})
    return added(each, loads, accesses(SHARED, 4, store=True), {BARRIER: 2})


def _loaded_stages(site: Site) -> Cost:
    """Return the cost of the producer's loop (matmul_hopper.cuh)."""
    each = {COPY: 2, BARRIER: 2, INTEGER: 12, BRANCH: 2}
    return Cost({INTEGER: 10}, "step", ceil(site["K"] / site["Config::kTileK"]), each)


def _multiplied_stages(site: Site) -> Cost:
    """Return the cost of a consumer warpgroup's loop (matmul_hopper.cuh)."""
    swap_ab = bool(site["Config::kSwapAB"])
    columns = site["Config::kTileM" if swap_ab else "Config::kTileN"]
    blocks = site["Config::kAccumulators"] / (columns / 2)
    each = {TENSOR: site["Config::kTileK"] / 16 * blocks, BARRIER: 2, INTEGER: 16, BRANCH: 2}
    return Cost({INTEGER: 16, BARRIER: 1}, "step", ceil(site["K"] / site["Config::kTileK"]), each)


def _multiplied_steps(site: Site) -> Cost:
    """Return the cost of the loop of mma_16816 (matmul_mma.cuh)."""
    rows, columns = site["Config::kWarpM"] / 16, site["Config::kWarpN"] / 8
    deep = site["Config::kTileK"] / 16
    elements = site["Config::kTileM"] + site["Config::kTileN"]
    copies = elements * site["Config::kTileK"] * 2 / 16 / site["Config::kThreads"]
    loads = {f"load_{SHARED}_128": deep * (rows + columns / 2)}
    each = {TENSOR: deep * rows * columns, BARRIER: 1, COPY: copies, INTEGER: 4 * copies + 8}
    trips = ceil(site["K"] / site["Config::kTileK"])
    return Cost(
        times(site["Config::kStages"] - 1, {COPY: copies}), "step", trips, {**each, **loads}
    )


def _multiplied_vectors(site: Site) -> Cost:
    """Return the cost of the loop of a GEMV (matmul_gemv.cuh): 64 elements of K at a time."""
    rows, columns = site["Config::kTileM"] / 8, site["Config::kTileN"] / 8
    each = {f"load_{GLOBAL}_128": 2 * (rows + columns), TENSOR: 2 * columns * rows, INTEGER: 8}
    return Cost({INTEGER: 16}, "part", site["K"] / 64 / site["Config::kWarps"], each)


def _attended(site: Site) -> Cost:
    """Return the cost of the loop over tiles of keys (attention.cuh), without masked tiles."""
    keys, features = site["Config::kKeys"], site["Config::kFeatures"]
    scores, sums = keys / 2, site["Config::kValueFeatures"] / 2
    softmax = {FLOAT: 3 * scores + 30, SPECIAL: scores + 2, SHUFFLE: 4, CONVERT: scores / 2}
    products = {TENSOR: features / 16 + keys / 16, FLOAT: sums, BARRIER: 4, INTEGER: 24}
    tile = added(softmax, products)
    return Cost(tile, "tile", ceil(site["N"] / keys) - 1, tile)


def _loaded_attention(site: Site) -> Cost:
    """Return the cost of the producer's loop over tiles of keys (attention.cuh)."""
    features = site["Config::kFeatures"]
    copies = (features + site["Config::kValueFeatures"]) / 64
    each = {COPY: copies, BARRIER: 4, INTEGER: 16, BRANCH: 3}
    trips = ceil(site["N"] / site["Config::kKeys"])
    return Cost({COPY: features / 64, BARRIER: 2}, "tile", trips, each)


def _stored_rows(site: Site) -> Counts:
    """Return the cost of storing 16 staged rows of a warp, of 16 bits (staged_rows.cuh)."""
    vectors = 16 * site["Config::kStagedColumns"] / 8 / WARP
    moved = {f"load_{SHARED}_128": 1, f"store_{GLOBAL}_128": 1, INTEGER: 4}
    return added(times(vectors, moved), {BRANCH: 1})


def _store_transposed(site: Site) -> Counts:
    size = int(site["kPack"]) * site.element
    stores = times(site["kReadVec"], accesses(SHARED, size, store=True))
    return added(stores, {INTEGER: site["kReadVec"] * (site["kPack"] - 1)})


def _converted(site: Site) -> Counts:
    return {CONVERT: 1}


_WAIT: Counts = {BARRIER: 1}
COSTS: Mapping[str, Costs] = {
    "load": _accessed(store=False),
    "load_readonly": _accessed(store=False),
    "load_streaming": _accessed(store=False),
    "store": _accessed(store=True),
    "load_part": _accessed(store=False),
    "store_part": _accessed(store=True),
    "store_relaxed": _accessed(store=True),
    "splat": NO_INSTRUCTIONS,
    "convert": _converted,
    "round_to": {CONVERT: 2},
    "to_float": {CONVERT: 1},
    "copy_async": {COPY: 1, INTEGER: 1},
    "copy_async_16": {COPY: 1, INTEGER: 1},
    "copy_commit": NO_INSTRUCTIONS,
    "copy_wait": NO_INSTRUCTIONS,
    "rows_arrived": {BARRIER: 1},
    "bulk_load": {COPY: 1, INTEGER: 2},
    "prefetch_tensormap": {COPY: 1},
    "cluster_rank": {INTEGER: 1},
    "cluster_sync": _WAIT,
    "named_barrier_sync": _WAIT,
    "fence_barrier_init": NO_INSTRUCTIONS,
    "let_next_kernel_start": NO_INSTRUCTIONS,
    "wait_for_kernels_before": NO_INSTRUCTIONS,
    "dealloc_registers": NO_INSTRUCTIONS,
    "alloc_registers": NO_INSTRUCTIONS,
    "warpgroup_number": {SHUFFLE: 1, INTEGER: 1},
    "combine_each": lambda site: site.combine,
    "block_reduce_rows": _reduced_in_rows,
    "block_reduce_rows_in_turns": lambda site: added(_reduced_in_rows(site), {BARRIER: -1}),
    "block_reduce_columns": _reduced_in_columns,
    "block_reduce_strided": _reduced_in_columns,
    "group_reduce": _reduced_in_group,
    "cluster_reduce": _reduced_in_group,
    "warp_scan": lambda site: {SHUFFLE: 5, FLOAT: 5},
    "scan_span": _scanned_span,
    "scan_warps": _scanned_warps,
    "shuffle_from": {SHUFFLE: 1},
    "atomic_add": {ATOMIC: 1},
    "atomic_max": {ATOMIC: 1},
    "last_block": {ATOMIC: 1, BARRIER: 2, INTEGER: 4, BRANCH: 1},
    "take_ticket": {ATOMIC: 1},
    "take_block_ticket": {ATOMIC: 1, BARRIER: 2, f"load_{SHARED}_32": 1},
    "wait_turn": {f"load_{GLOBAL}_32": 1, BARRIER: 1, BRANCH: 1},
    "release_turn": {f"store_{GLOBAL}_32": 1, BARRIER: 1},
    "check_index": {INTEGER: 2, BRANCH: 1},
    "transposed_offset": {INTEGER: 6},
    "store_transposed": _store_transposed,
    "tile_count": {INTEGER: 2},
    "matmul_tile": {INTEGER: 30},
    "cluster_tile": {INTEGER: 34},
    "matmul_operand": NO_INSTRUCTIONS,
    "init_stages": {BARRIER: 2},
    "load_stages": _loaded_stages,
    "multiply_stages": _multiplied_stages,
    "multiply_steps": _multiplied_steps,
    "multiply_vectors": _multiplied_vectors,
    "attention_mainloop": _attended,
    "load_attention": _loaded_attention,
    "attention_tile": {INTEGER: 20},
    "init_attention": {BARRIER: 10},
    "key_tiles": {INTEGER: 8},
    "visit_scores": {INTEGER: 4},
    "floor_divide": {INTEGER: 12},
    "combine": COMBINED["WelfordMerge"],
    "reciprocal": {FLOAT: 6, SPECIAL: 1},
    "digit_of": {INTEGER: 2},
    "order_key": {INTEGER: 2},
    "entry_of": {INTEGER: 2},
    "key_of": {INTEGER: 1},
    "place_of": {INTEGER: 1},
    "first_item": {INTEGER: 3},
    "shift_of": {INTEGER: 3},
    "is_inside": {INTEGER: 4},
    "is_whole": {INTEGER: 3},
    "rows_of_warp": {INTEGER: 3},
    "store_rows": _stored_rows,
    "visit_pairs": {INTEGER: 6},
}
"""The cost of each function of templates/device, by name."""

METHODS: Mapping[str, Costs] = {
    "ExpSum.push": lambda site: {FLOAT: 7 * site.vector + 5, SPECIAL: site.vector + 3},
    "ExpSum.sum": {FLOAT: 2},
    "Welford.push": {FLOAT: 12, SPECIAL: 1},
    "Welford.variance": {FLOAT: 8, SPECIAL: 1},
    "Indexed.position": {INTEGER: 1},
    ".begin_at": {INTEGER: 3},
    ".end_at": {INTEGER: 3},
}
"""The cost of methods, by the declared type of their object."""

IN_C: Mapping[str, Counts] = {
    "fmaf": {FLOAT: 1},
    "fminf": {FLOAT: 1},
    "fmaxf": {FLOAT: 1},
    "min": {INTEGER: 1},
    "max": {INTEGER: 1},
    "__syncthreads": _WAIT,
    "__syncwarp": NO_INSTRUCTIONS,
    "__ballot_sync": {INTEGER: 1},
}
"""The cost of CUDA functions that are not operations."""

_NOT = (
    "attention.cuh", "attention_backward.cuh", "attention_decode.cuh", "attention_scores.cuh",
    "block_scales.cuh", "combine_in_bulk.cuh", "computed_rows.cuh", "dual_rows.cuh",
    "matmul_computed.cuh", "matmul_converted.cuh", "matmul_fragments.cuh", "matmul_groups.cuh",
    "matmul_promoted.cuh", "matmul_stream_k.cuh", "matmul_share.cuh", "matmul_simt.cuh",
    "matmul_slices.cuh", "matmul_swap_ab.cuh", "matmul_tail.cuh", "matmul_tf32.cuh",
    "matmul_semaphores.cuh", "matmul_gemv_computed.cuh", "matmul_weights.cuh",
    "matmul_weights_across.cuh", "scan_tiles.cuh", "shifted_rows.cuh", "summed_pairs.cuh",
    "topk.cuh",
)  # fmt: skip
NOT_COUNTED: frozenset[str] = frozenset(
    [n for n, header in HEADERS.items() if header in _NOT and n not in COSTS]
    + [
        "cluster_load", "copy_elements", "copy_rows", "copy_vector", "count_digit", "erfcinv",
        "erfinv", "fetch_rows", "lane_row", "load_across", "load_tile_rows", "load_tile_transposed",
        "random_words", "rank_digits", "scan_threads_y", "shifted", "skip_stages", "sort_tile",
        "store_accumulators", "store_tile_rows", "sum_slices_of", "sum_warps", "visit_pieces",
        "wait_for_first_tile", "wait_for_rows", "wgmma",
    ]
)  # fmt: skip
"""Functions that are not counted yet."""


@cache
def of_operations() -> Mapping[str, Counts]:
    """Return the costs of the functions of operations, by the names that kernels call."""
    found: dict[str, Counts] = {}
    for op in TABLE.values():
        for formula in op.cuda.values():
            call = parsed(formula) if "{" in formula else None
            if not isinstance(call, Call):
                continue
            is_integer = HEADERS.get(device_name(call.function)) == "wrap.cuh"
            kind = INTEGER if is_integer else FLOAT
            cost = {kind: op.cost.flops, SPECIAL: op.cost.sfu}
            # Of several operations with one function, prefer the one of the same name to aliases.
            if call.function not in found or device_name(call.function) == op.name:
                found[call.function] = {name: count for name, count in cost.items() if count}
    return found


def cost_of(function: str, site: Site) -> Cost | None:
    """Return the cost of a call; None if it is not counted or its arguments are unknown."""
    own = device_name(function)
    tables = (COSTS,) if own else (IN_C, METHODS)
    found = next((table[own or function] for table in tables if (own or function) in table), None)
    if found is None:
        found = of_operations().get(function)
    if found is None:
        return None
    try:
        cost = found(site) if callable(found) else found
    except UnknownNumber:
        return None
    return cost if isinstance(cost, Cost) else Cost(cost)
