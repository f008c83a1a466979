#include "wrap.cuh"

namespace {

template <class T>
__device__ void arithmetic(void* data) {
  T* values = static_cast<T*>(data);
  static_assert(fusec::kIsInteger<T>);
  values[0] = fusec::wrapping_add(values[1], values[2]);
  values[3] = fusec::wrapping_sub(values[4], values[5]);
  values[6] = fusec::wrapping_mul(values[7], fusec::wrapping_neg(values[8]));
}

}  // namespace

extern "C" __global__ void kernel(void* data, fusec::i32* a, fusec::i64* b) {
  arithmetic<fusec::i8>(data);
  arithmetic<fusec::u16>(data);
  arithmetic<fusec::i32>(data);
  arithmetic<fusec::u64>(data);
  *a = fusec::wrapping_abs(*a);
  *b = fusec::wrapping_abs(*b);
}
