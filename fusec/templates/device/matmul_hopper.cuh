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
// rows has B's columns in place of the rows (kSwapped): what is summed is the tile, transposed.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "storage.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace fusec {

inline constexpr int kBlockBytes = 64 * 128;  // 64 rows of 64 elements
inline constexpr int kTurns = 1;              // named barriers, one for each warpgroup

// The half of an operand that a CTA loads for the CTAs of its cluster that have it in common.
struct Sharing {
  int half;
  u16 blocks;
};

// Of A, or else of B. A cluster of four CTAs, with kBoth, has two tile rows by two tile columns,
// counted down the columns.
template <bool kOfA, bool kBoth>
__device__ __forceinline__ Sharing sharing() {
  const int rank = static_cast<int>(cluster_rank());
  if constexpr (!kBoth) return {rank, 3};
  if constexpr (kOfA) return {rank / 2, static_cast<u16>(5 << rank % 2)};
  return {rank % 2, static_cast<u16>(3 << rank / 2 * 2)};
}

// One thread: load rows [position, position + kExtent) of an operand, 64 elements of K from `depth`
// on. Elements beyond the tensor arrive as zeros and count as bytes, so a ragged tile needs no
// other code. An operand that two CTAs of a cluster share is loaded by halves, each into both:
// of rows, or of the elements of K where these are not contiguous. kOnce: nobody else asks for it,
// so that it leaves L2 first; kOfA, kBoth: as for `sharing`.
template <int kExtent, bool kKMajor, bool kShared = false, bool kOnce = false, bool kOfA = false,
          bool kBoth = false>
