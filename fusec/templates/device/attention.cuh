// Attention over tiles of keys by TMA and wgmma on 16-bit operands. One thread loads the queries of
// a tile and, through a ring of stages, keys and values; each warpgroup of the others has 64
// queries: it multiplies them by a tile of keys, makes weights of the scores, and multiplies these,
// from registers, by the values, while the products of the next tile of keys run already. `Config`
// is the struct at the top of a kernel. Tiles of keys are taken from the last to the first.
// In shared memory queries and keys are panels of 64 features, values panels of 64 of theirs; in
// each a row is 128 bytes, swizzled. Panels begin at multiples of 1024 bytes.
#pragma once

#include "attention_scores.cuh"
#include "softmax_rows.cuh"
#include "tma_4d.cuh"
#include "types.cuh"
#include "warpgroup_order.cuh"
#include "wgmma_registers.cuh"

namespace fusec {

// Which tile of queries a CTA works on.
struct AttentionTile {
  int batch;
  int row;  // in tiles
};

// All tiles of a batch in turn, or the last ones of all batches first: under a causal mask these
// see most keys.
template <bool kLastFirst>
__device__ __forceinline__ AttentionTile attention_tile(int index, int rows, int batches) {
  if constexpr (kLastFirst) return {index % batches, rows - 1 - index / batches};
  return {index / rows, index % rows};
}

// The keys that some of several queries see, and those that all of them see.
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

// Tiles of keys that a tile of queries looks at: `first` to before `last`.
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

// Where in the ring the next stage is, and the parity of its barriers; of the queries' too.
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

// One thread: all barriers; the block's barrier follows.
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

// What of an operand is loaded: its map, and the indices along the map's two batch axes.
struct AttentionSource {
  const TensorMap* map;
  int inner;
  int outer;
};

// One thread: kRows rows of kFeatures features from row `row` on, panel by panel. What lies beyond
// the tensor arrives as zeros and counts as bytes.
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

// The loading thread: all that a tile of queries from `row` on needs.
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

// One warpgroup: s = 64 queries times the keys of a stage. Asynchronous.
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

// One warpgroup: sums += weights times the values of a stage. Asynchronous.
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

// A warpgroup, all threads: over all tiles of keys, sums = weights times values, where the weights
// are what `rows` makes of scores. score(s, key) makes scores of the products with the tile of keys
// from `key` on, but for their positive scale.
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

  // Of the products with values that run still: the stage to hand back when they have ended.
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
    // The GEMMs of these keys overlap those of the previous values, and these overlap the softmax.
    // Both are waited for in another iteration than the softmax, or the compiler would put the
    // wait before it.
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
