// tensor_parallel_attention_s2_attention: Self-attention whose heads are divided over the ranks.
// Source: tensor_parallel_attention.yaml
//   15: q = permute(reshape(linear(x, wq), [B, S, H, E]), [0, 2, 1, 3])
//   16: k = permute(reshape(linear(x, wk), [B, S, H, E]), [0, 2, 3, 1])
//   17: v = permute(reshape(linear(x, wv), [B, S, H, E]), [0, 2, 1, 3])
//   18: p = softmax(cast(q @ k, f32) * 0.125, dim=3)
//   19: o = cast(p, bf16) @ v
//   20: a = reshape(permute(o, [0, 2, 1, 3]), [B, S, H*E])
// Schedule: B * 4 times 1024 queries in tiles of 64, 1024 keys in tiles of 128, one CTA per SM over
//   all tiles, one warpgroup.
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
  using T = fusec::bf16;                     // of queries, keys, values and weights
  static constexpr int kFeatures = 64;       // of queries and keys
  static constexpr int kValueFeatures = 64;  // of values
  static constexpr int kRows = 64;           // queries per tile
  static constexpr int kKeys = 128;          // keys per stage
  static constexpr int kStages = 2;          // stages in flight
  static constexpr int kConsumers = 1;       // warpgroups with 64 queries each; one more loads
  static constexpr int kTurns = 1;           // warpgroups that alternate
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducerRegisters = 40;   // per producer thread
  static constexpr int kConsumerRegisters = 240;  // per consumer thread
  static constexpr bool kLastFirst = false;       // the last tiles of queries come first

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
    tensor_parallel_attention_s2_attention(const __grid_constant__ fusec::TensorMap linear_1_map,
                                           const __grid_constant__ fusec::TensorMap linear_2_map,
                                           const __grid_constant__ fusec::TensorMap linear_3_map,
                                           fusec::bf16* __restrict__ a,
                                           fusec::i64 B) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr Index M = 1024;
  constexpr Index N = 1024;
  const int batches = static_cast<int>(B * 4);
  const int tile_rows = static_cast<int>((M + Config::kRows - 1) / Config::kRows);
  const int tiles = tile_rows * batches;

  if (threadIdx.x == 0) fusec::init_attention<Config>(shared);
  __syncthreads();

  // Returns the range of keys that the queries `first` to `last` attend to.
  const auto key_range = [&](int first, int last) {
    fusec::KeyRange seen = {0, static_cast<int>(N), 0, static_cast<int>(N)};
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
        fusec::load_attention<Config>(shared, {&linear_1_map, tile.batch % 4, tile.batch / 4},
                                      {&linear_2_map, tile.batch % 4, tile.batch / 4},
                                      {&linear_3_map, tile.batch % 4, tile.batch / 4}, row,
                                      fusec::key_tiles<Config::kKeys>(seen), place);
      }
    }
    return;
  }

  fusec::alloc_registers<Config::kConsumerRegisters>();
  const float scale = 0.125f;
  // Computes the scores of query m and neighbouring keys from n on, of a batch,
  // without the scale.
  const auto score = [&](Index batch, Index m, Index n, Scores& acc) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      acc[i] = fusec::rounded_sum<fusec::bf16>(acc[i]);
    }
  };
  // Returns the factor of query m's outputs, from its largest score and sum of
  // exponentials.
  const auto finish_row = [&](Index batch, Index m, float top, float total) {
    if (top == -INFINITY) total = NAN;  // exp(-INFINITY + INFINITY)
    const float p_reciprocal = 1.0f / total;
    return p_reciprocal;
  };
  // Epilogue of query m of a batch: neighbouring features, starting at n.
  const auto finish = [&](Index batch, Index m, Index n, const Sums& acc) {
    const int batch_over_4 = batch / 4;
    const int batch_mod_4 = batch % 4;
    fusec::Vec<fusec::bf16, kOutWidth> a_vec;
#pragma unroll
    for (int i = 0; i < kOutWidth; ++i) {
      a_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(a + batch_over_4 * (M * 4 * Config::kValueFeatures) +
                     m * (4 * Config::kValueFeatures) + batch_mod_4 * Config::kValueFeatures + n,
                 a_vec);
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
          score(tile.batch, m, n, acc);
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
