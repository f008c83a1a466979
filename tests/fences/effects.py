"""What each device function that holds an instruction of memory or order does, by its parameters.

Everything else in the device headers is followed into its body. Facts about the instructions are
those of the PTX ISA: "Memory Consistency Model", "Async proxy", "mbarrier", "Data Movement".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """An effect; numbers are the places of parameters.

    `kind` names the method of the walk that does it. `shared` is the pointer into shared memory,
    `bytes` how much (a place, or `T:name` for a template argument), `barrier` the mbarrier that
    completion is told to, `target` what a global write goes to, `flag` a counter.
    """

    kind: str
    shared: int | None = None
    bytes: int | None = None
    barrier: int | None = None
    target: int | None = None
    count: int | None = None


PURE = Effect("pure")
EFFECTS: dict[str, Effect] = {
    # proxy.cuh: a fence orders this thread's own accesses of the two proxies; nothing else's.
    "fence_proxy_async_shared_cta": Effect("fence_shared"),
    "fence_proxy_async": Effect("fence_all"),
    "fence_proxy_async_global": Effect("fence_global"),
    "commit_group": Effect("bulk_commit"),
    "wait_group": Effect("bulk_wait"),
    "wait_group_read": Effect("bulk_wait_read"),
    "elect_one": Effect("elect"),
    # mbarrier.cuh
    "Barrier::init": Effect("barrier_init", count=0),
    "Barrier::invalidate": Effect("barrier_invalidate"),
    "Barrier::arrive": Effect("barrier_arrive"),
    "Barrier::arrive_expect_tx": Effect("barrier_arrive", bytes=0),
    "Barrier::expect_tx": Effect("barrier_expect", bytes=0),
    "Barrier::arrive_at": Effect("barrier_arrive_remote"),
    "Barrier::try_wait": Effect("barrier_try_wait", count=0),
    "Barrier::wait": Effect("barrier_wait", count=0),
    "Barrier::wait_cluster": Effect("barrier_wait", count=0),
    "fence_barrier_init": Effect("fence_barrier_init"),
    # tma.cuh and bulk_reduce.cuh: loads write shared memory by the async proxy and complete on a
    # barrier; stores and reductions read it by the async proxy and complete in bulk groups.
    "prefetch_tensormap": PURE,
    "l2_evict_first": PURE,
    "l2_evict_last": PURE,
    "bulk_load": Effect("async_load", shared=0, bytes=2, barrier=3),
    "tensor_load_2d": Effect("async_load", shared=0, barrier=4),
    "tensor_load_2d_multicast": Effect("async_load", shared=0, barrier=4),
    "tensor_load_3d": Effect("async_load", shared=0, barrier=5),
    "tensor_load_3d_multicast": Effect("async_load", shared=0, barrier=5),
    "tensor_load_4d": Effect("async_load", shared=0, barrier=6),
    "load_operand": Effect("load_operand", shared=0, barrier=2),  # its boxes are known, see there
    "bulk_store": Effect("async_store", shared=1, bytes=2, target=0),
    "tensor_store_2d": Effect("async_store", shared=1, target=0),
    "tensor_store_3d": Effect("async_store", shared=1, target=0),
    "bulk_reduce_add": Effect("async_store", shared=1, bytes=2, target=0),
    "bulk_reduce_max": Effect("async_store", shared=1, bytes=2, target=0),
    "bulk_reduce_min": Effect("async_store", shared=1, bytes=2, target=0),
    "tensor_reduce_add_2d": Effect("async_store", shared=1, target=0),
    "tensor_reduce_add_3d": Effect("async_store", shared=1, target=0),
    # wgmma.cuh: operands are read by the async proxy, accumulators belong to it until the wait.
    "wgmma_fence": Effect("wgmma_fence"),
    "wgmma_commit": Effect("wgmma_commit"),
    "wgmma_wait": Effect("wgmma_wait"),
    "wgmma_pin": PURE,
    "warpgroup_number": Effect("warpgroup"),
    "own_lane": PURE,
    "rows_of_warp": PURE,  # each warp has its own, in the order of its lanes: left to the emulator
    "wgmma": Effect("wgmma"),  # descriptors hide the addresses: kernels call multiply_stage
    "wgmma_registers": Effect("wgmma"),
    "wgmma_fp8": Effect("wgmma"),
    "wgmma_tf32": Effect("wgmma"),
    "wgmma_converted": Effect("wgmma"),
    "multiply_stage": Effect("multiply_stage", shared=1),
    "multiply_stage_fp8": Effect("multiply_stage", shared=1),
    "multiply_tile": PURE,  # attention_decode.cuh: kernels with it are left to the emulator
    "add_values": PURE,
    "dealloc_registers": PURE,
    "alloc_registers": PURE,
    # async_copy.cuh and matmul_fill.cuh: cp.async writes shared memory by the generic proxy, later.
    "copy_async_16": Effect("copy_async", shared=0, bytes=16),
    "copy_async_16_of_line": Effect("copy_async", shared=0, bytes=16),
    "copy_async_16_bytes": Effect("copy_async", shared=0, bytes=16),
    "copy_async": Effect("copy_async", shared=0, bytes=4),
    # row_tile.cuh: a block's run of elements; which thread copies what is left to the emulator.
    "load_tile_rows": Effect("load_tile_rows", shared=0),
    "store_tile_rows": Effect("store_tile_rows", shared=1),
    "shift_of": Effect("no_shift"),  # as if the run began at a vector
    "copy_commit": Effect("copy_commit"),
    "copy_wait": Effect("copy_wait"),
    # grid.cuh: order between blocks, at gpu scope.
    "load_acquire": Effect("acquire", target=0),
    "store_release": Effect("release", target=0),
    "take_ticket": Effect("ticket"),  # tells a number, and nothing of what others wrote
    "add_release": Effect("exchange", target=0),
    "count_and_wrap": Effect("exchange", target=0),
    # system.cuh and push_sum.cuh: order between GPUs. Lines with a number are left to the emulator.
    "load_acquire_system": Effect("acquire", target=0),
    "store_release_system": Effect("release", target=0),
    "store_line": PURE,
    "load_line": PURE,
    # cluster.cuh and named_barrier.cuh
    "cluster_rank": Effect("uniform"),
    "cluster_sync": Effect("cluster_sync"),
    "cluster_address": PURE,
    "cluster_load": Effect("cluster_load", shared=0),
    "cluster_send": Effect("cluster_send", barrier=2),
    "named_barrier_sync": Effect("named_barrier"),
    "named_barrier_arrive": PURE,  # of warpgroups that take turns: left to the emulator
    # mma.cuh: ldmatrix and stmatrix are ordinary accesses of 16 bytes for each lane.
    "ldmatrix_x4": Effect("read", shared=1, bytes=16),
    "ldmatrix_x2": Effect("read", shared=1, bytes=16),
    "ldmatrix_x4_trans": Effect("read", shared=1, bytes=16),
    "ldmatrix_x2_trans": Effect("read", shared=1, bytes=16),
    "stmatrix_x4": Effect("write", shared=0, bytes=16),
    "stmatrix_x2": Effect("write", shared=0, bytes=16),
    "stmatrix_x4_trans": Effect("write", shared=0, bytes=16),
    "mma_16816": PURE,
    "mma_1688": PURE,
    # vector.cuh: kN elements.
    "load": Effect("read", shared=0),
    "load_readonly": Effect("read_constant", shared=0),
    "combine_warps": Effect("read", shared=0),  # the same in all threads of a row
    "load_streaming": Effect("read", shared=0),
    "store": Effect("write", shared=0),
    "store_transposed": Effect("write", shared=0),
    "store_streaming": Effect("write", shared=0),
    # topk.cuh: no two entries have one rank; they are read beside the call, too.
    "rank_of": PURE,
    # scatter.cuh: adds to global memory in any order.
    "atomic_add": Effect("atomic", shared=0),
    "atomic_max": Effect("atomic", shared=0),
    # check_index.cuh: notes a wrong index for the host, which reads it after the launch.
    "check_index": PURE,
    # The language's own.
    "__syncthreads": Effect("block_barrier"),
    "__syncwarp": Effect("warp_barrier"),
    "__threadfence": Effect("thread_fence"),
    "atomicAdd": Effect("atomic", shared=0),
    "atomicMax": Effect("atomic", shared=0),
    "__ldg": Effect("read_constant", shared=0),
    "__ldcg": Effect("read", shared=0),
    "__ldcs": Effect("read", shared=0),
    "__stcs": Effect("write", shared=0),
}
