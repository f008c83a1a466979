// Runs sequence_parallel_mlp once on 4 GPUs, one thread per GPU,
// on zeroed memory, at the sizes that it was planned for.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "sequence_parallel_mlp.h"

static void check(int error) {
  if (error == SEQUENCE_PARALLEL_MLP_OK) return;
  fprintf(stderr, "error %d: %s\n", error, sequence_parallel_mlp_error_text(error));
  exit(1);
}

static void check_cuda(CUresult result) {
  if (result != CUDA_SUCCESS) check(SEQUENCE_PARALLEL_MLP_ERROR_CUDA + (int)result);
}

// Return zeroed device memory.
static void* memory_of(size_t bytes) {
  CUdeviceptr address = 0;
  if (bytes == 0) return NULL;
  check_cuda(cuMemAlloc(&address, bytes));
  check_cuda(cuMemsetD8(address, 0, bytes));
  return (void*)address;
}

static ncclUniqueId id;

// Run the program as one of the ranks, on the GPU with the same index.
static void* run_rank(void* number) {
  const int rank = (int)(intptr_t)number;
  CUdevice device;
  CUcontext context;
  CUstream stream;
  check_cuda(cuDeviceGet(&device, rank));
  check_cuda(cuDevicePrimaryCtxRetain(&context, device));
  check_cuda(cuCtxSetCurrent(context));
  check_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  sequence_parallel_mlp_program* program;
  check(sequence_parallel_mlp_create(&program));

  sequence_parallel_mlp_arguments arguments = {0};
  check(sequence_parallel_mlp_connect(&arguments.ranks, &id, rank));
  arguments.sizes.T = 2048;
  arguments.sizes.D = 8192;
  arguments.sizes.F = 7168;
  arguments.x = memory_of(33554432);
  arguments.scale = memory_of(16384);
  arguments.up = memory_of(117440512);
  arguments.down = memory_of(117440512);
  arguments.y = memory_of(33554432);

  sequence_parallel_mlp_workspace workspace = {0};
  check(sequence_parallel_mlp_workspace_bytes(program, &arguments.sizes, &workspace.bytes));
  workspace.memory = memory_of(workspace.bytes);

  check_cuda(cuStreamSynchronize(NULL));
  check(sequence_parallel_mlp_run(program, stream, &arguments, &workspace));
  check_cuda(cuStreamSynchronize(stream));
  printf("sequence_parallel_mlp has run as rank %d\n", rank);

  check_cuda(cuMemFree((CUdeviceptr)arguments.x));
  check_cuda(cuMemFree((CUdeviceptr)arguments.scale));
  check_cuda(cuMemFree((CUdeviceptr)arguments.up));
  check_cuda(cuMemFree((CUdeviceptr)arguments.down));
  check_cuda(cuMemFree((CUdeviceptr)arguments.y));
  if (workspace.memory != NULL) check_cuda(cuMemFree((CUdeviceptr)workspace.memory));
  check(sequence_parallel_mlp_disconnect(&arguments.ranks));
  check(sequence_parallel_mlp_destroy(program));
  check_cuda(cuStreamDestroy(stream));
  check_cuda(cuDevicePrimaryCtxRelease(device));
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  check_cuda(cuInit(0));
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  for (intptr_t rank = 0; rank < 4; ++rank) {
    if (pthread_create(&threads[rank], NULL, run_rank, (void*)rank) != 0) return 1;
  }
  for (int rank = 0; rank < 4; ++rank) pthread_join(threads[rank], NULL);
  return 0;
}
