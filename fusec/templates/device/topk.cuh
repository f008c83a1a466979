// Selects the smallest entries of a row. An entry is a key and its index in the row, so no two are
// equal and the result does not depend on the order of evaluation; missing entries are kNoEntry. A
// block keeps a tile of the row in registers, gathers the entries up to a limit in shared memory
// and sorts these; or some lanes of a warp share a row, and extract its smallest keys one after
// another. Each function, except offer, is called by all threads of the block or of the warp.
#pragma once

#include "sort.cuh"

namespace fusec {

inline constexpr u32 kNoKey = ~u32(0);
inline constexpr u64 kNoEntry = ~u64(0);

__device__ __forceinline__ u64 entry_of(u32 key, int place) {
  return static_cast<u64>(key) << 32 | static_cast<u32>(place);
}

__device__ __forceinline__ u32 key_of(u64 entry) { return static_cast<u32>(entry >> 32); }

__device__ __forceinline__ int place_of(u64 entry) { return static_cast<int>(entry); }

template <int kKeep, int kBuffer>
struct Selection {
  u64 kept[kBuffer];
  u64 limit;  // larger entries are not among the smallest
  int count;
  u32 bounds[32];
};

// Sorts the values of a warp's lanes in ascending order.
template <class T>
__device__ __forceinline__ T warp_sort(T value) {
#pragma unroll
  for (int width = 2; width <= 32; width *= 2) {
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2) {
      const T other = shuffle_xor(value, distance);
      const bool is_low = (threadIdx.x & distance) == 0;
      const bool rises = width == 32 || (threadIdx.x & width) == 0;
      value = is_low == rises ? (other < value ? other : value) : (other < value ? value : other);
    }
  }
  return value;
}

