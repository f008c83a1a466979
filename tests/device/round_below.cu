#include "round_below.cuh"

extern "C" __global__ void kernel(const float* numbers, const double* wide, float* out,
                                  double* wide_out) {
  const int i = threadIdx.x;
  const float low = numbers[0], high = numbers[1], number = numbers[i];
  out[i] = fusec::round_below<fusec::f16>(number, low, high) +
           fusec::round_below<fusec::bf16>(number, low, high) +
           fusec::round_below<fusec::f8e4m3>(number, low, high) +
           fusec::round_below<fusec::f8e5m2>(number, low, high) +
           fusec::round_below<float>(number, low, high);
  wide_out[i] = fusec::round_below<double>(wide[i], wide[0], wide[1]);
}
