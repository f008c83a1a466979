// What CUDA gives to kernels, on the host: every CUDA thread is a fiber that gives up the processor
// where it has to wait for others (fibers_on_cpu.cpp). Kernels are compiled with declarations of
// shared memory and `asm` statements replaced (tests/text_on_cpu.py), the latter by calls of the
// functions of ptx_on_cpu.h.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __cluster_dims__(...)
#define __grid_constant__
#define __builtin_assume(fact)

struct Triple {
  unsigned x, y, z;
};
extern Triple threadIdx, blockIdx, blockDim, gridDim;
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, const T& v) {
  *p = v;
}
using std::max;
using std::min;

template <class To, class From>
static To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}
static unsigned __float_as_uint(float v) { return same_bits<unsigned>(v); }
static float __uint_as_float(unsigned v) { return same_bits<float>(v); }
static float __int_as_float(int v) { return same_bits<float>(v); }
static int __double2hiint(double v) { return static_cast<int>(same_bits<long long>(v) >> 32); }
static unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
static float __double2float_rz(double v) {
  const float near = static_cast<float>(v);
  return std::fabs(static_cast<double>(near)) > std::fabs(v) ? std::nextafterf(near, 0.0f) : near;
}
// Conversions to integers that take the nearest there is, as the GPU's do.
template <class To, class From>
static To nearest(From v) {
  if (v != v) return sizeof(To) == 4 && sizeof(From) == 4 ? 0 : To(1) << (8 * sizeof(To) - 1);
  const To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  if (v >= std::ldexp(From(1), std::numeric_limits<To>::digits)) return most;
  return v <= static_cast<From>(least) ? least : static_cast<To>(v);
}
static int __float2int_rz(float v) { return nearest<int>(v); }
static int __double2int_rz(double v) { return nearest<int>(v); }
static long long __float2ll_rz(float v) { return nearest<long long>(v); }
static long long __double2ll_rz(double v) { return nearest<long long>(v); }
static unsigned long long __float2ull_rz(float v) { return nearest<unsigned long long>(v); }
static unsigned long long __double2ull_rz(double v) { return nearest<unsigned long long>(v); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
static double rsqrt(double v) { return 1.0 / std::sqrt(v); }
// Exact where the argument is reduced, as on the GPU.
static double sinpi(double v) {
  const double part = std::remainder(v, 2.0), size = std::fabs(part);
  const double near = size > 0.5 ? 1.0 - size : size;
  const double result = near > 0.25 ? std::cos(3.14159265358979323846 * (0.5 - near))
                                    : std::sin(3.14159265358979323846 * near);
  return std::copysign(result, part);
}
static double cospi(double v) {
  const double size = std::fabs(std::remainder(v, 2.0));
  return size <= 0.25   ? std::cos(3.14159265358979323846 * size)
         : size >= 0.75 ? -std::cos(3.14159265358979323846 * (1.0 - size))
                        : std::sin(3.14159265358979323846 * (0.5 - size));
}
static float sinpif(float v) { return static_cast<float>(sinpi(v)); }
static float cospif(float v) { return static_cast<float>(cospi(v)); }
double erfinv(double v);
double erfcinv(double v);
static float erfinvf(float v) { return static_cast<float>(erfinv(static_cast<double>(v))); }
static float erfcinvf(float v) { return static_cast<float>(erfcinv(static_cast<double>(v))); }

namespace cpu {

static float bf16_to_float(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
static unsigned short float_to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  if (value != value) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
static float f16_to_float(unsigned short bits) {
  return static_cast<float>(same_bits<_Float16>(bits));
}
static unsigned short float_to_f16(float value) {
  return same_bits<unsigned short>(static_cast<_Float16>(value));
}
static float max_nan(float a, float b) { return a != a || b != b ? NAN : std::max(a, b); }
static float min_nan(float a, float b) { return a != a || b != b ? NAN : std::min(a, b); }

// Ends the launch with a message; the kernel's threads do not run on.
[[noreturn]] void fail(const char* format, ...);

// An index into a vector; a reference to the element behind the last is no trap of the compiler's.
static int within(int i, int count) {
  if (i < 0 || i >= count) fail("element %d of a vector of %d", i, count);
  return i;
}

extern unsigned current;  // the thread that runs, counted in its block

// A variable in shared memory: every block has it at the same offset, between guard zones.
struct Place {
  unsigned bytes, alignment, offset = 0, launch = 0;
};
char* shared_variable(Place& place);
char* dynamic_shared();
unsigned shared_address(const void* pointer);  // in the shared window, as PTX wants it
char* shared_at(unsigned address);             // of the own block, or of another of the cluster

struct LaneWords {
  unsigned long long words[10];
};
void wait_for_block();
void wait_for_threads(unsigned id, unsigned count);
void show_copies();
void arrive_for_threads(unsigned id, unsigned count);
void wait_for_cluster();
// What every lane of the warp shows; it may be read until the calling lane's next exchange.
const LaneWords* show(const LaneWords& own);
static unsigned exchange(unsigned word, unsigned source) {
  return static_cast<unsigned>(show({{word}})[source].words[0]);
}
unsigned ballot(bool predicate);
void give_up();
void note_atomic(const void*, std::size_t bytes);  // a write that others may read at any time
// Runs a kernel; shape: the grid, the block, the cluster. Returns what went wrong, or null.
const char* run(const unsigned* shape, unsigned shared_bytes, unsigned seed, int options,
                const std::function<void()>& kernel);
enum Options { kBackwards = 1, kAtOnce = 2, kProxies = 4 };

}  // namespace cpu

static void __syncthreads() {
  cpu::wait_for_block();
  cpu::show_copies();
}
static std::size_t __cvta_generic_to_shared(const void* p) { return cpu::shared_address(p); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return same_bits<T>(cpu::exchange(same_bits<unsigned>(value), (cpu::current % 32) ^ mask));
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  const unsigned own = cpu::current % 32;
  return same_bits<T>(
      cpu::exchange(same_bits<unsigned>(value), own / width * width + lane % width));
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance, int width = 32) {
  const int own = static_cast<int>(cpu::current % 32), low = own / width * width;
  return same_bits<T>(
      cpu::exchange(same_bits<unsigned>(value), own - distance >= low ? own - distance : own));
}
static unsigned __ballot_sync(unsigned, int predicate) { return cpu::ballot(predicate != 0); }
static unsigned __reduce_min_sync(unsigned, unsigned value) {
  for (int mask = 1; mask < 32; mask *= 2) {
    const unsigned other = __shfl_xor_sync(0, value, mask);
    if (other < value) value = other;
  }
  return value;
}
static void __syncwarp(unsigned = 0) {
  __ballot_sync(0, 0);
  cpu::show_copies();
}
static int __popc(unsigned v) { return __builtin_popcount(v); }
static int __ffs(int v) { return __builtin_ffs(v); }
static int __clz(int v) { return v ? __builtin_clz(v) : 32; }
static void __nanosleep(unsigned) { cpu::give_up(); }
static void __trap() { cpu::fail("a trap"); }
template <class T, class V>
T atomicAdd(T* p, V v) {
  const T before = *p;
  *p = static_cast<T>(before + v);
  cpu::note_atomic(p, sizeof *p);
  return before;
}
static float4 atomicAdd(float4* p, float4 v) {  // each float by itself
  const float4 before = *p;
  *p = make_float4(before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w);
  cpu::note_atomic(p, sizeof *p);
  return before;
}
template <class T, class V>
T atomicMax(T* p, V v) {
  const T before = *p;
  if (static_cast<T>(v) > before) *p = static_cast<T>(v);
  cpu::note_atomic(p, sizeof *p);
  return before;
}
template <class T>
T atomicCAS(T* p, T expected, T v) {
  const T before = *p;
  if (before == expected) *p = v;
  cpu::note_atomic(p, sizeof *p);
  return before;
}
static long long __double_as_longlong(double v) { return same_bits<long long>(v); }
static double __longlong_as_double(long long v) { return same_bits<double>(v); }
#undef INFINITY
#undef NAN

#include "ptx_on_cpu.h"
