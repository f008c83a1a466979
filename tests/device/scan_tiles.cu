#include "scan_tiles.cuh"

namespace {

template <class Op>
__device__ void kinds(void* data, fusec::u32* flags, int tile) {
  using T = typename Op::type;
  T* totals = static_cast<T*>(data);
  totals[0] = fusec::before_tile<Op>(totals + 1, flags, 100, tile, totals[threadIdx.x]);
}

}  // namespace

extern "C" __global__ void kernel(void* data, fusec::u32* flags) {
  static_assert(fusec::totals_of_row(1025) == 1025 + 33 + 2);
  kinds<fusec::Sum<float>>(data, flags, blockIdx.x);
  kinds<fusec::Prod<double>>(data, flags, blockIdx.x);
  kinds<fusec::Max<fusec::i64>>(data, flags, blockIdx.x);
  kinds<fusec::Min<bool>>(data, flags, blockIdx.x);
}
