// Main loop of a GEMV-like GEMM with small M whose A is computed on the fly (sm_80): each lane
// computes the elements of A that it multiplies, from inputs in L1 and L2, while loads of B are in
// flight. `Config` is the struct at the top of the kernel.
#pragma once

#include "computed_rows.cuh"
#include "matmul_gemv.cuh"

namespace fusec {

// As multiply_vectors: B's loads of kStages chunks are in flight before the first element of A is
// computed. Rows past the end repeat the last one.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_computed_vectors(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    Index first, Index last) {
  using T = typename Config::T;
  using Part = VectorPart<Config>;
  const int lane = threadIdx.x % 32;
  const T* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row(b, 8 * i + lane / 4);
  const auto load = [&](Part& part, Index depth, bool is_guarded) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index at = depth + half * (kPart / 2);
      const bool is_inside = !is_guarded || is_lane_inside(at, 8, last);
      load_lane_columns<Config>(part, half, b_columns, at, is_inside);
    }
  };
  const auto compute = [&](Part& part, Index depth, bool is_guarded) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index at = depth + half * (kPart / 2) + lane % 4 * 8;
      const bool is_inside = !is_guarded || at < last;
#pragma unroll
      for (int j = 0; j < Config::kTileM / 8; ++j) {
        const Index row = min(a.position + 8 * j + lane / 4, a.extent - 1);
        part.a[j][half] = is_inside ? words_of(a.make(row, at)) : splat<u32, 4>(0);
      }
    }
  };
  multiply_stream<Config, Part>(accumulators, first, last, load, compute);
}

}  // namespace fusec
