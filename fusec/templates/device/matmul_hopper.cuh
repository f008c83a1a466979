// Main loop of a warp-specialized TMA + wgmma GEMM with 16-bit operands. One producer thread loads
// tiles into a ring of stages in shared memory, each 64 elements of K deep, and consumer warpgroups
// multiply them. `Config` is the struct at the top of the kernel: its tile, stages and warp roles,
// and the offsets of the ring and its barriers in shared memory. With Tf32 operands a stage is 32
// elements deep and both operands are K-major.
// An operand is either K-major (contiguous along K) or MN-major (contiguous along M or N). Its tile
// in shared memory has the 128-byte swizzle: a K-major tile has one row of 64 elements of K per row
// of the tile; an MN-major tile consists of blocks 64 rows wide and 64 elements of K deep. Tiles
// are aligned to 1024 bytes.
// wgmma multiplies 64 rows of its first operand by any number of columns of its second. For small
// M, kSwapAB reverses the roles of A and B, so the accumulators hold the transposed tile.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "storage.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace fusec {

inline constexpr int kBlockBytes = 64 * 128;  // 64 rows of 64 elements
inline constexpr int kTurns = 1;              // first of the named barriers, one per warpgroup

// Which part of a multicast operand this CTA loads, and for which CTAs of its cluster (a bit mask).
struct Sharing {
  int part;
  u16 blocks;
};

// The multicast of A (kOfA) or B in a cluster of kRows x kColumns tiles, with ranks in column-major
// order: CTAs in the same row share A, CTAs in the same column share B.
template <bool kOfA, int kRows, int kColumns>
__device__ __forceinline__ Sharing sharing() {
  if constexpr (kRows * kColumns == 1) return {0, 1};
  const int rank = static_cast<int>(cluster_rank());
  const int row = kColumns == 1 ? rank : rank % kRows;
  const int column = kColumns == 1 ? 0 : rank / kRows;
  constexpr int kColumn = (1 << kRows) - 1;  // one bit per CTA of a column; below, of a row
  constexpr int kRow = ((1 << kRows * kColumns) - 1) / kColumn;
  if constexpr (kOfA) return {column, static_cast<u16>(kRow << row)};
  return {row, static_cast<u16>(kColumn << column * kRows)};
}

// Loads rows [position, position + kExtent) and 64 elements of K starting at `depth`. Called by one
// thread. Out-of-bounds elements are zero-filled and still count as transferred bytes, so ragged
// tiles need no special case. If kParts CTAs of a cluster share the operand, each multicasts one
// part of it to all of them: a range of rows if K-major, else a range of elements of K. kOnce: the
// operand is read only once, so L2 may evict it first.
template <int kExtent, bool kKMajor, int kParts = 1, bool kOnce = false>
__device__ __forceinline__ void load_operand(unsigned char* tile, const TensorMap* map,
                                             Barrier* barrier, int position, int depth, int batch,
                                             const Sharing& own = {}) {
  if constexpr (kParts > 1 && kKMajor) {
    const int first = own.part * (kExtent / kParts);
    if constexpr (kOnce) {
      tensor_load_3d_multicast(tile + first * 128, map, depth, position + first, batch, barrier,
                               own.blocks, l2_evict_first());
    } else {
      tensor_load_3d_multicast(tile + first * 128, map, depth, position + first, batch, barrier,
                               own.blocks);
    }
  } else if constexpr (kKMajor) {
    if constexpr (kOnce) {
      tensor_load_3d(tile, map, depth, position, batch, barrier, l2_evict_first());
    } else {
      tensor_load_3d(tile, map, depth, position, batch, barrier);
    }
  } else if constexpr (kParts > 1) {
    const int first = own.part * (64 / kParts);
#pragma unroll
    for (int block = 0; block < (kExtent + 63) / 64; ++block) {
      unsigned char* const part = tile + block * kBlockBytes + first * 128;
      if constexpr (kOnce) {
        tensor_load_3d_multicast(part, map, position + 64 * block, depth + first, batch, barrier,
                                 own.blocks, l2_evict_first());
      } else {
        tensor_load_3d_multicast(part, map, position + 64 * block, depth + first, batch, barrier,
                                 own.blocks);
      }
    }
  } else {
#pragma unroll
    for (int block = 0; block < (kExtent + 63) / 64; ++block) {
      unsigned char* const part = tile + block * kBlockBytes;
      if constexpr (kOnce) {
        tensor_load_3d(part, map, position + 64 * block, depth, batch, barrier, l2_evict_first());
      } else {
        tensor_load_3d(part, map, position + 64 * block, depth, batch, barrier);
      }
    }
  }
}

