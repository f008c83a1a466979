// data_parallel_gradients_s4_pointwise: The gradients of a linear layer, summed over the ranks.
// Source: data_parallel_gradients.yaml
//   11: db = cast(sum(cast(dy, f32), dims=[0]), bf16)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    data_parallel_gradients_s4_pointwise(const float* __restrict__ sum_1,
                                         fusec::bf16* __restrict__ db,
                                         fusec::i64 F) {
  const int chunks = F / 8;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto sum_1_vec = fusec::load_readonly<kVec>(sum_1 + column);
    fusec::Vec<fusec::bf16, kVec> db_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      db_vec[v] = fusec::convert<fusec::bf16>(sum_1_vec[v]);
    }
    fusec::store(db + column, db_vec);
  }

  // The elements after the last whole vector.
  const int column = chunks * kVec + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && column < F) {
    const float sum_1_value = sum_1[column];
    db[column] = fusec::convert<fusec::bf16>(sum_1_value);
  }
}
