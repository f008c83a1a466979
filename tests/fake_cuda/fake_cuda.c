// A stand-in for libcuda: device memory is the host's, and every call is checked against what the
// driver's documentation asks. A call that breaks a rule fails, and the first such is kept as text.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { kMost = 4096, kParameters = 256 };

struct CUctx_st {
  int device;
};
struct CUstream_st {
  bool live;
};
struct CUmod_st {
  const unsigned char* image;
  bool live;
};
struct CUfunc_st {
  CUmodule module;
  char name[256];
  int shared_bytes;
  bool large_clusters;
};

// What a launch does; shape: grid, block, cluster, dynamic shared bytes.
typedef void (*Hook)(const char* name, const unsigned char* image, const unsigned int* shape,
                     CUstream stream, void** parameters);

static char complaint[512];
static int version = 13000, major = 9, minor = 0;
static int calls, launches, memsets, modules_live, blocks_live;
static Hook hook;
static char failing[64];
static CUresult failure;
static struct CUctx_st context = {0};
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;
static struct {
  char* start;
  size_t bytes;
} blocks[kMost];
static struct {
  char name[256];
  int count;
  int bytes[kParameters];
} kernels[kMost];
static int kernel_count;

void fake_cuda_reset(int driver, int capability) {
  complaint[0] = 0;
  version = driver;
  major = capability / 10;
  minor = capability % 10;
  launches = calls = memsets = 0;
  failing[0] = 0;
  kernel_count = 0;
  depth = 0;
}
void fake_cuda_hook(Hook given) { hook = given; }
const char* fake_cuda_complaint(void) { return complaint; }
int fake_cuda_launches(void) { return launches; }
int fake_cuda_memsets(void) { return memsets; }
int fake_cuda_calls(void) { return calls; }
int fake_cuda_modules(void) { return modules_live; }
int fake_cuda_blocks(void) { return blocks_live; }

// Say how many bytes each parameter of a kernel takes.
void fake_cuda_kernel(const char* name, int count, const int* bytes) {
  snprintf(kernels[kernel_count].name, sizeof kernels[kernel_count].name, "%s", name);
  kernels[kernel_count].count = count;
  memcpy(kernels[kernel_count++].bytes, bytes, sizeof(int) * (size_t)count);
}

// Let a function fail from now on.
void fake_cuda_fail(const char* function, int result) {
  snprintf(failing, sizeof failing, "%s", function);
  failure = (CUresult)result;
}

static CUresult broken(CUresult result, const char* function, const char* rule) {
  if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s: %s", function, rule);
  return result;
}
#define NEED(condition, result, rule)             \
  ++calls;                                        \
  if (!strcmp(failing, __func__)) return failure; \
  if (!(condition)) return broken(result, __func__, rule)

static bool in_context(void) { return depth > 0 && stack[depth - 1] == &context; }

// Whether bytes lie in one block of memory.
static bool is_memory(CUdeviceptr address, size_t bytes) {
  for (int i = 0; i < kMost; ++i) {
    char *start = blocks[i].start, *first = (char*)address;
    if (start != NULL && first >= start && first + bytes <= start + blocks[i].bytes) return true;
  }
  return false;
}

static bool is_stream(CUstream stream) { return stream == NULL || stream->live; }

