// Every conversion, and every widening to float.
#include "types.cuh"

namespace {

template <class To, class From>
__device__ void one(void* target, const void* source) {
  static_cast<To*>(target)[threadIdx.x] =
      fusec::convert<To>(static_cast<const From*>(source)[threadIdx.x]);
}

template <class From>
__device__ void each(void* target, const void* source) {
  one<double, From>(target, source);
  one<float, From>(target, source);
  one<fusec::f16, From>(target, source);
  one<fusec::bf16, From>(target, source);
  one<fusec::f8e4m3, From>(target, source);
  one<fusec::f8e5m2, From>(target, source);
  one<fusec::i64, From>(target, source);
  one<fusec::i32, From>(target, source);
  one<fusec::i16, From>(target, source);
  one<fusec::i8, From>(target, source);
  one<fusec::u64, From>(target, source);
  one<fusec::u32, From>(target, source);
  one<fusec::u16, From>(target, source);
  one<fusec::u8, From>(target, source);
  one<bool, From>(target, source);
  static_cast<float*>(target)[0] = fusec::to_float(static_cast<const From*>(source)[0]);
}

}  // namespace

extern "C" __global__ void kernel(void* target, const void* source) {
  each<double>(target, source);
  each<float>(target, source);
  each<fusec::f16>(target, source);
  each<fusec::bf16>(target, source);
  each<fusec::f8e4m3>(target, source);
  each<fusec::f8e5m2>(target, source);
  each<fusec::i64>(target, source);
  each<fusec::i32>(target, source);
  each<fusec::i16>(target, source);
  each<fusec::i8>(target, source);
  each<fusec::u64>(target, source);
  each<fusec::u32>(target, source);
  each<fusec::u16>(target, source);
  each<fusec::u8>(target, source);
  each<bool>(target, source);
}
