// Rounding that stays below a limit. Called by generated expressions, as fusec::round_below.
#pragma once

#include "math.cuh"
#include "types.cuh"

namespace fusec {

// Rounds a number in [low, high) to T, or returns the largest T below `high` if the rounded number
// would not be below it. The result has the type that T is computed in. If low >= high, the number
// is only rounded.
template <class T, class Number>
__device__ __forceinline__ Number round_below(Number number, Number low, Number high) {
  if constexpr (kIsSmallFloat<T>) {
    T rounded = convert<T>(number);
    const float value = to_float(rounded);
    if (value < high || low >= high) return value;
    // Takes one step towards minus infinity, in sign and magnitude.
    if (value == 0.0f) rounded = convert<T>(-0.0f);
    rounded.bits += value > 0.0f ? -1 : 1;
    return to_float(rounded);
  } else {
    return number < high || low >= high ? number : nextafter(number, Number(-INFINITY));
  }
}

}  // namespace fusec
