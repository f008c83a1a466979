// sequence_parallel_mlp_s5_pointwise: An MLP, its norm and its residual, between tokens that are
//   divided over the ranks.
// Source: sequence_parallel_mlp.yaml
//   19: y = p + x
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    sequence_parallel_mlp_s5_pointwise(const fusec::bf16* __restrict__ x,
                                       const fusec::bf16* __restrict__ p,
                                       fusec::bf16* __restrict__ y,
                                       fusec::i64 T) {
  const int chunks = T * 1024;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto p_vec = fusec::load_readonly<kVec>(p + column);
    const auto x_vec = fusec::load_readonly<kVec>(x + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::to_float(p_vec[v]) + fusec::to_float(x_vec[v]));
    }
    fusec::store(y + column, y_vec);
  }
}
