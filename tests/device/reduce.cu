#include "reduce.cuh"

namespace {

template <template <class> class Op, class T>
__device__ void shapes(void* data) {
  T* values = static_cast<T*>(data);
  T value = values[threadIdx.x];
  value = fusec::warp_reduce<Op<T>>(value);
  value = fusec::warp_reduce<Op<T>, 8>(value);
  value = fusec::block_reduce<Op<T>, 256>(value);
  value = fusec::block_reduce_rows<Op<T>, 16, 16>(value);
  value = fusec::block_reduce_rows<Op<T>, 32, 8>(value);
  value = fusec::block_reduce_rows<Op<T>, 64, 4>(value);
  value = fusec::block_reduce_columns<Op<T>, 32, 8>(value);
  value = fusec::block_reduce_columns<Op<T>, 48, 6>(value);
  values[threadIdx.x] = fusec::combine_each<Op<T>>(value, values[0]);
}

template <class T>
__device__ void each(void* data) {
  shapes<fusec::Sum, T>(data);
  shapes<fusec::Prod, T>(data);
  shapes<fusec::Max, T>(data);
  shapes<fusec::Min, T>(data);
}

}  // namespace

extern "C" __global__ void kernel(void* data) {
  each<float>(data);
  each<double>(data);
  each<fusec::i32>(data);
  each<fusec::i64>(data);
  each<fusec::u64>(data);
  shapes<fusec::Any, bool>(data);
  shapes<fusec::All, bool>(data);
}

extern "C" __global__ void arrays(float* data) {
  const int place = (threadIdx.y * 32 + threadIdx.x) * 4;
  fusec::Vec<float, 4> sums = fusec::load<4>(data + place);
  sums = fusec::block_reduce_columns<fusec::Sum<float>, 32, 8>(sums);
  sums = fusec::block_reduce_rows<fusec::Sum<float>, 64, 4>(sums);
  fusec::store(data + place, fusec::warp_reduce<fusec::Sum<float>, 4>(sums));
}
