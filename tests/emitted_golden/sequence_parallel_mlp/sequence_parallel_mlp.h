// sequence_parallel_mlp: kernels of a fusion, launched through the CUDA driver API.
//
// A program belongs to the context that was current when it was created, and that context must be
// current whenever it is run. It is immutable, and any number of threads may run it. Arguments and
// a workspace are for one thread at a time. A workspace is for one stream, which orders the
// accesses to it, or for one captured graph. All memory is the caller's: a run allocates none,
// copies none to or from the host, and does not wait for the device.
//
// 4 ranks run the program together: each in a process or thread of its own, with its own GPU,
// its own part of each tensor, and the same calls in the same order. If the run of one rank fails,
// the others wait for it until their communicators are aborted.
//
// Pointers are to device memory. Memory that is written must not overlap with any other. A pointer
// to a tensor without elements may be NULL. All functions except the last return 0 or an error; if
// arguments are wrong, nothing is launched.
#ifndef SEQUENCE_PARALLEL_MLP_H
#define SEQUENCE_PARALLEL_MLP_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sequence_parallel_mlp_error {
  SEQUENCE_PARALLEL_MLP_OK = 0,
  SEQUENCE_PARALLEL_MLP_ERROR_MEMORY = 1,       // out of host memory
  SEQUENCE_PARALLEL_MLP_ERROR_CONTEXT = 2,      // no context is current
  SEQUENCE_PARALLEL_MLP_ERROR_OLD_DRIVER = 3,   // the driver is older than CUDA 13.0
  SEQUENCE_PARALLEL_MLP_ERROR_GPU = 4,          // the kernels are for other GPUs: sm_90a
  SEQUENCE_PARALLEL_MLP_ERROR_WORKSPACE = 5,    // the workspace is too small or misaligned
  SEQUENCE_PARALLEL_MLP_ERROR_RANKS = 7,        // a communicator is missing or of other ranks
  SEQUENCE_PARALLEL_MLP_ERROR_SIZES = 10000,    // and above: the kernels do not support these sizes
  SEQUENCE_PARALLEL_MLP_ERROR_POINTER = 20000,  // and above: a pointer is NULL or misaligned
  SEQUENCE_PARALLEL_MLP_ERROR_CUDA = 30000,     // and above: plus a CUresult of the driver
  SEQUENCE_PARALLEL_MLP_ERROR_NCCL = 40000      // and above: plus an ncclResult_t
};

typedef struct sequence_parallel_mlp_program sequence_parallel_mlp_program;

// Extents, and strides in elements.
typedef struct sequence_parallel_mlp_sizes {
  int64_t T;  // extent
  int64_t D;  // extent, 8192 in these kernels
  int64_t F;  // extent, 7168 in these kernels
} sequence_parallel_mlp_sizes;

// Communicators along each axis of the mesh, by rank index; for one thread and stream at a time.
typedef struct sequence_parallel_mlp_ranks {
  ncclComm_t tp;  // 4 ranks
} sequence_parallel_mlp_ranks;

typedef struct sequence_parallel_mlp_arguments {
  sequence_parallel_mlp_sizes sizes;
  sequence_parallel_mlp_ranks ranks;
  const void* x;      // bf16[T, D], at a multiple of 16 bytes
  const void* scale;  // bf16[D], at a multiple of 16 bytes
  const void* up;     // bf16[F, D], at a multiple of 16 bytes
  const void* down;   // bf16[D, F], at a multiple of 16 bytes
  void* y;            // bf16[T, D], at a multiple of 16 bytes
} sequence_parallel_mlp_arguments;

// Scratch memory: as many bytes as sequence_parallel_mlp_workspace_bytes returns,
// aligned to 256 bytes. zeroed: 0 before the first run, and again after something else has written
// to the memory.
typedef struct sequence_parallel_mlp_workspace {
  void* memory;
  size_t bytes;
  size_t zeroed;
} sequence_parallel_mlp_workspace;

// Load the kernels into the current context. Destroy the program after use.
int sequence_parallel_mlp_create(sequence_parallel_mlp_program** program);

// Unload the kernels, which must have completed.
int sequence_parallel_mlp_destroy(sequence_parallel_mlp_program* program);

// Connect the ranks; all call this with the same id from ncclGetUniqueId. Communicators
// that were created in another way may be used instead.
// rank: from 0 to 3, the rank index along tp
int sequence_parallel_mlp_connect(sequence_parallel_mlp_ranks* ranks, const ncclUniqueId* id,
                                  int rank);

// Destroy the communicators, whose work must have completed.
int sequence_parallel_mlp_disconnect(sequence_parallel_mlp_ranks* ranks);

// Compute the bytes of scratch memory of a run; if 0, the workspace may be NULL.
int sequence_parallel_mlp_workspace_bytes(const sequence_parallel_mlp_program* program,
                                          const sequence_parallel_mlp_sizes* sizes, size_t* bytes);

// Launch the kernels on a stream asynchronously.
int sequence_parallel_mlp_run(const sequence_parallel_mlp_program* program, CUstream stream,
                              const sequence_parallel_mlp_arguments* arguments,
                              sequence_parallel_mlp_workspace* workspace);

// Return the description of an error, a static string.
const char* sequence_parallel_mlp_error_text(int error);

#ifdef __cplusplus
}
#endif

#endif  // SEQUENCE_PARALLEL_MLP_H
