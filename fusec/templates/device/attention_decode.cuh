// Attention of a few queries over many keys, by mma.sync on 16-bit operands. The queries of a
// block, 16 at most, attend to the same keys and values. Tiles of keys are distributed round-robin
// to the warps of all blocks that share queries, so that these read adjacent tiles at the same
// time. Each warp has a ring in shared memory, filled by cp.async, and does not wait for others
// until the end. Then the results of warps are combined in order, and so are those of blocks, by
// the last block. `Config` is the struct at the top of the kernel. In shared memory, rows of a tile
// are padded by 8 elements, so that the rows that an ldmatrix reads are in different banks.
#pragma once

#include "async_copy.cuh"
#include "attention_scores.cuh"
#include "grid.cuh"
#include "softmax_rows.cuh"

namespace fusec {

// The keys [begin, end) that at least one query of a block attends to.
struct KeySpan {
  int begin;
  int end;

  __device__ __forceinline__ void begin_at(i64 key) {
    if (key > begin) begin = key < end ? static_cast<int>(key) : end;
  }
  __device__ __forceinline__ void end_at(i64 key) {
    if (key < end) end = key > begin ? static_cast<int>(key) : begin;
  }
};

// The tiles [first, last) that contain these keys.
struct DecodeTiles {
  int first;
  int last;
};

template <int kKeys>
__device__ __forceinline__ DecodeTiles tiles_of(KeySpan seen) {
  const int first = seen.begin / kKeys;
  return {first, seen.begin < seen.end ? (seen.end + kKeys - 1) / kKeys : first};
}

// Starts copying the rows of a tile's keys, from `key` on, kFeatures elements each; zeros from key
// `end` on. row(n) points to the row of key n. Called by one warp.
template <class Config, int kFeatures, class Row>
__device__ __forceinline__ void copy_rows(unsigned char* tile, int key, int end, const Row& row) {
  auto* const to = reinterpret_cast<typename Config::T*>(tile);
  constexpr int kChunks = kFeatures / 8;
  static_assert(Config::kKeys * kChunks % 32 == 0);
#pragma unroll
  for (int i = 0; i < Config::kKeys * kChunks / 32; ++i) {
    const int index = 32 * i + threadIdx.x % 32;
    const int n = key + index / kChunks;
    const int column = index % kChunks * 8;
    const auto* const from = row(n < end ? n : end - 1) + column;
    auto* const place = to + index / kChunks * (kFeatures + 8) + column;
    if constexpr (Config::kStreaming) {
      copy_async_16_of_line(place, from, n < end, l2_evict_first());
    } else {
      copy_async_16_of_line(place, from, n < end);
    }
  }
}

// The queries as A operands of mma_16816, 16 features per step; rows beyond kRows are zero. They
// are in registers of each warp or, if there are too few registers, once in shared memory.
template <class Config>
struct DecodeQueries {
  static constexpr int kSteps = Config::kFeatures / 16;
  u32 own[Config::kSharedQueries ? 1 : kSteps][4];
  Vec<u32, 4>* all;

  __device__ __forceinline__ void get(u32 (&a)[4], int step) const {
    if constexpr (Config::kSharedQueries) {
      const auto lane = load<4>(reinterpret_cast<const u32*>(all + 32 * step + threadIdx.x % 32));
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = lane[e];
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) a[e] = own[step][e];
    }
  }
};

// Loads a lane's fragment of a step. row(g, m) points to the features of query m of head g.
template <class Config, class Row>
__device__ __forceinline__ void load_step(u32 (&a)[4], int step, const Row& row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = lane / 4 + 8 * h;
    const int own = r < Config::kRows ? r : 0;
    const auto* const from = row(own / Config::kQueries, own % Config::kQueries) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 pair = *reinterpret_cast<const u32*>(from + 16 * step + 8 * i);
      a[h + 2 * i] = r < Config::kRows ? pair : 0;
    }
  }
}

// Loads the queries of all warps. Called by a block.
template <class Config, class Row>
__device__ __forceinline__ DecodeQueries<Config> load_queries(unsigned char* shared,
                                                              const Row& row) {
  DecodeQueries<Config> queries;
  if constexpr (Config::kSharedQueries) {
    queries.all = reinterpret_cast<Vec<u32, 4>*>(shared + Config::kQueriesAt);
    for (int step = threadIdx.x / 32; step < queries.kSteps; step += Config::kWarps) {
      Vec<u32, 4> lane;
      u32 a[4];
      load_step<Config>(a, step, row);
#pragma unroll
      for (int e = 0; e < 4; ++e) lane[e] = a[e];
      store(reinterpret_cast<u32*>(queries.all + 32 * step + threadIdx.x % 32), lane);
    }
    __syncthreads();
  } else {
#pragma unroll
    for (int step = 0; step < queries.kSteps; ++step) {
      load_step<Config>(queries.own[step], step, row);
    }
  }
  return queries;
}

