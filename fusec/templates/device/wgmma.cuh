// Warpgroup matrix multiply of Hopper (sm_90a), 128 threads: D[64][kN] += A[64][16] B[16][kN], with
// fp16 or bf16 operands in shared memory and D in fp32 registers. All four warps of the warpgroup
// call
//   wgmma_fence(); wgmma<...>(...) as often as needed; wgmma_commit(); wgmma_wait<pending>();
// The accumulators must not be accessed between fence and wait. In thread t of the warpgroup, d[i]
// is row 16 (t / 32) + (t % 32) / 4 + 8 ((i / 2) % 2), column 8 (i / 4) + 2 (t % 4) + i % 2. Tiles
// in shared memory have TMA's 128-byte swizzle and are aligned to 1024 bytes.
#pragma once

#include "address.cuh"
#include "shuffle.cuh"
#include "wgmma_operands.cuh"

namespace fusec {

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// Waits until at most kPending committed groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// Keeps the compiler from moving reads or writes of the accumulators across this point.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}

// Returns a 128-byte swizzled matrix descriptor: address, leading and stride byte offsets, in units
// of 16 bytes.
__device__ __forceinline__ u64 swizzled_descriptor(const void* tile, u32 leading_bytes,
                                                   u32 stride_bytes) {
  return static_cast<u64>((shared_address(tile) & 0x3ffffu) >> 4) |
         static_cast<u64>(leading_bytes >> 4) << 16 | static_cast<u64>(stride_bytes >> 4) << 32 |
         1ull << 62;
}

// K-major: rows of 64 elements (128 bytes) of K. The next 16 elements of K are kDescriptorStepK
// further.
__device__ __forceinline__ u64 descriptor_k_major(const void* tile) {
  return swizzled_descriptor(tile, 16, 1024);
}
inline constexpr u64 kDescriptorStepK = 32 >> 4;

// MN-major: rows of 64 elements of M or N, one row per element of K; the next 64 elements of M or N
// are `panel_bytes` further (128 bytes times the depth in K). The next 16 elements of K are
// kDescriptorStepMn further.
__device__ __forceinline__ u64 descriptor_mn_major(const void* tile, u32 panel_bytes) {
  return swizzled_descriptor(tile, panel_bytes, 1024);
}
inline constexpr u64 kDescriptorStepMn = 2048 >> 4;

// scale_d: 0 overwrites D, 1 adds to it. kTransposeA, kTransposeB: 1 if the operand is MN-major.
template <int kN, class T, int kTransposeA = 0, int kTransposeB = 0>
__device__ __forceinline__ void wgmma(float* d, u64 a, u64 b, int scale_d) {
  static_assert(kIsSame<T, bf16> || kIsSame<T, f16>);
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
#define FUSEC_WGMMA(N, TYPE, A, B, SCALE, TRANS_A, TRANS_B)                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE                             \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE  \
               " {" FUSEC_WGMMA_REGISTERS_##N "}, %" A ", %" B ", p, 1, 1, %" TRANS_A \
                                              ", %" TRANS_B ";\n}"                    \
               : FUSEC_WGMMA_OUTPUTS_##N                                              \
               : "l"(a), "l"(b), "r"(scale_d), "n"(kTransposeA), "n"(kTransposeB))
#define FUSEC_WGMMA_BOTH(N, ...)           \
  if constexpr (kN == N) {                 \
    if constexpr (kIsSame<T, bf16>) {      \
      FUSEC_WGMMA(N, "bf16", __VA_ARGS__); \
    } else {                               \
      FUSEC_WGMMA(N, "f16", __VA_ARGS__);  \
    }                                      \
  }
  FUSEC_WGMMA_OTHERS_8(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_16(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_24(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_32(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_40(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_48(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_56(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_64(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_72(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_80(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_88(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_96(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_104(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_112(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_120(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_128(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_136(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_144(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_152(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_160(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_168(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_176(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_184(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_192(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_200(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_208(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_216(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_224(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_232(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_240(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_248(FUSEC_WGMMA_BOTH)
  FUSEC_WGMMA_OTHERS_256(FUSEC_WGMMA_BOTH)
#undef FUSEC_WGMMA_BOTH
#undef FUSEC_WGMMA
}

// Returns the index of this thread's warpgroup in its block, provably uniform across a warp.
__device__ __forceinline__ int warpgroup_number() {
  return shuffle_from(static_cast<int>(threadIdx.x / 128), 0);
}

// Reallocates registers between warpgroups (setmaxnreg): all warps of a warpgroup make the same
// call. kCount is a multiple of 8 from 24 to 256. ptxas ignores it unless the register count at
// entry is known, so the kernel declares __launch_bounds__(threads, 1).
template <int kCount>
__device__ __forceinline__ void dealloc_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void alloc_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kCount));
}

}  // namespace fusec