// Returns the shared-memory descriptor of the 16 elements of K that start at 16 * step. A step
// advances within the swizzled rows of a K-major tile, and by two atoms of eight rows of an
// MN-major one.
template <bool kKMajor>
__device__ __forceinline__ u64 operand_descriptor(const unsigned char* tile, int step) {
  if constexpr (kKMajor) {
    return descriptor_k_major(tile) + step * kDescriptorStepK;
  } else {
    return descriptor_mn_major(tile, kBlockBytes) + step * kDescriptorStepMn;
  }
}

struct Tf32;  // wgmma_tf32.cuh
template <int kN>
__device__ __forceinline__ void wgmma_tf32(float* d, u64 a, u64 b, int scale_d);

// accumulators += A B for one stage: 64 * kBlocks rows of A by kTileN columns of B. With adds = 0
// they are overwritten. Called by one warpgroup, asynchronous: between wgmma_fence and
// wgmma_commit.
template <class T, int kTileN, bool kAKMajor, bool kBKMajor, int kBlocks = 1>
__device__ __forceinline__ void multiply_stage(float (&accumulators)[kBlocks * kTileN / 2],
                                               const unsigned char* a_tile,
                                               const unsigned char* b_tile, int adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const u64 a = operand_descriptor<kAKMajor>(a_tile + block * kBlockBytes, step);
      const u64 b = operand_descriptor<kBKMajor>(b_tile, step);
      float* const d = accumulators + block * (kTileN / 2);
      if constexpr (kIsSame<T, Tf32>) {
        static_assert(kAKMajor && kBKMajor);
        wgmma_tf32<kTileN>(d, a, b, step > 0 ? 1 : adds);
      } else {
        wgmma<kTileN, T, !kAKMajor, !kBKMajor>(d, a, b, step > 0 ? 1 : adds);
      }
    }
  }
}

// Initializes the barriers of the ring. Called by one thread, before a barrier of the CTA or the
// cluster. kReaders: warps that read a stage, in all CTAs that receive it; kFillers: threads that
// arrive after they issued their loads or wrote their part of a stage.
template <class Config, int kReaders = 4 * Config::kConsumers, int kFillers = 1>
__device__ __forceinline__ void init_stages(unsigned char* shared) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  for (int s = 0; s < Config::kStages; ++s) {
    full[s].init(kFillers);
    empty[s].init(kReaders);
  }
  fence_barrier_init();
}

// The source of an operand's tile: its tensor map, first row or column and batch; `second` is the
// second B of a dual GEMM.
struct TileSource {
  const TensorMap* map;
  int position;
  int batch;
  const TensorMap* second;
};

// How the stages of a tile are loaded and multiplied. The `Pipeline` of a kernel derives from this
// struct and overrides what differs.
struct PlainPipeline {
  static constexpr int kRows = 1;           // tiles of a cluster that share B
  static constexpr int kColumns = 1;        // tiles of a cluster that share A
  static constexpr bool kPingPong = false;  // two warpgroups alternate, each with its own tiles
  static constexpr bool kDual = false;    // dual GEMM: half of the columns belong to a second B
  static constexpr int kPanels = 1;         // loads per tile of A; 0: A is computed
  static constexpr bool kOnceA = false;     // A is read only once
  static constexpr bool kOnceB = false;     // B is read only once
  static constexpr int kPacked = 1;         // elements of K per element of B's tensor map
  static constexpr int kAcross = 0;         // the same for columns, if B is N-major and packed
};

