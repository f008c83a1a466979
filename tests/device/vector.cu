#include "vector.cuh"

namespace {

template <int kBytes>
__device__ typename fusec::Word<kBytes>::type word(const void* source) {
  return *static_cast<const typename fusec::Word<kBytes>::type*>(source);
}

template <class T, int N>
__device__ void copy(void* target, const void* source) {
  T* to = static_cast<T*>(target) + threadIdx.x * N;
  const T* from = static_cast<const T*>(source) + threadIdx.x * N;
  static_assert(alignof(fusec::Vec<T, N>) == fusec::access_bytes(sizeof(T) * N));
  fusec::store(to, fusec::load<N>(from));
  fusec::store(to, fusec::load_readonly<N>(from));
  fusec::store_streaming(to, fusec::load_streaming<N>(from));
  fusec::Vec<T, N> same = fusec::splat<T, N>(from[0]);
  same[0] = from[1];
  fusec::store(to, same);
}

}  // namespace

extern "C" __global__ void kernel(void* target, const void* source) {
  copy<fusec::u8, 1>(target, source);
  copy<bool, 4>(target, source);
  copy<fusec::bf16, 1>(target, source);
  copy<fusec::bf16, 8>(target, source);
  copy<fusec::f16, 16>(target, source);
  copy<float, 1>(target, source);
  copy<float, 3>(target, source);
  copy<float, 8>(target, source);
  copy<double, 2>(target, source);
  copy<fusec::i64, 4>(target, source);
  static_cast<fusec::u8*>(target)[0] = word<1>(source);
}

// Read by the test: the accesses must be 16 bytes wide.
extern "C" __global__ void wide(fusec::bf16* target, const fusec::bf16* source) {
  fusec::store(target + threadIdx.x * 8, fusec::load_readonly<8>(source + threadIdx.x * 8));
}
