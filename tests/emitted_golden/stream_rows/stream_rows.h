// stream_rows: kernels of a fusion, launched through the CUDA driver API.
//
// A program belongs to the context that was current when it was created, and that context must be
// current whenever it is run. It is immutable, and any number of threads may run it. Arguments and
// a workspace are for one thread at a time. A workspace is for one stream, which orders the
// accesses to it, or for one captured graph. All memory is the caller's: a run allocates none,
// copies none to or from the host, and does not wait for the device.
//
// Pointers are to device memory. Memory that is written must not overlap with any other. A pointer
// to a tensor without elements may be NULL. All functions except the last return 0 or an error; if
// arguments are wrong, nothing is launched.
#ifndef STREAM_ROWS_H
#define STREAM_ROWS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stream_rows_error {
  STREAM_ROWS_OK = 0,
  STREAM_ROWS_ERROR_MEMORY = 1,       // out of host memory
  STREAM_ROWS_ERROR_CONTEXT = 2,      // no context is current
  STREAM_ROWS_ERROR_OLD_DRIVER = 3,   // the driver is older than CUDA 13.0
  STREAM_ROWS_ERROR_GPU = 4,          // the kernels are for other GPUs: sm_90a
  STREAM_ROWS_ERROR_WORKSPACE = 5,    // the workspace is too small or misaligned
  STREAM_ROWS_ERROR_STREAMS = 6,      // the workspace has no streams
  STREAM_ROWS_ERROR_SIZES = 10000,    // and above: the kernels do not support these sizes
  STREAM_ROWS_ERROR_POINTER = 20000,  // and above: a pointer is NULL or misaligned
  STREAM_ROWS_ERROR_CUDA = 30000      // and above: plus a CUresult of the driver
};

typedef struct stream_rows_program stream_rows_program;

// Extents, and strides in elements.
typedef struct stream_rows_sizes {
  int64_t M;  // extent, a multiple of 8
  int64_t K;  // extent, 1024 in these kernels
  int64_t F;  // extent, 4096 in these kernels
} stream_rows_sizes;

typedef struct stream_rows_arguments {
  stream_rows_sizes sizes;
  const void* x;     // bf16[M, K], at a multiple of 16 bytes
  const void* up;    // bf16[F, K], at a multiple of 16 bytes
  const void* down;  // bf16[K, F], at a multiple of 16 bytes
  void* y;           // bf16[M, K], at a multiple of 16 bytes
} stream_rows_arguments;

// The streams and events that a run uses in addition to the caller's stream.
typedef struct stream_rows_streams stream_rows_streams;

// Scratch memory: as many bytes as stream_rows_workspace_bytes returns,
// aligned to 256 bytes. zeroed: 0 before the first run, and again after something else has written
// to the memory.
typedef struct stream_rows_workspace {
  void* memory;
  size_t bytes;
  size_t zeroed;
  stream_rows_streams* streams;  // from stream_rows_streams_create
} stream_rows_workspace;

// Load the kernels into the current context. Destroy the program after use.
int stream_rows_create(stream_rows_program** program);

// Unload the kernels, which must have completed.
int stream_rows_destroy(stream_rows_program* program);

// Create streams in the current context, for a workspace. Destroy them after use.
int stream_rows_streams_create(stream_rows_streams** streams);

// Destroy streams; their pending work still completes.
int stream_rows_streams_destroy(stream_rows_streams* streams);

// Compute the bytes of scratch memory of a run; if 0, its memory may be NULL.
int stream_rows_workspace_bytes(const stream_rows_program* program, const stream_rows_sizes* sizes,
                                size_t* bytes);

// Launch the kernels asynchronously. They start after the previous work of the stream, whose later
// work waits for all of them, even if the run fails.
int stream_rows_run(const stream_rows_program* program, CUstream stream,
                    const stream_rows_arguments* arguments, stream_rows_workspace* workspace);

// Return the description of an error, a static string.
const char* stream_rows_error_text(int error);

#ifdef __cplusplus
}
#endif

#endif  // STREAM_ROWS_H