// Producer, one thread: loads the K steps [first, last) of a tile, each as soon as its stage is
// free. `stage` and `parity` persist across tiles and start at 0 and 1. A tile of N-major packed
// weights is one copy.
template <class Config, class Pipeline = PlainPipeline>
__device__ __forceinline__ void load_stages(unsigned char* shared, TileSource a, TileSource b,
                                            int first, int last, int& stage, u32& parity) {
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  constexpr bool kOnceB = Pipeline::kOnceB;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kOfB = Pipeline::kDual ? Config::kTileN / 2 : Config::kTileN;
  constexpr int kComputedBytes = Pipeline::kPanels == 0 ? Config::kATileBytes : 0;
  for (int step = first; step < last; ++step) {
    const int depth = step * Config::kTileK;
    unsigned char* const a_tile = shared + stage * Config::kStageBytes;
    unsigned char* const b_tile = a_tile + Config::kATileBytes;
    empty[stage].wait(parity);
    full[stage].arrive_expect_tx(Config::kStageBytes - kComputedBytes);
#pragma unroll
    for (int panel = 0; panel < Pipeline::kPanels; ++panel) {
      load_operand<Config::kTileM, Config::kAKMajor, kColumns, Pipeline::kOnceA>(
          a_tile + panel * Config::kTileM * 128, a.map, &full[stage], a.position,
          depth + 64 * panel, a.batch, sharing</*kOfA=*/true, kRows, kColumns>());
    }
    if constexpr (Pipeline::kAcross > 0) {
      load_operand<Config::kTileK, /*kKMajor=*/true, /*kParts=*/1, kOnceB>(
          b_tile, b.map, &full[stage], depth / Pipeline::kPacked, b.position / Pipeline::kAcross,
          b.batch);
    } else {
      load_operand<kOfB, Config::kBKMajor, kRows, kOnceB>(
          b_tile, b.map, &full[stage], b.position, depth / Pipeline::kPacked, b.batch,
          sharing</*kOfA=*/false, kRows, kColumns>());
    }
    if constexpr (Pipeline::kDual) {
      load_operand<kOfB, Config::kBKMajor, kRows, kOnceB>(
          b_tile + kOfB * 128, b.second, &full[stage], b.position, depth, b.batch,
          sharing</*kOfA=*/false, kRows, kColumns>());
    }
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
}

// Releases a stage to the producers of all CTAs that load a part of it: those in the same row and
// the same column of a kRows x kColumns cluster, both powers of two. Called by one thread per warp.
// With one lane per CTA, or with a branch here, ptxas serializes wgmma in kernels whose epilogue
// has no branch.
template <int kRows, int kColumns>
__device__ __forceinline__ void release_stage(Barrier& empty) {
  if constexpr (kRows * kColumns == 2) {  // both ranks are compile-time constants
    empty.arrive_at(0);
    empty.arrive_at(1);
  } else {
    empty.arrive();
#pragma unroll
    for (int row = 1; row < kRows; ++row) empty.arrive_at(cluster_rank() ^ row);
#pragma unroll
    for (int column = 1; column < kColumns; ++column) {
      empty.arrive_at(cluster_rank() ^ column * kRows);
    }
  }
}

// Consumer, all threads of a warpgroup: accumulators += the products of the same K steps, for the
// warpgroup's own rows of the tile (columns with kSwapAB; all rows with kPingPong). The wgmma of a
// stage overlaps with waiting for the next one; a stage is released one step later. `stage` and
// `parity` start at 0 and 0.
// With kPingPong, two warpgroups alternate: a parity cannot distinguish a phase of a barrier from
// the one after the next, so a warpgroup starts only after the other one has issued all products of
// its tile.
template <class Config, class Pipeline = PlainPipeline>
__device__ __forceinline__ void multiply_stages(float (&accumulators)[Config::kAccumulators],
                                                unsigned char* shared, int first, int last,
                                                int& stage, u32& parity) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  constexpr bool kPingPong = Pipeline::kPingPong;
  constexpr int kN = Config::kSwapAB ? Config::kTileM : Config::kTileN;
  constexpr int kBlocks = Config::kAccumulators / (kN / 2);
  const int warpgroup = warpgroup_number();
  const int own = kPingPong ? 0 : warpgroup * (kBlocks * kBlockBytes);
  const int lane = threadIdx.x % 32;
  int previous = 0;
  if constexpr (kPingPong) named_barrier_sync<256>(kTurns + warpgroup);
  for (int step = first; step < last; ++step) {
    const unsigned char* const a_tile = shared + stage * Config::kStageBytes;
    const unsigned char* const b_tile = a_tile + Config::kATileBytes;
    full[stage].wait(parity);
    wgmma_fence();
    if constexpr (Config::kSwapAB) {
      multiply_stage<typename Config::T, kN, Config::kBKMajor, Config::kAKMajor, kBlocks>(
          accumulators, b_tile + own, a_tile, step > first);
    } else {
      multiply_stage<typename Config::T, kN, Config::kAKMajor, Config::kBKMajor, kBlocks>(
          accumulators, a_tile + own, b_tile, step > first);
    }
    wgmma_commit();
    if constexpr (kPingPong) {  // here, since ptxas serializes wgmma if it follows the loop
      if (step + 1 == last) named_barrier_arrive<256>(kTurns + 1 - warpgroup);
    }
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(accumulators);
  if (first < last && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
}

// Advances `stage` and `parity` past the steps of a tile that another warpgroup multiplies.
template <class Config>
__device__ __forceinline__ void skip_stages(int steps, int& stage, u32& parity) {
  const int next = stage + steps;
  stage = next % Config::kStages;
  parity ^= next / Config::kStages % 2;
}

// Ping-pong: the second warpgroup lets the first one start. Called before its first tile.
template <class Config>
__device__ __forceinline__ void wait_for_first_tile(int steps, int& stage, u32& parity) {
  named_barrier_arrive<256>(kTurns);
  skip_stages<Config>(steps, stage, parity);
}

}  // namespace fusec
