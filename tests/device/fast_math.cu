#include "fast_math.cuh"

extern "C" __global__ void kernel(const float* x, float* y, double* wide) {
  const float value = x[threadIdx.x];
  float sum = fusec::exp2_approx(value) + fusec::exp_approx(value);
  sum += fusec::reciprocal_approx(value) + fusec::sigmoid_approx(value);
  sum += fusec::tanh_approx(value);
  y[threadIdx.x] = sum + fusec::silu_approx(value) + fusec::gelu_approx(value);
  wide[threadIdx.x] = fusec::gelu_approx(static_cast<double>(value));
}