// s = Q K^T for the keys of a tile. Called by one warp.
template <class Config>
__device__ __forceinline__ void multiply_tile(float (&s)[Config::kKeys / 8][4],
                                              const DecodeQueries<Config>& queries,
                                              const typename Config::T* keys) {
  const int lane = threadIdx.x % 32;
  const auto* const from =
      keys + (lane % 8 + lane / 16 * 8) * (Config::kFeatures + 8) + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < Config::kKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[j][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < Config::kFeatures / 16; ++step) {
    u32 a[4];
    queries.get(a, step);
#pragma unroll
    for (int j = 0; j < Config::kKeys / 16; ++j) {
      u32 b[4];
      ldmatrix_x4(b, from + 16 * j * (Config::kFeatures + 8) + 16 * step);
      mma_16816<typename Config::T>(s[2 * j], a, {b[0], b[1]});
      mma_16816<typename Config::T>(s[2 * j + 1], a, {b[2], b[3]});
    }
  }
}

// sums += weights * V for the values of a tile. Called by one warp.
template <class Config>
__device__ __forceinline__ void add_values(float (&sums)[Config::kValueFeatures / 8][4],
                                           const u32 (&weights)[Config::kKeys / 16][4],
                                           const typename Config::T* values) {
  const int lane = threadIdx.x % 32;
  const auto* const from = values + lane % 16 * (Config::kValueFeatures + 8) + lane / 16 * 8;
#pragma unroll
  for (int step = 0; step < Config::kKeys / 16; ++step) {
#pragma unroll
    for (int j = 0; j < Config::kValueFeatures / 16; ++j) {
      u32 b[4];
      ldmatrix_x4_trans(b, from + 16 * step * (Config::kValueFeatures + 8) + 16 * j);
      mma_16816<typename Config::T>(sums[2 * j], weights[step], {b[0], b[1]});
      mma_16816<typename Config::T>(sums[2 * j + 1], weights[step], {b[2], b[3]});
    }
  }
}

// Accumulators and softmax state of a warp for 16 queries.
template <class Config>
struct DecodeSums {
  float sums[Config::kValueFeatures / 8][4] = {};
  SoftmaxRows rows;
};

// Each warp: sums += weights * V over its tiles. query(g, m) points to a query; the first copies
// are issued before queries are loaded. load_keys(ring, key) and load_values(ring, key) start
// copying a tile; score(s, key) turns products into scores, except for their positive scale. The
// wait for values follows the computation of their weights. Groups of copies are committed even if
// empty, so that waits count tiles, with two groups each.
template <class Config, class Query, class LoadKeys, class LoadValues, class Score>
__device__ __forceinline__ void decode(DecodeSums<Config>& own, unsigned char* shared,
                                       DecodeTiles tiles, int split, float scale,
                                       const Query& query, const LoadKeys& load_keys,
                                       const LoadValues& load_values, const Score& score) {
  using T = typename Config::T;
  const float scale_log2 = scale * kLog2E;
  const int warp = threadIdx.x / 32;
  unsigned char* const ring = shared + warp * (Config::kStages * Config::kStageBytes);
  constexpr int kStep = Config::kSplits * Config::kWarps;
  const int first = tiles.first + split * Config::kWarps + warp;
  int ahead = first;
  const auto load = [&](int stage) {
    unsigned char* const to = ring + stage * Config::kStageBytes;
    if (ahead < tiles.last) load_keys(to, ahead * Config::kKeys);
    copy_commit();
    if (ahead < tiles.last) load_values(to + Config::kKeyBytes, ahead * Config::kKeys);
    copy_commit();
    ahead += kStep;
  };
#pragma unroll
  for (int i = 0; i < Config::kStages - 1; ++i) load(i);
  const auto queries = load_queries<Config>(shared, query);
  int stage = 0;
  for (int tile = first; tile < tiles.last; tile += kStep) {
    // Waits for the keys of the oldest stage and for all lanes to finish the previous one, which is
    // filled next.
    copy_wait<2 * Config::kStages - 3>();
    __syncwarp();
    load(stage == 0 ? Config::kStages - 1 : stage - 1);

    const unsigned char* const here = ring + stage * Config::kStageBytes;
    float s[Config::kKeys / 8][4];
    multiply_tile<Config>(s, queries, reinterpret_cast<const T*>(here));
    auto& flat = reinterpret_cast<float (&)[Config::kKeys / 2]>(s);
    score(flat, tile * Config::kKeys);
    if (own.rows.push(flat, scale_log2)) {
#pragma unroll
      for (int j = 0; j < Config::kValueFeatures / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) own.sums[j][e] *= own.rows.factor[e / 2];
      }
    }
    u32 weights[Config::kKeys / 16][4];
    pack_weights<T>(weights, flat);
    copy_wait<2 * Config::kStages - 2>();
    __syncwarp();
    add_values<Config>(own.sums, weights, reinterpret_cast<const T*>(here + Config::kKeyBytes));
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
  }
  own.rows.finish(scale_log2);
}

