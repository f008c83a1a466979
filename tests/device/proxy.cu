#include "proxy.cuh"

extern "C" __global__ void kernel(int* target) {
  __shared__ int tile[32];
  tile[threadIdx.x] = threadIdx.x;
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();
  if (fusec::elect_one()) {
    fusec::fence_proxy_async();
    fusec::fence_proxy_async_global();
    fusec::commit_group();
    fusec::wait_group_read<1>();
    fusec::wait_group<0>();
  }
  target[threadIdx.x] = tile[threadIdx.x ^ 1];
}
