// Mean and variance of each row of a matrix, one block of 256 threads a row.
#include "reduce.cuh"
#include "welford.cuh"

extern "C" __global__ void moments(const float* source, float* target, int columns) {
  fusec::Welford<float> state = fusec::Welford<float>::empty();
  for (int i = threadIdx.x; i < columns; i += 256) {
    state.push(source[blockIdx.x * columns + i]);
  }
  state = fusec::block_reduce<fusec::WelfordMerge<float>, 256>(state);
  target[2 * blockIdx.x] = state.mean;
  target[2 * blockIdx.x + 1] = state.variance(0.0f);
}
