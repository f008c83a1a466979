// The main loop of a product whose A has few rows (sm_80): a stream over B, each element of which is
// read once. Neighbours along K are neighbours in memory, of both operands. The warps of a block
// share K in turns: each multiplies parts of kPart elements, for all kTileM rows and kTileN columns
// of the tile, and their sums meet in shared memory. Columns of B are the rows of mma_16816, so that
// eight rows of A fill it. Which elements of K an instruction multiplies does not matter, as long as
// both operands have the same: a lane takes eight neighbours of each, of which the first four go
// into one instruction and the others into the next. `Config` is the struct at the top of a kernel.
#pragma once

#include "matmul_tile.cuh"
#include "mma.cuh"
#include "vector.cuh"

namespace fusec {

constexpr int kPart = 64;  // elements of K that a warp takes at a time: 128 bytes of a column of B

// Where a lane reads of an operand: eight elements from `depth` on of one row, the last one for
// those behind the end, whose sums nobody asks for.
template <class T, class Index>
__device__ __forceinline__ const T* lane_row(const MatmulOperand<T, Index>& x, int row) {
  const Index wanted = x.position + row;
  const Index last = x.extent - 1;
  return x.data + (wanted < last ? wanted : last) * x.stride + threadIdx.x % 4 * 8;
}

// 16 bytes that are read once: L1 does not keep them, and L2 fetches what lies beside them, too.
__device__ __forceinline__ Vec<u32, 4> load_once(const u32* words) {
  Vec<u32, 4> v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(words));
  return v;
}

// The same of 8 or 4 bytes.
template <int kWords>
__device__ __forceinline__ Vec<u32, kWords> load_words_once(const u32* words) {
  Vec<u32, kWords> v;
  if constexpr (kWords == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v[0]), "=r"(v[1])
                 : "l"(words));
  } else {
    static_assert(kWords == 1);
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(v[0]) : "l"(words));
  }
  return v;
}

// What a lane holds of B and A, of kPart elements of K: of each half of them eight elements.
template <class Config>
struct VectorPart {
  Vec<u32, 4> b[Config::kTileN / 8][2];
  Vec<u32, 4> a[Config::kTileM / 8][2];
};

// sums += the products of kPart elements; sums[i][j] are those of 16 columns of B and 8 rows of A.
template <class Config>
__device__ __forceinline__ void multiply_part(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const VectorPart<Config>& part) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
#pragma unroll
      for (int i = 0; i < Config::kTileN / 16; ++i) {
        const Vec<u32, 4>& low = part.b[2 * i][half];
        const Vec<u32, 4>& high = part.b[2 * i + 1][half];
        const u32 columns[4] = {low[pair], high[pair], low[pair + 1], high[pair + 1]};
#pragma unroll
        for (int j = 0; j < Config::kTileM / 8; ++j) {
          const Vec<u32, 4>& row = part.a[j][half];
          const u32 rows[2] = {row[pair], row[pair + 1]};
          mma_16816<typename Config::T>(sums[i][j], columns, rows);
        }
      }
    }
  }
}

// The elements of a lane's rows from `depth` on, zeros from `last` on if it is kGuarded.
template <class Config, bool kGuarded, class T, class Index>
__device__ __forceinline__ void load_part(VectorPart<Config>& part,
                                          const T* const (&a_rows)[Config::kTileM / 8],
                                          const T* const (&b_columns)[Config::kTileN / 8],
                                          Index depth, Index last) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Index at = depth + half * (kPart / 2);
    const bool is_inside = !kGuarded || at + threadIdx.x % 4 * 8 < last;
#pragma unroll
    for (int i = 0; i < Config::kTileN / 8; ++i) {
      const u32* const words = reinterpret_cast<const u32*>(b_columns[i] + at);
      part.b[i][half] = is_inside ? load_once(words) : splat<u32, 4>(0);
    }
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
      const u32* const words = reinterpret_cast<const u32*>(a_rows[j] + at);
      part.a[j][half] = is_inside ? load_readonly<4>(words) : splat<u32, 4>(0);
    }
  }
}

// sums += the products of the elements of K from `first` to `last`. A warp takes kStages parts at a
// time, all of which are on their way before the first is multiplied; neighbouring ones, as memory
// likes.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_vectors(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b, Index first,
    Index last) {
  using T = typename Config::T;
  constexpr int kOwn = Config::kStages * kPart;
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
  const T* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) a_rows[j] = lane_row(a, 8 * j + lane / 4);
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row(b, 8 * i + lane / 4);
  Index start = first + static_cast<Index>(threadIdx.x / 32 * kOwn);
  for (; start + kOwn <= last; start += Config::kWarps * kOwn) {
    VectorPart<Config> parts[Config::kStages];
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) {
      load_part<Config, false>(parts[s], a_rows, b_columns, start + s * kPart, last);
    }
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) multiply_part<Config>(sums, parts[s]);
  }
  for (; start < last; start += kPart) {
    VectorPart<Config> part;
    load_part<Config, true>(part, a_rows, b_columns, start, last);
    multiply_part<Config>(sums, part);
  }
}

// The sums of a warp to shared memory, as rows of A; the pitch has the lanes in different banks.
// kApart: columns of the tile that rows of mma_16816 8 apart are apart.
template <class Config, int kApart = 8>
__device__ __forceinline__ void store_accumulators(
    float (&tile)[Config::kTileM][Config::kSumsPitch],
    const float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4]) {
  const int group = threadIdx.x % 32 / 4;
  const int pair = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < Config::kTileN / 16; ++i) {
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = kApart == 1 ? group * (Config::kTileN / 8) + 2 * i : 16 * i + group;
        tile[8 * j + 2 * pair + e % 2][column + e / 2 * kApart] = sums[i][j][e];
      }
    }
  }
}

// visit(row, column, piece) for the pieces of the tile that a thread owns, kWidth neighbours of a row
// each, of those within `rows` and `columns`.
template <class Config, int kWidth, class Index, class Visit>
__device__ __forceinline__ void visit_pieces(Index rows, Index columns, const Visit& visit) {
  constexpr int kInRow = Config::kTileN / kWidth;
#pragma unroll
  for (int piece = threadIdx.x; piece < Config::kTileM * kInRow; piece += Config::kThreads) {
    const int row = piece / kInRow;
    const int column = piece % kInRow * kWidth;
    if (row < rows && column < columns) visit(row, column, piece);
  }
}

// kWidth neighbouring sums of a row, of all warps in their order.
template <class Config, int kWidth>
__device__ __forceinline__ Vec<float, kWidth> sum_warps(
    const float (&tiles)[Config::kWarps][Config::kTileM][Config::kSumsPitch], int row, int column) {
  Vec<float, kWidth> total = load<kWidth>(&tiles[0][row][column]);
#pragma unroll
  for (int warp = 1; warp < Config::kWarps; ++warp) {
    const Vec<float, kWidth> part = load<kWidth>(&tiles[warp][row][column]);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) total[i] += part[i];
  }
  return total;
}

// The same sums of all `splits` slices, `stride` floats apart, in their order.
template <int kWidth>
__device__ __forceinline__ Vec<float, kWidth> sum_slices_of(const float* slices, i64 stride,
                                                            int splits) {
  Vec<float, kWidth> total = splat<float, kWidth>(0.0f);
  for (int split = 0; split < splits; ++split) {
    const Vec<float, kWidth> part = load<kWidth>(slices + split * stride);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) total[i] += part[i];
  }
  return total;
}

}  // namespace fusec
