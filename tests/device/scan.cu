#include "scan.cuh"

namespace {

template <template <class> class Op, class T>
__device__ void shapes(void* data) {
  auto* values = static_cast<fusec::Vec<T, 2>*>(data) + threadIdx.x;
  fusec::Vec<T, 2> part[2] = {values[0], values[256]};
  T carry = fusec::warp_scan<Op<T>>(part[0][0]);
  T total = fusec::scan_span<Op<T>, 32>(part);
  part[0][0] = fusec::scan_warps<Op<T>, 64, 4>(total, carry);
  total = fusec::scan_span<Op<T>, 8>(part);
  part[0][1] = fusec::scan_warps<Op<T>, 8, 32>(total, carry);
  part[1][0] = carry;
  values[0] = fusec::scan_threads_y<Op<T>, 8, 8>(part[0], part[1]);
  values[256] = fusec::scan_threads_y<Op<T>, 256, 1>(part[0], part[1]);
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
  each<fusec::u8>(data);
  shapes<fusec::Max, bool>(data);
}