__device__ __forceinline__ void load_operand(unsigned char* tile, const TensorMap* map,
                                             Barrier* barrier, int position, int depth, int batch) {
  if constexpr (kShared && kKMajor) {
    const Sharing own = sharing<kOfA, kBoth>();
    const int half = own.half * (kExtent / 2);
    if constexpr (kOnce) {
      tensor_load_3d_multicast(tile + half * 128, map, depth, position + half, batch, barrier,
                               own.blocks, l2_evict_first());
    } else {
      tensor_load_3d_multicast(tile + half * 128, map, depth, position + half, batch, barrier,
                               own.blocks);
    }
  } else if constexpr (kKMajor) {
    if constexpr (kOnce) {
      tensor_load_3d(tile, map, depth, position, batch, barrier, l2_evict_first());
    } else {
      tensor_load_3d(tile, map, depth, position, batch, barrier);
    }
  } else if constexpr (kShared) {
    const Sharing own = sharing<kOfA, kBoth>();
    const int half = own.half * 32;
#pragma unroll
    for (int block = 0; block < (kExtent + 63) / 64; ++block) {
      unsigned char* const part = tile + block * kBlockBytes + half * 128;
      if constexpr (kOnce) {
        tensor_load_3d_multicast(part, map, position + 64 * block, depth + half, batch, barrier,
                                 own.blocks, l2_evict_first());
      } else {
        tensor_load_3d_multicast(part, map, position + 64 * block, depth + half, batch, barrier,
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

// The producer, one thread: load steps `first` to before `last` of a tile, each when its stage is
// free. `stage` and `parity` go on from tile to tile; they begin as 0 and 1. kSharesA, kSharesB:
// whether two CTAs of a cluster have that operand in common. kJoined: whether half of B's
// columns are those of a second operand; kPanels: how often A's tile is 64 elements of K deep;
// kOnceA, kOnceB: whether nobody else asks for what is loaded; kPacked: elements of K that are one
// of B's map; kAcross: columns that are one of it, where B's bytes lie across K and come by one copy.
template <class Config, bool kSharesA = false, bool kSharesB = false, bool kJoined = false,
          int kPanels = 1, bool kOnceA = false, bool kOnceB = false, int kPacked = 1, int kAcross = 0>
__device__ __forceinline__ void load_stages(unsigned char* shared, TileSource a, TileSource b,
                                            int first, int last, int& stage, u32& parity) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kColumns = kJoined ? Config::kTileN / 2 : Config::kTileN;
  constexpr bool kBoth = kSharesA && kSharesB;
  for (int step = first; step < last; ++step) {
    const int depth = step * Config::kTileK;
    unsigned char* const a_tile = shared + stage * Config::kStageBytes;
    unsigned char* const b_tile = a_tile + Config::kATileBytes;
    empty[stage].wait(parity);
    full[stage].arrive_expect_tx(Config::kStageBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      load_operand<Config::kTileM, Config::kAKMajor, kSharesA, kOnceA, true, kBoth>(
          a_tile + panel * Config::kTileM * 128, a.map, &full[stage], a.position,
          depth + 64 * panel, a.batch);
    }
    if constexpr (kAcross > 0) {
      load_operand<Config::kTileK, true, false, kOnceB>(b_tile, b.map, &full[stage],
                                                        depth / kPacked, b.position / kAcross,
                                                        b.batch);
    } else {
      load_operand<kColumns, Config::kBKMajor, kSharesB, kOnceB, false, kBoth>(
          b_tile, b.map, &full[stage], b.position, depth / kPacked, b.batch);
    }
    if constexpr (kJoined) {
      load_operand<kColumns, Config::kBKMajor, kSharesB, kOnceB, false, kBoth>(
          b_tile + kColumns * 128, b.second, &full[stage], b.position, depth, b.batch);
    }
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
}

// One thread of a warp: hands a stage back to the producers of all CTAs that load it. By one lane
// for each CTA, or with a branch in here, ptxas serialises wgmma where an epilogue has no branch.
// Of four CTAs, the one across has no operand in common with this one.
template <int kCluster>
__device__ __forceinline__ void release_stage(Barrier& empty) {
  if constexpr (kCluster == 1) {
    empty.arrive();
  } else if constexpr (kCluster == 4) {
    empty.arrive();
    empty.arrive_at(cluster_rank() ^ 1);
    empty.arrive_at(cluster_rank() ^ 2);
  } else {
#pragma unroll
    for (int rank = 0; rank < kCluster; ++rank) empty.arrive_at(rank);
  }
}

// A consumer, all threads of its warpgroup: sums += the products of the same steps, of its own rows
// of the tile (or columns, where operands are swapped), or with kPingPong of all. The products of a
// stage run while the next one is awaited; it is handed back one step later. `stage` and `parity`
// begin as 0 and 0. kCluster: CTAs that load what it reads.
// With kPingPong two warpgroups take turns, since a parity tells phases of a barrier that are two
// apart from each other no more: whoever has begun all products of its tile lets the other begin.
template <class Config, bool kPingPong = false, int kCluster = 1>
__device__ __forceinline__ void multiply_stages(float (&sums)[Config::kSumsOwn],
                                                unsigned char* shared, int first, int last,
                                                int& stage, u32& parity) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kColumns = Config::kSwapped ? Config::kTileM : Config::kTileN;
  constexpr int kBlocks = Config::kSumsOwn / (kColumns / 2);
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
    if constexpr (Config::kSwapped) {
      multiply_stage<typename Config::T, kColumns, Config::kBKMajor, Config::kAKMajor, kBlocks>(
          sums, b_tile + own, a_tile, step > first);
    } else {
      multiply_stage<typename Config::T, kColumns, Config::kAKMajor, Config::kBKMajor, kBlocks>(
          sums, a_tile + own, b_tile, step > first);
    }
    wgmma_commit();
    if constexpr (kPingPong) {  // in here and not behind the loop, where wgmma was serialised
      if (step + 1 == last) named_barrier_arrive<256>(kTurns + 1 - warpgroup);
    }
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<kCluster>(empty[previous]);
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (first < last && lane == 0) release_stage<kCluster>(empty[previous]);
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
