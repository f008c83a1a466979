// Backward pass of attention, by TMA and wgmma on 16-bit operands. A CTA owns rows of one side
// (keys and values, or queries and output gradients), 64 per warpgroup, and walks over tiles of the
// other side, which pass through a ring of stages. For each tile a warpgroup computes both GEMMs
// with its own rows, derives weights from the products, and accumulates weights times rows of the
// tile, with the weights in registers: no intermediate result goes through shared memory. `Config`
// is the struct at the top of the kernel. In shared memory all operands are panels of 64 features;
// a row of a panel is 128 bytes, with the 128-byte swizzle. Panels are aligned to 1024 bytes.
#pragma once

#include "attention.cuh"

namespace fusec {

// Converts an exponent of base e to base 2.
__device__ __forceinline__ float exponent_of_two(float exponent) { return exponent * kLog2E; }

// The tiles that a CTA owns: batch by batch, or (kDescending) those of all batches by descending
// work. Every other round is assigned to the CTAs in reverse order, so that no CTA has the longest
// tile of every round.
template <bool kDescending, bool kLastFirst>
struct OwnedTiles {
  int rows;
  int batches;
  int round = 0;

  __device__ __forceinline__ int index() const {
    const int place = kDescending && round % 2 == 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * gridDim.x + place;
  }
  __device__ __forceinline__ bool is_one() const { return index() < rows * batches; }
  __device__ __forceinline__ AttentionTile tile() const {
    if constexpr (!kDescending) return {index() / rows, index() % rows};
    const int row = index() / batches;
    return {index() % batches, kLastFirst ? rows - 1 - row : row};
  }
};

// The operands of one side: its first (queries or keys) and its second one (gradients or values).
struct WalkSources {
  AttentionSource first;
  AttentionSource second;
};

// Lanes of a warp that arrive to release a stage after all lanes have read it. In debug builds each
// lane does so, since racecheck does not track the warp's barrier before the arrival of a single
// lane.
#ifdef FUSEC_DEBUG
constexpr int kHandingLanes = 32;
#else
constexpr int kHandingLanes = 1;
#endif

// Initializes all barriers. Called by one thread, before a barrier of the CTA.
template <class Config>
__device__ __forceinline__ void init_walk(unsigned char* shared) {
  barriers_at(shared, Config::kOwnedFull)->init(1 + Config::kPulls);
  barriers_at(shared, Config::kOwnedEmpty)->init(4 * Config::kConsumers);
  for (int s = 0; s < Config::kStages; ++s) {
    // Both operands, and the values of queries if the lanes of a producer warp compute them.
    barriers_at(shared, Config::kFull)[s].init(2 + 32 * Config::kOfKeys);
    barriers_at(shared, Config::kEmpty)[s].init(4 * Config::kConsumers * kHandingLanes);
  }
  fence_barrier_init();
}

// Producer thread: loads all operands of the rows that start at `row`.
template <class Config>
__device__ __forceinline__ void load_walk(unsigned char* shared, WalkSources own,
                                          WalkSources others, int row, KeyTiles tiles,
                                          AttentionPlace<Config::kStages>& place) {
  if (tiles.first >= tiles.last) return;
  Barrier* const owned_full = barriers_at(shared, Config::kOwnedFull);
  unsigned char* const owned = shared + Config::kOwned;
  barriers_at(shared, Config::kOwnedEmpty)->wait(place.tile_parity ^ 1);
  load_panels<Config::kRows, Config::kFeatures>(owned, own.first, row, owned_full);
  if constexpr (Config::kPulls) {
    load_panels<Config::kRows, Config::kValueFeatures>(owned + Config::kOwnedBytes, own.second, row,
                                                       owned_full);
  }
  place.tile_parity ^= 1;
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    Barrier* const full = &barriers_at(shared, Config::kFull)[place.stage];
    unsigned char* const stage = shared + Config::kStage + place.stage * Config::kStageBytes;
    const int first = tile * Config::kOthers;
    barriers_at(shared, Config::kEmpty)[place.stage].wait(place.parity ^ 1);
    load_panels<Config::kOthers, Config::kFeatures>(stage, others.first, first, full);
    load_panels<Config::kOthers, Config::kValueFeatures>(stage + Config::kFirstBytes, others.second,
                                                         first, full);
    place.advance();
  }
}

