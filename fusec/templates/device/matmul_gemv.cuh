// Main loop of a GEMV-like GEMM with small M (sm_80): B is streamed and each element read once.
// Both operands are K-major. The warps of a CTA interleave chunks of kPart elements of K: each
// multiplies its chunks for all kTileM rows and kTileN columns of the tile, and the partial sums
// are added in shared memory. Columns of B are the rows of mma_16816, so that eight rows of A fill
// an instruction. The order of elements of K within an instruction is arbitrary as long as both
// operands agree: a lane loads eight neighbours of each operand, the first four for one instruction
// and the last four for the next. `Config` is the struct at the top of the kernel.
#pragma once

#include "matmul_tile.cuh"
#include "mma.cuh"
#include "vector.cuh"

namespace fusec {

constexpr int kPart = 64;  // elements of K per warp and load: 128 bytes of a column of B

// Returns where a lane starts reading a row of an operand: eight elements per load. Rows past the
// end repeat the last one; their results are never stored.
template <class T, class Index>
__device__ __forceinline__ const T* lane_row(const MatmulOperand<T, Index>& x, int row) {
  const Index wanted = x.position + row;
  const Index last = x.extent - 1;
  return x.data + (wanted < last ? wanted : last) * x.stride + threadIdx.x % 4 * 8;
}

// Loads 16 bytes that are read once: no allocation in L1, and L2 prefetches the surrounding 256
// bytes.
__device__ __forceinline__ Vec<u32, 4> load_once(const u32* words) {
  Vec<u32, 4> v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(words));
  return v;
}

// The same for 8 or 4 bytes.
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

// The elements of B and A that a lane holds for kDepth elements of K: kPairs pairs of neighbours
// per load, in the same order in both operands.
template <class Config>
struct VectorPart {
  static constexpr int kDepth = kPart;
  static constexpr int kLoads = 2;
  static constexpr int kPairs = 4;
  Vec<u32, 4> b[Config::kTileN / 8][kLoads];
  Vec<u32, 4> a[Config::kTileM / 8][kLoads];

  // One pair of the lane's column of B, and of its row of A.
  __device__ __forceinline__ u32 column_pair(int load, int pair, int column) const {
    return b[column][load][pair];
  }
  __device__ __forceinline__ u32 row_pair(int load, int pair, int row) const {
    return a[row][load][pair];
  }
};

// accumulators += the products of a chunk; accumulators[i][j] belongs to 16 columns of B and 8 rows
// of A.
template <class Config, class Part>
__device__ __forceinline__ void multiply_part(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], const Part& part) {
#pragma unroll
  for (int load = 0; load < Part::kLoads; ++load) {
#pragma unroll
    for (int pair = 0; pair < Part::kPairs; pair += 2) {
#pragma unroll
      for (int i = 0; i < Config::kTileN / 16; ++i) {
        const u32 columns[4] = {
            part.column_pair(load, pair, 2 * i), part.column_pair(load, pair, 2 * i + 1),
            part.column_pair(load, pair + 1, 2 * i), part.column_pair(load, pair + 1, 2 * i + 1)};
#pragma unroll
        for (int j = 0; j < Config::kTileM / 8; ++j) {
          const u32 rows[2] = {part.row_pair(load, pair, j), part.row_pair(load, pair + 1, j)};
          mma_16816<typename Config::T>(accumulators[i][j], columns, rows);
        }
      }
    }
  }
}

// accumulators += the products of the elements of K in [first, last). A warp processes kStages
// adjacent chunks at a time, all of them in flight before the first is multiplied. load(part,
// depth, is_guarded) loads the chunk at `depth`, zero-filled from `last` on if it is guarded;
// compute, with the same arguments, runs after the loads of all chunks.
template <class Config, class Part, class Index, class Load, class Compute>
__device__ __forceinline__ void multiply_stream(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], Index first, Index last,
    const Load& load, const Compute& compute) {
  constexpr int kOwn = Config::kStages * Part::kDepth;
  Index start = first + static_cast<Index>(threadIdx.x / 32 * kOwn);
  for (; start + kOwn <= last; start += Config::kWarps * kOwn) {
    Part parts[Config::kStages];
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) load(parts[s], start + s * Part::kDepth, false);
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) compute(parts[s], start + s * Part::kDepth, false);
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) multiply_part<Config>(accumulators, parts[s]);
  }
  for (; start < last; start += Part::kDepth) {
    Part part;
    load(part, start, true);
    compute(part, start, true);
    multiply_part<Config>(accumulators, part);
  }
}

// Returns whether a lane's `own` elements of the load at `at` lie before `last`.
template <class Index>
__device__ __forceinline__ bool is_lane_inside(Index at, int own, Index last) {
  return at + threadIdx.x % 4 * own < last;
}

// Loads the elements of a lane's columns of B, 16 bits each, or zeros if out of range.
template <class Config, class T, class Index>
__device__ __forceinline__ void load_lane_columns(VectorPart<Config>& part, int load,
                                                  const T* const (&b_columns)[Config::kTileN / 8],
                                                  Index at, bool is_inside) {
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) {
    const u32* const words = reinterpret_cast<const u32*>(b_columns[i] + at);
    part.b[i][load] = is_inside ? load_once(words) : splat<u32, 4>(0);
  }
}

// The same for a lane's rows of A, eight elements per load.
template <class Config, class Part, class T, class Index>
__device__ __forceinline__ void load_lane_rows(Part& part, int load,
                                               const T* const (&a_rows)[Config::kTileM / 8],
                                               Index at, bool is_inside) {
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) {
    const u32* const words = reinterpret_cast<const u32*>(a_rows[j] + at);
    part.a[j][load] = is_inside ? load_readonly<4>(words) : splat<u32, 4>(0);
  }
}

// multiply_stream for two operands with 16-bit elements.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_vectors(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    Index first, Index last) {
  using T = typename Config::T;
  using Part = VectorPart<Config>;
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
  const T* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) a_rows[j] = lane_row(a, 8 * j + lane / 4);
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row(b, 8 * i + lane / 4);
  const auto load = [&](Part& part, Index depth, bool is_guarded) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Index at = depth + half * (kPart / 2);
      const bool is_inside = !is_guarded || is_lane_inside(at, 8, last);
      load_lane_columns<Config>(part, half, b_columns, at, is_inside);
      load_lane_rows<Config>(part, half, a_rows, at, is_inside);
    }
  };
  multiply_stream<Config, Part>(accumulators, first, last, load, [](Part&, Index, bool) {});
}

// Stores the accumulators of a warp to shared memory as rows of A; the pitch avoids bank conflicts.
// kRowDistance: distance in columns of the tile between rows r and r + 8 of mma_16816.
template <class Config, int kRowDistance = 8>
__device__ __forceinline__ void store_accumulators(
    float (&tile)[Config::kTileM][Config::kSumsPitch],
    const float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4]) {
  const int group = threadIdx.x % 32 / 4;
  const int pair = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < Config::kTileN / 16; ++i) {
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column =
            kRowDistance == 1 ? group * (Config::kTileN / 8) + 2 * i : 16 * i + group;
        tile[8 * j + 2 * pair + e % 2][column + e / 2 * kRowDistance] = accumulators[i][j][e];
      }
    }
  }
}

// Calls visit(row, column, piece) for all pieces of the tile that a thread owns, kWidth neighbours
// of a row each, within `rows` and `columns`.
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

// Returns kWidth neighbouring sums of a row, added over all warps in order.
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

// The same added over `splits` slices in order, at a stride of `stride` floats.
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
