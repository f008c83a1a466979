#include "math.cuh"

namespace {

template <class T>
__device__ T common(T a, T b, T c) {
  T sum = fusec::maximum(a, b) + fusec::minimum(a, b) + fusec::clamp(a, b, c);
  sum += fusec::fmod(a, b) + fusec::remainder(a, b) + fusec::truncated_divide(a, b);
  return sum + fusec::floor_divide(a, b) + fusec::pow(a, b) + fusec::sign(a) + fusec::relu(c);
}

template <class T>
__device__ void integers(void* data) {
  T* values = static_cast<T*>(data);
  values[0] = common(values[1], values[2], values[3]) + fusec::gcd(values[4], values[5]) +
              fusec::ceil_divide(values[6], values[5]) +
              fusec::logical_right_shift(values[6], values[7]) +
              fusec::right_shift(values[8], values[9]) + fusec::left_shift(values[8], values[9]);
}

template <class T>
__device__ void floats(void* data) {
  T* values = static_cast<T*>(data);
  const T a = values[1], b = values[2];
  values[0] = common(a, b, values[3]) + fusec::sigmoid(a) + fusec::silu(a) + fusec::reciprocal(a) +
              fusec::frac(a) + fusec::round_half_even(a) + fusec::lerp(a, b, values[4]) +
              fusec::erfinv(a) + fusec::erfcinv(a) + fusec::nextafter(a, b) +
              fusec::ieee_remainder(a, b);
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  floats<float>(data);
  floats<double>(data);
  float* values = static_cast<float*>(data);
  values[0] = fusec::divide(values[1], values[2]);
  integers<fusec::i8>(data);
  integers<fusec::i16>(data);
  integers<fusec::i32>(data);
  integers<fusec::i64>(data);
  integers<fusec::u8>(data);
  integers<fusec::u16>(data);
  integers<fusec::u32>(data);
  integers<fusec::u64>(data);
}
