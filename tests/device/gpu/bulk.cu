// Bulk copies in and out, and the reducing copy: target += source from every block, copy = source.
#include "bulk_reduce.cuh"
#include "types.cuh"

extern "C" __global__ void bulk(const ELEMENT* source, ELEMENT* target, ELEMENT* copy) {
  constexpr int kCount = 1024;
  __shared__ __align__(128) ELEMENT tile[kCount];
  __shared__ fusec::Barrier barrier;
  if (threadIdx.x == 0) {
    barrier.init(1);
    fusec::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier.arrive_expect_tx(sizeof(tile));
    fusec::bulk_load(tile, source, sizeof(tile), &barrier, fusec::l2_evict_last());
  }
  barrier.wait(0);
  // An ordinary write that the copy engine must see.
  if (threadIdx.x < 8) tile[threadIdx.x] = source[threadIdx.x + 8];
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    fusec::bulk_reduce_add(target, tile, sizeof(tile));
    if (blockIdx.x == 0) fusec::bulk_store(copy, tile, sizeof(tile));
    fusec::commit_group();
    fusec::wait_group<0>();
  }
}
