// Attention over tiles of keys, by TMA and wgmma on 16-bit operands. One producer thread loads the
// queries of a tile and, through a ring of stages, keys and values. Each consumer warpgroup has 64
// queries: it multiplies them by a tile of keys, turns the scores into softmax weights, and
// multiplies these, from registers, by the values, while the QK GEMM of the next tile already runs.
// `Config` is the struct at the top of the kernel. Tiles of keys are processed from the last to the
// first.
// In shared memory, queries and keys are panels of 64 features, values panels of 64 value features.
// A row of a panel is 128 bytes, with the 128-byte swizzle. Panels are aligned to 1024 bytes.
#pragma once

#include "attention_scores.cuh"
#include "softmax_rows.cuh"
#include "tma_4d.cuh"
#include "types.cuh"
#include "warpgroup_order.cuh"
#include "wgmma_registers.cuh"

namespace fusec {

// The tile of queries that a CTA processes.
struct AttentionTile {
  int batch;
  int row;  // in tiles
};

// Maps an index to a tile: batch by batch, or the last tiles of all batches first, since under a
// causal mask these attend to the most keys.
template <bool kLastFirst>
__device__ __forceinline__ AttentionTile attention_tile(int index, int rows, int batches) {
  if constexpr (kLastFirst) return {index % batches, rows - 1 - index / batches};
  return {index / rows, index % rows};
}

// The keys [begin, end) that at least one of several queries attends to, and the keys [all_begin,
// all_end) that all of them attend to.
struct KeyRange {
  int begin;
  int end;
  int all_begin;
  int all_end;

  __device__ __forceinline__ void begin_at(int some, int all) {
    begin = begin > some ? begin : some;
    all_begin = all_begin > all ? all_begin : all;
  }
  __device__ __forceinline__ void end_at(int some, int all) {
    end = end < some ? end : some;
    all_end = all_end < all ? all_end : all;
  }
};

// The tiles of keys [first, last) that a tile of queries attends to.
struct KeyTiles {
  int first;
  int last;
};

template <int kKeys>
__device__ __forceinline__ KeyTiles key_tiles(KeyRange seen) {
  const int first = seen.begin / kKeys;
  const int last = seen.end <= seen.begin ? first : (seen.end + kKeys - 1) / kKeys;
  return {first, last};
}

// Position in the ring: the next stage and the parity of its barriers, and that of the queries'
// barriers.
template <int kStages>
struct AttentionPlace {
  int stage = 0;
  u32 parity = 0;
  u32 tile_parity = 0;

