// Sums over the GPUs of one host: each GPU writes its elements into the memory of all others and
// adds what has arrived, in order of place. A mailbox lies in the memory of each rank: its turn, a
// counter of blocks, a flag for each block of each rank, and for either of two turns places for the
// elements of each other rank. Turns grow, so a launch may be replayed; all launches with one
// mailbox come one after the other. push_few sends each 4 bytes with the number of the turn, so
// that nothing else is to be waited for; push_sum sends elements as they are, and flags behind
// them.
#pragma once

#include "grid.cuh"
#include "system.cuh"
#include "types.cuh"

namespace fusec {

constexpr int kMostRanks = 8;
constexpr u32 kMostChunks = 64;

// boxes: the mailbox of each rank. capacity: bytes of a place for elements. flags, lines, data:
// where these begin in a mailbox; flag_pitch: bytes of the flags of one rank; line_pitch: of a
// place for elements that are sent with numbers. chunk_steps: vectors of a thread between two
// flags.
struct PushSum {
  u64 boxes[kMostRanks];
  u64 capacity;
  i64 count;
  i32 rank, ranks, flags, flag_pitch, lines, line_pitch, data, chunk_steps;
};

struct alignas(16) PushedWords {
  u32 words[4];
};

// Two words, each with a number: either both of a pair arrive, or none.
__device__ __forceinline__ void store_line(u32* line, u32 first, u32 second, u32 number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(line), "r"(first), "r"(number), "r"(second), "r"(number)
               : "memory");
}

__device__ __forceinline__ void load_line(u32& first, u32& second, const u32* line, u32 number) {
  u32 numbers[2];
  Patience patience;
  for (;;) {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(first), "=r"(numbers[0]), "=r"(second), "=r"(numbers[1])
                 : "l"(line)
                 : "memory");
    if (numbers[0] == number && numbers[1] == number) return;
    patience.wait();
  }
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

// What one rank does of a sum: its elements as vectors, which threads of all blocks take in turns.
template <class T>
struct PushedSum {
  using Vector = PushedVector<T>;

  const T* x;
  T* y;
  const PushSum& how;
  char* own;
  u32* state;
  u32 turn;
  i64 vectors, first, step;
  bool loads_aligned, stores_aligned;

  __device__ __forceinline__ PushedSum(const T* x, T* y, const PushSum& how, int block, int blocks)
      : x(x),
        y(y),
        how(how),
        own(reinterpret_cast<char*>(how.boxes[how.rank])),
        state(reinterpret_cast<u32*>(own)),
        turn(state[0]),
        vectors((how.count + Vector::kLanes - 1) / Vector::kLanes),
        first(static_cast<i64>(block) * blockDim.x + threadIdx.x),
        step(static_cast<i64>(blocks) * blockDim.x),
        loads_aligned(is_vector_aligned(x)),
        stores_aligned(is_vector_aligned(y)) {}

  // Which of a rank's places is that of a sender: it has none for itself.
  __device__ __forceinline__ u64 place(int receiver, int sender) const {
    return (turn & 1) * (how.ranks - 1) + sender - (sender > receiver);
  }
  __device__ __forceinline__ PushedWords* data(int receiver, int sender) const {
    const u64 offset = how.data + place(receiver, sender) * how.capacity;
    return reinterpret_cast<PushedWords*>(how.boxes[receiver] + offset);
  }
  __device__ __forceinline__ u32* lines(int receiver, int sender) const {
    const u64 offset = how.lines + place(receiver, sender) * how.line_pitch;
    return reinterpret_cast<u32*>(how.boxes[receiver] + offset);
  }
  __device__ __forceinline__ Vector load(i64 v) const {
    Vector loaded;
    loaded.load(x, v, how.count, loads_aligned);
    return loaded;
  }

  // One thread of each block calls it, when all threads of the block know the turn.
  __device__ __forceinline__ void finish_turn(int blocks) const {
    if (take_ticket(&state[1], blocks) == blocks - 1) state[0] = turn + 1;
  }

