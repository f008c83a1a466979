#include "check_index.cuh"

extern "C" __global__ void kernel(const fusec::i32* a, const fusec::i64* b, const fusec::u8* c,
                                  float* data, fusec::u64* errors) {
  data[fusec::check_index(*a, 10, 1, errors)] = 1.0f;
  data[fusec::check_index(*b, 10, 2, errors)] = 2.0f;
  data[fusec::check_index(*c, 10, 3, errors)] = 3.0f;
}
