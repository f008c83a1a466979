#include "cluster.cuh"

extern "C" __global__ void kernel(void* data) {
  __shared__ fusec::Barrier arrived;
  __shared__ fusec::Vec<fusec::u32, 2> words;
  __shared__ float4 sums;
  float* values = static_cast<float*>(data);
  if (threadIdx.x == 0) {
    arrived.init(1);
    fusec::fence_barrier_init();
    sums = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
  }
  fusec::cluster_sync();
  const fusec::u32 rank = fusec::cluster_rank();
  if (threadIdx.x == 0) {
    arrived.arrive_expect_tx(8);
    fusec::cluster_send(&words, fusec::splat<fusec::u32, 2>(rank), &arrived, rank);
  }
  arrived.wait_cluster(0);
  values[threadIdx.x] = fusec::cluster_load(&sums, rank).w;
  values[threadIdx.x] += fusec::cluster_load(&words[0], rank);
  values[threadIdx.x] += fusec::cluster_address(&words, rank) != 0;
  fusec::cluster_sync();
}
