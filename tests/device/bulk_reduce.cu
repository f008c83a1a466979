#include "bulk_reduce.cuh"

namespace {

template <class T>
__device__ void add(void* target, const void* tile) {
  fusec::bulk_reduce_add(static_cast<T*>(target), static_cast<const T*>(tile), 64);
}

template <class T>
__device__ void extremes(void* target, const void* tile) {
  fusec::bulk_reduce_max(static_cast<T*>(target), static_cast<const T*>(tile), 64);
  fusec::bulk_reduce_min(static_cast<T*>(target), static_cast<const T*>(tile), 64);
}

}  // namespace

extern "C" __global__ void kernel(const __grid_constant__ fusec::TensorMap map, void* target) {
  __shared__ __align__(128) float tile[256];
  tile[threadIdx.x] = threadIdx.x;
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x != 0) return;
  add<float>(target, tile);
  add<double>(target, tile);
  add<fusec::f16>(target, tile);
  add<fusec::bf16>(target, tile);
  add<fusec::i32>(target, tile);
  add<fusec::u32>(target, tile);
  add<fusec::i64>(target, tile);
  add<fusec::u64>(target, tile);
  extremes<fusec::f16>(target, tile);
  extremes<fusec::bf16>(target, tile);
  extremes<fusec::i32>(target, tile);
  extremes<fusec::i64>(target, tile);
  fusec::bulk_reduce_max(static_cast<fusec::u32*>(target),
                         reinterpret_cast<const fusec::u32*>(tile), 64);
  fusec::bulk_reduce_max(static_cast<fusec::u64*>(target),
                         reinterpret_cast<const fusec::u64*>(tile), 64);
  fusec::tensor_reduce_add_2d(&map, tile, 0, 8);
  fusec::tensor_reduce_add_3d(&map, tile, 0, 8, 1);
  fusec::commit_group();
  fusec::wait_group<0>();
}
