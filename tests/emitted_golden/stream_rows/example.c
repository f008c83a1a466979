// Runs stream_rows once,
// on zeroed memory, at the sizes that it was planned for.
#include <stdio.h>
#include <stdlib.h>

#include "stream_rows.h"

static void check(int error) {
  if (error == STREAM_ROWS_OK) return;
  fprintf(stderr, "error %d: %s\n", error, stream_rows_error_text(error));
  exit(1);
}

static void check_cuda(CUresult result) {
  if (result != CUDA_SUCCESS) check(STREAM_ROWS_ERROR_CUDA + (int)result);
}

// Return zeroed device memory.
static void* memory_of(size_t bytes) {
  CUdeviceptr address = 0;
  if (bytes == 0) return NULL;
  check_cuda(cuMemAlloc(&address, bytes));
  check_cuda(cuMemsetD8(address, 0, bytes));
  return (void*)address;
}

int main(void) {
  check_cuda(cuInit(0));
  CUdevice device;
  CUcontext context;
  CUstream stream;
  check_cuda(cuDeviceGet(&device, 0));
  check_cuda(cuDevicePrimaryCtxRetain(&context, device));
  check_cuda(cuCtxSetCurrent(context));
  check_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  stream_rows_program* program;
  check(stream_rows_create(&program));

  stream_rows_arguments arguments = {0};
  arguments.sizes.M = 8192;
  arguments.sizes.K = 1024;
  arguments.sizes.F = 4096;
  arguments.x = memory_of(16777216);
  arguments.up = memory_of(8388608);
  arguments.down = memory_of(8388608);
  arguments.y = memory_of(16777216);

  stream_rows_workspace workspace = {0};
  check(stream_rows_workspace_bytes(program, &arguments.sizes, &workspace.bytes));
  workspace.memory = memory_of(workspace.bytes);
  check(stream_rows_streams_create(&workspace.streams));

  check_cuda(cuStreamSynchronize(NULL));
  check(stream_rows_run(program, stream, &arguments, &workspace));
  check_cuda(cuStreamSynchronize(stream));
  printf("stream_rows has run\n");

  check_cuda(cuMemFree((CUdeviceptr)arguments.x));
  check_cuda(cuMemFree((CUdeviceptr)arguments.up));
  check_cuda(cuMemFree((CUdeviceptr)arguments.down));
  check_cuda(cuMemFree((CUdeviceptr)arguments.y));
  if (workspace.memory != NULL) check_cuda(cuMemFree((CUdeviceptr)workspace.memory));
  check(stream_rows_streams_destroy(workspace.streams));
  check(stream_rows_destroy(program));
  check_cuda(cuStreamDestroy(stream));
  check_cuda(cuDevicePrimaryCtxRelease(device));
  return 0;
}
