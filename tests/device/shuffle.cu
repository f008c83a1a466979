#include "shuffle.cuh"

struct Triple {
  float a;
  double b;
  bool c;
};

extern "C" __global__ void kernel(double* values, Triple* triples) {
  double value = values[threadIdx.x];
  value += fusec::shuffle_xor(value, 1) + fusec::shuffle_xor(static_cast<float>(value), 2);
  value += fusec::shuffle_from<8>(value, 3) + fusec::shuffle_up(value, 1);
  triples[threadIdx.x] = fusec::shuffle_up<16>(triples[threadIdx.x], 2);
  values[threadIdx.x] = value + fusec::shuffle_from(fusec::f16{7}, 0).bits;
}
