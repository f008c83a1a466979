// Round-robin order of the multiplying warpgroups of a block: the warpgroup whose turn it is issues
// its wgmmas, then signals the next, so that its other work overlaps with the wgmmas of the others.
// Uses the named barriers 1 to kCount, 256 threads each.
#pragma once

#include "named_barrier.cuh"

namespace fusec {

// Called by all threads of warpgroup `own` of kCount: begin before the first turn, take and pass
// before and after the wgmmas of a turn, end after the last turn. No effect for a single warpgroup.
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
