// Split-K through slices of a workspace (sm_90): every cluster stores its partial sums of a tile to
// a slice of its own, and the last cluster to arrive adds all slices in order. No cluster waits for
// another, and the sum does not depend on the order of arrival. `Config` is the struct at the top
// of the kernel.
#pragma once

#include "matmul_semaphores.cuh"

namespace fusec {

// All multiplying threads: stores the share to this cluster's slice.
template <class Config, class Part>
__device__ __forceinline__ void store_slice(Part* slice, const float4 (&share)[Config::kOwned]) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    store_quad(slice + f * Config::kMultipliers + threadIdx.x, share[f]);
  }
}

// The same for accumulators in wgmma's layout, four at a time.
template <class Config, class Part>
__device__ __forceinline__ void store_fragments(
    Part* slice, const float (&accumulators)[Config::kAccumulators]) {
#pragma unroll
  for (int f = 0; f < Config::kAccumulators / 4; ++f) {
    store_quad(slice + f * Config::kMultipliers + threadIdx.x,
               make_float4(accumulators[4 * f], accumulators[4 * f + 1], accumulators[4 * f + 2],
                           accumulators[4 * f + 3]));
  }
}

// All multiplying threads: returns whether this is the last of `splits` slices to be stored. The
// counter is reset for the next launch; `slot` is in shared memory.
template <class Config>
__device__ __forceinline__ bool is_last_slice(u32* arrived, u32* slot, int splits) {
  named_barrier_sync<Config::kMultipliers>(1);
  if (threadIdx.x == 0) *slot = count_and_wrap(arrived, splits);
  named_barrier_sync<Config::kMultipliers>(1);
  return *slot == static_cast<u32>(splits) - 1;
}

// All multiplying threads: the share summed over all slices, in order. The loads in flight are
// limited by registers.
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

// All threads of a block of the second kernel: returns the sum of one quad over the slices. kGroups
// groups of threads each sum kEach consecutive slices, loaded at once; the threads of the first
// group return the sum over the groups, in order. `quad` points into the first slice.
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

// All multiplying threads: adds the share atomically to the sums of the tile, initially zero, in
// order of arrival.
template <class Config>
__device__ __forceinline__ void add_share(float4* slab, const float4 (&share)[Config::kOwned]) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    atomicAdd(&slab[f * Config::kMultipliers + threadIdx.x], share[f]);
  }
}

// All multiplying threads, after all clusters added their shares: reads the sums and resets them to
// zero for the next launch.
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
