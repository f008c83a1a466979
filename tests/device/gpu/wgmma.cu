// One warpgroup: D[64][WIDTH] = A[64][64] B[WIDTH][64]^T. A and B come K-major; the tiles in shared
// memory are K-major, or MN-major where TRANSPOSE_A / TRANSPOSE_B is 1, with the 128-byte swizzle.
#include "proxy.cuh"
#include "wgmma.cuh"

constexpr int kDepth = 64;
constexpr int kPanelBytes = kDepth * 128;

__device__ int swizzled(int row, int column) {
  return row * 64 + (column / 8 ^ row % 8) * 8 + column % 8;
}

__device__ int tile_place(int position, int k, bool transposed) {
  if (!transposed) return swizzled(position, k);
  return position / 64 * (kPanelBytes / 2) + swizzled(k, position % 64);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    multiply(const fusec::bf16* a, const fusec::bf16* b, float* d) {
  __shared__ __align__(1024) fusec::bf16 a_tile[64 * kDepth];
  __shared__ __align__(1024) fusec::bf16 b_tile[(WIDTH + 63) / 64 * 64 * kDepth];
  for (int i = threadIdx.x; i < 64 * kDepth; i += 128) {
    a_tile[tile_place(i / kDepth, i % kDepth, TRANSPOSE_A)] = a[i];
  }
  for (int i = threadIdx.x; i < WIDTH * kDepth; i += 128) {
    b_tile[tile_place(i / kDepth, i % kDepth, TRANSPOSE_B)] = b[i];
  }
  fusec::fence_proxy_async_shared_cta();
  __syncthreads();

  const fusec::u64 a_tile_descriptor = TRANSPOSE_A ? fusec::descriptor_mn_major(a_tile, kPanelBytes)
                                                   : fusec::descriptor_k_major(a_tile);
  const fusec::u64 b_tile_descriptor = TRANSPOSE_B ? fusec::descriptor_mn_major(b_tile, kPanelBytes)
                                                   : fusec::descriptor_k_major(b_tile);
  constexpr fusec::u64 kStepA = TRANSPOSE_A ? fusec::kDescriptorStepMn : fusec::kDescriptorStepK;
  constexpr fusec::u64 kStepB = TRANSPOSE_B ? fusec::kDescriptorStepMn : fusec::kDescriptorStepK;
  float sums[WIDTH / 2];
  fusec::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    fusec::wgmma<WIDTH, fusec::bf16, TRANSPOSE_A, TRANSPOSE_B>(
        sums, a_tile_descriptor + step * kStepA, b_tile_descriptor + step * kStepB, step > 0);
  }
  fusec::wgmma_commit();
  fusec::wgmma_wait<0>();
  fusec::wgmma_pin(sums);

  const int thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i) {
    const int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
    d[row * WIDTH + 8 * (i / 4) + 2 * (thread % 4) + i % 2] = sums[i];
  }
}
