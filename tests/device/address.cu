#include "address.cuh"

extern "C" __global__ void kernel(fusec::u32* target) {
  __shared__ float tile[4];
  tile[threadIdx.x] = threadIdx.x;
  target[threadIdx.x] = fusec::shared_address(tile) + tile[1];
}
