// Main loop of a GEMM with ordinary multiply-adds: one stage in shared memory, kMicro x kMicro
// outputs per thread. Operands are converted to the accumulator type. `Config` is the struct at the
// top of the kernel. All threads of the CTA call these functions.
#pragma once

#include "matmul_tile.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wrap.cuh"

namespace fusec {

// Returns sum + a * b; integers wrap.
template <class T>
__device__ __forceinline__ T multiply_add(T sum, T a, T b) {
  if constexpr (kIsSame<T, int> || kIsSame<T, i64>) {
    return wrapping_add(sum, wrapping_mul(a, b));
  } else {
    return sum + a * b;
  }
}

// Copies kExtent rows of an operand and the elements of K that start at `first`, zero-filled out of
// bounds; neighbouring threads read along the contiguous axis.
template <class Config, int kExtent, bool kKMajor, class Acc, class S, class Index>
__device__ __forceinline__ void fill_transposed(
    Acc (&tile)[Config::kTileK][kExtent + Config::kMicro], const MatmulOperand<S, Index>& x,
    Index first, Index depths) {
#pragma unroll
  for (int e = threadIdx.x; e < kExtent * Config::kTileK; e += Config::kThreads) {
    const int row = kKMajor ? e / Config::kTileK : e % kExtent;
    const int depth = kKMajor ? e % Config::kTileK : e / kExtent;
    const Index m = x.position + row;
    const Index k = first + depth;
    Acc value = Acc(0);
    if (m < x.extent && k < depths) {
      value = convert<Acc>(x.data[m * x.stride + k * x.depth_stride]);
    }
    tile[depth][row] = value;
  }
}

// accumulators += the products of all `depths` elements of K for the outputs that start at (row,
// column) of the tile.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_micro(
    typename Config::Acc (&accumulators)[Config::kMicro][Config::kMicro], const A& a, const B& b,
    Index depths, int row, int column) {
  using Acc = typename Config::Acc;
  constexpr int kMicro = Config::kMicro;
  __shared__ __align__(16) Acc a_tile[Config::kTileK][Config::kTileM + Config::kMicro];
  __shared__ __align__(16) Acc b_tile[Config::kTileK][Config::kTileN + Config::kMicro];
  for (Index first = 0; first < depths; first += Config::kTileK) {
    fill_transposed<Config, Config::kTileM, Config::kAKMajor>(a_tile, a, first, depths);
    fill_transposed<Config, Config::kTileN, Config::kBKMajor>(b_tile, b, first, depths);
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < Config::kTileK; ++depth) {
      const auto a_column = load<kMicro>(&a_tile[depth][row]);
      const auto b_row = load<kMicro>(&b_tile[depth][column]);
#pragma unroll
      for (int i = 0; i < kMicro; ++i) {
#pragma unroll
        for (int j = 0; j < kMicro; ++j) {
          accumulators[i][j] = multiply_add(accumulators[i][j], a_column[i], b_row[j]);
        }
      }
    }
    __syncthreads();
  }
}

// Calls visit(row, column, acc) for all outputs of a thread, kWidth neighbouring columns at a time.
template <int kWidth, int kMicro, class Acc, class Visit>
__device__ __forceinline__ void visit_micro(const Acc (&accumulators)[kMicro][kMicro],
                                            const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; j += kWidth) {
      Vec<Acc, kWidth> acc;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) acc[c] = accumulators[i][j + c];
      visit(i, j, acc);
    }
  }
}

}  // namespace fusec
