// Calls every function of barrier.cuh.
#include "barrier.cuh"

extern "C" __global__ void kernel(fusec::BarrierWords* words, const fusec::BarrierPeers peers) {
  fusec::arrive_and_wait(words, peers);
}
