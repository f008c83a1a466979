// gelu_bias_pointwise: Bias and the exact GELU, between the two matrix products of an MLP.
// Source: gelu_bias.yaml
//   12: z = cast(x, f32) + cast(bias, f32)
//   15: y = cast(z * cdf, bf16)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "fast_math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    gelu_bias_pointwise(const fusec::bf16* __restrict__ x,
                        const fusec::bf16* __restrict__ bias,
                        fusec::bf16* __restrict__ y,
                        fusec::i64 T) {
  const int chunks = T * 512;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto x_vec = fusec::load_readonly<kVec>(x + column);
    const int part_mod_512 = column / kVec % 512;
    const auto bias_vec = fusec::load_readonly<kVec>(bias + part_mod_512 * kVec);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float z = fusec::to_float(x_vec[v]) + fusec::to_float(bias_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::gelu_approx(z));
    }
    fusec::store(y + column, y_vec);
  }
}
