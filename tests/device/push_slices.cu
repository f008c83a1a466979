// Calls every function of push_slices.cuh.
#include "push_slices.cuh"

extern "C" __global__ void kernel(const float* x, float* y, const fusec::PushSum how) {
  fusec::push_slices(x, y, how, blockIdx.x, gridDim.x);
}
