// Numbers at equal distances.
#pragma once

namespace fusec {

// Number `index` of the sequence start, start + step, ...; rounded after the product too, where a
// compiler would not.
__device__ __forceinline__ double at_step(double start, double step, double index) {
  return __dadd_rn(start, __dmul_rn(step, index));
}

}  // namespace fusec
