#include "grid.cuh"

extern "C" __global__ void kernel(fusec::u32* counters, float* values) {
  const fusec::u32 ticket = fusec::take_block_ticket(counters, gridDim.x);
  const fusec::u32 next = ticket + 1 == gridDim.x ? 0 : ticket + 1;
  fusec::wait_turn(counters + 1, ticket);
  values[threadIdx.x] += ticket;
  fusec::release_turn(counters + 1, next);
  if (fusec::is_first_thread()) {
    fusec::store_release(counters + 2, fusec::load_acquire(counters + 3));
    fusec::spin_until(counters + 2, 0);
    fusec::add_release(counters + 2, fusec::take_ticket(counters + 4));
    fusec::take_ticket(counters + 5, fusec::count_and_wrap(counters + 6, 4) + 1);
  }
  if (fusec::last_block(counters + 7, gridDim.x)) values[threadIdx.x] *= 0.5f;
}
