// tensor_parallel_attention_s5_pointwise: Self-attention whose heads are divided over the ranks.
// Source: examples/parallel/tensor_parallel_attention.yaml
//   21: y = linear(a, wo)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    tensor_parallel_attention_s5_pointwise(const fusec::bf16* __restrict__ y_peer_views,
                                           const fusec::bf16* __restrict__ y_peer_views_2,
                                           const fusec::bf16* __restrict__ y_peer_views_3,
                                           const fusec::bf16* __restrict__ y_peer_views_4,
                                           fusec::bf16* __restrict__ y,
                                           fusec::i64 B,
                                           fusec::i64 S) {
  const int chunks = B * S * 128;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto y_peer_views_vec = fusec::load_readonly<kVec>(y_peer_views + column);
    const auto y_peer_views_2_vec = fusec::load_readonly<kVec>(y_peer_views_2 + column);
    const auto y_peer_views_3_vec = fusec::load_readonly<kVec>(y_peer_views_3 + column);
    const auto y_peer_views_4_vec = fusec::load_readonly<kVec>(y_peer_views_4 + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float y_add =
          fusec::to_float(y_peer_views_vec[v]) + fusec::to_float(y_peer_views_2_vec[v]);
      const float y_add_3 =
          y_add + fusec::to_float(y_peer_views_3_vec[v]) + fusec::to_float(y_peer_views_4_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(y_add_3);
    }
    fusec::store(y + column, y_vec);
  }
}
