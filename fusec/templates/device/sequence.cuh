// Arithmetic sequences.
#pragma once

namespace fusec {

// Returns element `index` of the sequence start, start + step, ... The product is rounded too; the
// compiler would contract it to an FMA.
__device__ __forceinline__ double at_step(double start, double step, double index) {
  return __dadd_rn(start, __dmul_rn(step, index));
}

}  // namespace fusec
