// Agreement between the blocks of one launch: tickets, flags, the last block, and turns.
// The counters live in global memory, are zero before the first launch, and again after
// each, so a launch may be replayed. They belong to one launch on one stream at a time.
// Data that another block wrote is read with plain loads after the calls here, never with
// load_readonly. No turn may wait for a block that need not be running: give out turns by ticket.
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

// Counts 0, 1, ..., count - 1 and starts over; returns the value before.
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

// One thread takes the next number. The counter keeps growing: the host or the last block resets
// it.
__device__ __forceinline__ u32 take_ticket(u32* counter) { return add_release(counter, 1); }

// One thread takes the next of `count` numbers; the one after the last is 0 again.
__device__ __forceinline__ u32 take_ticket(u32* counter, u32 count) {
  return count_and_wrap(counter, count);
}

// The whole block takes one number together. Blocks start in the order of their tickets, so a block
// may wait for any lower ticket.
__device__ __forceinline__ u32 take_block_ticket(u32* counter, u32 count) {
  __shared__ u32 shared_ticket;
  if (is_first_thread()) shared_ticket = take_ticket(counter, count);
  __syncthreads();
  const u32 ticket = shared_ticket;
  __syncthreads();
  return ticket;
}

// True in the last of `count` blocks to arrive, which then sees what the others wrote before they
// called. All threads of every block call it; writes by the asynchronous proxy are waited for
// first.
__device__ __forceinline__ bool last_block(u32* counter, u32 count) {
  __shared__ bool shared_last;
  __syncthreads();
  if (is_first_thread()) shared_last = count_and_wrap(counter, count) == count - 1;
  __syncthreads();
  return shared_last;
}

// What one thread does between two looks at a flag. In debug builds it traps after some seconds:
// the turn that it waits for never comes.
struct SpinGuard {
  u32 looks = 0;
  __device__ __forceinline__ void wait() {
#ifdef FUSEC_DEBUG
    if (++looks == 1u << 22) __trap();
#endif
    __nanosleep(20);
  }
};

// One thread waits until the flag holds `value`, and then sees what was written before its release.
__device__ __forceinline__ void spin_until(const u32* flag, u32 value) {
  SpinGuard guard;
  while (load_acquire(flag) != value) guard.wait();
}

// The whole block waits until the semaphore shows its turn.
__device__ __forceinline__ void wait_turn(const u32* semaphore, u32 turn) {
  if (is_first_thread()) spin_until(semaphore, turn);
  __syncthreads();
}

// The whole block hands the turn on; the last in the chain passes 0, so that the next launch finds
// it. Asynchronous writes are completed before (wait_group<0>, not its .read form).
__device__ __forceinline__ void release_turn(u32* semaphore, u32 next) {
  __syncthreads();
  if (is_first_thread()) store_release(semaphore, next);
}

}  // namespace fusec
