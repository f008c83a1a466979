// Sums of a split product without turns (sm_90): every cluster leaves its share of a tile in a slice
// of its own, and whichever arrives last adds all slices up in their order. Nobody waits, and the
// sum does not depend on who is last. `Config` is the struct at the top of the kernel.
#pragma once

#include "matmul_semaphores.cuh"

namespace fusec {

// All multiplying threads: the share to the slice of this cluster.
template <class Config, class Part>
__device__ __forceinline__ void store_slice(Part* slice, const float4 (&share)[Config::kOwned]) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    store_quad(slice + f * Config::kMultipliers + threadIdx.x, share[f]);
  }
}

// The same of sums as wgmma leaves them, four at a time.
template <class Config, class Part>
__device__ __forceinline__ void store_fragments(Part* slice,
                                                const float (&sums)[Config::kSumsOwn]) {
#pragma unroll
  for (int f = 0; f < Config::kSumsOwn / 4; ++f) {
    store_quad(slice + f * Config::kMultipliers + threadIdx.x,
               make_float4(sums[4 * f], sums[4 * f + 1], sums[4 * f + 2], sums[4 * f + 3]));
  }
}

// All multiplying threads: whether all of `splits` slices have been left, this one last. The counter
// starts over for the next launch; `slot` is shared memory.
template <class Config>
__device__ __forceinline__ bool is_last_slice(u32* arrived, u32* slot, int splits) {
  named_barrier_sync<Config::kMultipliers>(1);
  if (threadIdx.x == 0) *slot = count_and_wrap(arrived, splits);
  named_barrier_sync<Config::kMultipliers>(1);
  return *slot == static_cast<u32>(splits) - 1;
}

// All multiplying threads: the share of all clusters, in their order. As many quads are on their way
// as registers are left for.
template <class Config, class Part>
__device__ __forceinline__ void sum_slices(float4 (&share)[Config::kOwned], const Part* slices,
                                           int splits) {
  constexpr int kQuadsAhead = Config::kResident > 1 ? 8 : 16;
  constexpr int kSlicesAhead = Config::kOwned < kQuadsAhead ? kQuadsAhead / Config::kOwned : 1;
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) share[f] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll kSlicesAhead
  for (int split = 0; split < splits; ++split) {
    const Part* const slice = slices + static_cast<i64>(split) * Config::kSlab;
#pragma unroll
    for (int f = 0; f < Config::kOwned; ++f) {
      const auto part = fetch_quad(&slice[f * Config::kMultipliers + threadIdx.x]);
      share[f] = add(share[f], widened(part));
    }
  }
}

// All threads of a block of the kernel that adds slices up: the sum of one quad over them. kGroups
// groups of threads take kEach slices each, all on their way at once, in their order; the first
// group's threads return what the groups have, in theirs. `quad` points into the first slice.
template <class Config, class Part>
__device__ __forceinline__ float4 sum_slices_in_groups(const Part* quad, int splits) {
  __shared__ float4 sums[Config::kMultipliers];
  const int group = threadIdx.x / Config::kQuads;
  const int own = threadIdx.x % Config::kQuads;
  Part parts[Config::kEach];
#pragma unroll
  for (int i = 0; i < Config::kEach; ++i) {
    const int split = group * Config::kEach + i;
    parts[i] = Part{};
    if (split < splits) parts[i] = fetch_quad(quad + static_cast<i64>(split) * Config::kSlab);
  }
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < Config::kEach; ++i) sum = add(sum, widened(parts[i]));
  if constexpr (Config::kGroups > 1) {
    sums[threadIdx.x] = sum;
    __syncthreads();
    sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int g = 0; g < Config::kGroups; ++g) sum = add(sum, sums[g * Config::kQuads + own]);
  }
  return sum;
}

// All multiplying threads: the share is added to the sums of the tile, which begin as zeros, in
// whichever order clusters come.
template <class Config>
__device__ __forceinline__ void add_share(float4* slab, const float4 (&share)[Config::kOwned]) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    atomicAdd(&slab[f * Config::kMultipliers + threadIdx.x], share[f]);
  }
}

// All multiplying threads, when all have added theirs: the sums, which are zeros again for the next
// launch.
template <class Config>
__device__ __forceinline__ void take_sums(float4 (&share)[Config::kOwned], float4* slab) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    float4* const at = &slab[f * Config::kMultipliers + threadIdx.x];
    share[f] = __ldcg(at);
    *at = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

}  // namespace fusec