template <int kCount>
__device__ __forceinline__ void clear(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = 0.0f;
}

// Returns the values of a stage's queries: kQueryCount per query, those of one kind contiguous.
template <class Config>
__device__ __forceinline__ float* query_values_of(unsigned char* shared, int stage) {
  return reinterpret_cast<float*>(shared + Config::kQueryValues) +
         stage * (Config::kQueryCount * Config::kOthers);
}

// Producer warp: stores the values that compute(m, values) returns for the queries of all tiles.
template <class Config, class Compute>
__device__ __forceinline__ void stage_query_values(unsigned char* shared, KeyTiles tiles,
                                                   AttentionPlace<Config::kStages>& place,
                                                   const Compute& compute) {
  const int lane = threadIdx.x % 32;
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    float* const to = query_values_of<Config>(shared, place.stage);
    barriers_at(shared, Config::kEmpty)[place.stage].wait(place.parity ^ 1);
#pragma unroll 1
    for (int query = lane; query < Config::kOthers; query += 32) {
      float values[Config::kQueryCount];
      compute(tile * Config::kOthers + query, values);
#pragma unroll
      for (int k = 0; k < Config::kQueryCount; ++k) to[k * Config::kOthers + query] = values[k];
    }
    barriers_at(shared, Config::kFull)[place.stage].arrive();  // each lane, for its own writes
    place.advance();
  }
}

// Computes the weights of all products of a thread with a stage. weigh(i, half, column) returns the
// weight of element i: of the thread's first own row or (half 1) the one 8 rows further, and of row
// `column` of the stage. If the CTA owns keys, it also receives the values of that query.
template <class Config, class Weigh>
__device__ __forceinline__ void weigh_products(float (&weights)[Config::kOthers / 2],
                                               unsigned char* shared, int stage,
                                               const Weigh& weigh) {
#pragma unroll
  for (int block = 0; block < Config::kOthers / 8; ++block) {
    const int column = 8 * block + threadIdx.x % 4 * 2;
    if constexpr (Config::kOfKeys) {
      const float* const from = query_values_of<Config>(shared, stage) + column;
      float values[2][Config::kQueryCount];
#pragma unroll
      for (int k = 0; k < Config::kQueryCount; ++k) {
        const Vec<float, 2> both = load<2>(from + k * Config::kOthers);
        values[0][k] = both[0];
        values[1][k] = both[1];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[4 * block + i] = weigh(4 * block + i, i / 2, column + i % 2, values[i % 2]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[4 * block + i] = weigh(4 * block + i, i / 2, column + i % 2);
      }
    }
  }
}

// Replaces the weights for which keep(half, column) is false by zeros.
template <class Config, class Keep>
__device__ __forceinline__ void keep_products(float (&weights)[Config::kOthers / 2],
                                              const Keep& keep) {
#pragma unroll
  for (int i = 0; i < Config::kOthers / 2; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (!keep(i / 2 % 2, column)) weights[i] = 0.0f;
  }
}

// products = dot products of 64 own rows and the rows of a stage. Called by one warpgroup,
// asynchronous.
template <class Config, int kDepth>
__device__ __forceinline__ void multiply_rows(float (&products)[Config::kOthers / 2],
                                              const unsigned char* own,
                                              const unsigned char* others) {
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const u64 a = descriptor_k_major(own + step / 4 * (Config::kRows * 128));
    const u64 b = descriptor_k_major(others + step / 4 * (Config::kOthers * 128));
    wgmma<Config::kOthers, typename Config::T>(products, a + step % 4 * kDescriptorStepK,
                                               b + step % 4 * kDescriptorStepK, step > 0);
  }
}

