"""The device functions, types and constants that kernels use: their headers and their accesses.

They are declared here rather than parsed from the headers; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from fusec.diagnostics import InternalError

NAMESPACE = "fusec::"
DECLARED: Mapping[str, str] = {
    "async_copy.cuh": "copy_async copy_async_16 copy_commit copy_wait",
    "attention.cuh": (
        "AttentionPlace AttentionTile KeyRange attention_mainloop attention_tile init_attention "
        "key_tiles load_attention"
    ),
    "attention_backward.cuh": (
        "OwnedTiles clear exponent_of_two init_walk keep_products load_walk "
        "stage_query_values walk weigh_products"
    ),
    "attention_decode.cuh": (
        "DecodeParts DecodeSums DecodeWhole KeySpan copy_rows decode store_block_partial "
        "store_partial tiles_of visit_parts"
    ),
    "attention_scores.cuh": "offset_of rounded_sum small_to_float visit_scores",
    "block_scales.cuh": "BlockScales PlainZeroPoints Unscaled zero_points",
    "check_index.cuh": "check_index",
    "classify.cuh": "isfinite isinf isnan isneginf isposinf isreal signbit",
    "cluster.cuh": "cluster_load cluster_rank cluster_sync",
    "combine.cuh": "All Any ArgMax ArgMin Indexed Max Min Prod Sum",
    "combine_in_bulk.cuh": "InMemory combine_in_bulk combine_last parts_of_block take_combined",
    "computed_rows.cuh": "computed_rows kComputed",
    "fast_math.cuh": "exp2_approx exp_approx gelu_approx sigmoid_approx silu_approx tanh_approx",
    "grid.cuh": "last_block release_turn take_block_ticket take_ticket wait_turn",
    "dual_rows.cuh": "visit_dual_pairs",
    "math.cuh": (
        "ceil_divide clamp divide erfcinv erfinv floor_divide fmod frac gcd left_shift lerp "
        "logical_right_shift maximum minimum nextafter pow reciprocal relu remainder "
        "right_shift sigmoid sign silu truncated_divide"
    ),
    "matmul_computed.cuh": "fill_stages kFillers",
    "matmul_converted.cuh": "multiply_converted prefetch_factors",
    "matmul_fragments.cuh": "visit_blocks",
    "matmul_groups.cuh": "group_elements group_of_tile",
    "matmul_hopper.cuh": (
        "PlainPipeline TileSource init_stages kTurns load_stages multiply_stages skip_stages "
        "wait_for_first_tile"
    ),
    "matmul_mma.cuh": "multiply_steps",
    "matmul_promoted.cuh": "multiply_promoted",
    "matmul_stream_k.cuh": "free_ring is_second step_range unknown_zero wait_for_ring",
    "matmul_share.cuh": (
        "neighbours_of_fragment quad_of_fragment quad_of_share store_tile visit_quad visit_share"
    ),
    "matmul_simt.cuh": "multiply_micro visit_micro",
    "matmul_slices.cuh": (
        "add_share is_last_slice store_fragments store_slice sum_slices sum_slices_in_groups "
        "take_sums"
    ),
    "matmul_swap_ab.cuh": "visit_swap_ab",
    "matmul_tail.cuh": "sum_parts tile_unit tile_units",
    "matmul_tf32.cuh": "multiply_tf32_steps",
    "matmul_tile.cuh": "matmul_operand matmul_tile cluster_tile tile_count",
    "matmul_semaphores.cuh": (
        "add semaphore_release semaphore_release_stores read_tile sum_over_cluster semaphore_wait"
    ),
    "matmul_gemv.cuh": (
        "lane_row store_accumulators multiply_vectors sum_slices_of sum_warps visit_pieces"
    ),
    "matmul_gemv_computed.cuh": "multiply_computed_vectors",
    "matmul_weights.cuh": "multiply_weight_vectors",
    "matmul_weights_across.cuh": "multiply_weights_across",
    "mbarrier.cuh": "Barrier fence_barrier_init",
    "named_barrier.cuh": "named_barrier_sync",
    "online.cuh": "ExpSum ExpSumMerge",
    "overlap.cuh": "let_next_kernel_start wait_for_kernels_before",
    "philox.cuh": "random_words normal_f32 normal_f64 uniform_f32 uniform_f64",
    "push_rows.cuh": "PushedRows",
    "push_sum.cuh": "PushSum",
    "reduce.cuh": "block_reduce_columns block_reduce_rows combine_each",
    "reduce_group.cuh": "cluster_reduce group_reduce",
    "reduce_in_turns.cuh": "block_reduce_rows_in_turns",
    "reduce_strided.cuh": "block_reduce_strided",
    "round_below.cuh": "round_below",
    "rounding.cuh": "round_to",
    "row_tile.cuh": "load_tile_rows load_tile_transposed store_tile_rows rows_arrived",
    "scan.cuh": "scan_span scan_threads_y scan_warps warp_scan",
    "scan_tiles.cuh": "before_tile kGroup totals_of_row",
    "scatter.cuh": "atomic_add atomic_max store_relaxed",
    "sequence.cuh": "at_step",
    "shifted.cuh": (
        "copy_elements copy_vector is_inside is_whole kStreaming load_across load_part shift_of "
        "shifted "
        "store_part"
    ),
    "shifted_rows.cuh": "store_shifted_rows visit_elements",
    "shuffle.cuh": "kFullWarp shuffle_from",
    "softmax_rows.cuh": "SoftmaxRows",
    "sort.cuh": (
        "SortedTile count_digit digit_of first_item kDigits order_key rank_digits sort_tile"
    ),
    "staged_rows.cuh": "fetch_rows rows_of_warp store_rows visit_pairs wait_for_rows",
    "storage.cuh": "bf16 f16 f8e4m3 f8e5m2 i16 i32 i64 i8 u16 u32 u64 u8",
    "summed_pairs.cuh": "ColumnTotals RowTotals visit_summed_pairs",
    "tf32.cuh": "round_to_tf32",
    "tma.cuh": "TensorMap bulk_load prefetch_tensormap",
    "topk.cuh": (
        "Selection begin_selection end_selection entry_of kNoEntry kNoKey key_of push_tile "
        "place_of sort_own take_smallest prune"
    ),
    "transposed.cuh": "store_transposed transposed_offset",
    "types.cuh": "convert to_float",
    "vector.cuh": "Vec load load_readonly load_streaming splat store",
    "warpgroup_order.cuh": "WarpgroupTurns",
    "weights.cuh": "Bytes Lifted Nibbles",
    "welford.cuh": "Welford WelfordMerge combine",
    "wgmma.cuh": "dealloc_registers alloc_registers warpgroup_number wgmma",
    "wgmma_tf32.cuh": "Tf32",
    "wrap.cuh": "wrapping_abs wrapping_add wrapping_mul wrapping_neg wrapping_sub",
}
"""The names that kernels use from each header of templates/device."""

HEADERS: Mapping[str, str] = {
    name: header for header, names in DECLARED.items() for name in names.split()
}
"""The header that declares each name."""


CONSTANTS: Mapping[str, int] = {f"{NAMESPACE}kComputed": 8, f"{NAMESPACE}kDigits": 256}
"""The constants of headers that are iteration counts."""


_PURE_HEADERS = (
    "classify.cuh", "fast_math.cuh", "math.cuh", "round_below.cuh", "rounding.cuh", "sequence.cuh",
    "tf32.cuh", "types.cuh", "vector.cuh", "wrap.cuh",
)  # fmt: skip
PURE = frozenset(n for h in _PURE_HEADERS for n in DECLARED[h].split()) - {"store"}
"""The functions without side effects: they only compute, or load, their result."""


def device_name(name: str) -> str:
    """Return fusec's own name at the start of a qualified one; empty for a name of C.

    `convert` for `fusec::convert`, and `SortedTile` for `fusec::SortedTile::first`.
    """
    namespace, _, rest = name.partition("::")
    return rest.partition("::")[0] if f"{namespace}::" == NAMESPACE else ""


def header_of(name: str) -> str:
    """Return the header that declares a name, without its namespace.

    Raises InternalError for one that no header declares.
    """
    if name not in HEADERS:
        raise InternalError(f"no device header is declared to have `{name}`")
    return HEADERS[name]


def is_function(name: str) -> bool:
    """Return whether a name that a header declares is a function, not a type or a constant."""
    is_constant = name[0] == "k" and name[1].isupper()
    return not (name[0].isupper() or is_constant or header_of(name) == "storage.cuh")


class Access(Enum):
    """The alignment that a device function requires of a pointer argument.

    VECTOR: of a vector with as many elements as its first template argument; STORED: of the vector
    that it stores; ELEMENTS: of one element, since it handles unaligned vectors; TILE: of the
    vectors of `kVec` elements that threads read from the tile; LAST: of a vector with as many
    elements as its last template argument.
    """

    VECTOR = "vector"
    STORED = "stored"
    ELEMENTS = "elements"
    TILE = "tile"
    LAST = "last"


ACCESSES: Mapping[str, Access] = {
    "load": Access.VECTOR,
    "load_readonly": Access.VECTOR,
    "load_streaming": Access.VECTOR,
    "store": Access.STORED,
    "is_inside": Access.ELEMENTS,
    "load_across": Access.ELEMENTS,
    "copy_vector": Access.ELEMENTS,
    "copy_elements": Access.ELEMENTS,
    "load_tile_rows": Access.TILE,
    "store_tile_rows": Access.TILE,
    "shift_of": Access.TILE,
    "load_tile_transposed": Access.LAST,
}
"""The requirements of functions on pointers to memory; other uses require the widest access."""
