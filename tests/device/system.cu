// Calls every function of system.cuh.
#include "system.cuh"

extern "C" __global__ void kernel(fusec::u32* flag, fusec::u64* number) {
  fusec::store_release_system(flag, fusec::load_acquire_system(flag) + 1);
  fusec::store_release_system(number, fusec::load_acquire_system(number) + 1);
}
