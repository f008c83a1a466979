// What CUDA has and C++ has not.
#include "cuda_on_cpu.h"

// Newton's method on erf and erfc, from the guess 0 and from the tail's leading term.
double erfcinv(double v) {
  if (v > 0.5 && v < 1.5) return erfinv(1.0 - v);
  if (v > 1.0) return -erfcinv(2.0 - v);
  if (!(v > 0.0)) return v == 0.0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  double x = std::sqrt(-std::log(v));
  for (int k = 0; k < 60; ++k) {
    const double step = (std::erfc(x) - v) * 0.886226925452758013649 * std::exp(x * x);
    x += step > 0.5 ? 0.5 : step < -0.5 ? -0.5 : step;
    if (std::fabs(step) < 1e-17 * std::fabs(x)) break;
  }
  return x;
}
double erfinv(double v) {
  if (std::fabs(v) > 0.5) return v < 0.0 ? -erfcinv(1.0 + v) : erfcinv(1.0 - v);
  double x = 0.0;
  for (int k = 0; k < 30; ++k) x -= (std::erf(x) - v) * 0.886226925452758013649 * std::exp(x * x);
  return v == 0.0 ? v : x;
}
