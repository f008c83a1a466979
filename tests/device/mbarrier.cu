#include "mbarrier.cuh"

extern "C" __global__ void kernel(int* target) {
  __shared__ fusec::Barrier barriers[2];
  if (threadIdx.x == 0) {
    barriers[0].init(1);
    barriers[1].init(32);
    fusec::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barriers[0].expect_tx(16);
    barriers[0].arrive_expect_tx(16);
  }
  barriers[1].arrive();
  barriers[1].arrive_at(0);
  barriers[1].wait(0);
  barriers[1].wait_cluster(1);
  target[threadIdx.x] = barriers[0].try_wait(0);
  __syncthreads();
  if (threadIdx.x == 0) barriers[1].invalidate();
}
