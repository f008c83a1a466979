// attention_attention: Causal attention of grouped heads, with the log of the softmax's sums.
// Source: attention.yaml
//   12: qh = permute(q, [0, 2, 1, 3])
//   13: kg = broadcast(permute(k, [0, 2, 1, 3]), [false, false, true, false, false])
//   14: vg = broadcast(permute(v, [0, 2, 1, 3]), [false, false, true, false, false])
//   15: kh = reshape(expand(kg, [B, 4, 4, S, 128]), [B, 16, S, 128])
//   16: vh = reshape(expand(vg, [B, 4, 4, S, 128]), [B, 16, S, 128])
//   17: o, lse, _, _ = sdpfa_fwd(qh, kh, vh, is_causal=true)
//   18: y = reshape(permute(o, [0, 2, 1, 3]), [B, S, 2048])
// Schedule: B * 16 times 1024 queries in tiles of 128, 1024 keys in tiles of 128, one CTA per SM
//   over all tiles, 2 warpgroups.
#include "attention.cuh"
#include "attention_scores.cuh"
#include "softmax_rows.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "warpgroup_order.cuh"
#include "wgmma.cuh"

using Index = int;

// Tiles, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                      // of queries, keys, values and weights
  static constexpr int kFeatures = 128;       // of queries and keys
  static constexpr int kValueFeatures = 128;  // of values
  static constexpr int kRows = 128;           // queries per tile
  static constexpr int kKeys = 128;           // keys per stage
  static constexpr int kStages = 2;           // stages in flight
  static constexpr int kConsumers = 2;        // warpgroups with 64 queries each; one more loads
  static constexpr int kTurns = 1;            // warpgroups that alternate
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducerRegisters = 24;   // per producer thread
  static constexpr int kConsumerRegisters = 240;  // per consumer thread
  static constexpr bool kLastFirst = true;        // the last tiles of queries come first

  // Shared memory, in bytes.
  // Queries of a tile.
  static constexpr int kQueries = 0;
  // The first stage.
  static constexpr int kStage = kRows * kFeatures * 2;
  // Keys of a stage; its values follow.
  static constexpr int kKeyBytes = kKeys * kFeatures * 2;
  // One stage.
  static constexpr int kStageBytes = kKeyBytes + kKeys * kValueFeatures * 2;
  // Barrier: queries are loaded.
  static constexpr int kQueriesFull = kStage + kStages * kStageBytes;
  // Barrier: queries are no longer read.
  static constexpr int kQueriesEmpty = kQueriesFull + 8;
  // Barriers, one per stage: keys are loaded.
  static constexpr int kKeysFull = kQueriesEmpty + 8;
  // Barriers, one per stage: keys are no longer read.
  static constexpr int kKeysEmpty = kKeysFull + kStages * 8;
  // Barriers, one per stage: values are loaded.
  static constexpr int kValuesFull = kKeysEmpty + kStages * 8;
  // Barriers, one per stage: values are no longer read.
  static constexpr int kValuesEmpty = kValuesFull + kStages * 8;
};

