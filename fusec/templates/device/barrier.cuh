// A barrier between the GPUs of one host: a kernel of one block, with one thread per rank. A thread
// stores the number of the turn into the memory of its rank (release), and waits until that rank
// has stored it here (acquire). Kernels that follow on the stream therefore see what other ranks
// wrote before the barrier. Turns are counted in device memory, so a captured launch can be
// replayed. A rank is at most one turn ahead of any other.
#pragma once

#include "grid.cuh"
#include "system.cuh"
#include "types.cuh"

namespace fusec {

constexpr int kMostBarrierRanks = 16;

// State of a barrier for one other rank. turn: how often this rank has passed it. arrived: the turn
// at which the other rank arrived; written by that rank.
struct BarrierWords {
  u32 turn, arrived;
};

// arrived: for each rank, the address of the word that this rank writes there; 0 for this rank.
struct BarrierPeers {
  u64 arrived[kMostBarrierRanks];
};

// Called by all threads of the block, one per rank.
__device__ __forceinline__ void arrive_and_wait(BarrierWords* words, const BarrierPeers& peers) {
  const u64 there = peers.arrived[threadIdx.x];
  if (there == 0) return;
  BarrierWords& own = words[threadIdx.x];
  const u32 turn = own.turn + 1;
  store_release_system(reinterpret_cast<u32*>(there), turn);
  SpinGuard guard;
  while (static_cast<i32>(load_acquire_system(&own.arrived) - turn) < 0) guard.wait();
  own.turn = turn;
}

}  // namespace fusec
