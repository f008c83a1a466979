// The arithmetic of the device headers, built for the host: what needs no CUDA instruction.
// Inline PTX is cut out, so only functions without it are exported.
#include <cmath>
#include <cstring>

#define __device__
#define __host__
#define __forceinline__ inline
#define asm(...)

static unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
static float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
static float __int_as_float(int bits) { return __uint_as_float(bits); }
static int __double2hiint(double value) {
  long long bits;
  std::memcpy(&bits, &value, 8);
  return static_cast<int>(bits >> 32);
}
static float erfinvf(float x) { return x; }
static float erfcinvf(float x) { return x; }
static double erfinv(double x) { return x; }
static double erfcinv(double x) { return x; }

#undef INFINITY
#undef NAN
#include "fp8.cuh"
#include "math.cuh"
#include "welford.cuh"

#define EACH(TYPE)                                                                      \
  void integers_##TYPE(long long count, const fusec::TYPE* a, const fusec::TYPE* b,     \
                       fusec::TYPE* out) {                                              \
    for (long long i = 0; i < count; ++i) {                                             \
      out[i] = fusec::floor_divide(a[i], b[i]);                                         \
      out[count + i] = fusec::remainder(a[i], b[i]);                                    \
      out[2 * count + i] = fusec::truncated_divide(a[i], b[i]);                         \
      out[3 * count + i] = fusec::fmod(a[i], b[i]);                                     \
      out[4 * count + i] = fusec::gcd(a[i], b[i]);                                      \
      out[5 * count + i] = fusec::sign(a[i]);                                           \
      out[6 * count + i] =                                                              \
          fusec::pow(a[i], static_cast<fusec::TYPE>(static_cast<unsigned>(b[i]) % 5u)); \
      const fusec::TYPE distance = static_cast<unsigned>(b[i]) % 70u;                   \
      out[7 * count + i] = fusec::logical_right_shift(a[i], distance);                  \
      out[8 * count + i] = fusec::right_shift(a[i], distance);                          \
      out[9 * count + i] = fusec::left_shift(a[i], distance);                           \
    }                                                                                   \
  }

extern "C" {
EACH(i32)
EACH(i64)
EACH(u8)

void doubles(long long count, const double* a, const double* b, double* out) {
  for (long long i = 0; i < count; ++i) {
    out[i] = fusec::floor_divide(a[i], b[i]);
    out[count + i] = fusec::remainder(a[i], b[i]);
    out[2 * count + i] = fusec::truncated_divide(a[i], b[i]);
    out[3 * count + i] = fusec::fmod(a[i], b[i]);
    out[4 * count + i] = fusec::maximum(a[i], b[i]);
    out[5 * count + i] = fusec::minimum(a[i], b[i]);
    out[6 * count + i] = fusec::sign(a[i]);
    out[7 * count + i] = fusec::frac(a[i]);
    out[8 * count + i] = fusec::round_half_even(a[i]);
    out[9 * count + i] = fusec::isnan(a[i]) + 2 * fusec::isposinf(a[i]) +
                         4 * fusec::isneginf(a[i]) + 8 * fusec::isfinite(a[i]) +
                         16 * fusec::signbit(a[i]) + 32 * fusec::isinf(a[i]);
  }
}

void encode(long long count, const float* values, unsigned char* four, unsigned char* five) {
  for (long long i = 0; i < count; ++i) {
    four[i] = fusec::encode_fp8<3, 7>(values[i], 448.0f, 0x7f);
    five[i] = fusec::float_to_f8e5m2(values[i]).bits;
  }
}

// Mean, m2 and count of `values`, pushed in `parts` interleaved runs that are then merged.
void moments(long long count, const double* values, long long parts, double* out) {
  auto merged = fusec::WelfordMerge<double>::identity();
  for (long long part = 0; part < parts; ++part) {
    auto state = fusec::Welford<double>::empty();
    for (long long i = part; i < count; i += parts) state.push(values[i]);
    merged = fusec::WelfordMerge<double>::combine(merged, state);
  }
  out[0] = merged.mean;
  out[1] = merged.variance(1.0);
  out[2] = merged.n;
}
}
