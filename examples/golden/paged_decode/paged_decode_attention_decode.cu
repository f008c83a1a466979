// paged_decode_attention_decode: One query of each sequence over keys and values in pages, as far
//   as each sequence is long.
// Source: paged_decode.yaml
//   13: pages = reshape(table, [B * 32])
//   14: k = reshape(index_select(k_pages, pages, dim=0), [B, 512, 2, 128])
//   15: v = reshape(index_select(v_pages, pages, dim=0), [B, 512, 2, 128])
//   16: scores = cast(q @ permute(k, [0, 2, 3, 1]), f32) * 0.08838834764831845
//   17: position = broadcast(iota(512, dtype=i32), [true, true, true, false])
//   18: seen = lt(position, broadcast(lengths, [false, true, true, true]))
//   19: p = cast(softmax(where(seen, scores, -inf), -1), bf16)
//   20: o = p @ permute(v, [0, 2, 1, 3])
//   21: y = reshape(o, [B, 1024])
// Schedule: 8 times 4 queries, which 2 blocks share, 512 keys in tiles of 16, 8 warps with 2 stages
//   each.
#include "attention_decode.cuh"
#include "attention_scores.cuh"
#include "grid.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tiles, stages and warps, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                         // of queries, keys, values and weights
  static constexpr int kFeatures = 128;          // of queries and keys
  static constexpr int kValueFeatures = 128;     // of values
  static constexpr int kQueries = 4;             // queries per head
  static constexpr int kRows = 4;                // queries that share keys and values
  static constexpr bool kSharedQueries = false;  // queries are in shared memory
  static constexpr int kKeys = 16;               // keys per tile
  static constexpr int kStages = 2;              // tiles in flight per warp
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kSplits = 2;         // blocks that split the keys
  static constexpr bool kStreaming = true;  // L2 evict-first for keys and values

  // Shared memory, in bytes.
  // Keys of a stage; its values follow.
  static constexpr int kKeyBytes = kKeys * (kFeatures + 8) * 2;
  // One stage.
  static constexpr int kStageBytes = kKeyBytes + kKeys * (kValueFeatures + 8) * 2;
};
constexpr int kWidth = 2;     // neighbouring keys per access
constexpr int kOutWidth = 4;  // neighbouring features per access
using Scores = fusec::Vec<float, kWidth>;
using Sums = fusec::Vec<float, kOutWidth>;
using Whole = fusec::DecodeWhole<kOutWidth>;
using WarpParts = fusec::DecodeParts<Config, Config::kValueFeatures + 8>;
using BlockParts = fusec::DecodeParts<Config, Config::kValueFeatures>;

