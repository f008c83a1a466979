// Sums over the GPUs of one host by one kernel on each: see push_sum.cuh and push_slices.cuh.
#include "push_slices.cuh"

constexpr int kThreads = 512;

extern "C" __global__ void __launch_bounds__(kThreads)
    push_sum_f32(const float* x, float* y, const __grid_constant__ fusec::PushSum how) {
  fusec::push_sum(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_sum_f16(const fusec::f16* x, fusec::f16* y, const __grid_constant__ fusec::PushSum how) {
  fusec::push_sum(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_sum_bf16(const fusec::bf16* x, fusec::bf16* y,
                  const __grid_constant__ fusec::PushSum how) {
  fusec::push_sum(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_few_f32(const float* x, float* y, const __grid_constant__ fusec::PushSum how) {
  fusec::push_few(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_few_f16(const fusec::f16* x, fusec::f16* y, const __grid_constant__ fusec::PushSum how) {
  fusec::push_few(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_few_bf16(const fusec::bf16* x, fusec::bf16* y,
                  const __grid_constant__ fusec::PushSum how) {
  fusec::push_few(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_slices_f32(const float* x, float* y, const __grid_constant__ fusec::PushSum how) {
  fusec::push_slices(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_slices_f16(const fusec::f16* x, fusec::f16* y,
                    const __grid_constant__ fusec::PushSum how) {
  fusec::push_slices(x, y, how, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    push_slices_bf16(const fusec::bf16* x, fusec::bf16* y,
                     const __grid_constant__ fusec::PushSum how) {
  fusec::push_slices(x, y, how, blockIdx.x, gridDim.x);
}
