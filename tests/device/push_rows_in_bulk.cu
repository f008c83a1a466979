// Calls every function of push_rows_in_bulk.cuh.
#include "push_rows_in_bulk.cuh"

extern "C" __global__ void kernel(const float* x, float* y, const fusec::PushSum how) {
  __shared__ fusec::StagedRows<float, 64> rows;
  const fusec::PushedRowsInBulk<float, 64> sums(x, how, blockIdx.x, gridDim.x, rows);
  for (int turn = 0; turn < sums.turns; ++turn) {
    sums.bring(turn);
    const int at = sums.row(turn) * 64 + threadIdx.x;
    y[at] = sums.totals()[at];
  }
}