constexpr int kWidth = 2;  // neighbouring keys per access
using Scores = fusec::Vec<float, kWidth>;
constexpr int kOutWidth = 2;  // neighbouring features per access
using Sums = fusec::Vec<float, kOutWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    attention_attention(const __grid_constant__ fusec::TensorMap q_map,
                        const __grid_constant__ fusec::TensorMap k_map,
                        const __grid_constant__ fusec::TensorMap v_map,
                        fusec::bf16* __restrict__ y,
                        float* __restrict__ lse,
                        fusec::i64 B) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr Index M = 1024;
  constexpr Index N = 1024;
  const int batches = static_cast<int>(B * 16);
  const int tile_rows = static_cast<int>((M + Config::kRows - 1) / Config::kRows);
  const int tiles = tile_rows * batches;

  if (threadIdx.x == 0) fusec::init_attention<Config>(shared);
  __syncthreads();

  // Returns the range of keys that the queries `first` to `last` attend to.
  const auto key_range = [&](int first, int last) {
    fusec::KeyRange seen = {0, static_cast<int>(N), 0, static_cast<int>(N)};
    seen.end_at(last + 1, first + 1);
    return seen;
  };

  fusec::AttentionPlace<Config::kStages> place;
  if (threadIdx.x >= 128 * Config::kConsumers) {
    // Producer: one thread loads queries, and prefetches keys and values.
    fusec::dealloc_registers<Config::kProducerRegisters>();
    if (threadIdx.x == 128 * Config::kConsumers) {
      for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        const auto tile = fusec::attention_tile<Config::kLastFirst>(index, tile_rows, batches);
        const int row = tile.row * Config::kRows;
        const auto seen = key_range(row, row + Config::kRows - 1);
        fusec::load_attention<Config>(shared, {&q_map, tile.batch % 16, tile.batch / 16},
                                      {&k_map, tile.batch / 4 % 4, tile.batch / 16},
                                      {&v_map, tile.batch / 4 % 4, tile.batch / 16}, row,
                                      fusec::key_tiles<Config::kKeys>(seen), place);
      }
    }
    return;
  }

  fusec::alloc_registers<Config::kConsumerRegisters>();
  const float scale = 0.088388346f;
  // Computes the scores of query m and neighbouring keys from n on, of a batch,
  // without the scale.
  const auto score = [&](Index batch, Index m, Index n, Scores& acc) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      acc[i] = n + i <= m ? acc[i] : -INFINITY;
    }
  };
  // The same if the query attends to all of them.
  const auto score_seen = [&](Index batch, Index m, Index n, Scores& acc) {};
  // Returns the factor of query m's outputs, from its largest score and sum of
  // exponentials; stores its other results.
  const auto finish_row = [&](Index batch, Index m, float top, float total) {
    if (top == -INFINITY) total = NAN;  // exp(-INFINITY + INFINITY)
    const float div_1_reciprocal = 1.0f / total;
    const float add_1 = top + logf(total);
    if (m < M && threadIdx.x % 4 == 0) {
      lse[batch * M + m] = add_1;
    }
    return div_1_reciprocal;
  };
  // Epilogue of query m of a batch: neighbouring features, starting at n.
  const auto finish = [&](Index batch, Index m, Index n, const Sums& acc) {
    const int batch_over_16 = batch / 16;
    const int batch_mod_16 = batch % 16;
    fusec::Vec<fusec::bf16, kOutWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kOutWidth; ++i) {
      y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(y + batch_over_16 * (M * 16 * Config::kValueFeatures) +
                     m * (16 * Config::kValueFeatures) + batch_mod_16 * Config::kValueFeatures + n,
                 y_vec);
  };

  const int warpgroup = fusec::warpgroup_number();
  const fusec::WarpgroupTurns<Config::kTurns> turns = {warpgroup};
  const int warp_m = threadIdx.x / 32 * 16;
  const int lane_row = threadIdx.x % 32 / 4;
  turns.begin();
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const auto tile = fusec::attention_tile<Config::kLastFirst>(index, tile_rows, batches);
    const int tile_m = tile.row * Config::kRows;
    const int first_row = tile_m + 64 * warpgroup;
    auto own = key_range(first_row, first_row + 63);
    const auto scores = [&](float (&s)[Config::kKeys / 2], int key) {
      if (key >= own.all_begin && key + Config::kKeys <= own.all_end) {
        const auto visit = [&](int row, int column, Scores& acc) {
          const Index m = tile_m + warp_m + row;
          const Index n = key + column;
          score_seen(tile.batch, m, n, acc);
        };
        fusec::visit_scores<kWidth>(s, visit);
      } else {
        const auto visit = [&](int row, int column, Scores& acc) {
          const Index m = tile_m + warp_m + row;
          const Index n = key + column;
          score(tile.batch, m, n, acc);
          if (N % Config::kKeys != 0 && n >= N) acc = fusec::splat<float, kWidth>(-INFINITY);
        };
        fusec::visit_scores<kWidth>(s, visit);
      }
    };

    float sums[Config::kValueFeatures / 2] = {};
    fusec::SoftmaxRows rows;
    const auto seen = key_range(tile_m, tile_m + Config::kRows - 1);
    fusec::attention_mainloop<Config>(sums, rows, shared, fusec::key_tiles<Config::kKeys>(seen),
                                      place, turns, scale, scores);

    const Index first_m = tile_m + warp_m + lane_row;
    const float upper =
        rows.factor[0] * finish_row(tile.batch, first_m, scale * rows.top[0], rows.total[0]);
    const float lower =
        rows.factor[1] * finish_row(tile.batch, first_m + 8, scale * rows.top[1], rows.total[1]);
    const auto visit = [&](int row, int n, Sums& acc) {
      const Index m = tile_m + warp_m + row;
#pragma unroll
      for (int e = 0; e < kOutWidth; ++e) acc[e] *= row == lane_row ? upper : lower;
      if (m < M) finish(tile.batch, m, n, acc);
    };
    fusec::visit_scores<kOutWidth>(sums, visit);
  }
  turns.end();
}
