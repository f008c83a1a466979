// Four neighbouring partial sums of split-K in a workspace: float4, or rounded to Vec<T, 4> of a
// 16-bit type. They are loaded through L2, since other SMs wrote them.
#pragma once

#include "vector.cuh"

namespace fusec {

__device__ __forceinline__ void store_quad(float4* at, float4 sums) { *at = sums; }
template <class T>
__device__ __forceinline__ void store_quad(Vec<T, 4>* at, float4 sums) {
  const Vec<T, 4> halves = {convert<T>(sums.x), convert<T>(sums.y), convert<T>(sums.z),
                            convert<T>(sums.w)};
  store(at->data, halves);
}
__device__ __forceinline__ float4 fetch_quad(const float4* at) { return __ldcg(at); }
template <class T>
__device__ __forceinline__ Vec<T, 4> fetch_quad(const Vec<T, 4>* at) {
  Vec<T, 4> halves;
  *reinterpret_cast<uint2*>(&halves) = __ldcg(reinterpret_cast<const uint2*>(at));
  return halves;
}
__device__ __forceinline__ float4 widened(float4 sums) { return sums; }
template <class T>
__device__ __forceinline__ float4 widened(const Vec<T, 4>& halves) {
  return make_float4(to_float(halves[0]), to_float(halves[1]), to_float(halves[2]),
                     to_float(halves[3]));
}

}  // namespace fusec
