#include "tma.cuh"

extern "C" __global__ void kernel(const __grid_constant__ fusec::TensorMap map, float* data) {
  __shared__ __align__(1024) float tile[1024];
  __shared__ fusec::Barrier barrier;
  if (threadIdx.x != 0) return;
  fusec::prefetch_tensormap(&map);
  barrier.init(1);
  fusec::fence_barrier_init();
  fusec::bulk_load(tile, data, 512, &barrier);
  fusec::bulk_load(tile, data, 512, &barrier, fusec::l2_evict_first());
  fusec::tensor_load_2d(tile, &map, 0, 8, &barrier);
  fusec::tensor_load_2d(tile, &map, 0, 8, &barrier, fusec::l2_evict_last());
  fusec::tensor_load_2d_multicast(tile, &map, 0, 8, &barrier, 3);
  fusec::tensor_load_3d(tile, &map, 0, 8, 1, &barrier);
  fusec::tensor_load_3d(tile, &map, 0, 8, 1, &barrier, fusec::l2_evict_first());
  fusec::tensor_load_3d_multicast(tile, &map, 0, 8, 1, &barrier, 3);
  fusec::bulk_store(data, tile, 512);
  fusec::tensor_store_2d(&map, tile, 0, 8);
  fusec::tensor_store_3d(&map, tile, 0, 8, 1);
  fusec::commit_group();
  fusec::wait_group<0>();
}