  // Adds a vector of all ranks; `arrived` returns that of another rank.
  template <class Arrived>
  __device__ __forceinline__ void add(i64 v, Arrived arrived) const {
    float sums[Vector::kLanes] = {};
    for (int each = 0; each < how.ranks; ++each) {
      const Vector part = each == how.rank ? load(v) : arrived(each);
      for (int lane = 0; lane < Vector::kLanes; ++lane) {
        const float value = to_float(part.lanes[lane]);
        sums[lane] = each == 0 ? value : sums[lane] + value;
      }
    }
    Vector total;
    for (int lane = 0; lane < Vector::kLanes; ++lane) total.lanes[lane] = convert<T>(sums[lane]);
    total.store(y, v, how.count, stores_aligned);
  }
};

// y = x of all ranks, added in f32 and rounded once; y may be x. All threads of all `blocks` blocks
// call it, on all ranks. Chunks are added while later ones are on their way.
template <class T>
__device__ __forceinline__ void push_sum(const T* x, T* y, const PushSum& how, int block,
                                         int blocks) {
  using Vector = PushedVector<T>;
  const PushedSum<T> sum(x, y, how, block, blocks);
  const int thread = threadIdx.x, last = blockDim.x - 1, rank = how.rank;
  const bool signals = thread < how.ranks && thread != rank;
  const i64 here = how.flags + block * static_cast<i64>(sizeof(u32));
  const u64 there = signals ? how.boxes[thread] + here + rank * how.flag_pitch : 0;
  const u32* const arrived = reinterpret_cast<u32*>(sum.own + here + thread * how.flag_pitch);
  const i32 steps = static_cast<i32>((sum.vectors + sum.step - 1) / sum.step);
  const i32 chunk = how.chunk_steps, chunks = (steps + chunk - 1) / chunk;
  const u32 base = sum.turn * kMostChunks;

  for (i32 c = 0; c <= chunks; ++c) {
    if (c < chunks) {
      for (i32 s = c * chunk; s < steps && s < (c + 1) * chunk; ++s) {
        const i64 v = sum.first + s * sum.step;
        if (v >= sum.vectors) break;
        const Vector sent = sum.load(v);
        for (int other = 0; other < how.ranks; ++other)
          if (other != rank) sum.data(other, rank)[v] = sent.words;
      }
      __syncthreads();
      if (signals) store_release_system(reinterpret_cast<u32*>(there), base + c + 1);
      if (c == 0 && thread == last) sum.finish_turn(blocks);
    }
    if (c == 0) continue;
    if (signals) {
      Patience patience;
      while (static_cast<i32>(load_acquire_system(arrived) - (base + c)) < 0) patience.wait();
    }
    __syncthreads();
    for (i32 s = (c - 1) * chunk; s < steps && s < c * chunk; ++s) {
      const i64 v = sum.first + s * sum.step;
      if (v >= sum.vectors) break;
      sum.add(v, [&](int each) {
        Vector part;
        part.words = sum.data(rank, each)[v];
        return part;
      });
    }
  }
}

// The same of few elements.
template <class T>
__device__ __forceinline__ void push_few(const T* x, T* y, const PushSum& how, int block,
                                         int blocks) {
  using Vector = PushedVector<T>;
  const PushedSum<T> sum(x, y, how, block, blocks);
  const u32 number = sum.turn + 1;
  const int last = blockDim.x - 1, rank = how.rank;
  for (i64 v = sum.first; v < sum.vectors; v += sum.step) {
    const Vector sent = sum.load(v);
    const u32* const words = sent.words.words;
    for (int other = 0; other < how.ranks; ++other) {
      if (other == rank) continue;
      u32* const line = sum.lines(other, rank) + 8 * v;
      store_line(line, words[0], words[1], number);
      store_line(line + 4, words[2], words[3], number);
    }
  }
  __syncthreads();
  if (threadIdx.x == last) sum.finish_turn(blocks);
  for (i64 v = sum.first; v < sum.vectors; v += sum.step) {
    sum.add(v, [&](int each) {
      Vector part;
      const u32* const line = sum.lines(rank, each) + 8 * v;
      load_line(part.words.words[0], part.words.words[1], line, number);
      load_line(part.words.words[2], part.words.words[3], line + 4, number);
      return part;
    });
  }
}

}  // namespace fusec
