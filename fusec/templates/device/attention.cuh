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
#include "warpgroup_turns.cuh"
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
struct SeenKeys {
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
__device__ __forceinline__ KeyTiles key_tiles(SeenKeys seen) {
  const int first = seen.begin / kKeys;
  const int last = seen.end <= seen.begin ? first : (seen.end + kKeys - 1) / kKeys;
  return {first, last};
}

// The same, at least one: what sees no key makes zeros of the first ones.
template <int kKeys>
__device__ __forceinline__ KeyTiles some_key_tiles(SeenKeys seen) {
  const KeyTiles tiles = key_tiles<kKeys>(seen);
  return tiles.first < tiles.last ? tiles : KeyTiles{0, 1};
}

// A tile of queries with the tiles of keys that it looks at; own: what a warpgroup's queries see.
struct AttentionWork {
  AttentionTile tile;
  KeyTiles keys;
  SeenKeys own;
};

// A place in a ring of stages, and the parity of its barriers.
template <int kStages>
struct RingPlace {
  int stage = 0;
  u32 parity = 0;

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
  for (int s = 0; s < Config::kQueryStages; ++s) {
    barriers_at(shared, Config::kQueriesFull)[s].init(1);
    barriers_at(shared, Config::kQueriesEmpty)[s].init(4 * Config::kConsumers);
  }
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
                                               RingPlace<Config::kQueryStages>& tile_place,
                                               RingPlace<Config::kStages>& place) {
  barriers_at(shared, Config::kQueriesEmpty)[tile_place.stage].wait(tile_place.parity ^ 1);
  load_panels<Config::kRows, Config::kFeatures>(
      shared + Config::kQueries + tile_place.stage * Config::kQueryBytes, queries, row,
      &barriers_at(shared, Config::kQueriesFull)[tile_place.stage]);
  tile_place.advance();
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

// A warpgroup, all threads: all tiles of queries from `index` on, which is below `tiles`, one for
// each CTA in turn. work_of(index) tells a tile; score(s, work, key) makes scores of the products
// with the tile of keys from `key` on, but for their positive scale; finish(sums, rows, index) has
// the sums of values and what the softmax knows of each query.
// The products of the next keys, be they of the next queries, run beside the softmax.
template <class Config, class WorkOf, class Score, class Finish>
__device__ __forceinline__ void attend(unsigned char* shared, int index, int tiles,
                                       WarpgroupTurns<Config::kTurns> turns, float scale,
                                       const WorkOf& work_of, const Score& score,
                                       const Finish& finish) {
  Barrier* const queries_full = barriers_at(shared, Config::kQueriesFull);
  Barrier* const queries_empty = barriers_at(shared, Config::kQueriesEmpty);
  Barrier* const keys_full = barriers_at(shared, Config::kKeysFull);
  Barrier* const keys_empty = barriers_at(shared, Config::kKeysEmpty);
  Barrier* const values_full = barriers_at(shared, Config::kValuesFull);
  Barrier* const values_empty = barriers_at(shared, Config::kValuesEmpty);
  const unsigned char* const queries = shared + Config::kQueries + turns.own * (64 * 128);
  unsigned char* const ring = shared + Config::kStage;
  const bool tells = threadIdx.x % 32 == 0;
  const float scale_log2 = scale * kLog2E;

  float s[Config::kKeys / 2];
  u32 weights[Config::kKeys / 16][4];
  float sums[Config::kValueFeatures / 2] = {};
  SoftmaxRows rows;
  RingPlace<Config::kQueryStages> tile_place;
  RingPlace<Config::kStages> place;

  AttentionWork work = work_of(index);
  int tile = work.keys.last - 1;
  queries_full[0].wait(0);
  keys_full[0].wait(0);
  wgmma_fence();
  multiply_keys<Config>(s, queries, ring);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(s);
  if (tells) keys_empty[0].arrive();
  if (tells && tile == work.keys.first) queries_empty[0].arrive();
  score(s, work, tile * Config::kKeys);
  bool grown = rows.push(s, scale_log2);

  // The stage of the values whose products run still.
  int running = -1;
  const auto end_values = [&] {
    wgmma_wait<0>();
    wgmma_pin(sums);
    if (running >= 0 && tells) values_empty[running].arrive();
    running = -1;
  };
  const auto weigh = [&] {
    pack_weights<typename Config::T>(weights, s);
    if (grown) {
#pragma unroll
      for (int i = 0; i < Config::kValueFeatures / 2; ++i) sums[i] *= rows.factor[i / 2 % 2];
    }
  };
  turns.begin();
  for (;;) {
    const bool is_last = tile == work.keys.first;
    --tile;
    if (is_last) {
      if (index + static_cast<int>(gridDim.x) >= tiles) break;
      index += gridDim.x;
      work = work_of(index);
      tile = work.keys.last - 1;
    }
    // What runs is waited for in another turn of the loop than the softmax beside it is in, or the
    // compiler would put the wait in front of that.
    end_values();
    weigh();
    running = place.stage;
    values_full[running].wait(place.parity);
    place.advance();
    if (is_last) {
      tile_place.advance();
      queries_full[tile_place.stage].wait(tile_place.parity);
    }
    keys_full[place.stage].wait(place.parity);
    turns.take();
    wgmma_fence();
    multiply_keys<Config>(s, queries + tile_place.stage * Config::kQueryBytes,
                          ring + place.stage * Config::kStageBytes);
    wgmma_commit();
    multiply_values<Config>(sums, weights,
                            ring + running * Config::kStageBytes + Config::kKeyBytes);
    wgmma_commit();
    turns.pass();
    wgmma_wait<1>();
    wgmma_pin(s);
    if (tells) keys_empty[place.stage].arrive();
    if (tells && tile == work.keys.first) queries_empty[tile_place.stage].arrive();
    SoftmaxRows ended = rows;
    if (is_last) rows = SoftmaxRows();
    score(s, work, tile * Config::kKeys);
    grown = rows.push(s, scale_log2);
    if (is_last) {
      end_values();
      ended.finish(scale_log2);
      finish(sums, ended, index - static_cast<int>(gridDim.x));
#pragma unroll
      for (int i = 0; i < Config::kValueFeatures / 2; ++i) sums[i] = 0.0f;
    }
  }

  end_values();
  weigh();
  values_full[place.stage].wait(place.parity);
  wgmma_fence();
  multiply_values<Config>(sums, weights,
                          ring + place.stage * Config::kStageBytes + Config::kKeyBytes);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sums);
  rows.finish(scale_log2);
  finish(sums, rows, index);
  turns.end();
}

}  // namespace fusec
