#include "combine.cuh"

namespace {

template <class Op>
__device__ void fold(void* data) {
  using T = typename Op::type;
  T* values = static_cast<T*>(data);
  values[0] = Op::combine(Op::identity(), Op::combine(values[1], values[2]));
}

template <class Op, class T>
__device__ void find(void* data) {
  T* values = static_cast<T*>(data);
  auto part = Op::identity();
  Op::take(part, values[0], 0);
  Op::take(part, values[1], 1);
  values[part.position()] = T(0);
}

template <class T>
__device__ void each(void* data) {
  find<fusec::ArgMax<T>, T>(data);
  find<fusec::ArgMin<T>, T>(data);
  fold<fusec::Sum<T>>(data);
  fold<fusec::Prod<T>>(data);
  fold<fusec::Max<T>>(data);
  fold<fusec::Min<T>>(data);
  fold<fusec::ArgMax<T>>(data);
  fold<fusec::ArgMin<T>>(data);
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  each<float>(data);
  each<double>(data);
  each<fusec::i32>(data);
  each<fusec::i64>(data);
  each<fusec::u64>(data);
  fold<fusec::Max<bool>>(data);
  fold<fusec::Any<>>(data);
  fold<fusec::All<>>(data);
  fold<fusec::Any<fusec::i32>>(data);
  float* values = static_cast<float*>(data);
  values[0] = fusec::max_keeping_nan(values[1], fusec::min_keeping_nan(values[2], values[3]));
}
