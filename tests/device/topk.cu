#include "topk.cuh"

extern "C" __global__ void kernel(const float* values, int* found) {
  __shared__ fusec::Selection<8, 512> selection;
  const fusec::u32 key = fusec::order_key<float>(values[threadIdx.x]);
  fusec::begin_selection<128>(selection, key);
  fusec::make_room<128>(selection, 128);
  fusec::offer(selection, key, threadIdx.x);
  fusec::end_selection<128>(selection);
  if (threadIdx.x < 8) found[threadIdx.x] = static_cast<int>(selection.kept[threadIdx.x]);
  fusec::begin_selection(selection);
  fusec::sort_entries<128>(selection.kept, 16);
}