// Sorts `size` entries, a power of two, in ascending order.
template <int kThreads>
__device__ __forceinline__ void sort_entries(u64* entries, int size) {
  for (int width = 2; width <= size; width *= 2) {
    for (int distance = width / 2; distance > 0; distance /= 2) {
      for (int i = threadIdx.x; i < size / 2; i += kThreads) {
        const int low = 2 * i - (i & (distance - 1));
        const u64 a = entries[low];
        const u64 b = entries[low + distance];
        if ((a > b) == ((low & width) == 0)) {
          entries[low] = b;
          entries[low + distance] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Restarts with the smallest key of each thread. Every warp has its share of kKeep entries up to
// the limit, so at least kKeep entries do not exceed it.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void begin_selection(Selection<kKeep, kBuffer>& selection,
                                                u32 smallest) {
  static_assert(kKeep <= kThreads);
  constexpr int kWarps = kThreads / 32;
  constexpr int kEach = (kKeep + kWarps - 1) / kWarps;
  const int lane = threadIdx.x % 32;
  __syncthreads();
  if constexpr (kEach == 1) {
    smallest = warp_reduce<Min<u32>>(smallest);
  } else {
    smallest = warp_sort(smallest);
  }
  if (lane == kEach - 1) selection.bounds[threadIdx.x / 32] = smallest;
  __syncthreads();
  if (threadIdx.x < 32) {
    const u32 bound = warp_reduce<Max<u32>>(lane < kWarps ? selection.bounds[lane] : 0);
    if (lane == 0) {
      selection.count = 0;
      selection.limit = entry_of(bound, -2);
    }
  }
  __syncthreads();
}

// Returns how many entries are smaller than `own`; 0 for kNoEntry.
__device__ __forceinline__ int rank_of(const u64* entries, int count, u64 own) {
  int rank = 0;
  for (int i = 0; own != kNoEntry && i < count; ++i) rank += entries[i] < own;
  return rank;
}

// Sorts the entries and drops all but the kKeep smallest.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void end_selection(Selection<kKeep, kBuffer>& selection) {
  constexpr int kRanked = kThreads < 128 ? kThreads : 128;
  __syncthreads();
  const int count = selection.count;
  if (count <= kRanked) {
    const u64 own = threadIdx.x < count ? selection.kept[threadIdx.x] : kNoEntry;
    const int rank = rank_of(selection.kept, count, own);
    __syncthreads();
    if (threadIdx.x < count) selection.kept[rank] = own;
    __syncthreads();
    if (count < kKeep) {
      for (int i = count + threadIdx.x; i < kKeep; i += kThreads) selection.kept[i] = kNoEntry;
      __syncthreads();
    }
  } else {
    int size = 1;
    while (size < count || size < kKeep) size *= 2;
    for (int i = count + threadIdx.x; i < size; i += kThreads) selection.kept[i] = kNoEntry;
    __syncthreads();
    sort_entries<kThreads>(selection.kept, size);
  }
  if (threadIdx.x == 0 && count >= kKeep) {
    selection.count = kKeep;
    selection.limit = selection.kept[kKeep - 1];
  }
  __syncthreads();
}

// Adds an entry if it may be among the smallest; entries beyond the buffer are only counted.
template <int kKeep, int kBuffer>
__device__ __forceinline__ void offer(Selection<kKeep, kBuffer>& selection, u64 entry, u64 limit) {
  if (entry > limit) return;
  const int place = atomicAdd(&selection.count, 1);
  if (place < kBuffer) selection.kept[place] = entry;
}

// Offers each thread's entries of a tile: entry(i) for i below kCount.
template <int kThreads, int kCount, int kKeep, int kBuffer, class Entry>
__device__ __forceinline__ void push_tile(Selection<kKeep, kBuffer>& selection,
                                          const Entry& entry) {
  static_assert(kKeep + kThreads <= kBuffer);
  const u64 limit = selection.limit;
  const int before = selection.count;
  __syncthreads();
  const u32 largest = key_of(limit);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (key_of(entry(i)) <= largest) offer(selection, entry(i), limit);
  }
  __syncthreads();
  const bool is_over = selection.count > kBuffer;
  __syncthreads();
  if (!is_over) return;

  // The buffer overflowed: again, with one entry per thread at a time, and with lower limits.
  u64 own[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) own[i] = entry(i);
  if (threadIdx.x == 0) selection.count = before;
#pragma unroll 1
  for (int i = 0; i < kCount; ++i) {
    __syncthreads();
    const bool is_full = selection.count + kThreads > kBuffer;
    __syncthreads();
    if (is_full) end_selection<kThreads>(selection);
    offer(selection, own[i], selection.limit);
  }
  __syncthreads();
}

// Lowers the limit before the next tile if many entries were below it.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void prune(Selection<kKeep, kBuffer>& selection) {
  const bool is_many = selection.count >= kKeep + kKeep / 2;
  if (is_many) end_selection<kThreads>(selection);
}

// Sorts a thread's keys in ascending order; equal ones stay in the order of their indices.
template <int kCount>
__device__ __forceinline__ void sort_own(u32 (&keys)[kCount], int (&places)[kCount]) {
#pragma unroll
  for (int last = kCount - 1; last > 0; --last) {
#pragma unroll
    for (int i = 0; i < last; ++i) {
      const bool swaps = keys[i + 1] < keys[i];
      const u32 key = swaps ? keys[i + 1] : keys[i];
      const int place = swaps ? places[i + 1] : places[i];
      keys[i + 1] = swaps ? keys[i] : keys[i + 1];
      places[i + 1] = swaps ? places[i] : places[i + 1];
      keys[i] = key;
      places[i] = place;
    }
  }
}

// Returns the smallest key of kLanes adjacent lanes.
template <int kLanes>
__device__ __forceinline__ u32 smallest_of_lanes(u32 key) {
  if constexpr (kLanes == 32) return __reduce_min_sync(kFullWarp, key);
  return warp_reduce<Min<u32>, kLanes>(key);
}

// Extracts the kKeep smallest keys of kLanes adjacent lanes, and returns in lane i the place of the
// i-th. A lane has `count` keys in ascending order; those of lower lanes precede them in the row.
template <int kLanes, int kKeep, int kCount>
__device__ __forceinline__ int take_smallest(u32 (&keys)[kCount], int (&places)[kCount],
                                             int count) {
  static_assert(kKeep <= kLanes && kLanes <= 32);
  const int lane = threadIdx.x % kLanes;
  const int first = threadIdx.x % 32 - lane;
  int own = 0;
#pragma unroll(kCount <= 8 ? kKeep : 1)
  for (int position = 0; position < kKeep; ++position) {
    const u32 smallest = smallest_of_lanes<kLanes>(keys[0]);
    const u32 vote = __ballot_sync(kFullWarp, count > 0 && keys[0] == smallest);
    const int taken = __ffs(static_cast<int>(vote >> first)) - 1;
    const int place = shuffle_from<kLanes>(places[0], taken);
    if (lane == position) own = place;
    if (lane == taken) {
#pragma unroll
      for (int i = 0; i + 1 < kCount; ++i) {
        keys[i] = keys[i + 1];
        places[i] = places[i + 1];
      }
      keys[kCount - 1] = kNoKey;
      --count;
    }
  }
  return own;
}

}  // namespace fusec
