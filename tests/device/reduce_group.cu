#include "reduce_group.cuh"
#include "welford.cuh"

namespace {

template <class Op, class T>
__device__ float both(T value) {
  constexpr int kWords = fusec::ShuffleWords<T>::kCount;
  __shared__ fusec::Barrier arrived[4];
  __shared__ fusec::Vec<fusec::u32, kWords> parts[32];
  value = fusec::group_reduce<Op, 4>(value, parts, 2 * (threadIdx.x / 128));
  value = fusec::cluster_reduce<Op, 4, 2>(value, parts, arrived, 2 * (threadIdx.x / 128), 0, 1);
  value = fusec::combine_parts<Op, 8, T>(parts);
  return static_cast<float>(fusec::to_part<kWords>(value)[0]);
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  float* values = static_cast<float*>(data);
  const float value = values[threadIdx.x];
  values[threadIdx.x] = both<fusec::Sum<float>>(value);
  values[threadIdx.x] += both<fusec::Any<bool>>(value > 0.0f);
  values[threadIdx.x] += both<fusec::Max<double>>(static_cast<double>(value));
  values[threadIdx.x] +=
      both<fusec::WelfordMerge<float>>(fusec::Welford<float>{value, value, 1.0f});
}
