// Division of unsigned 32-bit numbers by a divisor known when the kernel is launched, as a
// multiplication and a shift. The host computes the three fields (fusec.run.divisor) and passes the
// struct as a parameter. Exact for every dividend below 2^31 and divisors from 1 to 2^31 - 1.
#pragma once

#include "storage.cuh"

namespace fusec {

struct FastDivisor {
  u32 divisor;
  u32 multiplier;
  u32 shift;

  // The sum cannot overflow: the product's upper half is below the dividend, itself below 2^31.
  __device__ __forceinline__ u32 divide(u32 dividend) const {
    return (__umulhi(dividend, multiplier) + dividend) >> shift;
  }

  __device__ __forceinline__ u32 remainder(u32 dividend) const {
    return dividend - divide(dividend) * divisor;
  }

  __device__ __forceinline__ void divide(u32 dividend, u32& quotient, u32& rest) const {
    quotient = divide(dividend);
    rest = dividend - quotient * divisor;
  }
};

__device__ __forceinline__ u32 operator/(u32 dividend, FastDivisor divisor) {
  return divisor.divide(dividend);
}

__device__ __forceinline__ u32 operator%(u32 dividend, FastDivisor divisor) {
  return divisor.remainder(dividend);
}

}  // namespace fusec
