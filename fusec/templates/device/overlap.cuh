// Programmatic dependent launch (sm_90): a kernel starts while the previous one still runs. All
// blocks of the previous kernel allow it; every thread of the later one waits before it accesses
// memory. In an ordinary launch both calls have no effect.
#pragma once

namespace fusec {

__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

// Waits until the previous kernels are complete and their writes are visible.
__device__ __forceinline__ void wait_for_kernels_before() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

}  // namespace fusec
