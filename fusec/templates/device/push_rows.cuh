// Sums rows over the GPUs of one host in the kernel that reads them: a reduce-scatter and an
// all-gather of each row. Each GPU adds one part of the columns of every row, in order of rank
// index, and pushes the result to all. Mailboxes and turns are those of push_sum.cuh. The slots of
// a turn hold the sums of all rows first, which the kernel reads as a tensor, and then the parts of
// rows that other ranks have pushed, by rank and row.
#pragma once

#include "push_sum.cuh"

namespace fusec {

// A block processes rows block, block + blocks, ..., one per turn. While it reads a row, it adds
// the next one and pushes the one after that. Each function is called by all threads of all
// `blocks` blocks, on all ranks; a block waits for the blocks of the same index.
template <class T, int kColumns>
struct PushedRows {
  using Vector = PushedVector<T>;
  static constexpr int kRowVectors = kColumns / Vector::kLanes;
  static_assert(kRowVectors * Vector::kLanes == kColumns);

  const PushedSum<T> sum;
  const PushedFlags parts, results;
  const int block, blocks;
  const i32 rows, turns, part;
  const u64 base;

  __device__ __forceinline__ PushedRows(const T* x, const PushSum& how, int block, int blocks)
      : sum(x, nullptr, how, block, blocks),
        parts(how, block, 0),
        results(how, block, 1),
        block(block),
        blocks(blocks),
        rows(static_cast<i32>(how.count / kColumns)),
        turns((rows - block + blocks - 1) / blocks),
        part((kRowVectors + how.ranks - 1) / how.ranks),
        base(sum.turn * kMostChunks) {}

  __device__ __forceinline__ i32 row(i32 turn) const { return block + turn * blocks; }
  // Returns the sums of all rows on this rank; a row is valid once it is received.
  __device__ __forceinline__ const T* totals() const {
    return reinterpret_cast<const T*>(totals_of(sum.how.rank));
  }

  // Receives the row of a turn. Called in the order of turns.
  __device__ __forceinline__ void receive(i32 turn) const {
    if (turn == 0) {
      push(0);
      push(1);
      add(0);
    }
    push(turn + 2);
    add(turn + 1);
    results.wait(base + turn + 1);
  }

  // Pushes the row of a turn to the ranks that add its parts.
  __device__ __forceinline__ void push(i32 turn) const {
    if (turn >= turns) return;
    const int rank = sum.how.rank, ranks = sum.how.ranks;
    for (int hop = 1; hop < ranks; ++hop) {
      const int owner = (rank + hop) % ranks;
      PushedWords* const there = parts_of(owner, rank) + static_cast<i64>(row(turn)) * part;
      for (int v = threadIdx.x; v < columns_of(owner); v += blockDim.x)
        there[v] = sum.load(vector(turn, owner, v)).words;
    }
    parts.signal(base + turn + 1);
    if (turn == 0 && threadIdx.x == blockDim.x - 1) sum.finish_turn(blocks);
  }

  // Adds this rank's part of the row of a turn, and pushes it to all ranks.
  __device__ __forceinline__ void add(i32 turn) const {
    if (turn >= turns) return;
    const int rank = sum.how.rank, ranks = sum.how.ranks;
    parts.wait(base + turn + 1);
    for (int v = threadIdx.x; v < columns_of(rank); v += blockDim.x) {
      const PushedWords total = added_vector(turn, v);
      const i64 whole = vector(turn, rank, v);
      for (int hop = 0; hop < ranks; ++hop) totals_of((rank + hop) % ranks)[whole] = total;
    }
    results.signal(base + turn + 1);
  }

  // Returns the sum of a vector of this rank's part of the row of a turn.
  __device__ __forceinline__ PushedWords added_vector(i32 turn, int v) const {
    const int rank = sum.how.rank;
    return sum
        .added(vector(turn, rank, v),
               [&](int each) {
                 Vector arrived;
                 arrived.words = parts_of(rank, each)[static_cast<i64>(row(turn)) * part + v];
                 return arrived;
               })
        .words;
  }

  // Returns how many vectors of a row a rank adds; below, the index of one of them in the tensor.
  __device__ __forceinline__ int columns_of(int rank) const {
    const int left = kRowVectors - rank * part;
    return left < 0 ? 0 : left < part ? left : part;
  }
  __device__ __forceinline__ i64 vector(i32 turn, int rank, int v) const {
    return static_cast<i64>(row(turn)) * kRowVectors + rank * part + v;
  }

  __device__ __forceinline__ PushedWords* totals_of(int receiver) const {
    const PushSum& how = sum.how;
    const u64 half = (sum.turn & 1) * (how.ranks - 1) * how.capacity;
    return reinterpret_cast<PushedWords*>(how.boxes[receiver] + how.data + half);
  }
  __device__ __forceinline__ PushedWords* parts_of(int receiver, int sender) const {
    const i64 place = sender - (sender > receiver);
    return totals_of(receiver) + static_cast<i64>(rows) * (kRowVectors + place * part);
  }
};

}  // namespace fusec
