// A stand-in for libcuda: device memory is the host's, and every call is checked against what the
// driver's documentation asks. A call that breaks a rule fails, and the first such is kept as text.
//
// What streams are given is done at once, or (`fake_cuda_defer`) when one is waited for: in any order
// that streams and events allow, those of all contexts mixed.
#include "fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMost = 4096, kParameters = 256, kDevices = 8, kPatience = 10, kCaptured = 32 };

struct CUctx_st {
  int device;
};
// What a stream is given: returns whether it is done, or false where it has to wait.
typedef struct Work {
  Attempt attempt;
  void* given;
  struct Work* next;
} Work;
struct CUstream_st {
  bool live;
  CUcontext context;
  Work *first, *last;
  int captured;              // its number in the capture, from 1; 0 for none
  int behind[kCaptured + 1];  // how much of each captured stream comes before what it gets next
};
// last: whether what its last recording was given after is over. Those that wait for earlier ones
// still have these.
struct CUevent_st {
  bool live;
  bool* last;
  bool captured;
  int behind[kCaptured + 1];
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
static int calls, launches, memsets, modules_live, blocks_live, streams_live, events_live;
static Hook hook;
static char failing[64];
static CUresult failure;
static struct CUctx_st contexts[kDevices];
static struct CUstream_st callers_default;  // stands for NULL
static CUstream streams[kMost];
static int stream_count;
static int captured_count;
static unsigned long long seed;  // 0: nothing is deferred
static pthread_mutex_t mutex;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long changes;
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
  seed = 0;
  callers_default.first = callers_default.last = NULL;  // what is left is dropped
  for (int i = 0; i < stream_count; ++i) streams[i]->first = streams[i]->last = NULL;
}

__attribute__((constructor)) static void start_up(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&mutex, &attributes);
  for (int i = 0; i < kDevices; ++i) contexts[i].device = i;
}
void fake_cuda_lock(void) { pthread_mutex_lock(&mutex); }
void fake_cuda_unlock(void) { pthread_mutex_unlock(&mutex); }

// Let streams run late from now on, in an order drawn from a seed above 0.
void fake_cuda_defer(unsigned long long given) { seed = given; }
bool fake_cuda_defers(void) { return seed != 0; }
void fake_cuda_hook(Hook given) { hook = given; }
const char* fake_cuda_complaint(void) { return complaint; }
int fake_cuda_launches(void) { return launches; }
int fake_cuda_memsets(void) { return memsets; }
int fake_cuda_calls(void) { return calls; }
int fake_cuda_modules(void) { return modules_live; }
int fake_cuda_blocks(void) { return blocks_live; }
int fake_cuda_streams(void) { return streams_live; }
int fake_cuda_events(void) { return events_live; }

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

void fake_cuda_complain(const char* function, const char* rule) {
  if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s: %s", function, rule);
}
static CUresult broken(CUresult result, const char* function, const char* rule) {
  fake_cuda_complain(function, rule);
  return result;
}
#define NEED(condition, result, rule)             \
  ++calls;                                        \
  if (!strcmp(failing, __func__)) return failure; \
  if (!(condition)) return broken(result, __func__, rule)

// Return how much streams have been given that is not done.
int fake_cuda_waiting(void) {
  int count = 0;
  for (int i = 0; i <= stream_count; ++i) {
    const CUstream stream = i == stream_count ? &callers_default : streams[i];
    for (const Work* work = stream->first; work != NULL; work = work->next) ++count;
  }
  return count;
}

static bool is_context(CUcontext given) {
  return given >= contexts && given < contexts + kDevices;
}

static bool in_context(void) { return depth > 0 && is_context(stack[depth - 1]); }

// Whether bytes lie in one block of memory.
static bool is_memory(CUdeviceptr address, size_t bytes) {
  for (int i = 0; i < kMost; ++i) {
    char *start = blocks[i].start, *first = (char*)address;
    if (start != NULL && first >= start && first + bytes <= start + blocks[i].bytes) return true;
  }
  return false;
}

static bool is_stream(CUstream stream) {
  return stream == NULL || (stream->live && in_context() && stream->context == stack[depth - 1]);
}

// Wait until another thread has done something; false where none does for some seconds.
bool fake_cuda_wait(void) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += kPatience;
  return pthread_cond_timedwait(&changed, &mutex, &end) == 0;
}

// Tell that something has changed, for which others may have waited.
void fake_cuda_notify(void) {
  ++changes;
  pthread_cond_broadcast(&changed);
}

// What records an event, and what waits for one.
static bool reach(void* given) {
  **(bool**)given = true;
  return true;
}

static bool has_reached(void* given) { return **(bool**)given; }

// Take a stream into the capture.
static void capture(CUstream stream) {
  if (stream->captured == 0) stream->captured = ++captured_count;
}

// Let a stream be captured from now on. Its work is done nevertheless: rules are all that counts.
void fake_cuda_begin_capture(CUstream stream) {
  captured_count = 0;
  for (int i = 0; i < stream_count; ++i) {
    streams[i]->captured = 0;
    memset(streams[i]->behind, 0, sizeof streams[i]->behind);
  }
  capture(stream);
}

