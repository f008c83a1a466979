#include "mma.cuh"

extern "C" __global__ void kernel(float* target) {
  __shared__ uint4 tile[32];
  tile[threadIdx.x] = {threadIdx.x, 1, 2, 3};
  __syncthreads();
  fusec::u32 a[4], b[2];
  float d[4] = {};
  fusec::ldmatrix_x4(a, tile + threadIdx.x);
  fusec::ldmatrix_x2(b, tile + threadIdx.x);
  fusec::mma_16816<fusec::bf16>(d, a, b);
  fusec::ldmatrix_x4_trans(a, tile + threadIdx.x);
  fusec::ldmatrix_x2_trans(b, tile + threadIdx.x);
  fusec::mma_16816<fusec::f16>(d, a, b);
  const fusec::u32 low = fusec::pack_pair<fusec::f16>(d[0], d[1]);
  const fusec::u32 high = fusec::pack_pair<fusec::bf16>(d[2], d[3]);
#if __CUDA_ARCH__ >= 900
  fusec::stmatrix_x4(tile + threadIdx.x, low, high, low, high);
  fusec::stmatrix_x2(tile + threadIdx.x, low, high);
  fusec::stmatrix_x4_trans(tile + threadIdx.x, low, high, low, high);
#endif
  target[threadIdx.x] = d[0] + low + high + tile[threadIdx.x].x;
}
