// Synchronization of the blocks of one launch: tickets, flags, the last block, and turns. The
// counters are in global memory, zero before the first launch and after every launch, so a launch
// may be replayed. They belong to one launch on one stream at a time. Data that another block wrote
// is read with plain loads after these calls, never with load_readonly. A block may wait only for
// blocks that are known to run: assign turns by ticket.
#pragma once

#include "storage.cuh"

namespace fusec {

__device__ __forceinline__ u32 load_acquire(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(u32* flag, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ u32 add_release(u32* flag, u32 amount) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(flag), "r"(amount)
               : "memory");
  return before;
}

// Counts 0, 1, ..., count - 1 and wraps around; returns the previous value.
__device__ __forceinline__ u32 count_and_wrap(u32* counter, u32 count) {
  u32 before;
  asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return before;
}

__device__ __forceinline__ bool is_first_thread() {
  return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
}

// Takes the next ticket. Called by one thread. The counter is not wrapped: the host or the last
// block resets it.
__device__ __forceinline__ u32 take_ticket(u32* counter) { return add_release(counter, 1); }

// Takes the next of `count` tickets, after which the counter is 0 again. Called by one thread.
__device__ __forceinline__ u32 take_ticket(u32* counter, u32 count) {
  return count_and_wrap(counter, count);
}

// Takes one ticket for the whole block. Called by all its threads. Blocks start in ticket order, so
// a block may wait for any lower ticket.
__device__ __forceinline__ u32 take_block_ticket(u32* counter, u32 count) {
  __shared__ u32 shared_ticket;
  if (is_first_thread()) shared_ticket = take_ticket(counter, count);
  __syncthreads();
  const u32 ticket = shared_ticket;
  __syncthreads();
  return ticket;
}

// Returns true in the last of `count` blocks to arrive, which then sees what the others wrote
// before the call. Called by all threads of every block, after waiting for writes by the
// asynchronous proxy.
__device__ __forceinline__ bool last_block(u32* counter, u32 count) {
  __shared__ bool shared_last;
  __syncthreads();
  if (is_first_thread()) shared_last = count_and_wrap(counter, count) == count - 1;
  __syncthreads();
  return shared_last;
}

// Pauses one thread between two polls of a flag. In debug builds it traps after some seconds: the
// awaited turn never comes.
struct SpinGuard {
  u32 looks = 0;
  __device__ __forceinline__ void wait() {
#ifdef FUSEC_DEBUG
    if (++looks == 1u << 22) __trap();
#endif
    __nanosleep(20);
  }
};

// Waits until the flag is `value`; writes before its release are then visible. Called by one
// thread.
__device__ __forceinline__ void spin_until(const u32* flag, u32 value) {
  SpinGuard guard;
  while (load_acquire(flag) != value) guard.wait();
}

// Waits until the semaphore equals `turn`. Called by all threads of the block.
__device__ __forceinline__ void wait_turn(const u32* semaphore, u32 turn) {
  if (is_first_thread()) spin_until(semaphore, turn);
  __syncthreads();
}

// Releases the semaphore for the next turn. Called by all threads of the block, after its
// asynchronous writes are complete (wait_group<0>, not its .read form). The last block of the chain
// passes 0, which the next launch expects.
__device__ __forceinline__ void release_turn(u32* semaphore, u32 next) {
  __syncthreads();
  if (is_first_thread()) store_release(semaphore, next);
}

}  // namespace fusec
