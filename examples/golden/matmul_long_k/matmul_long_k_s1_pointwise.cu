// matmul_long_k_s1_pointwise: A small product with a very long inner dim, for split-K.
// Source: examples/matmul_long_k.yaml
//   12: c = matmul(a, b)
// Schedule: one flat loop, 256 threads, 1 vectors per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreads = 256;
constexpr int kUnroll = 1;  // vectors per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    matmul_long_k_s1_pointwise(const float* __restrict__ c_segment_set,
                               fusec::bf16* __restrict__ c_,
                               fusec::i64 M) {
  const int chunks = M * 32;
  const int first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first + u * kThreads;
    if (chunk >= chunks) break;
    const int column = chunk * kVec;
    const auto c_segment_set_vec = fusec::load_readonly<kVec>(c_segment_set + column);
    const auto c_segment_set_vec2 = fusec::load_readonly<kVec>(c_segment_set + column + M * 256);
    const auto c_segment_set_vec3 = fusec::load_readonly<kVec>(c_segment_set + column + M * 512);
    const auto c_segment_set_vec4 = fusec::load_readonly<kVec>(c_segment_set + column + M * 768);
    const auto c_segment_set_vec5 = fusec::load_readonly<kVec>(c_segment_set + column + M * 1024);
    const auto c_segment_set_vec6 = fusec::load_readonly<kVec>(c_segment_set + column + M * 1280);
    const auto c_segment_set_vec7 = fusec::load_readonly<kVec>(c_segment_set + column + M * 1536);
    const auto c_segment_set_vec8 = fusec::load_readonly<kVec>(c_segment_set + column + M * 1792);
    const auto c_segment_set_vec9 = fusec::load_readonly<kVec>(c_segment_set + column + M * 2048);
    const auto c_segment_set_vec10 = fusec::load_readonly<kVec>(c_segment_set + column + M * 2304);
    const auto c_segment_set_vec11 = fusec::load_readonly<kVec>(c_segment_set + column + M * 2560);
    const auto c_segment_set_vec12 = fusec::load_readonly<kVec>(c_segment_set + column + M * 2816);
    const auto c_segment_set_vec13 = fusec::load_readonly<kVec>(c_segment_set + column + M * 3072);
    const auto c_segment_set_vec14 = fusec::load_readonly<kVec>(c_segment_set + column + M * 3328);
    const auto c_segment_set_vec15 = fusec::load_readonly<kVec>(c_segment_set + column + M * 3584);
    const auto c_segment_set_vec16 = fusec::load_readonly<kVec>(c_segment_set + column + M * 3840);
    fusec::Vec<fusec::bf16, kVec> c_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float c_add_2 = c_segment_set_vec[v] + c_segment_set_vec2[v] + c_segment_set_vec3[v];
      const float c_add_5 =
          c_add_2 + c_segment_set_vec4[v] + c_segment_set_vec5[v] + c_segment_set_vec6[v];
      const float c_add_8 =
          c_add_5 + c_segment_set_vec7[v] + c_segment_set_vec8[v] + c_segment_set_vec9[v];
      const float c_add_10 = c_add_8 + c_segment_set_vec10[v] + c_segment_set_vec11[v];
      const float c_add_12 = c_add_10 + c_segment_set_vec12[v] + c_segment_set_vec13[v];
      const float c_add_14 = c_add_12 + c_segment_set_vec14[v] + c_segment_set_vec15[v];
      c_vec[v] = fusec::convert<fusec::bf16>(c_add_14 + c_segment_set_vec16[v]);
    }
    fusec::store(c_ + column, c_vec);
  }
}
