#include "topk.cuh"

extern "C" __global__ void kernel(const float* values, int* found) {
  __shared__ fusec::Selection<8, 512> selection;
  fusec::u32 keys[2];
  int places[2];
  for (int i = 0; i < 2; ++i) {
    keys[i] = fusec::order_key<float>(values[threadIdx.x * 2 + i]);
    places[i] = threadIdx.x * 2 + i;
  }
  fusec::begin_selection<128>(selection, keys[0]);
  fusec::push_tile<128, 2>(selection, [&](int i) { return fusec::entry_of(keys[i], places[i]); });
  fusec::prune<128>(selection);
  fusec::end_selection<128>(selection);
  if (threadIdx.x < 8) found[threadIdx.x] = fusec::place_of(selection.kept[threadIdx.x]);
  fusec::offer(selection, selection.kept[fusec::rank_of(selection.kept, 8, 3)], selection.limit);
  fusec::sort_entries<128>(selection.kept, 16);
  fusec::sort_own(keys, places);
  found[8 + threadIdx.x] = fusec::take_smallest<16, 8>(keys, places, 2);
  found[200 + threadIdx.x] = fusec::warp_sort(fusec::smallest_of_lanes<32>(keys[0]));
}
