// Turns of the warpgroups of a block that multiply: who has the turn issues its products, and then
// lets the next one do so, which keeps one's other work beside the products of another. The turn
// goes round; all take it equally often. Named barriers 1 to kCount of 256 threads each.
#pragma once

#include "named_barrier.cuh"

namespace fusec {

// Of warpgroup `own` of kCount, all threads: begin before the first turn, take and pass around
// what is issued in a turn, end after the last one. A single warpgroup waits for nobody.
template <int kCount>
struct WarpgroupTurns {
  int own;

  __device__ __forceinline__ void begin() const {
    if (kCount > 1 && own == kCount - 1) named_barrier_arrive<256>(1);
  }
  __device__ __forceinline__ void take() const {
    if (kCount > 1) named_barrier_sync<256>(1 + own);
  }
  __device__ __forceinline__ void pass() const {
    if (kCount > 1) named_barrier_arrive<256>(own + 1 == kCount ? 1 : own + 2);
  }
  __device__ __forceinline__ void end() const {
    if (kCount > 1 && own == 0) named_barrier_sync<256>(1);
  }
};

}  // namespace fusec
