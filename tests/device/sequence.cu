#include "sequence.cuh"

extern "C" __global__ void kernel(double* values) {
  values[threadIdx.x] = fusec::at_step(values[0], 0.5, threadIdx.x);
}
