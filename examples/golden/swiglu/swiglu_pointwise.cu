// swiglu_pointwise: The gated unit of a LLaMA MLP, silu(gate) * up.
// Source: swiglu.yaml
//   11: g = silu(cast(gate, f32))
//   12: y = cast(g * cast(up, f32), bf16)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "fast_math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    swiglu_pointwise(const fusec::bf16* __restrict__ gate,
                     const fusec::bf16* __restrict__ up,
                     fusec::bf16* __restrict__ y,
                     fusec::i64 T) {
  const int chunks = T * 512;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto gate_vec = fusec::load_readonly<kVec>(gate + column);
    const auto up_vec = fusec::load_readonly<kVec>(up + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 =
          fusec::silu_approx(fusec::to_float(gate_vec[v])) * fusec::to_float(up_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(mul_1);
    }
    fusec::store(y + column, y_vec);
  }
}
