// Barrier: an mbarrier object in shared memory (sm_90). A phase completes when the expected
// arrivals and the announced bytes of asynchronous copies are in; waits on its parity then succeed.
// One thread calls init and then fence_barrier_init; a __syncthreads (or cluster barrier) follows
// before any other use. The first phase has parity 0, and on a fresh barrier a wait on parity 1
// succeeds.
#pragma once

#include "address.cuh"

namespace fusec {

struct Barrier {
  u64 state;

  __device__ __forceinline__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(this)), "r"(arrivals)
                 : "memory");
  }

  __device__ __forceinline__ void invalidate() {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(shared_address(this)) : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(this))
                 : "memory");
  }

  // Arrives and announces `bytes` of asynchronous copies.
  __device__ __forceinline__ void arrive_expect_tx(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }

  // Announces bytes without arriving.
  __device__ __forceinline__ void expect_tx(u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }

  // Arrives at the barrier at the same address in block `rank` of the cluster. Only bulk copies and
  // wgmma access the data that it guards, so it omits a release at cluster scope, which flushes
  // caches and takes longer than a stage of a GEMM.
  __device__ __forceinline__ void arrive_at(u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}"
        :
        : "r"(shared_address(this)), "r"(rank)
        : "memory");
  }

  // Returns whether the phase of this parity is complete; may suspend the thread before it returns
  // false.
  __device__ __forceinline__ bool try_wait(u32 parity) {
    u32 complete;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(this)), "r"(parity)
        : "memory");
    return complete != 0;
  }

  __device__ __forceinline__ void wait(u32 parity) {
    while (!try_wait(parity)) {
    }
  }

  // As wait, for arrivals from other blocks of the cluster.
  __device__ __forceinline__ void wait_cluster(u32 parity) {
    u32 complete = 0;
    while (complete == 0) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(complete)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    }
  }
};

// Makes initialized barriers visible to the cluster and to the asynchronous proxy.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

}  // namespace fusec
