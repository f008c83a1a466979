#include "named_barrier.cuh"

extern "C" __global__ void kernel(void* data) {
  fusec::named_barrier_sync<128>(1 + threadIdx.x / 128);
  if (threadIdx.x < 128) fusec::named_barrier_arrive<256>(3);
  if (threadIdx.x >= 128) fusec::named_barrier_sync<256>(3);
}
