// Sums of columns that blocks share, by the reducing bulk copy (sm_90): each block adds its part to
// floats in memory, which hold zeros before. In turns the sums are the same from run to run; in the
// order of arrival they need not be. See bulk_reduce.cuh for the rules.
#pragma once

#include "bulk_reduce.cuh"
#include "grid.cuh"
#include "proxy.cuh"
#include "vector.cuh"

namespace fusec {

// Adds the parts of the first row of a block's threads, one after the other in memory. All threads
// of the block call together; when it returns the sums are there.
template <int kThreadsX, int N>
__device__ __forceinline__ void add_in_bulk(Vec<float, N>* sums, const Vec<float, N>& part) {
  __shared__ __align__(16) float tile[kThreadsX * N];
  if (threadIdx.y == 0) {
#pragma unroll
    for (int i = 0; i < N; ++i) tile[threadIdx.x * N + i] = part[i];
  }
  fence_proxy_async_shared_cta();
  __syncthreads();
  if (is_first_thread()) {
    fence_proxy_async();
    bulk_reduce_add(reinterpret_cast<float*>(sums), tile, sizeof(tile));
    commit_group();
    wait_group<0>();
  }
  __syncthreads();
}

}  // namespace fusec
