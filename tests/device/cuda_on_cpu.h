// Kernels on the host, for index plans, barriers and races: every CUDA thread is a fiber that gives
// up the processor where it has to wait for others. Blocks run one after another. Kernels are
// compiled with `asm` statements replaced (tests/cuda_on_cpu.py) by the functions here.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __grid_constant__

struct Triple {
  unsigned x, y, z;
};
static Triple threadIdx, blockIdx, blockDim, gridDim;
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

template <class T>
T __ldg(const T* p) {
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
// Newton's method on erf and erfc, from the guess 0 and from the tail's leading term.
static double erfinv(double v);
static double erfcinv(double v) {
  if (v > 0.5 && v < 1.5) return erfinv(1.0 - v);
  if (v > 1.0) return -erfcinv(2.0 - v);
  if (!(v > 0.0)) return v == 0.0 ? HUGE_VAL : static_cast<double>(NAN);
  double x = std::sqrt(-std::log(v));
  for (int k = 0; k < 60; ++k) {
    const double step = (std::erfc(x) - v) * 0.886226925452758013649 * std::exp(x * x);
    x += step > 0.5 ? 0.5 : step < -0.5 ? -0.5 : step;
    if (std::fabs(step) < 1e-17 * std::fabs(x)) break;
  }
  return x;
}
static double erfinv(double v) {
  if (std::fabs(v) > 0.5) return v < 0.0 ? -erfcinv(1.0 + v) : erfcinv(1.0 - v);
  double x = 0.0;
  for (int k = 0; k < 30; ++k) x -= (std::erf(x) - v) * 0.886226925452758013649 * std::exp(x * x);
  return v == 0.0 ? v : x;
}
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

[[noreturn]] static void missing(const char* instruction) {
  std::fprintf(stderr, "no stand-in for %s\n", instruction);
  std::abort();
}

struct Copy {
  void* to;
  const void* from;
  int bytes, valid;  // zeros follow what is valid
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  Triple thread;
  bool done = true;
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
struct Barrier {
  unsigned arrived = 0, generation = 0;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current, alive;
static bool copies_at_once;
static char* shared;
static Barrier block_barrier;
static std::vector<Barrier> warp_barriers;
static std::vector<unsigned> warp_words;
static std::function<void()> body;

static unsigned threads() { return blockDim.x * blockDim.y * blockDim.z; }

static void wait(Barrier& barrier, unsigned count) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) {
    const unsigned own = current;
    swapcontext(&fibers[own].context, &scheduler);
  }
}

static unsigned exchange(unsigned word, unsigned source) {
  const unsigned warp = current / 32, lane = current % 32;
  const unsigned count = std::min(32u, threads() - warp * 32);
  warp_words[warp * 32 + lane] = word;
  wait(warp_barriers[warp], count);
  const unsigned result = warp_words[warp * 32 + source];
  wait(warp_barriers[warp], count);
  return result;
}

static void perform(const Copy& copy) {
  std::memset(copy.to, 0, copy.bytes);
  std::memcpy(copy.to, copy.from, copy.valid);
}

static void copy(void* to, const void* from, int bytes, int valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes ||
      reinterpret_cast<std::uintptr_t>(from) % bytes) {
    std::fprintf(stderr, "misaligned asynchronous copy\n");
    std::abort();
  }
  if (copies_at_once) perform({to, from, bytes, valid});
  fibers[current].open.push_back({to, from, bytes, valid});
}
static void commit() {
  fibers[current].groups.push_back(fibers[current].open);
  fibers[current].open.clear();
}
static void wait_copies(unsigned pending) {
  auto& groups = fibers[current].groups;
  while (groups.size() > pending) {
    if (!copies_at_once) {
      for (const Copy& each : groups.front()) perform(each);
    }
    groups.erase(groups.begin());
  }
}

static void enter() {
  body();
  fibers[current].done = true;
  --alive;
  setcontext(&scheduler);
}

static void run_block(bool backwards) {
  const unsigned count = threads();
  alive = count;
  for (unsigned i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    fiber.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    fiber.done = false;
    fiber.groups.clear();
    fiber.open.clear();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  while (alive) {
    for (unsigned k = 0; k < count; ++k) {
      current = backwards ? count - 1 - k : k;
      if (fibers[current].done) continue;
      threadIdx = fibers[current].thread;
      swapcontext(&scheduler, &fibers[current].context);
    }
  }
}

static std::vector<Triple> chosen;  // the blocks that run; all where empty

static void run(const unsigned* grid, const unsigned* block, unsigned shared_bytes, bool backwards,
                bool at_once, std::function<void()> kernel) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  copies_at_once = at_once;
  body = kernel;
  fibers.resize(std::max<std::size_t>(fibers.size(), threads()));
  for (Fiber& fiber : fibers) fiber.stack.resize(64 << 10);
  warp_barriers.assign((threads() + 31) / 32, {});
  warp_words.assign(warp_barriers.size() * 32, 0);
  const std::size_t bytes = (shared_bytes + 15) / 16 * 16 + 16;
  shared = static_cast<char*>(std::aligned_alloc(16, bytes));
  const auto run_at = [&](Triple block) {
    blockIdx = block;
    std::memset(shared, 0xff, bytes);
    run_block(backwards);
  };
  for (const Triple& block : chosen) run_at(block);
  for (unsigned z = 0; z < grid[2] && chosen.empty(); ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) run_at({x, y, z});
    }
  }
  std::free(shared);
  fibers = {};  // the library stays loaded, their stacks need not
}

}  // namespace cpu

extern "C" void choose_blocks(const Triple* blocks, unsigned count) {
  cpu::chosen.assign(blocks, blocks + count);
}

static void __syncthreads() { cpu::wait(cpu::block_barrier, cpu::threads()); }
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
static unsigned __ballot_sync(unsigned, int predicate) {
  const unsigned warp = cpu::current / 32;
  const unsigned count = std::min(32u, cpu::threads() - warp * 32);
  cpu::warp_words[cpu::current] = predicate != 0;
  cpu::wait(cpu::warp_barriers[warp], count);
  unsigned result = 0;
  for (unsigned i = 0; i < count; ++i) result |= cpu::warp_words[warp * 32 + i] << i;
  cpu::wait(cpu::warp_barriers[warp], count);
  return result;
}
static void __syncwarp(unsigned = 0) { __ballot_sync(0, 0); }
static int __popc(unsigned v) { return __builtin_popcount(v); }
static int __ffs(int v) { return __builtin_ffs(v); }
static int __clz(int v) { return v ? __builtin_clz(v) : 32; }
static void __nanosleep(unsigned) {
  const unsigned own = cpu::current;
  swapcontext(&cpu::fibers[own].context, &cpu::scheduler);
}
template <class T, class V>
T atomicAdd(T* p, V v) {
  const T before = *p;
  *p = static_cast<T>(before + v);
  return before;
}
template <class T, class V>
T atomicMax(T* p, V v) {
  const T before = *p;
  if (static_cast<T>(v) > before) *p = static_cast<T>(v);
  return before;
}
template <class T>
T atomicCAS(T* p, T expected, T v) {
  const T before = *p;
  if (before == expected) *p = v;
  return before;
}
static long long __double_as_longlong(double v) { return same_bits<long long>(v); }
static double __longlong_as_double(long long v) { return same_bits<double>(v); }
#undef INFINITY
#undef NAN
