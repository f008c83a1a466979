// Float functions with few instructions, for results that are then rounded to fp16 or bf16. Errors
// are relative, in units of 2^-23: those of ex2.approx.ftz (2 units) and rcp.approx.ftz (1 unit)
// are from the PTX manual, those of the functions below hold for both signs. Magnitudes below
// 2^-126 are flushed to 0; NaN propagates; infinities give the limits of the functions.
#pragma once

namespace fusec {

constexpr float kLog2E = 1.44269504f;

// Returns 2^x, within 2 units.
__device__ __forceinline__ float exp2_approx(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// Returns 1 / x, within 1 unit.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

// Returns e^x, within 2.6 + 0.65 |x| units, since x log2(e) is rounded.
__device__ __forceinline__ float exp_approx(float x) { return exp2_approx(x * kLog2E); }

// Returns 1 / (1 + exp(-x)), within 4 units, for negative x within 4 + 0.7 |x|.
__device__ __forceinline__ float sigmoid_approx(float x) {
  return reciprocal_approx(1.0f + exp2_approx(x * -kLog2E));
}

// Returns x sigmoid(x), within 1 unit more than sigmoid.
__device__ __forceinline__ float silu_approx(float x) { return x * sigmoid_approx(x); }

// Returns tanh(x) = 1 - 2 / (1 + exp(2 x)), within 4 units of 1. For |x| below 0.01 it returns x,
// with a smaller error, so small results have a relative error of at most 400 units.
__device__ __forceinline__ float tanh_approx(float x) {
  const float share = reciprocal_approx(1.0f + exp2_approx(x * (2.0f * kLog2E)));
  return fabsf(x) < 0.01f ? x : fmaf(-2.0f, share, 1.0f);
}

// Returns x Phi(x), where Phi is the standard normal CDF, as relu(x) - t 2^P(t) with t = |x|. The
// polynomial P approximates log2(1 - Phi(t)) and is -1 at 0. Within 9 units of |x|, at most 2.9e-7.
// For negative x, the relative error is within 2^-18 down to -4 and 2^-9 down to -6.5; from there
// on the result is 0 within 3e-10. Returns NaN for -inf, as -inf * 0 does.
__device__ __forceinline__ float gelu_approx(float x) {
  const float t = fminf(fabsf(x), 6.5f);
  float power = -2.30109e-07f;
  power = fmaf(power, t, 3.01569e-06f);
  power = fmaf(power, t, 2.03823e-05f);
  power = fmaf(power, t, -7.49536e-04f);
  power = fmaf(power, t, 8.07077e-03f);
  power = fmaf(power, t, -5.33900e-02f);
  power = fmaf(power, t, -4.58829e-01f);
  power = fmaf(power, t, -1.15116f);
  power = fmaf(power, t, -1.0f);
  const float positive = fmaf(0.5f, x, 0.5f * fabsf(x));
  return fmaf(-t, exp2_approx(power), positive);
}
__device__ __forceinline__ double gelu_approx(double x) {
  return x * (0.5 * erfc(x * -0.70710678118654752));
}

}  // namespace fusec
