// Programmatic dependent launch (sm_90): a kernel that starts while the one before it still runs.
// The one before allows it with all its blocks; the later one waits in every thread before it
// touches memory. Launched in the plain way, neither of the two does anything.
#pragma once

namespace fusec {

__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

// Until the kernels before have ended, and what they wrote is seen.
__device__ __forceinline__ void wait_for_kernels_before() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}

}  // namespace fusec