extern "C" __global__ void __launch_bounds__(Config::kThreads)
    paged_decode_attention_decode(const fusec::bf16* __restrict__ q,
                                  const fusec::bf16* __restrict__ k_pages,
                                  const fusec::bf16* __restrict__ v_pages,
                                  const int* __restrict__ table,
                                  const int* __restrict__ lengths,
                                  fusec::bf16* __restrict__ y,
                                  float* partials,
                                  fusec::u32* arrivals) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr Index N = 512;
  const int split = blockIdx.x % Config::kSplits;
  const Index batch = blockIdx.x / Config::kSplits;

  // Addresses of queries, keys and values.
  const auto query = [&](int g, int m) {
    const auto* const row = q + batch * (4 * Config::kFeatures) + m * Config::kFeatures;
    return row;
  };
  const auto key = [&](int n) {
    const int batch_over_2 = batch / 2;
    const int batch_mod_2 = batch % 2;
    const int n_over_16 = n / 16;
    const int table_value = table[batch_over_2 * 32 + n_over_16];
    const int n_mod_16 = n % 16;
    const auto* const row = k_pages + table_value * (16 * 2 * Config::kFeatures) +
                            n_mod_16 * (2 * Config::kFeatures) + batch_mod_2 * Config::kFeatures;
    return row;
  };
  const auto value = [&](int n) {
    const int batch_over_2 = batch / 2;
    const int batch_mod_2 = batch % 2;
    const int n_over_16 = n / 16;
    const int table_value = table[batch_over_2 * 32 + n_over_16];
    const int n_mod_16 = n % 16;
    const auto* const row = v_pages + table_value * (16 * 2 * Config::kValueFeatures) +
                            n_mod_16 * (2 * Config::kValueFeatures) +
                            batch_mod_2 * Config::kValueFeatures;
    return row;
  };

  const int batch_over_2 = batch / 2;
  const int lengths_value = lengths[batch_over_2];
  fusec::KeySpan seen = {0, static_cast<int>(N)};
  seen.end_at(fusec::convert<fusec::i64>(lengths_value));
  const auto tiles = fusec::tiles_of<Config::kKeys>(seen);
  const auto load_keys = [&](unsigned char* to, int n) {
    fusec::copy_rows<Config, Config::kFeatures>(to, n, seen.end, key);
  };
  const auto load_values = [&](unsigned char* to, int n) {
    fusec::copy_rows<Config, Config::kValueFeatures>(to, n, seen.end, value);
  };

  const float scale = 0.088388346f;
  // Computes the scores of query m of head g and neighbouring keys from n on, without the scale.
  const auto score = [&](Index batch, int g, int m, Index n, Scores& acc) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float where_1 =
          n + i < lengths_value ? fusec::rounded_sum<fusec::bf16>(acc[i]) : -INFINITY;
      acc[i] = where_1;
    }
  };
  const auto scores = [&](float (&s)[Config::kKeys / 2], int first) {
    const auto visit = [&](int row, int column, Scores& acc) {
      // Of the 16 rows, those past the last query are clamped, and their results ignored.
      const int r = row < Config::kRows ? row : Config::kRows - 1;
      const Index n = first + column;
      if (N % Config::kKeys == 0 || n < N) {
        score(batch, r / Config::kQueries, r % Config::kQueries, n, acc);
      } else {
        acc = fusec::splat<float, kWidth>(-INFINITY);
      }
    };
    fusec::visit_scores<kWidth>(s, visit);
  };

  fusec::DecodeSums<Config> sums;
  fusec::decode<Config>(sums, shared, tiles, split, scale, query, load_keys, load_values, scores);

  // Returns the factor of query m's outputs, from its largest score and sum of
  // exponentials.
  const auto finish_row = [&](Index batch, int g, int m, bool stores, float top, float total) {
    if (top == -INFINITY) total = NAN;  // exp(-INFINITY + INFINITY)
    const float div_1_reciprocal = 1.0f / total;
    return div_1_reciprocal;
  };
  // Epilogue of query m of head g: neighbouring features, starting at n.
  const auto finish = [&](Index batch, int g, int m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kOutWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kOutWidth; ++i) {
      y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(y + batch * (4 * Config::kValueFeatures) + m * Config::kValueFeatures + n, y_vec);
  };

  __syncthreads();  // all warps are done with their rings
  const WarpParts warps = {reinterpret_cast<float*>(shared)};
  fusec::store_partial(warps, threadIdx.x / 32, sums);
  __syncthreads();
  const BlockParts parts = {partials + batch * (Config::kSplits * BlockParts::kFloats)};
  fusec::store_block_partial(parts, split, warps, scale);
  if (!fusec::last_block(arrivals + batch, Config::kSplits)) return;
  const auto visit = [&](int row, int n, const Whole& whole) {
    const int g = row / Config::kQueries;
    const int m = row % Config::kQueries;
    const float top = scale * whole.top;
    const float factor = finish_row(batch, g, m, n == 0, top, whole.total);
    Sums acc = whole.sums;
#pragma unroll
    for (int e = 0; e < kOutWidth; ++e) acc[e] *= factor;
    finish(batch, g, m, n, acc);
  };
  fusec::visit_parts<Config::kSplits, kOutWidth>(parts, scale, visit);
}
