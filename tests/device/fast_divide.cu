#include "fast_divide.cuh"

extern "C" __global__ void kernel(fusec::FastDivisor divisor, fusec::u32* values) {
  fusec::u32 quotient, rest;
  divisor.divide(values[0], quotient, rest);
  values[1] = quotient + rest + values[2] / divisor + values[3] % divisor;
  values[4] = divisor.remainder(values[5]);
}
