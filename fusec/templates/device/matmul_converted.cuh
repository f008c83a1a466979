// The main loop of a matrix product whose B is 8-bit integers and whose A is halves, beside that of
// matmul_hopper.cuh: the same ring, whose stages are 128 elements of K deep. Operands are swapped:
// B's columns are the rows of wgmma, from registers. Each thread makes halves of what its rows have
// in shared memory, so that nothing is written there but by copies. A lies in two panels of 64
// elements of K; both operands are K-major.
#pragma once

#include "matmul_hopper.cuh"
#include "weights.cuh"
#include "wgmma_converted.cuh"

namespace fusec {

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
      const u32 both = *reinterpret_cast<const u16*>(line + place);
      a[step][i] = widen_pair<T>(__byte_perm(both, 0, 0x1100));
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