// Partial results for the same queries: the sums of values of each query with a pitch of kPitch,
// then their maximum scores, then their sums of exponentials.
template <class Config, int kPitch>
struct DecodeParts {
  static constexpr int kFloats = (Config::kRows * (kPitch + 2) + 3) / 4 * 4;
  float* first;

  __device__ __forceinline__ float* sums(int part) const {
    return first + static_cast<i64>(part) * kFloats;
  }
  __device__ __forceinline__ float* tops(int part) const {
    return sums(part) + Config::kRows * kPitch;
  }
  __device__ __forceinline__ float* totals(int part) const { return tops(part) + Config::kRows; }
};

// Stores a warp's partial results in shared memory. Called by one warp.
template <class Config, int kPitch>
__device__ __forceinline__ void store_partial(DecodeParts<Config, kPitch> parts, int part,
                                              const DecodeSums<Config>& own) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    if (row < Config::kRows) {
      if (lane % 4 == 0) {
        parts.tops(part)[row] = own.rows.top[h];
        parts.totals(part)[row] = own.rows.total[h];
      }
      float* const to = parts.sums(part) + row * kPitch + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < Config::kValueFeatures / 8; ++j) {
        to[8 * j] = own.sums[j][2 * h] * own.rows.factor[h];
        to[8 * j + 1] = own.sums[j][2 * h + 1] * own.rows.factor[h];
      }
    }
  }
}

// Combined partial results of a query in one thread: the maximum score, the sum of exponentials,
// and neighbouring sums of values.
template <int kWidth>
struct DecodeWhole {
  float top = -INFINITY;
  float total = 0.0f;
  Vec<float, kWidth> sums = splat<float, kWidth>(0.0f);
};

// Combines partial results in order. Called by one thread. Up to 16 are loaded at a time, since
// they may come from other blocks.
template <int kParts, int kWidth, class Config, int kPitch>
__device__ __forceinline__ DecodeWhole<kWidth> combined(DecodeParts<Config, kPitch> parts, int row,
                                                        int column, float scale_log2) {
  constexpr int kTogether = kParts < 16 ? kParts : 16;
  DecodeWhole<kWidth> all;
#pragma unroll 1
  for (int first = 0; first < kParts; first += kTogether) {
    DecodeWhole<kWidth> each[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int part = first + i;
      if (kParts % kTogether == 0 || part < kParts) {
        each[i].top = parts.tops(part)[row];
        each[i].total = parts.totals(part)[row];
        each[i].sums = load<kWidth>(parts.sums(part) + row * kPitch + column);
      }
    }
    float top = all.top;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) top = max_keeping_nan(top, each[i].top);
    // -inf - -inf would be NaN.
    const auto weight = [&](float of) {
      return of == -INFINITY ? 0.0f : exp2_approx((of - top) * scale_log2);
    };
    const float kept = weight(all.top);
    all.top = top;
    all.total *= kept;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) all.sums[e] *= kept;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float share = weight(each[i].top);
      all.total = fmaf(share, each[i].total, all.total);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        all.sums[e] = fmaf(share, each[i].sums[e], all.sums[e]);
      }
    }
  }
  return all;
}

// Calls visit(row, column, whole) for the combined partial results, kWidth neighbouring values at a
// time. Called by a block.
template <int kParts, int kWidth, class Config, int kPitch, class Visit>
__device__ __forceinline__ void visit_parts(DecodeParts<Config, kPitch> parts, float scale,
                                            const Visit& visit) {
  constexpr int kAcross = Config::kValueFeatures / kWidth;
  for (int i = threadIdx.x; i < Config::kRows * kAcross; i += Config::kThreads) {
    const int row = i / kAcross;
    const int column = i % kAcross * kWidth;
    visit(row, column, combined<kParts, kWidth>(parts, row, column, scale * kLog2E));
  }
}

// Combines the partial results of a block's warps and stores them as those of the block. Called by
// a block.
template <class Config, int kPitch>
__device__ __forceinline__ void store_block_partial(DecodeParts<Config, Config::kValueFeatures> all,
                                                    int part, DecodeParts<Config, kPitch> own,
                                                    float scale) {
  visit_parts<Config::kWarps, 4>(own, scale, [&](int row, int column, const DecodeWhole<4>& whole) {
    store(all.sums(part) + row * Config::kValueFeatures + column, whole.sums);
    if (column == 0) {
      all.tops(part)[row] = whole.top;
      all.totals(part)[row] = whole.total;
    }
  });
}

}  // namespace fusec