// End a capture; false where a captured stream has work that the first one does not wait for.
bool fake_cuda_end_capture(CUstream stream) {
  bool joined = true;
  for (int i = 0; i < stream_count; ++i) {
    const int number = streams[i]->captured;
    if (number) joined = joined && stream->behind[number] == streams[i]->behind[number];
    streams[i]->captured = 0;
  }
  return joined;
}

// Give a stream work, which is done at once where nothing is deferred. `given` is freed after it.
CUresult fake_cuda_enqueue(CUstream stream, Attempt attempt, void* given) {
  const bool works = attempt != reach && attempt != has_reached;
  if (stream != NULL && stream->captured && works) ++stream->behind[stream->captured];
  if (seed == 0) {
    const bool done = attempt(given);
    free(given);
    return done ? CUDA_SUCCESS : broken(CUDA_ERROR_INVALID_VALUE, __func__, "it waits for ever");
  }
  Work* work = calloc(1, sizeof *work);
  work->attempt = attempt;
  work->given = given;
  fake_cuda_lock();
  CUstream own = stream == NULL ? &callers_default : stream;
  if (own->first == NULL) own->first = work;
  if (own->last != NULL) own->last->next = work;
  own->last = work;
  fake_cuda_notify();
  fake_cuda_unlock();
  return CUDA_SUCCESS;
}

// Try what one stream is to do next.
static bool step(CUstream stream) {
  Work* work = stream->first;
  if (work == NULL || !work->attempt(work->given)) return false;
  stream->first = work->next;
  if (work->next == NULL) stream->last = NULL;
  free(work->given);
  free(work);
  fake_cuda_notify();
  return true;
}

// Let one stream do one thing, a drawn one or the next that can; false where none can.
static bool step_any(void) {
  CUstream able[kMost];
  int count = 0;
  for (int i = 0; i <= stream_count; ++i) {
    const CUstream stream = i == stream_count ? &callers_default : streams[i];
    if (stream->first != NULL) able[count++] = stream;
  }
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  if (seed == 0) seed = 1;
  const long before = changes;
  for (int i = 0; i < count; ++i) {
    if (step(able[((seed >> 33) + (unsigned)i) % (unsigned)count])) return true;
  }
  return changes != before;
}

// Run until a stream has done all that it was given; what it does not wait for may be left.
static CUresult run_until_idle(CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  fake_cuda_lock();
  while (stream->first != NULL && result == CUDA_SUCCESS) {
    if (step_any() || fake_cuda_wait()) continue;
    result = broken(CUDA_ERROR_INVALID_VALUE, __func__, "streams wait for ever");
  }
  fake_cuda_unlock();
  return result;
}

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
  NEED(ordinal >= 0 && ordinal < kDevices, CUDA_ERROR_INVALID_VALUE, "no such device");
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  NEED(device >= 0 && device < kDevices, CUDA_ERROR_INVALID_VALUE, "no such device");
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : minor;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  NEED(device >= 0 && device < kDevices, CUDA_ERROR_INVALID_VALUE, "no such device");
  *out = &contexts[device];
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  NEED(device >= 0 && device < kDevices, CUDA_ERROR_INVALID_VALUE, "no such device");
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
  NEED(is_context(given) && depth < 16, CUDA_ERROR_INVALID_CONTEXT, "no such context");
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
  *device = stack[depth - 1]->device;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  NEED(in_context() && flags <= 1, CUDA_ERROR_INVALID_VALUE, "no context, or wrong flags");
  *stream = calloc(1, sizeof **stream);
  (*stream)->live = true;
  (*stream)->context = stack[depth - 1];
  fake_cuda_lock();
  streams[stream_count++] = *stream;
  ++streams_live;
  fake_cuda_unlock();
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  NEED(stream != NULL && stream->live, CUDA_ERROR_INVALID_HANDLE, "no such stream");
  stream->live = false;
  --streams_live;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  NEED(is_stream(stream), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  return run_until_idle(stream == NULL ? &callers_default : stream);
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  NEED(in_context() && flags <= 3, CUDA_ERROR_INVALID_VALUE, "no context, or wrong flags");
  *event = calloc(1, sizeof **event);
  (*event)->live = true;
  ++events_live;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  NEED(event != NULL && event->live, CUDA_ERROR_INVALID_HANDLE, "no such event");
  event->live = false;
  --events_live;
  return CUDA_SUCCESS;
}

