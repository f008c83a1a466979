// One conversion of a whole array: FROM and TO are defined by the test.
#include "types.cuh"

extern "C" __global__ void convert(const FROM* source, TO* target, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    target[i] = fusec::convert<TO>(source[i]);
  }
}
