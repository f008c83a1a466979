// Rows of a sum as push_rows.cuh has them, which the bulk copy engine pushes out of shared memory
// (sm_90): no thread waits for what it has stored, so that rows are added and read while others are
// on their way. The last warp of a block has its last lane issue the copies, and its other lanes
// write the flags of a row once its copies are complete.
#pragma once

#include "push_rows.cuh"
#include "tma.cuh"

namespace fusec {

// What a block pushes: rows, and sums of its part of them, of two turns.
template <class T, int kColumns>
struct alignas(16) StagedRows {
  static constexpr int kRowVectors = PushedRows<T, kColumns>::kRowVectors;
  PushedWords rows[2][kRowVectors];
  PushedWords sums[2][(kRowVectors + 2) / 3];
};

// As PushedRows. Bulk groups are committed in the order of push and add: each waits for its own.
template <class T, int kColumns>
struct PushedRowsInBulk : PushedRows<T, kColumns> {
  using Rows = PushedRows<T, kColumns>;
  using Rows::base, Rows::block, Rows::blocks, Rows::kRowVectors, Rows::part, Rows::parts;
  using Rows::results, Rows::row, Rows::sum, Rows::turns;

  StagedRows<T, kColumns>& staged;
  const int lane;  // of the last warp; less than 0 of others

  __device__ __forceinline__ PushedRowsInBulk(const T* x, const PushSum& how, int block, int blocks,
                                              StagedRows<T, kColumns>& staged)
      : Rows(x, how, block, blocks),
        staged(staged),
        lane(static_cast<int>(threadIdx.x) - static_cast<int>(blockDim.x) + 32) {}

  // Brings the row of a turn; turns are taken in order.
  __device__ __forceinline__ void bring(i32 turn) const {
    if (turn == 0) {
      push(0);
      push(1);
      tell_when_complete<1>(0, 0);
      add(0);
    }
    // Groups that are not complete here: the parts of the next row, the sums of this one.
    tell_when_complete<1>(0, turn + 1);
    push(turn + 2);
    add(turn + 1);
    tell_when_complete<2>(1, turn);
    results.wait(base + turn + 1);
  }

  // Pushes the row of a turn to the ranks that add its parts.
  __device__ __forceinline__ void push(i32 turn) const {
    if (turn < turns) {
      PushedWords* const own = staged.rows[turn & 1];
      for (int v = threadIdx.x; v < kRowVectors; v += blockDim.x)
        own[v] = sum.load(this->vector(turn, 0, v)).words;
      fence_proxy_async_shared_cta();
      __syncthreads();
      if (lane == 31) {
        const int rank = sum.how.rank, ranks = sum.how.ranks;
        for (int hop = 1; hop < ranks; ++hop) {
          const int owner = (rank + hop) % ranks;
          PushedWords* const there = this->parts_of(owner, rank);
          copy(there + static_cast<i64>(row(turn)) * part, own + owner * part, owner);
        }
        if (turn == 0) sum.finish_turn(blocks);
      }
    }
    if (lane == 31) commit_group();
  }

  // Adds this rank's part of the row of a turn, and pushes it to all others.
  __device__ __forceinline__ void add(i32 turn) const {
    if (turn < turns) {
      const int rank = sum.how.rank, ranks = sum.how.ranks;
      PushedWords* const own = staged.sums[turn & 1];
      parts.wait(base + turn + 1);
      for (int v = threadIdx.x; v < this->columns_of(rank); v += blockDim.x) {
        own[v] = this->added_vector(turn, v);
        this->totals_of(rank)[this->vector(turn, rank, v)] = own[v];
      }
      fence_proxy_async_shared_cta();
      __syncthreads();
      if (lane == 31) {
        for (int hop = 1; hop < ranks; ++hop) {
          const int other = (rank + hop) % ranks;
          copy(this->totals_of(other) + this->vector(turn, rank, 0), own, rank);
        }
      }
    }
    if (lane == 31) commit_group();
  }

  // Waits until all but the last kPending groups are complete, and tells the others that what this
  // rank pushed of the row of a turn is there. group: of the flags.
  template <int kPending>
  __device__ __forceinline__ void tell_when_complete(int group, i32 turn) const {
    if (lane < 0) return;
    if (lane == 31) wait_group<kPending>();
    __syncwarp();
    const PushSum& how = sum.how;
    if (turn >= turns || lane >= how.ranks || lane == how.rank) return;
    const i64 flags = (group * how.ranks + how.rank) * static_cast<i64>(how.flag_pitch);
    const u64 there = how.boxes[lane] + how.flags + flags + block * sizeof(u64);
    store_release_system(reinterpret_cast<u64*>(there), base + turn + 1);
  }

  // Copies a rank's part of a row.
  __device__ __forceinline__ void copy(PushedWords* there, const PushedWords* own, int rank) const {
    const int count = this->columns_of(rank);
    if (count > 0) bulk_store(there, own, count * sizeof(PushedWords));
  }
};

}  // namespace fusec