  __device__ __forceinline__ void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

__device__ __forceinline__ Barrier* barriers_at(unsigned char* shared, int place) {
  return reinterpret_cast<Barrier*>(shared + place);
}

// Initializes all barriers. Called by one thread, before a barrier of the CTA.
template <class Config>
__device__ __forceinline__ void init_attention(unsigned char* shared) {
  barriers_at(shared, Config::kQueriesFull)->init(1);
  barriers_at(shared, Config::kQueriesEmpty)->init(4 * Config::kConsumers);
  for (int s = 0; s < Config::kStages; ++s) {
    barriers_at(shared, Config::kKeysFull)[s].init(1);
    barriers_at(shared, Config::kValuesFull)[s].init(1);
    barriers_at(shared, Config::kKeysEmpty)[s].init(4 * Config::kConsumers);
    barriers_at(shared, Config::kValuesEmpty)[s].init(4 * Config::kConsumers);
  }
  fence_barrier_init();
}

// The source of an operand: its tensor map, and the indices along the map's two batch axes.
struct AttentionSource {
  const TensorMap* map;
  int inner;
  int outer;
};

// Loads kRows rows of kFeatures features, starting at `row`, panel by panel. Called by one thread.
// Out-of-bounds elements are zero-filled and still count as transferred bytes.
template <int kRows, int kFeatures>
__device__ __forceinline__ void load_panels(unsigned char* to, AttentionSource from, int row,
                                            Barrier* full) {
  constexpr int kPanels = (kFeatures + 63) / 64;
  full->arrive_expect_tx(kPanels * kRows * 128);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    tensor_load_4d(to + panel * kRows * 128, from.map, 64 * panel, row, from.inner, from.outer,
                   full);
  }
}

// Producer thread: loads all operands of the tile of queries that starts at `row`.
template <class Config>
__device__ __forceinline__ void load_attention(unsigned char* shared, AttentionSource queries,
                                               AttentionSource keys, AttentionSource values,
                                               int row, KeyTiles tiles,
                                               AttentionPlace<Config::kStages>& place) {
  if (tiles.first >= tiles.last) return;
  barriers_at(shared, Config::kQueriesEmpty)->wait(place.tile_parity ^ 1);
  load_panels<Config::kRows, Config::kFeatures>(shared + Config::kQueries, queries, row,
                                                barriers_at(shared, Config::kQueriesFull));
  place.tile_parity ^= 1;
  for (int tile = tiles.last - 1; tile >= tiles.first; --tile) {
    const int stage = place.stage;
    barriers_at(shared, Config::kKeysEmpty)[stage].wait(place.parity ^ 1);
    load_panels<Config::kKeys, Config::kFeatures>(
        shared + Config::kStage + stage * Config::kStageBytes, keys, tile * Config::kKeys,
        &barriers_at(shared, Config::kKeysFull)[stage]);
    barriers_at(shared, Config::kValuesEmpty)[stage].wait(place.parity ^ 1);
    load_panels<Config::kKeys, Config::kValueFeatures>(
        shared + Config::kStage + stage * Config::kStageBytes + Config::kKeyBytes, values,
        tile * Config::kKeys, &barriers_at(shared, Config::kValuesFull)[stage]);
    place.advance();
  }
}

// s = Q K^T for 64 queries and the keys of a stage. Called by one warpgroup, asynchronous.
template <class Config>
__device__ __forceinline__ void multiply_keys(float (&s)[Config::kKeys / 2],
                                              const unsigned char* queries,
                                              const unsigned char* keys) {
#pragma unroll
  for (int step = 0; step < Config::kFeatures / 16; ++step) {
    const u64 a = descriptor_k_major(queries + step / 4 * (Config::kRows * 128));
    const u64 b = descriptor_k_major(keys + step / 4 * (Config::kKeys * 128));
    wgmma<Config::kKeys, typename Config::T>(s, a + step % 4 * kDescriptorStepK,
                                             b + step % 4 * kDescriptorStepK, step > 0);
  }
}

// sums += weights * V for the values of a stage. Called by one warpgroup, asynchronous.
template <class Config>
__device__ __forceinline__ void multiply_values(float (&sums)[Config::kValueFeatures / 2],
                                                const u32 (&weights)[Config::kKeys / 16][4],
                                                const unsigned char* values) {
  const u64 b = descriptor_mn_major(values, Config::kKeys * 128);
#pragma unroll
  for (int step = 0; step < Config::kKeys / 16; ++step) {
    wgmma_registers<Config::kValueFeatures, typename Config::T>(sums, weights[step],
                                                                b + step * kDescriptorStepMn);
  }
}

// Consumer, all threads of a warpgroup: sums = weights * V over all tiles of keys, where `rows`
// computes the weights from scores. score(s, key) turns the products with the tile of keys that
// starts at `key` into scores, except for their positive scale.
template <class Config, class Score>
__device__ __forceinline__ void attention_mainloop(float (&sums)[Config::kValueFeatures / 2],
                                                   SoftmaxRows& rows, unsigned char* shared,
                                                   KeyTiles tiles,
                                                   AttentionPlace<Config::kStages>& place,
                                                   WarpgroupTurns<Config::kTurns> turns,
                                                   float scale, const Score& score) {
  if (tiles.first >= tiles.last) return;
  Barrier* const keys_full = barriers_at(shared, Config::kKeysFull);
  Barrier* const keys_empty = barriers_at(shared, Config::kKeysEmpty);
  Barrier* const values_full = barriers_at(shared, Config::kValuesFull);
  Barrier* const values_empty = barriers_at(shared, Config::kValuesEmpty);
  const unsigned char* const queries =
      shared + Config::kQueries + shuffle_from(threadIdx.x / 128, 0) * (64 * 128);
  unsigned char* const ring = shared + Config::kStage;
  const int lane = threadIdx.x % 32;

  const float scale_log2 = scale * kLog2E;
  float s[Config::kKeys / 2];
  u32 weights[Config::kKeys / 16][4];

  barriers_at(shared, Config::kQueriesFull)->wait(place.tile_parity);
  place.tile_parity ^= 1;
  keys_full[place.stage].wait(place.parity);
  wgmma_fence();
  multiply_keys<Config>(s, queries, ring + place.stage * Config::kStageBytes);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(s);
  if (lane == 0) keys_empty[place.stage].arrive();
  score(s, (tiles.last - 1) * Config::kKeys);
  bool grown = rows.push(s, scale_log2);

  // The stage of the PV GEMM in flight, released when that GEMM has finished.
  int running = -1;
  const auto end_values = [&] {
    wgmma_wait<0>();
    wgmma_pin(sums);
    if (running >= 0 && lane == 0) values_empty[running].arrive();
    pack_weights<typename Config::T>(weights, s);
    if (grown) {
#pragma unroll
      for (int i = 0; i < Config::kValueFeatures / 2; ++i) sums[i] *= rows.factor[i / 2 % 2];
    }
  };
  for (int tile = tiles.last - 2; tile >= tiles.first; --tile) {
    // The QK GEMM of this tile overlaps with the PV GEMM of the previous one, which overlaps with
    // the softmax. The PV GEMM is waited for in the next iteration: in this one, the compiler would
    // move the wait before the softmax.
    end_values();
    running = place.stage;
    values_full[running].wait(place.parity);
    place.advance();
    keys_full[place.stage].wait(place.parity);
    turns.take();
    wgmma_fence();
    multiply_keys<Config>(s, queries, ring + place.stage * Config::kStageBytes);
    wgmma_commit();
    multiply_values<Config>(sums, weights,
                            ring + running * Config::kStageBytes + Config::kKeyBytes);
    wgmma_commit();
    turns.pass();
    wgmma_wait<1>();
    wgmma_pin(s);
    if (lane == 0) keys_empty[place.stage].arrive();
    score(s, tile * Config::kKeys);
    grown = rows.push(s, scale_log2);
  }

  if (lane == 0) barriers_at(shared, Config::kQueriesEmpty)->arrive();
  end_values();
  values_full[place.stage].wait(place.parity);
  wgmma_fence();
  multiply_values<Config>(sums, weights,
                          ring + place.stage * Config::kStageBytes + Config::kKeyBytes);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (lane == 0) values_empty[place.stage].arrive();
  place.advance();
  rows.finish(scale_log2);
}

}  // namespace fusec
