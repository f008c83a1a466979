#include "named_barrier.cuh"

extern "C" __global__ void kernel(void* data) {
  fusec::named_barrier_sync<128>(1 + threadIdx.x / 128);
}
