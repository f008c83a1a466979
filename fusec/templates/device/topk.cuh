// The smallest entries of a row, chosen by a block: entries below a limit are gathered in shared
// memory; when there is no room for more, they are put in order and all but the smallest dropped.
// An entry is a key and the place where it was found, so that no two are equal and the result does
// not depend on the order in which they are offered. All threads of the one-dimensional block call
// the functions together, but offer.
#pragma once

#include "sort.cuh"

namespace fusec {

template <int kKeep, int kBuffer>
struct Selection {
  u64 kept[kBuffer];
  u64 limit;  // larger entries are not among the smallest
  int count;
};

// Puts `size` entries, a power of two, in ascending order.
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

// Starts anew: without a limit.
template <int kKeep, int kBuffer>
__device__ __forceinline__ void begin_selection(Selection<kKeep, kBuffer>& selection) {
  __syncthreads();
  if (threadIdx.x == 0) {
    selection.count = 0;
    selection.limit = ~u64(0);
  }
  __syncthreads();
}

// Starts anew from the smallest key that each thread has seen: at least kKeep entries are not
// larger than the kKeep-th smallest of these.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void begin_selection(Selection<kKeep, kBuffer>& selection,
                                                u32 smallest) {
  static_assert(kKeep <= kThreads && kThreads <= kBuffer);
  __syncthreads();
  selection.kept[threadIdx.x] = smallest;
  __syncthreads();
  sort_entries<kThreads>(selection.kept, kThreads);
  if (threadIdx.x == 0) {
    selection.count = 0;
    selection.limit = selection.kept[kKeep - 1] << 32 | 0xffffffffu;
  }
  __syncthreads();
}

// Puts the entries in order and drops all but the kKeep smallest; missing ones are all ones.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void end_selection(Selection<kKeep, kBuffer>& selection) {
  __syncthreads();
  const int count = selection.count;
  int size = 1;
  while (size < count || size < kKeep) size *= 2;
  for (int i = count + threadIdx.x; i < size; i += kThreads) selection.kept[i] = ~u64(0);
  __syncthreads();
  sort_entries<kThreads>(selection.kept, size);
  if (threadIdx.x == 0 && count >= kKeep) {
    selection.count = kKeep;
    selection.limit = selection.kept[kKeep - 1];
  }
  __syncthreads();
}

// Makes room for `more` entries; called before any thread offers one of them.
template <int kThreads, int kKeep, int kBuffer>
__device__ __forceinline__ void make_room(Selection<kKeep, kBuffer>& selection, int more) {
  __syncthreads();
  const bool is_full = selection.count + more > kBuffer;
  __syncthreads();
  if (is_full) end_selection<kThreads>(selection);
}

template <int kKeep, int kBuffer>
__device__ __forceinline__ void offer(Selection<kKeep, kBuffer>& selection, u64 entry) {
  if (entry <= selection.limit) selection.kept[atomicAdd(&selection.count, 1)] = entry;
}

template <int kKeep, int kBuffer>
__device__ __forceinline__ void offer(Selection<kKeep, kBuffer>& selection, u32 key, u32 place) {
  offer(selection, static_cast<u64>(key) << 32 | place);
}

}  // namespace fusec
