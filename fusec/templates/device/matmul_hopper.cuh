// A TMA + wgmma matrix product on 16-bit operands: its main loop, and the steps of that. One thread
// loads, warpgroups multiply, and a ring of stages in shared memory, each 64 elements of K deep,
// lies between them. `Config` is the struct at the top of a kernel: its tile, stages, roles, and
// where in shared memory the ring and its barriers are. Of f32 in 10 bits (Tf32) a stage is 32
// elements deep, and both operands are K-major.
// An operand is K-major (contiguous along K) or not (contiguous along M or N). Its shared tile is
// 128-byte swizzled: K-major, one row of 64 elements of K per row of the tile; else blocks of 64
// rows of the tile, each 64 elements of K deep and 64 rows wide. Tiles begin at multiples of 1024
// bytes.
// wgmma takes 64 rows of its first operand and any number of columns of its second. A tile of few
// rows has B's columns in place of the rows (kSwapAB): what is summed is the tile, transposed.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "storage.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace fusec {

inline constexpr int kBlockBytes = 64 * 128;  // 64 rows of 64 elements
inline constexpr int kTurns = 1;              // named barriers, one for each warpgroup

// The part of an operand that a CTA loads for the CTAs of its cluster that have it in common, which
// are those of `blocks`.
struct Sharing {
  int part;
  u16 blocks;
};

// Of A, or else of B, where a cluster has kRows by kColumns tiles, counted down the columns: those
// of a row have A in common, those of a column B.
template <bool kOfA, int kRows, int kColumns>
__device__ __forceinline__ Sharing sharing() {
  if constexpr (kRows * kColumns == 1) return {0, 1};
  const int rank = static_cast<int>(cluster_rank());
  const int row = kColumns == 1 ? rank : rank % kRows;
  const int column = kColumns == 1 ? 0 : rank / kRows;
  constexpr int kColumn = (1 << kRows) - 1;  // a bit for each CTA of a column, then of a row
  constexpr int kRow = ((1 << kRows * kColumns) - 1) / kColumn;
  if constexpr (kOfA) return {column, static_cast<u16>(kRow << row)};
  return {row, static_cast<u16>(kColumn << column * kRows)};
}

// One thread: load rows [position, position + kExtent) of an operand, 64 elements of K from `depth`
// on. Elements beyond the tensor arrive as zeros and count as bytes, so a ragged tile needs no
// other code. Of an operand that kParts CTAs of a cluster share each loads `own`, into all of them:
// a part of the rows, or of the elements of K where these are not contiguous. kOnce: nobody else
// asks for it, so that it leaves L2 first.
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

// The shared-memory descriptor of the 16 elements of K from 16 * step on. Along K a K-major tile
// advances inside its swizzled rows, any other tile by two atoms of eight rows.
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

// One warpgroup: sums += A B for 64 rows of A and as many further ones as kBlocks says, kTileN
// columns of B and the elements of K of a stage; without `adds` they begin as 0. Asynchronous:
// between wgmma_fence and wgmma_commit.
template <class T, int kTileN, bool kAKMajor, bool kBKMajor, int kBlocks = 1>
__device__ __forceinline__ void multiply_stage(float (&sums)[kBlocks * kTileN / 2],
                                               const unsigned char* a_tile,
                                               const unsigned char* b_tile, int adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const u64 a = operand_descriptor<kAKMajor>(a_tile + block * kBlockBytes, step);
      const u64 b = operand_descriptor<kBKMajor>(b_tile, step);
      float* const d = sums + block * (kTileN / 2);
      if constexpr (kIsSame<T, Tf32>) {
        static_assert(kAKMajor && kBKMajor);
        wgmma_tf32<kTileN>(d, a, b, step > 0 ? 1 : adds);
      } else {
        wgmma<kTileN, T, !kAKMajor, !kBKMajor>(d, a, b, step > 0 ? 1 : adds);
      }
    }
  }
}

// One thread: the barriers of a ring; the block's barrier, or the cluster's, follows. kReaders:
// warps that read a stage, of all CTAs that it is loaded for; kFillers: threads that arrive when they
// have asked for, or written, what is theirs of one.
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

// What of an operand a tile needs: from row (or column) `position` of its batch on, and of the B of
// a joined product too.
struct TileSource {
  const TensorMap* map;
  int position;
  int batch;
  const TensorMap* second;
};

