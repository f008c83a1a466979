// Rounding that stays below a limit. Called by generated expressions, as fusec::round_below.
#pragma once

#include "math.cuh"
#include "types.cuh"

namespace fusec {

// A number in [low, high) rounded to T; the largest T below `high` where it would round up to it or
// beyond. Returned in the type that T is computed in. Where low >= high the rounded number.
template <class T, class Number>
__device__ __forceinline__ Number round_below(Number number, Number low, Number high) {
  if constexpr (kIsSmallFloat<T>) {
    T rounded = convert<T>(number);
    const float value = to_float(rounded);
    if (value < high || low >= high) return value;
    // Sign and magnitude: one step towards minus infinity.
    if (value == 0.0f) rounded = convert<T>(-0.0f);
    rounded.bits += value > 0.0f ? -1 : 1;
    return to_float(rounded);
  } else {
    return number < high || low >= high ? number : nextafter(number, Number(-INFINITY));
  }
}

}  // namespace fusec
