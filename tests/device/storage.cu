#include "storage.cuh"

static_assert(fusec::kIsSame<fusec::i32, int> && !fusec::kIsSame<fusec::f16, fusec::bf16>);
static_assert(fusec::kIsSmallFloat<fusec::f8e4m3> && !fusec::kIsSmallFloat<float>);
static_assert(fusec::kIsFloat<double> && !fusec::kIsFloat<fusec::u8>);
static_assert(sizeof(fusec::f16) == 2 && sizeof(fusec::f8e5m2) == 1 && sizeof(fusec::u64) == 8);

template <class T>
__device__ double spread() {
  return static_cast<double>(fusec::Limits<T>::highest()) - fusec::Limits<T>::lowest();
}

extern "C" __global__ void kernel(double* target) {
  target[0] = spread<float>() + spread<double>() + spread<bool>() + spread<fusec::i8>();
  target[1] = spread<fusec::i64>() + spread<fusec::u32>() + INFINITY + NAN;
}
