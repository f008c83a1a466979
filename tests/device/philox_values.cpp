// The random numbers of philox.cuh, built for the host.
#include <cmath>

#define __device__
#define __host__
#define __forceinline__ inline
#define asm(...)
static const double kPi = 3.14159265358979323846;
static float sinpif(float x) { return static_cast<float>(std::sin(kPi * x)); }
static float cospif(float x) { return static_cast<float>(std::cos(kPi * x)); }
static double sinpi(double x) { return std::sin(kPi * x); }
static double cospi(double x) { return std::cos(kPi * x); }
#include "philox.cuh"

extern "C" {
void blocks(long long count, unsigned long long seed, unsigned long long offset,
            unsigned long long first, unsigned* out) {
  for (long long i = 0; i < count; ++i) {
    const fusec::PhiloxWords words = fusec::philox(seed, offset, first + i);
    for (int k = 0; k < 4; ++k) {
      out[4 * i + k] = fusec::pick_word(words, k);
    }
  }
}

}

// Numbers of vectors of kCount elements.
template <int kCount>
static void numbers_of(long long count, unsigned long long seed, unsigned long long offset,
                       double* out) {
  for (long long i = 0; i < count; i += kCount) {
    const auto words = fusec::random_words<kCount>(seed, offset, i);
    for (int lane = 0; lane < kCount; ++lane) {
      out[i + lane] = fusec::uniform_f32(0, 1, words, lane);
      out[count + i + lane] = fusec::normal_f32(0, 1, words, lane);
    }
  }
}

extern "C" {
void vectors(long long count, unsigned long long seed, unsigned long long offset, double* out) {
  numbers_of<2>(count, seed, offset, out);
  numbers_of<4>(count, seed, offset, out + 2 * count);
  numbers_of<8>(count, seed, offset, out + 4 * count);
}

void numbers(long long count, unsigned long long seed, unsigned long long offset, double* out) {
  for (long long i = 0; i < count; ++i) {
    out[i] = fusec::uniform_f32(0, 1, seed, offset, i);
    out[count + i] = fusec::uniform_f64(0, 1, seed, offset, i);
    out[2 * count + i] = fusec::normal_f32(0, 1, seed, offset, i);
    out[3 * count + i] = fusec::normal_f64(0, 1, seed, offset, i);
  }
}
}
