// tensor_parallel_mlp_s2_pointwise: Llama's MLP, its weights divided over the ranks.
// Source: examples/parallel/tensor_parallel_mlp.yaml
//   15: h = cast(mul(silu(cast(g, f32)), u), bf16)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "fast_math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    tensor_parallel_mlp_s2_pointwise(const fusec::bf16* __restrict__ g,
                                     const fusec::bf16* __restrict__ u_,
                                     fusec::bf16* __restrict__ h,
                                     fusec::i64 T) {
  const int chunks = T * 896;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto g_vec = fusec::load_readonly<kVec>(g + column);
    const auto u_vec = fusec::load_readonly<kVec>(u_ + column);
    fusec::Vec<fusec::bf16, kVec> h_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 = fusec::silu_approx(fusec::to_float(g_vec[v])) * fusec::to_float(u_vec[v]);
      h_vec[v] = fusec::convert<fusec::bf16>(mul_1);
    }
    fusec::store(h + column, h_vec);
  }
}
