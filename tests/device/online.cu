#include "online.cuh"
#include "reduce.cuh"

namespace {

template <class T>
__device__ void sums(void* data) {
  T* values = static_cast<T*>(data);
  fusec::ExpSum<T> state = fusec::ExpSumMerge<T>::identity();
  state.push(values[threadIdx.x]);
  const T two[2] = {values[threadIdx.x + 256], fusec::exponential(T(0.5))};
  state.push(two);
  state = fusec::block_reduce<fusec::ExpSumMerge<T>, 256>(state);
  values[threadIdx.x] = state.top + state.sum();
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  sums<float>(data);
  sums<double>(data);
}
