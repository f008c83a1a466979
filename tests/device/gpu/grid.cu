// Turns in ticket order, and the last block: the trace must hold the tickets in order, and the last
// block must see what all blocks wrote. counters: ticket, semaphore, arrivals.
#include "grid.cuh"

extern "C" __global__ void turns(fusec::u32* counters, fusec::u32* trace, fusec::u32* parts,
                                 fusec::u32* total) {
  const fusec::u32 ticket = fusec::take_block_ticket(counters, gridDim.x);
  fusec::wait_turn(counters + 1, ticket);
  if (threadIdx.x == 0) {
    const fusec::u32 length = trace[0];
    trace[length + 1] = ticket;
    trace[0] = length + 1;
  }
  fusec::release_turn(counters + 1, ticket + 1 == gridDim.x ? 0 : ticket + 1);

  parts[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x + 1;
  if (fusec::last_block(counters + 2, gridDim.x)) {
    fusec::u32 sum = 0;
    for (fusec::u32 i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) sum += parts[i];
    atomicAdd(total, sum);
  }
}
