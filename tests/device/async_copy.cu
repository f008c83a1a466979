#include "async_copy.cuh"

extern "C" __global__ void kernel(float* target, const float* source, int count) {
  __shared__ __align__(16) float tile[512];
  const int place = threadIdx.x * 4;
  fusec::copy_async_16(tile + place, source + place);
  fusec::copy_commit();
  fusec::copy_async_16(tile + 256 + place, source + place, place < count);
  fusec::copy_async_16_of_line(tile + 256 + place, source + place, place < count);
  fusec::copy_async_16_of_line(tile + 256 + place, source + place, place < count,
                               fusec::l2_evict_first());
  fusec::copy_async<8>(tile + place, source + place, place < count);
  fusec::copy_async<4>(tile + place, source + place, place < count);
  fusec::copy_commit();
  fusec::copy_wait<1>();
  fusec::copy_wait<0>();
  __syncthreads();
  target[threadIdx.x] = tile[threadIdx.x ^ 1];
}
