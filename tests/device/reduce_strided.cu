#include "reduce_strided.cuh"

extern "C" __global__ void kernel(float* data) {
  float value = data[threadIdx.x];
  value = fusec::block_reduce_strided<fusec::Sum<float>, 8, 32>(value);
  value = fusec::block_reduce_strided<fusec::Max<float>, 256, 1>(value);
  value = fusec::block_reduce_strided<fusec::Min<float>, 128, 2>(value);
  if (threadIdx.x < 8) data[threadIdx.x] = value;
}