// sums += weights * rows of a stage. Called by one warpgroup, asynchronous.
template <class Config, int kWidth>
__device__ __forceinline__ void add_weighted(float (&sums)[kWidth / 2],
                                             const u32 (&weights)[Config::kOthers / 16][4],
                                             const unsigned char* others) {
  const u64 b = descriptor_mn_major(others, Config::kOthers * 128);
#pragma unroll
  for (int step = 0; step < Config::kOthers / 16; ++step) {
    wgmma_registers<kWidth, typename Config::T>(sums, weights[step], b + step * kDescriptorStepMn);
  }
}

// Consumer, all threads of a warpgroup: over all tiles of the other side, sums += pulls * its first
// operand (kPulls) and value_sums += shares * its second operand (kShares). share(p, s, other,
// stage) computes the shares p (softmax weights) from the first products s, for the rows that start
// at `other`; pull(w, p, d, other, stage) computes the pulls w (gradients of scores) from p and the
// second products d.
template <class Config, int kSums, int kValueSums, class Share, class Pull>
__device__ __forceinline__ void walk(float (&sums)[kSums], float (&value_sums)[kValueSums],
                                     unsigned char* shared, KeyTiles tiles,
                                     AttentionPlace<Config::kStages>& place, const Share& share,
                                     const Pull& pull) {
  if (tiles.first >= tiles.last) return;
  Barrier* const full = barriers_at(shared, Config::kFull);
  Barrier* const empty = barriers_at(shared, Config::kEmpty);
  const unsigned char* const own =
      shared + Config::kOwned + shuffle_from(threadIdx.x / 128, 0) * (64 * 128);
  const unsigned char* const ring = shared + Config::kStage;
  const int lane = threadIdx.x % 32;

  u32 shares[Config::kOthers / 16][4];
  u32 pulls[Config::kOthers / 16][4];
  barriers_at(shared, Config::kOwnedFull)->wait(place.tile_parity);
  place.tile_parity ^= 1;
  int running = -1;
  for (int tile = tiles.first; tile < tiles.last; ++tile) {
    const int stage = place.stage;
    const unsigned char* const rows = ring + stage * Config::kStageBytes;
    float s[Config::kOthers / 2];
    float d[Config::kOthers / 2];
    float p[Config::kOthers / 2];
    float w[Config::kOthers / 2];
    full[stage].wait(place.parity);
    wgmma_fence();
    multiply_rows<Config, Config::kFeatures>(s, own, rows);
    wgmma_commit();
    // The accumulation of the previous tile finishes during this GEMM. The registers of its weights
    // are then free for the next GEMM, which starts before this one finishes.
    wgmma_wait<1>();
    if (running >= 0 && lane < kHandingLanes) empty[running].arrive();
    if constexpr (Config::kPulls) {
      wgmma_fence();
      multiply_rows<Config, Config::kValueFeatures>(d, own + Config::kOwnedBytes,
                                                    rows + Config::kFirstBytes);
      wgmma_commit();
    }
    wgmma_wait<Config::kPulls ? 1 : 0>();
    wgmma_pin(s);
    share(p, s, tile * Config::kOthers, stage);
    if constexpr (Config::kPulls) {
      wgmma_wait<0>();
      wgmma_pin(d);
      pull(w, p, d, tile * Config::kOthers, stage);
    }
    if constexpr (Config::kOfKeys) __syncwarp();  // lane 0 releases what all lanes have read
    // Weights are packed while no wgmma is in flight: the compiler would wait for all of them
    // first.
    if constexpr (Config::kShares) pack_weights<typename Config::T>(shares, p);
    if constexpr (Config::kPulls) pack_weights<typename Config::T>(pulls, w);
    wgmma_fence();
    if constexpr (Config::kShares) {
      add_weighted<Config, Config::kValueFeatures>(value_sums, shares, rows + Config::kFirstBytes);
    }
    if constexpr (Config::kPulls) add_weighted<Config, Config::kFeatures>(sums, pulls, rows);
    wgmma_commit();
    running = stage;
    place.advance();
  }
  wgmma_wait<0>();
  if constexpr (Config::kPulls) wgmma_pin(sums);
  if constexpr (Config::kShares) wgmma_pin(value_sums);
  if (lane < kHandingLanes) empty[running].arrive();
  if (lane == 0) barriers_at(shared, Config::kOwnedEmpty)->arrive();
}

}  // namespace fusec