static bool** last_of(CUevent event) {
  bool** kept = malloc(sizeof *kept);
  *kept = event->last;
  return kept;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  NEED(is_stream(stream) && event->live, CUDA_ERROR_INVALID_HANDLE, "no such stream or event");
  event->last = calloc(1, sizeof *event->last);  // is never freed: waits may be left
  event->captured = stream != NULL && stream->captured;
  if (event->captured) memcpy(event->behind, stream->behind, sizeof event->behind);
  return fake_cuda_enqueue(stream, reach, last_of(event));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  NEED(is_stream(stream) && event->live, CUDA_ERROR_INVALID_HANDLE, "no such stream or event");
  NEED(flags == 0, CUDA_ERROR_INVALID_VALUE, "flags of a wait");
  if (event->last == NULL) return CUDA_SUCCESS;
  NEED(stream == NULL || !stream->captured || event->captured, CUDA_ERROR_INVALID_VALUE,
       "a captured stream waits for what is not captured");
  if (stream != NULL && event->captured) {
    capture(stream);
    for (int i = 1; i <= kCaptured; ++i) {
      if (stream->behind[i] < event->behind[i]) stream->behind[i] = event->behind[i];
    }
  }
  return fake_cuda_enqueue(stream, has_reached, last_of(event));
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  NEED(in_context() && bytes > 0, CUDA_ERROR_INVALID_VALUE, "no context, or no bytes");
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  fake_cuda_lock();
  for (int i = 0; i < kMost && result != CUDA_SUCCESS; ++i) {
    if (blocks[i].start != NULL) continue;
    blocks[i].start = aligned_alloc(256, (bytes + 255) / 256 * 256);
    blocks[i].bytes = bytes;
    memset(blocks[i].start, 0xFF, bytes);
    *address = (CUdeviceptr)blocks[i].start;
    ++blocks_live;
    result = CUDA_SUCCESS;
  }
  fake_cuda_unlock();
  return result;
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

bool fake_cuda_is_memory(const void* address, size_t bytes) {
  return bytes == 0 || is_memory((CUdeviceptr)address, bytes);
}

typedef struct Filling {
  char* address;
  int value;
  size_t bytes;
} Filling;

static bool fill(void* given) {
  const Filling* filling = given;
  memset(filling->address, filling->value, filling->bytes);
  return true;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
  NEED(is_stream(stream) && in_context(), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(bytes > 0 && is_memory(address, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  ++memsets;
  Filling* filling = calloc(1, sizeof *filling);
  *filling = (Filling){(char*)address, value, bytes};
  return fake_cuda_enqueue(stream, fill, filling);
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t bytes) {
  NEED(in_context(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  NEED(bytes > 0 && is_memory(address, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  memset((char*)address, value, bytes);
  ++memsets;
  return CUDA_SUCCESS;
}

static bool copy(void* given) {
  const CUDA_MEMCPY2D* rows = given;
  for (size_t i = 0; i < rows->Height; ++i) {
    memmove((char*)rows->dstDevice + i * rows->dstPitch,
            (char*)rows->srcDevice + i * rows->srcPitch, rows->WidthInBytes);
  }
  return true;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  NEED(is_stream(stream) && in_context(), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(bytes > 0 && is_memory(target, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  NEED(is_memory(source, bytes), CUDA_ERROR_INVALID_VALUE, "outside of memory");
  CUDA_MEMCPY2D* rows = calloc(1, sizeof *rows);
  rows->srcDevice = source;
  rows->dstDevice = target;
  rows->WidthInBytes = bytes;
  rows->Height = 1;
  return fake_cuda_enqueue(stream, copy, rows);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* rows, CUstream stream) {
  NEED(is_stream(stream) && in_context(), CUDA_ERROR_INVALID_HANDLE, "no such stream");
  NEED(rows->srcMemoryType == CU_MEMORYTYPE_DEVICE && rows->dstMemoryType == CU_MEMORYTYPE_DEVICE &&
           rows->srcXInBytes + rows->srcY + rows->dstXInBytes + rows->dstY == 0,
       CUDA_ERROR_INVALID_VALUE, "rows of device memory");
  const size_t width = rows->WidthInBytes, last = rows->Height - 1;
  NEED(width > 0 && rows->Height > 0 && rows->srcPitch >= width && rows->dstPitch >= width,
       CUDA_ERROR_INVALID_VALUE, "rows lie on one another");
  NEED(is_memory(rows->dstDevice, last * rows->dstPitch + width) &&
           is_memory(rows->srcDevice, last * rows->srcPitch + width),
       CUDA_ERROR_INVALID_VALUE, "outside of memory");
  CUDA_MEMCPY2D* kept = calloc(1, sizeof *kept);
  *kept = *rows;
  return fake_cuda_enqueue(stream, copy, kept);
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

// A launch with the bytes of its parameters.
typedef struct Launched {
  CUfunction function;
  unsigned int shape[10];
  CUstream stream;
  void* parameters[kParameters];
  _Alignas(128) char bytes[kParameters * 128];
} Launched;

static bool run_kernel(void* given) {
  Launched* launched = given;
  const CUfunction function = launched->function;
  if (hook != NULL) {
    hook(function->name, function->module->image, launched->shape, launched->stream,
         launched->parameters);
  }
  return true;
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
  Launched* launched = aligned_alloc(128, sizeof *launched);
  launched->function = function;
  launched->stream = stream;
  memcpy(launched->shape, shape, sizeof launched->shape);
  for (int i = 0; i < kernels[number].count; ++i) {
    launched->parameters[i] = launched->bytes + i * 128;
    memcpy(launched->parameters[i], parameters[i], (size_t)kernels[number].bytes[i]);
  }
  return fake_cuda_enqueue(stream, run_kernel, launched);
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
