// Barriers between the GPUs of one host: see barrier.cuh.
#include "barrier.cuh"

extern "C" __global__ void __launch_bounds__(fusec::kMostBarrierRanks)
    barrier(fusec::BarrierWords* words, const __grid_constant__ fusec::BarrierPeers peers) {
  fusec::arrive_and_wait(words, peers);
}
