// The backward of attention by TMA and wgmma on 16-bit operands: a walk. A CTA owns rows of one
// side (keys and values, or queries and gradients), 64 to each warpgroup, and tiles of the other
// side pass through a ring of stages. Of each tile a warpgroup computes both products with its own
// rows, weights of these, and adds weights times rows of the tile, from registers: nothing that it
// computes goes through shared memory. `Config` is the struct at the top of a kernel. In shared
// memory all operands are panels of 64 features; in each a row is 128 bytes, swizzled. Panels begin
// at multiples of 1024 bytes.
#pragma once

#include "attention.cuh"

namespace fusec {

// An exponent of e as one of 2.
__device__ __forceinline__ float exponent_of_two(float exponent) { return exponent * kLog2E; }

// The tiles that a CTA owns: those of a batch in turn, or (kDescending) by their work, most first,
// those of all batches together. Every other round of the CTAs is dealt backwards, so that none has
// the longest tile of each.
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

// Of one side: its first operand (queries, keys) and its second one (gradients, values).
struct WalkSources {
  AttentionSource first;
  AttentionSource second;
};

// Lanes of a warp that hand a stage back when all have read it: in debug builds each does so for
// itself, since racecheck does not follow the warp's barrier in front of one lane's arrival.
#ifdef FUSEC_DEBUG
constexpr int kHandingLanes = 32;
#else
constexpr int kHandingLanes = 1;
#endif

// One thread: all barriers; the block's barrier follows.
template <class Config>
__device__ __forceinline__ void init_walk(unsigned char* shared) {
  barriers_at(shared, Config::kOwnedFull)->init(1 + Config::kPulls);
  barriers_at(shared, Config::kOwnedEmpty)->init(4 * Config::kConsumers);
  for (int s = 0; s < Config::kStages; ++s) {
    // Both operands, and the values of queries where the lanes of a warp compute these.
    barriers_at(shared, Config::kFull)[s].init(2 + 32 * Config::kOfKeys);
    barriers_at(shared, Config::kEmpty)[s].init(4 * Config::kConsumers * kHandingLanes);
  }
  fence_barrier_init();
}

// The loading thread: all that the rows from `row` on need.
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

// Where a stage has the values of its queries: kQueryCount for each, those of one kind together.
template <class Config>
__device__ __forceinline__ float* query_values_of(unsigned char* shared, int stage) {
  return reinterpret_cast<float*>(shared + Config::kQueryValues) +
         stage * (Config::kQueryCount * Config::kOthers);
}

// A warp of the producer: compute(m, values) for the queries of all tiles.
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
    barriers_at(shared, Config::kFull)[place.stage].arrive();  // each lane, for what it wrote
    place.advance();
  }
}

// Of all elements that a thread has of the products with a stage, the weights. weigh(i, half,
// column) makes that of element i: of its first own row or (half 1) of the one 8 further, and of
// the stage's row `column`. Where keys are owned, it is given the values of that query as well.
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

// Of those weights only what keep(half, column) says, else zeros.
template <class Config, class Keep>
__device__ __forceinline__ void keep_products(float (&weights)[Config::kOthers / 2],
                                              const Keep& keep) {
#pragma unroll
  for (int i = 0; i < Config::kOthers / 2; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (!keep(i / 2 % 2, column)) weights[i] = 0.0f;
  }
}

// One warpgroup: products = 64 own rows times the rows of a stage. Asynchronous.
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

// One warpgroup: sums += weights times the rows of a stage. Asynchronous.
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

// A warpgroup, all threads: over all tiles of the other side, sums += pulls times its first rows
// (kPulls) and value_sums += shares times its second ones (kShares). share(p, s, other, stage)
// makes shares p of the first products with the rows from `other` on, pull(w, p, d, other, stage)
// pulls of these and of the second products.
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
    // The sums of the tile before end under these products; their weights then leave registers to
    // the next ones, which begin before these end.
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
    if constexpr (Config::kOfKeys) __syncwarp();  // lane 0 hands back what all lanes have read
    // Weights are packed while nothing runs: the compiler would wait for all in front of them.
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
