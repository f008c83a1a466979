#include "scatter.cuh"

extern "C" __global__ void kernel(fusec::i32* a, fusec::u32* b, fusec::i64* c, fusec::u64* d,
                                  float* e, double* f) {
  fusec::atomic_add(e, 3.0f);
  fusec::atomic_add(f, 3.0);
  fusec::atomic_add(a, 3);
  fusec::atomic_add(b, 3u);
  fusec::atomic_add(c, 3ll);
  fusec::atomic_add(d, 3ull);
  fusec::atomic_max(b, threadIdx.x);
  fusec::store_relaxed(b, 0u);
}