CUresult cuInit(unsigned int flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* out) {
  *out = version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  NEED(ordinal == 0, CUDA_ERROR_INVALID_VALUE, "there is one device");
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  NEED(device == 0, CUDA_ERROR_INVALID_VALUE, "there is one device");
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : minor;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  NEED(device == 0, CUDA_ERROR_INVALID_VALUE, "there is one device");
  *out = &context;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  NEED(device == 0, CUDA_ERROR_INVALID_VALUE, "there is one device");
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  *out = depth > 0 ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext given) {
  if (depth == 0) ++depth;
  stack[depth - 1] = given;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext given) {
  NEED(given == &context && depth < 16, CUDA_ERROR_INVALID_CONTEXT, "no such context");
  stack[depth++] = given;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* out) {
  NEED(depth > 0, CUDA_ERROR_INVALID_CONTEXT, "no context was pushed");
  *out = stack[--depth];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  NEED(in_context(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  NEED(in_context() && flags <= 1, CUDA_ERROR_INVALID_VALUE, "no context, or wrong flags");
  *stream = calloc(1, sizeof **stream);
  (*stream)->live = true;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  NEED(stream != NULL && stream->live, CUDA_ERROR_INVALID_HANDLE, "no such stream");
  stream->live = false;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  NEED(in_context() && bytes > 0, CUDA_ERROR_INVALID_VALUE, "no context, or no bytes");
  for (int i = 0; i < kMost; ++i) {
    if (blocks[i].start != NULL) continue;
    blocks[i].start = aligned_alloc(256, (bytes + 255) / 256 * 256);
    blocks[i].bytes = bytes;
    memset(blocks[i].start, 0xFF, bytes);
    *address = (CUdeviceptr)blocks[i].start;
    ++blocks_live;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr address) {
  for (int i = 0; i < kMost; ++i) {
    if (blocks[i].start == NULL || blocks[i].start != (char*)address) continue;
    free(blocks[i].start);
    blocks[i].start = NULL;
    --blocks_live;
    return CUDA_SUCCESS;
  }
  return broken(CUDA_ERROR_INVALID_VALUE, __func__, "no such memory");
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
  NEED(is_stream(stream) && in_context(), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(bytes > 0 && is_memory(address, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  memset((char*)address, value, bytes);
  ++memsets;
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t bytes) {
  return cuMemsetD8Async(address, value, bytes, NULL);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  NEED(is_stream(stream) && in_context(), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(bytes > 0 && is_memory(target, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  NEED(is_memory(source, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  memmove((char*)target, (char*)source, bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  NEED(in_context(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  NEED((uintptr_t)image % 8 == 0, CUDA_ERROR_INVALID_VALUE, "machine code is not aligned");
  NEED(!memcmp(image, "\177ELF", 4), CUDA_ERROR_INVALID_IMAGE, "no machine code");
  *module = calloc(1, sizeof **module);
  (*module)->image = image;
  (*module)->live = true;
  ++modules_live;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  NEED(in_context(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  NEED(module != NULL && module->live, CUDA_ERROR_INVALID_HANDLE, "no such module");
  module->live = false;
  --modules_live;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  NEED(module != NULL && module->live, CUDA_ERROR_INVALID_HANDLE, "no such module");
  *function = calloc(1, sizeof **function);
  (*function)->module = module;
  snprintf((*function)->name, sizeof(*function)->name, "%s", name);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  NEED(function->module->live, CUDA_ERROR_INVALID_HANDLE, "the module was unloaded");
  NEED(value > 0, CUDA_ERROR_INVALID_VALUE, "a value above 0 was expected");
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) function->shared_bytes = value;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    function->large_clusters = true;
  }
  return CUDA_SUCCESS;
}

// The map is as tests/device/copies_on_cpu.cpp reads it, so that kernels can run.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  static const unsigned sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
  static const unsigned kinds[] = {0, 0, 8, 6, 7, 5, 3, 2, 1, 4, 2, 9};
  NEED((uintptr_t)map % 64 == 0, CUDA_ERROR_INVALID_VALUE, "the map is not aligned");
  NEED(rank >= 1 && rank <= 4, CUDA_ERROR_INVALID_VALUE, "the stand-in knows ranks 1 to 4");
  NEED((uintptr_t)address % 16 == 0, CUDA_ERROR_INVALID_VALUE, "the address is not aligned");
  NEED(interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
           promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
       CUDA_ERROR_INVALID_VALUE, "other fields than fusec's own launcher gives");
  NEED(box[0] * sizes[type] % 16 == 0, CUDA_ERROR_INVALID_VALUE, "a row of the box");
  NEED(swizzle != CU_TENSOR_MAP_SWIZZLE_128B || box[0] * sizes[type] <= 128,
       CUDA_ERROR_INVALID_VALUE, "a row of the box is wider than the swizzle");
  memset(map, 0, sizeof *map);
  cuuint64_t* words = map->opaque;
  words[0] = (cuuint64_t)address;
  words[1] = rank;
  words[2] = sizes[type];
  words[3] = swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 7 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 3 : 0;
  words[4] = kinds[type];
  for (cuuint32_t i = 0; i < 4; ++i) {
    NEED(i >= rank || (extents[i] >= 1 && extents[i] <= 1ull << 32), CUDA_ERROR_INVALID_VALUE,
         "an extent");
    NEED(i >= rank || (box[i] >= 1 && box[i] <= 256 && steps[i] == 1), CUDA_ERROR_INVALID_VALUE,
         "the box or the element strides");
    NEED(i + 1 >= rank || (strides[i] % 16 == 0 && strides[i] < 1ull << 40),
         CUDA_ERROR_INVALID_VALUE, "a stride");
    words[5 + i] = i < rank ? extents[i] : 1;
    if (i < 3) words[9 + i] = i + 1 < rank ? strides[i] : 0;
    words[12 + i] = i < rank ? box[i] : 1;
  }
  return CUDA_SUCCESS;
}

static CUresult start(CUfunction function, const unsigned int* shape, CUstream stream,
                      void** parameters) {
  const unsigned int *grid = shape, *block = shape + 3, *cluster = shape + 6;
  NEED(in_context(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  NEED(function->module->live, CUDA_ERROR_INVALID_HANDLE, "the module was unloaded");
  NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(grid[0] && grid[1] && grid[2], CUDA_ERROR_INVALID_VALUE, "an empty grid");
  NEED(grid[0] < 1u << 31 && grid[1] < 1u << 16 && grid[2] < 1u << 16, CUDA_ERROR_INVALID_VALUE,
       "too many blocks");
  NEED(block[0] && block[1] && block[2] && block[0] * block[1] * block[2] <= 1024,
       CUDA_ERROR_INVALID_VALUE, "threads of a block");
  NEED((int)shape[9] <= function->shared_bytes, CUDA_ERROR_INVALID_VALUE, "shared memory");
  const unsigned int blocks_of_cluster = cluster[0] * cluster[1] * cluster[2];
  NEED(blocks_of_cluster <= (function->large_clusters ? 16 : 8), CUDA_ERROR_INVALID_VALUE,
       "blocks of a cluster");
  for (int i = 0; i < 3; ++i) {
    NEED(grid[i] % cluster[i] == 0, CUDA_ERROR_INVALID_VALUE, "a grid of whole clusters");
  }
  ++launches;
  if (kernel_count == 0) return CUDA_SUCCESS;  // nothing is known of kernels, and none is run
  int number = 0;
  while (number < kernel_count && strcmp(kernels[number].name, function->name)) ++number;
  NEED(number < kernel_count, CUDA_ERROR_NOT_FOUND, "no such kernel");
  for (int i = 0; i < kernels[number].count; ++i) {
    const int bytes = kernels[number].bytes[i];
    const uintptr_t place = (uintptr_t)parameters[i];
    NEED(place != 0 && place % (uintptr_t)(bytes == 128 ? 64 : bytes) == 0,
         CUDA_ERROR_INVALID_VALUE, "a parameter is missing, or not aligned");
  }
  if (hook != NULL) hook(function->name, function->module->image, shape, stream, parameters);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  NEED(extra == NULL, CUDA_ERROR_INVALID_VALUE, "parameters are given one by one");
  const unsigned int shape[] = {grid_x,  grid_y, grid_z, block_x, block_y,
                                block_z, 1,      1,      1,       shared_bytes};
  return start(function, shape, stream, parameters);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  NEED(extra == NULL, CUDA_ERROR_INVALID_VALUE, "parameters are given one by one");
  NEED(config->numAttrs == 1, CUDA_ERROR_INVALID_VALUE, "attributes of a launch");
  CUlaunchAttributeValue alone = {.clusterDim = {1, 1, 1}};
  const CUlaunchAttributeValue* value = &config->attrs->value;
  if (config->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
    NEED(value->programmaticStreamSerializationAllowed == 1, CUDA_ERROR_INVALID_VALUE,
         "an attribute that says nothing");
    value = &alone;
  } else {
    NEED(config->attrs->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CUDA_ERROR_INVALID_VALUE,
         "attributes of a launch");
  }
  const unsigned int shape[] = {config->gridDimX,      config->gridDimY,    config->gridDimZ,
                                config->blockDimX,     config->blockDimY,   config->blockDimZ,
                                value->clusterDim.x,   value->clusterDim.y, value->clusterDim.z,
                                config->sharedMemBytes};
  return start(function, shape, config->hStream, parameters);
}
