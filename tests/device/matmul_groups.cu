#include "matmul_groups.cuh"

extern "C" __global__ void kernel(const int* ends, const fusec::i64* wide_ends, int* found) {
  const auto rows = fusec::group_of_tile<64>(ends, 1, 5, 1000, static_cast<int>(blockIdx.x));
  const auto depth = fusec::group_elements(wide_ends, 2, 3, fusec::i64{1000});
  found[threadIdx.x] = rows.index + rows.first + rows.end;
  found[threadIdx.x] += static_cast<int>(depth.first + depth.end);
}
