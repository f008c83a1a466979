// tensor_parallel_attention_s5_pointwise: Self-attention whose heads are divided over the ranks.
// Source: examples/parallel/tensor_parallel_attention.yaml
//   21: r = linear(a, wo)
//   22: y = add(mul(r, 0.02), x)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    tensor_parallel_attention_s5_pointwise(const fusec::bf16* __restrict__ x,
                                           const fusec::bf16* __restrict__ r_peer_views,
                                           const fusec::bf16* __restrict__ r_peer_views_2,
                                           const fusec::bf16* __restrict__ r_peer_views_3,
                                           const fusec::bf16* __restrict__ r_peer_views_4,
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
    const auto r_peer_views_vec = fusec::load_readonly<kVec>(r_peer_views + column);
    const auto r_peer_views_2_vec = fusec::load_readonly<kVec>(r_peer_views_2 + column);
    const auto r_peer_views_3_vec = fusec::load_readonly<kVec>(r_peer_views_3 + column);
    const auto r_peer_views_4_vec = fusec::load_readonly<kVec>(r_peer_views_4 + column);
    const auto x_vec = fusec::load_readonly<kVec>(x + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float r_add =
          fusec::to_float(r_peer_views_vec[v]) + fusec::to_float(r_peer_views_2_vec[v]);
      const float r_add_3 =
          r_add + fusec::to_float(r_peer_views_3_vec[v]) + fusec::to_float(r_peer_views_4_vec[v]);
      const float mul_2 =
          fusec::round_to<fusec::bf16>(fusec::round_to<fusec::bf16>(r_add_3) * 0.02f);
      y_vec[v] = fusec::convert<fusec::bf16>(mul_2 + fusec::to_float(x_vec[v]));
    }
    fusec::store(y + column, y_vec);
  }
}
