// Sums over the GPUs of one host: each GPU writes its elements into the memory of all others and
// adds those that have arrived, in order of rank index. Each rank has a mailbox in its memory: its
// turn, a counter of blocks, two flags per block of each rank, and for each of two turns slots for
// the elements of every other rank. Turns increase, so a launch may be replayed; launches with the
// same mailbox must not overlap. push_few sends the number of the turn with every 4 bytes and needs
// no flags; push_sum sends elements unchanged, followed by flags.
#pragma once

#include "grid.cuh"
#include "system.cuh"
#include "types.cuh"

namespace fusec {

constexpr int kMostRanks = 8;
constexpr u32 kMostChunks = 64;

// boxes: the mailbox of each rank. capacity: bytes of a slot. flags, lines, data: their offsets in
// a mailbox; flag_pitch: bytes of the flags of one rank; line_pitch: bytes of a slot for elements
// that are sent with numbers. chunk_steps: vectors per thread between two flags.
struct PushSum {
  u64 boxes[kMostRanks];
  u64 capacity;
  i64 count;
  i32 rank, ranks, flags, flag_pitch, lines, line_pitch, data, chunk_steps;
};

struct alignas(16) PushedWords {
  u32 words[4];
};

// Stores two words, each with a number. A word and its number become visible together.
__device__ __forceinline__ void store_line(u32* line, u32 first, u32 second, u32 number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(line), "r"(first), "r"(number), "r"(second), "r"(number)
               : "memory");
}

__device__ __forceinline__ void load_line(u32& first, u32& second, const u32* line, u32 number) {
  u32 numbers[2];
  SpinGuard guard;
  for (;;) {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(first), "=r"(numbers[0]), "=r"(second), "=r"(numbers[1])
                 : "l"(line)
                 : "memory");
    if (numbers[0] == number && numbers[1] == number) return;
    guard.wait();
  }
}

// 16 bytes of elements at any address, with zeros after the last.
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

// One rank's part in a sum: its elements as vectors, distributed cyclically over the threads of all
// blocks.
template <class T>
struct PushedSum {
  using Vector = PushedVector<T>;

  const T* x;
  T* y;
  const PushSum& how;
  char* own;
  u64* turns;
  u64 turn;
  i64 vectors, first, step;
  bool loads_aligned, stores_aligned;

  __device__ __forceinline__ PushedSum(const T* x, T* y, const PushSum& how, int block, int blocks)
      : x(x),
        y(y),
        how(how),
        own(reinterpret_cast<char*>(how.boxes[how.rank])),
        turns(reinterpret_cast<u64*>(own)),
        turn(turns[0]),
        vectors((how.count + Vector::kLanes - 1) / Vector::kLanes),
        first(static_cast<i64>(block) * blockDim.x + threadIdx.x),
        step(static_cast<i64>(blocks) * blockDim.x),
        loads_aligned(is_vector_aligned(x)),
        stores_aligned(is_vector_aligned(y)) {}

  // Returns the number of chunks of `count` vectors; flags are set after each chunk.
  __device__ __forceinline__ i32 chunks(i64 count) const {
    const i64 in_chunk = step * how.chunk_steps;
    return static_cast<i32>((count + in_chunk - 1) / in_chunk);
  }

  // Calls `work` with each of the thread's vectors in a chunk, of `count` in total.
  template <class Work>
  __device__ __forceinline__ void for_chunk(i64 count, i32 chunk, Work work) const {
    for (i32 s = chunk * how.chunk_steps; s < (chunk + 1) * how.chunk_steps; ++s) {
      const i64 v = first + s * step;
      if (v < count) work(v);
    }
  }

  // Returns the index of a sender's slot at a receiver, which has none for itself.
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

  // Called by one thread of each block, after all threads of the block have read the turn.
  __device__ __forceinline__ void finish_turn(int blocks) const {
    u32* const finished = reinterpret_cast<u32*>(&turns[1]);
    if (take_ticket(finished, blocks) == blocks - 1) turns[0] = turn + 1;
  }

  // Returns the sum of a vector over all ranks; `arrived` returns that of another rank.
  template <class Arrived>
  __device__ __forceinline__ Vector added(i64 v, Arrived arrived) const {
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
    return total;
  }
  template <class Arrived>
  __device__ __forceinline__ void add(i64 v, Arrived arrived) const {
    added(v, arrived).store(y, v, how.count, stores_aligned);
  }
};

// The flags of one block: chunks that others have pushed, and that it has pushed to them. Threads
// below the number of ranks signal and wait, one per other rank.
struct PushedFlags {
  u64* there;
  const u64* here;
  bool signals;

  // group: which of the two flags per block and rank.
  __device__ __forceinline__ PushedFlags(const PushSum& how, int block, int group) {
    const int thread = threadIdx.x;
    signals = thread < how.ranks && thread != how.rank;
    const i64 row = group * how.ranks * static_cast<i64>(how.flag_pitch);
    const i64 first = how.flags + row + block * static_cast<i64>(sizeof(u64));
    const u64 other = signals ? how.boxes[thread] : 0;
    there = reinterpret_cast<u64*>(other + first + how.rank * how.flag_pitch);
    here = reinterpret_cast<const u64*>(how.boxes[how.rank] + first + thread * how.flag_pitch);
  }

  // Called by all threads of the block. Stores before `signal` are visible after `wait`.
  __device__ __forceinline__ void signal(u64 number) const {
    __syncthreads();
    if (signals) store_release_system(there, number);
  }
  __device__ __forceinline__ void wait(u64 number) const {
    if (signals) {
      SpinGuard guard;
      while (load_acquire_system(here) < number) guard.wait();
    }
    __syncthreads();
  }
};

// y = sum of x over all ranks, accumulated in f32 and rounded once; y may be x. Called by all
// threads of all `blocks` blocks, on all ranks. Chunks are added while later ones are in transit.
template <class T>
__device__ __forceinline__ void push_sum(const T* x, T* y, const PushSum& how, int block,
                                         int blocks) {
  using Vector = PushedVector<T>;
  const PushedSum<T> sum(x, y, how, block, blocks);
  const PushedFlags flags(how, block, 0);
  const int last = blockDim.x - 1, rank = how.rank;
  const i32 chunks = sum.chunks(sum.vectors);
  const u64 base = sum.turn * kMostChunks;

  for (i32 c = 0; c <= chunks; ++c) {
    if (c < chunks) {
      sum.for_chunk(sum.vectors, c, [&](i64 v) {
        const Vector sent = sum.load(v);
        for (int other = 0; other < how.ranks; ++other)
          if (other != rank) sum.data(other, rank)[v] = sent.words;
      });
      flags.signal(base + c + 1);
      if (c == 0 && threadIdx.x == last) sum.finish_turn(blocks);
    }
    if (c == 0) continue;
    flags.wait(base + c);
    sum.for_chunk(sum.vectors, c - 1, [&](i64 v) {
      sum.add(v, [&](int each) {
        Vector part;
        part.words = sum.data(rank, each)[v];
        return part;
      });
    });
  }
}

// The same for a small number of elements.
template <class T>
__device__ __forceinline__ void push_few(const T* x, T* y, const PushSum& how, int block,
                                         int blocks) {
  using Vector = PushedVector<T>;
  const PushedSum<T> sum(x, y, how, block, blocks);
  // Never 0, which unwritten lines have.
  const u32 number = static_cast<u32>(sum.turn % 0xffffffffu) + 1;
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
