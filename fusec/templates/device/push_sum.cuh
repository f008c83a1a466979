// Sums over the GPUs of one host, of few bytes: each GPU writes its elements into the memory of all
// others and adds what has arrived, in order of place.
// A mailbox lies in the memory of each rank: its turn, a counter of blocks, a flag for each block
// of each rank, and for either of two turns a place for the elements of each rank. Turns grow, so a
// launch may be replayed; all launches with one mailbox come one after the other.
#pragma once

#include "grid.cuh"
#include "types.cuh"

namespace fusec {

constexpr int kMostRanks = 8;

// boxes: the mailbox of each rank. capacity: bytes of a rank's elements, at most. flags, data:
// where these begin in a mailbox; flag_pitch: bytes of the flags of one rank.
struct PushSum {
  u64 boxes[kMostRanks];
  u64 capacity;
  i64 count;
  i32 rank, ranks, flags, flag_pitch, data;
};

struct alignas(16) PushedWords {
  u32 words[4];
};

__device__ __forceinline__ u32 load_acquire_system(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void store_release_system(u32* flag, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

// 16 bytes of elements that may lie at any address, with zeros behind the last.
template <class T>
struct PushedVector {
  static constexpr int kLanes = 16 / sizeof(T);
  union {
    PushedWords words;
    T lanes[kLanes];
  };

  __device__ __forceinline__ PushedVector() : words{} {}
  __device__ __forceinline__ void load(const T* from, i64 vector, i64 count, bool aligned) {
    const i64 first = vector * kLanes;
    if (aligned && first + kLanes <= count) {
      words = reinterpret_cast<const PushedWords*>(from)[vector];
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      if (first + lane < count) lanes[lane] = from[first + lane];
  }
  __device__ __forceinline__ void store(T* to, i64 vector, i64 count, bool aligned) const {
    const i64 first = vector * kLanes;
    if (aligned && first + kLanes <= count) {
      reinterpret_cast<PushedWords*>(to)[vector] = words;
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      if (first + lane < count) to[first + lane] = lanes[lane];
  }
};

__device__ __forceinline__ bool is_vector_aligned(const void* address) {
  return reinterpret_cast<u64>(address) % 16 == 0;
}

// y = x of all ranks, added in f32 and rounded once; y may be x. All threads of all `blocks` blocks
// call it, on all ranks.
template <class T>
__device__ __forceinline__ void push_sum(const T* x, T* y, const PushSum& how, int block,
                                         int blocks) {
  using Vector = PushedVector<T>;
  const int thread = threadIdx.x, last = blockDim.x - 1;
  const int rank = how.rank, ranks = how.ranks;
  char* const own = reinterpret_cast<char*>(how.boxes[rank]);
  u32* const state = reinterpret_cast<u32*>(own);
  const u32 turn = state[0], number = turn + 1;
  const u64 half = how.data + (turn & 1) * ranks * how.capacity;
  const i64 vectors = (how.count + Vector::kLanes - 1) / Vector::kLanes;
  const i64 first = static_cast<i64>(block) * blockDim.x + thread;
  const i64 step = static_cast<i64>(blocks) * blockDim.x;
  const bool aligned = is_vector_aligned(x), stores_aligned = is_vector_aligned(y);

#pragma unroll 4
  for (i64 v = first; v < vectors; v += step) {
    Vector sent;
    sent.load(x, v, how.count, aligned);
    for (int other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      char* const place = reinterpret_cast<char*>(how.boxes[other]) + half + rank * how.capacity;
      reinterpret_cast<PushedWords*>(place)[v] = sent.words;
    }
  }
  __syncthreads();
  // By now all threads of the block know the turn: the last block moves on while others wait.
  if (thread == last && take_ticket(&state[1], blocks) == blocks - 1) state[0] = number;
  if (thread < ranks && thread != rank) {
    const i64 here = how.flags + block * static_cast<i64>(sizeof(u32));
    char* const there = reinterpret_cast<char*>(how.boxes[thread]);
    store_release_system(reinterpret_cast<u32*>(there + here + rank * how.flag_pitch), number);
    const u32* const arrived = reinterpret_cast<u32*>(own + here + thread * how.flag_pitch);
    Patience patience;
    while (static_cast<i32>(load_acquire_system(arrived) - number) < 0) patience.wait();
  }
  __syncthreads();
#pragma unroll 2
  for (i64 v = first; v < vectors; v += step) {
    float sums[Vector::kLanes] = {};
    for (int each = 0; each < ranks; ++each) {
      Vector part;
      if (each == rank) {
        part.load(x, v, how.count, aligned);
      } else {
        part.words = reinterpret_cast<const PushedWords*>(own + half + each * how.capacity)[v];
      }
      for (int lane = 0; lane < Vector::kLanes; ++lane)
        sums[lane] =
            each == 0 ? to_float(part.lanes[lane]) : sums[lane] + to_float(part.lanes[lane]);
    }
    Vector total;
    for (int lane = 0; lane < Vector::kLanes; ++lane) total.lanes[lane] = convert<T>(sums[lane]);
    total.store(y, v, how.count, stores_aligned);
  }
}

}  // namespace fusec
