#include "classify.cuh"

namespace {

template <class T>
__device__ int kinds(const void* data) {
  const T value = *static_cast<const T*>(data);
  return fusec::isnan(value) + 2 * fusec::isinf(value) + 4 * fusec::isfinite(value) +
         8 * fusec::isposinf(value) + 16 * fusec::isneginf(value) + 32 * fusec::isreal(value) +
         64 * fusec::signbit(value) + 128 * fusec::is_negative(value);
}

}  // namespace

extern "C" __global__ void kernel(int* target, const void* data) {
  target[0] = kinds<float>(data) + kinds<double>(data) + kinds<fusec::i8>(data);
  target[1] = kinds<fusec::i64>(data) + kinds<fusec::u32>(data) + kinds<bool>(data);
}
