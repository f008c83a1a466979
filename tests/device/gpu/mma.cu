// One warp: D[16][8] = A[16][16] B[8][16]^T through ldmatrix and mma.sync, and a zero-filling copy.
#include "async_copy.cuh"
#include "mma.cuh"

extern "C" __global__ void multiply(const fusec::bf16* a, const fusec::bf16* b, float* d,
                                    int rows) {
  __shared__ __align__(16) fusec::bf16 a_tile[16][16];
  __shared__ __align__(16) fusec::bf16 b_tile[8][16];
  const int lane = threadIdx.x;
  const int row = lane / 2, half = lane % 2 * 8;
  fusec::copy_async_16(&a_tile[row][half], a + row * 16 + half, row < rows);
  if (row < 8) fusec::copy_async_16(&b_tile[row][half], b + row * 16 + half);
  fusec::copy_commit();
  fusec::copy_wait<0>();
  __syncthreads();
  fusec::u32 a_fragment[4], b_fragment[2];
  fusec::ldmatrix_x4(a_fragment, &a_tile[lane % 16][lane / 16 * 8]);
  fusec::ldmatrix_x2(b_fragment, &b_tile[lane % 8][lane / 8 % 2 * 8]);
  float sums[4] = {};
  fusec::mma_16816<fusec::bf16>(sums, a_fragment, b_fragment);
  const int group = lane / 4, pair = lane % 4;
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + 2 * pair + i % 2] = sums[i];
}
