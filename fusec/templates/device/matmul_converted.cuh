// The main loop of a matrix product whose B is 8-bit integers and whose A is halves, beside that of
// matmul_hopper.cuh: the same ring, whose stages are 128 elements of K deep. Operands are swapped:
// B's columns are the rows of wgmma, from registers. Each thread makes halves of what its rows have
// in shared memory, so that nothing is written there but by copies. A lies in two panels of 64
// elements of K; both operands are K-major.
#pragma once

#include "matmul_hopper.cuh"
#include "wgmma_converted.cuh"

namespace fusec {

// a - b of two halves each.
template <class T>
__device__ __forceinline__ u32 subtract_pair(u32 a, u32 b) {
  u32 result;
  if constexpr (kIsSame<T, bf16>) {
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
}

// Two neighbouring 8-bit integers as halves, exactly. The low seven bits and the sign are added to
// a number whose last bit is worth 1: the sign is worth as much as it takes away.
template <class T>
__device__ __forceinline__ u32 widen_pair(u16 bytes) {
  constexpr u32 kOne = kIsSame<T, bf16> ? 0x43004300u : 0x64006400u;
  const u32 apart = bytes | static_cast<u32>(bytes) << 8;
  return subtract_pair<T>((apart & 0x007f007fu) | kOne, (apart & 0x00800080u) | kOne);
}

// A thread: the fragments of 64 elements of K, the kHalf-th of a stage. `line`: the first of its
// two rows, which are 8 apart, in a tile of 128 bytes a row with the 128-byte swizzle.
template <class T, int kHalf>
__device__ __forceinline__ void widen_fragments(u32 (&a)[4][4], const unsigned char* line) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int chunk = (4 * kHalf + step) ^ (lane / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = i % 2 * 8 * 128 + chunk * 16 + i / 2 * 8 + lane % 4 * 2;
      a[step][i] = widen_pair<T>(*reinterpret_cast<const u16*>(line + place));
    }
  }
}

// One warpgroup: sums += the products of 64 of B's columns, all of A's rows and 64 elements of K;
// without `adds` they begin as 0. Asynchronous: between wgmma_fence and wgmma_commit.
template <class T, int kColumns>
__device__ __forceinline__ void multiply_converted_stage(float (&sums)[kColumns / 2],
                                                         const u32 (&a)[4][4],
                                                         const unsigned char* panel, int adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_converted<kColumns, T>(sums, a[step], operand_descriptor<true>(panel, step),
                                 step > 0 ? 1 : adds);
  }
}

// A consumer, all threads of its warpgroup: sums += the products of the same steps, as
// multiply_stages does. The fragments of one half of a stage are made while the products of the
// other run; a stage is handed back when those of its second half have ended.
template <class Config>
__device__ __forceinline__ void multiply_converted(float (&sums)[Config::kSumsOwn],
                                                   unsigned char* shared, int first, int last,
                                                   int& stage, u32& parity) {
  using T = typename Config::T;
  constexpr int kColumns = Config::kTileM;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  const int lane = threadIdx.x % 32;
  const int row = warpgroup_number() * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
  u32 even[4][4];
  u32 odd[4][4];
  int previous = 0;
  for (int step = first; step < last; ++step) {
    const unsigned char* const panels = shared + stage * Config::kStageBytes;
    const unsigned char* const line = panels + Config::kATileBytes + row * 128;
    full[stage].wait(parity);
    wgmma_wait<1>();
    widen_fragments<T, 0>(even, line);
    wgmma_fence();
    multiply_converted_stage<T, kColumns>(sums, even, panels, step > first);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<1>(empty[previous]);
    widen_fragments<T, 1>(odd, line);
    wgmma_fence();
    multiply_converted_stage<T, kColumns>(sums, odd, panels + kColumns * 128, 1);
    wgmma_commit();
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (first < last && lane == 0) release_stage<1>(empty[previous]);
}

}  // namespace fusec
