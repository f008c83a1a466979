#include "reduce_in_turns.cuh"

namespace {

template <int kThreadsX, int kThreadsY>
__device__ void twice(float* data) {
  int turn = 0;
  const float value = data[threadIdx.x];
  const float most =
      fusec::block_reduce_rows_in_turns<fusec::Max<float>, kThreadsX, kThreadsY>(value, turn);
  const auto sums = fusec::block_reduce_rows_in_turns<fusec::Sum<float>, kThreadsX, kThreadsY>(
      fusec::Vec<float, 2>{value, value - most}, turn);
  data[threadIdx.x] = sums[0] + sums[1];
}

}  // namespace

extern "C" __global__ void kernel(float* data) {
  twice<16, 8>(data);
  twice<32, 4>(data);
  twice<96, 2>(data);
  twice<192, 1>(data);
  twice<512, 1>(data);
  twice<1024, 1>(data);
}
