#include "sort.cuh"

namespace {

template <class T, class Value, int kThreads, int kItems>
__device__ void order(Value* values, int* found) {
  using Key = typename fusec::KeyOf<T>::type;
  __shared__ fusec::SortedTile<Key, fusec::u16, kThreads, kItems> tile;
  Key key[kItems];
  int from[kItems];
  const int first = fusec::first_item<kItems>();
  for (int i = 0; i < kItems; ++i) {
    from[i] = first + 32 * i;
    key[i] = fusec::order_key<T>(values[from[i]]);
  }
  fusec::sort_tile<kThreads>(tile, key, from, kThreads * kItems - 3);
  for (int i = 0; i < kItems; ++i) found[first + 32 * i] = from[i];
}

}  // namespace

extern "C" __global__ void kernel(void* data, int* found) {
  order<float, float, 128, 4>(static_cast<float*>(data), found);
  order<fusec::bf16, float, 64, 2>(static_cast<float*>(data), found);
  order<fusec::i64, fusec::i64, 32, 1>(static_cast<fusec::i64*>(data), found);
  order<double, double, 32, 2>(static_cast<double*>(data), found);
  order<bool, bool, 32, 4>(static_cast<bool*>(data), found);
}

extern "C" __global__ void others(float* values, fusec::i8* small, fusec::u32* unsigned_values) {
  unsigned_values[0] = fusec::order_key<fusec::f16>(values[0]);
  unsigned_values[1] = fusec::order_key<fusec::f8e4m3>(values[1]);
  unsigned_values[2] = fusec::order_key<fusec::i8>(small[0]);
  fusec::count_digit(unsigned_values + 64, fusec::digit_of(unsigned_values[5], 8), small[1]);
  unsigned_values[3] = fusec::order_key<fusec::u32>(unsigned_values[4]);
}
