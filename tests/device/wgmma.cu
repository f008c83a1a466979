#include "wgmma.cuh"

namespace {

template <int kN, class T, int kTransposeA, int kTransposeB>
__device__ void multiply(float* target, const fusec::u8* tiles) {
  float sums[kN / 2] = {};
  const fusec::u64 a =
      kTransposeA ? fusec::descriptor_mn_major(tiles, 8192) : fusec::descriptor_k_major(tiles);
  const fusec::u64 b = kTransposeB ? fusec::descriptor_mn_major(tiles + 16384, 8192)
                                   : fusec::descriptor_k_major(tiles + 16384);
  fusec::wgmma_pin(sums);
  fusec::wgmma_fence();
  for (int k = 0; k < 4; ++k) {
    fusec::wgmma<kN, T, kTransposeA, kTransposeB>(
        sums, a + k * (kTransposeA ? fusec::kDescriptorStepMn : fusec::kDescriptorStepK),
        b + k * (kTransposeB ? fusec::kDescriptorStepMn : fusec::kDescriptorStepK), k > 0);
  }
  fusec::wgmma_commit();
  fusec::wgmma_wait<0>();
  fusec::wgmma_pin(sums);
  for (int i = 0; i < kN / 2; ++i) target[threadIdx.x * kN / 2 + i] = sums[i];
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128, 1) kernel(float* target) {
  extern __shared__ __align__(1024) fusec::u8 tiles[];
  fusec::dealloc_registers<232>();
  multiply<64, fusec::bf16, 0, 0>(target, tiles);
  multiply<128, fusec::f16, 1, 0>(target, tiles);
  fusec::alloc_registers<240>();
}

extern "C" __global__ void __launch_bounds__(128, 1) wide(float* target) {
  extern __shared__ __align__(1024) fusec::u8 tiles[];
  multiply<192, fusec::bf16, 0, 1>(target, tiles);
}

extern "C" __global__ void __launch_bounds__(128, 1) widest(float* target) {
  extern __shared__ __align__(1024) fusec::u8 tiles[];
  multiply<256, fusec::f16, 1, 1>(target, tiles);
  multiply<8, fusec::bf16, 0, 0>(target + fusec::warpgroup_number(), tiles);
}
