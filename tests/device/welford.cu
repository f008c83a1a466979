#include "reduce.cuh"
#include "welford.cuh"

namespace {

template <class T>
__device__ void moments(void* data) {
  T* values = static_cast<T*>(data);
  fusec::Welford<T> state = fusec::Welford<T>::empty();
  state.push(values[threadIdx.x]);
  state.push(values[threadIdx.x + 256], T(0.5));
  state = fusec::block_reduce<fusec::WelfordMerge<T>, 256>(state);
  state = fusec::block_reduce_columns<fusec::WelfordMerge<T>, 32, 8>(state);
  state = fusec::combine(state, fusec::WelfordMerge<T>::identity());
  values[threadIdx.x] = state.mean + state.variance(T(1));
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  moments<float>(data);
  moments<double>(data);
}