// How the stages of a tile are loaded and multiplied; the `Pipeline` of a kernel derives from it
// and says in what it differs.
struct PlainPipeline {
  static constexpr int kRows = 1;           // tiles of a cluster whose CTAs have B in common
  static constexpr int kColumns = 1;        // and of those that have A in common
  static constexpr bool kPingPong = false;  // two warpgroups take turns, each with its own tiles
  static constexpr bool kJoined = false;    // half of B's columns are those of a second operand
  static constexpr int kPanels = 1;         // loads of A's tile by 64 elements of K; 0: computed
  static constexpr bool kOnceA = false;     // nobody else asks for what is loaded of A
  static constexpr bool kOnceB = false;     // and of B
  static constexpr int kPacked = 1;         // elements of K that are one of B's map
  static constexpr int kAcross = 0;         // columns that are one of it, where bytes lie across K
};

// The producer, one thread: load steps `first` to before `last` of a tile, each when its stage is
// free. `stage` and `parity` go on from tile to tile; they begin as 0 and 1. What lies across K
// comes by one copy.
template <class Config, class Pipeline = PlainPipeline>
__device__ __forceinline__ void load_stages(unsigned char* shared, TileSource a, TileSource b,
                                            int first, int last, int& stage, u32& parity) {
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  constexpr bool kOnceB = Pipeline::kOnceB;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kOfB = Pipeline::kJoined ? Config::kTileN / 2 : Config::kTileN;
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
    if constexpr (Pipeline::kJoined) {
      load_operand<kOfB, Config::kBKMajor, kRows, kOnceB>(
          b_tile + kOfB * 128, b.second, &full[stage], b.position, depth, b.batch,
          sharing</*kOfA=*/false, kRows, kColumns>());
    }
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
}

// One thread of a warp: hands a stage back to the producers of all CTAs that load a part of it,
// those of its row and of its column of a cluster of kRows by kColumns, both powers of two. By one
// lane for each CTA, or with a branch in here, ptxas serialises wgmma where an epilogue has none.
template <int kRows, int kColumns>
__device__ __forceinline__ void release_stage(Barrier& empty) {
  if constexpr (kRows * kColumns == 2) {  // whose ranks are known
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

// A consumer, all threads of its warpgroup: sums += the products of the same steps, of its own rows
// of the tile (or columns, where operands are swapped), or with kPingPong of all. The products of a
// stage run while the next one is awaited; it is handed back one step later. `stage` and `parity`
// begin as 0 and 0.
// With kPingPong two warpgroups take turns, since a parity tells phases of a barrier that are two
// apart from each other no more: whoever has begun all products of its tile lets the other begin.
template <class Config, class Pipeline = PlainPipeline>
__device__ __forceinline__ void multiply_stages(float (&sums)[Config::kSumsOwn],
                                                unsigned char* shared, int first, int last,
                                                int& stage, u32& parity) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  constexpr bool kPingPong = Pipeline::kPingPong;
  constexpr int kN = Config::kSwapAB ? Config::kTileM : Config::kTileN;
  constexpr int kBlocks = Config::kSumsOwn / (kN / 2);
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
          sums, b_tile + own, a_tile, step > first);
    } else {
      multiply_stage<typename Config::T, kN, Config::kAKMajor, Config::kBKMajor, kBlocks>(
          sums, a_tile + own, b_tile, step > first);
    }
    wgmma_commit();
    if constexpr (kPingPong) {  // in here and not behind the loop, where wgmma was serialised
      if (step + 1 == last) named_barrier_arrive<256>(kTurns + 1 - warpgroup);
    }
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (first < last && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
}

// Goes over the steps of a tile that another warpgroup multiplies.
template <class Config>
__device__ __forceinline__ void skip_stages(int steps, int& stage, u32& parity) {
  const int next = stage + steps;
  stage = next % Config::kStages;
  parity ^= next / Config::kStages % 2;
}

// The second of two warpgroups that take turns, before its first tile: the first one begins.
template <class Config>
__device__ __forceinline__ void wait_for_first_tile(int steps, int& stage, u32& parity) {
  named_barrier_arrive<256>(kTurns);
  skip_stages<Config>(steps, stage, parity);
}

}  // namespace fusec
