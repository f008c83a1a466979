// linear_gelu_matmul: A linear layer with bias, and the tanh GELU as its epilogue.
// Source: examples/linear_gelu.yaml
//   13: z = cast(linear(x, w, bias), f32)
//   15: y = cast(mul(mul(0.5, z), add(1.0, tanh(inner))), bf16)
//   14: inner = mul(0.7978845608028654, add(z, mul(0.044715, mul(mul(z, z), z))))
// Schedule: M_size x 1024 x 1024 in tiles of 128 x 64, one CTA per SM over all tiles, bulk copies
//   into wgmma.
#include "matmul_hopper.cuh"
#include "matmul_quad.cuh"
#include "matmul_tile.cuh"
#include "mbarrier.cuh"
#include "rounding.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

using Index = int;
using T = fusec::bf16;

constexpr int kTileM = 128;    // rows of an output tile: 64 for each of two consumer warpgroups
constexpr int kTileN = 64;     // columns of an output tile
constexpr int kTileK = 64;     // depth of one stage: 128 bytes, the width of the swizzle
constexpr int kStages = 8;     // stages in flight
constexpr int kConsumers = 2;  // warpgroups that multiply; one more loads
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kBand = 8;         // tile rows walked together, for the L2
constexpr int kWidth = 8;        // neighbouring columns of one access
constexpr bool kAKMajor = true;  // A is contiguous along K, else along M
constexpr bool kBKMajor = true;  // B is contiguous along K, else along N
constexpr int kABytes = kTileM * kTileK * sizeof(T);
constexpr int kStageBytes = kABytes + kTileN * kTileK * sizeof(T);
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = 232;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    linear_gelu_matmul(const __grid_constant__ fusec::TensorMap x_map,
                       const __grid_constant__ fusec::TensorMap w_map,
                       const fusec::bf16* __restrict__ bias,
                       fusec::bf16* __restrict__ y,
                       fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int M = M_size;
  constexpr int N = 1024;
  constexpr int K = 1024;
  constexpr int batches = 1;
  fusec::Barrier* const full = reinterpret_cast<fusec::Barrier*>(shared + kStages * kStageBytes);
  fusec::Barrier* const empty = full + kStages;
  const int tile_rows = fusec::tile_count(M, kTileM);
  const int tile_columns = fusec::tile_count(N, kTileN);
  const int tiles = tile_rows * tile_columns * batches;
  const int steps = fusec::tile_count(K, kTileK);

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      full[s].init(1);
      empty[s].init(4 * kConsumers);  // one arrival per warp
    }
    fusec::fence_barrier_init();
  }
  __syncthreads();

  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == kConsumers) {
    // The producer: one thread keeps kStages loads in flight, over the border of a tile too.
    fusec::give_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers * 128) {
      int stage = 0;
      fusec::u32 parity = 1;
      for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        const auto tile = fusec::matmul_tile<kBand>(index, tile_rows, tile_columns);
        const int m = tile.row * kTileM;
        const int n = tile.column * kTileN;
        for (int step = 0; step < steps; ++step) {
          const int depth = step * kTileK;
          unsigned char* const a_tile = shared + stage * kStageBytes;
          unsigned char* const b_tile = a_tile + kABytes;
          empty[stage].wait(parity);
          full[stage].arrive_expect_tx(kStageBytes);
          fusec::load_operand<kTileM, kAKMajor>(a_tile, &x_map, &full[stage], m, depth, 0);
          fusec::load_operand<kTileN, kBKMajor>(b_tile, &w_map, &full[stage], n, depth, 0);
          stage = stage + 1 == kStages ? 0 : stage + 1;
          parity ^= stage == 0;
        }
      }
    }
    return;
  }

  fusec::take_registers<kConsumerRegisters>();
  const int lane = threadIdx.x % 32;
  const int row = 64 * warpgroup + threadIdx.x / 32 % 4 * 16 + lane / 4;
  int stage = 0;
  fusec::u32 parity = 0;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const auto tile = fusec::matmul_tile<kBand>(index, tile_rows, tile_columns);
    const Index tile_m = static_cast<Index>(tile.row) * kTileM;
    const Index tile_n = static_cast<Index>(tile.column) * kTileN;

    // The products of a stage run while the next one is awaited; it is handed back one step later.
    float sums[kTileN / 2] = {};
    int previous = 0;
    for (int step = 0; step < steps; ++step) {
      const unsigned char* const a_tile = shared + stage * kStageBytes;
      const unsigned char* const b_tile = a_tile + kABytes;
      full[stage].wait(parity);
      fusec::wgmma_fence();
      fusec::multiply_stage<T, kTileN, kAKMajor, kBKMajor>(
          sums, a_tile + warpgroup * fusec::kBlockBytes, b_tile);
      fusec::wgmma_commit();
      fusec::wgmma_wait<1>();
      if (step > 0 && lane == 0) empty[previous].arrive();
      previous = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      parity ^= stage == 0;
    }
    fusec::wgmma_wait<0>();
    fusec::wgmma_pin(sums);
    if (steps > 0 && lane == 0) empty[previous].arrive();

    // The epilogue of kWidth neighbouring columns of row m of a batch, from column n on.
    const auto finish = [&](Index batch, Index m, Index n, const fusec::Vec<float, kWidth>& acc) {
      const auto bias_vec = fusec::load_readonly<kWidth>(bias + n);
      fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float linear_1 = fusec::round_to<fusec::bf16>(acc[i] + fusec::to_float(bias_vec[i]));
        const float inner = 0.7978846f * (linear_1 + 0.044715f * (linear_1 * linear_1 * linear_1));
        y_vec[i] = fusec::convert<fusec::bf16>(0.5f * linear_1 * (1.0f + tanhf(inner)));
      }
      fusec::store(y + m * 1024 + n, y_vec);
    };

    // A thread holds two neighbouring columns of two rows, eight apart, of every eight columns; the
    // four threads of a quad exchange them, so that each has eight neighbours.
#pragma unroll
    for (int c = 0; c < kTileN / 2; c += 16) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        fusec::Vec<float, kWidth> acc;
#pragma unroll
        for (int e = 0; e < kWidth; ++e) acc[e] = sums[c + e / 2 * 4 + 2 * h + e % 2];
        fusec::transpose_quad(acc.data, lane % 4);
        const Index m = tile_m + row + 8 * h;
        const Index n = tile_n + 2 * c + lane % 4 * 8;
        if (m < M && n < N) finish(tile.batch, m, n, acc);
      }
    }
  }
}
