// stream_rows: see stream_rows.h.
// Built as C11 and linked with the driver (-lcuda).
#include "stream_rows.h"

#include <stdlib.h>

typedef stream_rows_sizes Sizes;
typedef stream_rows_arguments Arguments;
typedef stream_rows_workspace Workspace;
typedef stream_rows_streams Streams;

typedef struct Kernel {
  const char* name;
  const unsigned char* cubin;
  int shared_bytes;
  bool large_clusters;
} Kernel;

// Launches the kernels of its build from `first` on, at the sizes that they support.
typedef struct Plan {
  int first;
  int (*check)(const Sizes* sizes);
  size_t (*need)(const Sizes* sizes);
  int (*run)(const CUfunction* functions, CUstream stream, const Arguments* a, Workspace* w);
} Plan;

// The kernels for one target. They also run on GPUs of a later compute capability with the same
// major version, unless just_one is set.
typedef struct Build {
  int major, minor;
  bool just_one;
  int count, plan_count;
  const Kernel* kernels;
  const Plan* plans;
} Build;

struct stream_rows_program {
  CUcontext context;
  const Build* build;
  CUmodule modules[2];
  CUfunction functions[2];
};

_Alignas(8) static const unsigned char stream_rows_s1_matmul_sm_90a[21];
_Alignas(8) static const unsigned char stream_rows_s2_matmul_sm_90a[21];
static const Build builds[1];
static const char* const size_texts[16];
static const char* const pointer_texts[5];

static int cuda(CUresult result) {
  return result == CUDA_SUCCESS ? STREAM_ROWS_OK : STREAM_ROWS_ERROR_CUDA + (int)result;
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }

static int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Return a size's magnitude for the overflow check of a product; 0 counts as 1, or it would hide
// sizes that are too large.
static double magnitude(int64_t size) {
  return size > 1 ? (double)size : size < -1 ? -(double)size : 1.0;
}

// Return whether a pointer is aligned and not NULL; true for a tensor without elements.
static bool is_aligned(const void* pointer, int64_t elements, uintptr_t alignment) {
  return elements == 0 || (pointer != NULL && (uintptr_t)pointer % alignment == 0);
}

// Allocate bytes of the workspace and return their offset, a multiple of 256.
static size_t take(size_t* end, int64_t bytes) {
  const size_t start = *end;
  *end += ((size_t)bytes + 255) / 256 * 256;
  return start;
}

static bool is_enough(const Workspace* w, size_t bytes) {
  if (bytes == 0) return true;
  return w->memory != NULL && (uintptr_t)w->memory % 256 == 0 && w->bytes >= bytes;
}

// Return the address of a part of a buffer.
static CUdeviceptr part(CUdeviceptr buffer, int64_t bytes) { return buffer + (CUdeviceptr)bytes; }

// Encode a tensor map for TMA, innermost dim first; skipped for a tensor without elements.
static int encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, CUdeviceptr address,
                  const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                  CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                  CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob_fill) {
  static const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (extents[i] == 0) return STREAM_ROWS_OK;
  }
  return cuda(cuTensorMapEncodeTiled(map, type, rank, (void*)address, extents, strides, box, steps,
                                     interleave, swizzle, promotion, oob_fill));
}

// Launch a kernel, unless its grid is empty.
static int launch(CUfunction function, int64_t x, int64_t y, int64_t z, unsigned int block_x,
                  unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                  CUstream stream, void** parameters) {
  if (x == 0 || y == 0 || z == 0) return STREAM_ROWS_OK;
  return cuda(cuLaunchKernel(function, (unsigned int)x, (unsigned int)y, (unsigned int)z, block_x,
                             block_y, block_z, shared_bytes, stream, parameters, NULL));
}

// Whether a stream has work of a run, and whether the caller's stream waits for it.
typedef enum Progress { kIdle, kBusy, kJoined } Progress;

// The streams of a run, the caller's first.
struct stream_rows_streams {
  CUcontext context;
  CUstream all[5];
  Progress progress[5];
  CUevent turn;
};

// Return a stream other than the caller's, to issue work on.
static CUstream use(Streams* streams, int64_t number) {
  streams->progress[number] = kBusy;
  return streams->all[number];
}

// Make a stream wait for all work so far of another one, which has none if it is idle.
static int follow(Streams* streams, CUstream stream, int64_t other) {
  if (other > 0 && streams->progress[other] == kIdle) return STREAM_ROWS_OK;
  int error = cuda(cuEventRecord(streams->turn, streams->all[other]));
  if (error == STREAM_ROWS_OK) error = cuda(cuStreamWaitEvent(stream, streams->turn, 0));
  if (error == STREAM_ROWS_OK && stream == streams->all[0]) streams->progress[other] = kJoined;
  return error;
}

// Make the caller's stream wait for all others at the end of a run, even if the run has failed.
static int join(Streams* streams, int error) {
  for (int i = 1; i <= 4; ++i) {
    int failed = STREAM_ROWS_OK;
    if (streams->progress[i] == kBusy) failed = follow(streams, streams->all[0], i);
    if (error == STREAM_ROWS_OK) error = failed;
    streams->progress[i] = kIdle;
  }
  return error;
}

static int create_event(CUevent* event) {
  return cuda(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
}

static int load(const Kernel* kernel, CUmodule* module, CUfunction* function) {
  int error = cuda(cuModuleLoadData(module, kernel->cubin));
  if (error != STREAM_ROWS_OK) return error;
  error = cuda(cuModuleGetFunction(function, *module, kernel->name));
  if (error == STREAM_ROWS_OK && kernel->shared_bytes > 0) {
    error = cuda(cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    kernel->shared_bytes));
  }
  if (error == STREAM_ROWS_OK && kernel->large_clusters) {
    error =
        cuda(cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  }
  return error;
}

// Return the build for a GPU, or NULL if there is none; better builds come first.
static const Build* find_build(int major, int minor) {
  for (size_t i = 0; i < sizeof builds / sizeof *builds; ++i) {
    const Build* build = &builds[i];
    const bool is_later = !build->just_one && build->minor < minor;
    if (build->major == major && (build->minor == minor || is_later)) return build;
  }
  return NULL;
}

// Find the first plan that supports these sizes; if there is none, return the error of the first.
static int find_plan(const Build* build, const Sizes* sizes, const Plan** plan) {
  *plan = build->plans;
  const int first = (*plan)->check(sizes);
  int error = first;
  for (int i = 1; i < build->plan_count && error != STREAM_ROWS_OK; ++i) {
    *plan = &build->plans[i];
    error = (*plan)->check(sizes);
  }
  return error == STREAM_ROWS_OK ? error : first;
}

// For sm_90a: check whether the kernels support these sizes.
static int check_sm_90a(const Sizes* s) {
  if (!(s->M >= 0)) return STREAM_ROWS_ERROR_SIZES + 0;
  if (!(s->M % 8 == 0)) return STREAM_ROWS_ERROR_SIZES + 1;
  if (!(s->K >= 0)) return STREAM_ROWS_ERROR_SIZES + 2;
  if (!(s->F >= 0)) return STREAM_ROWS_ERROR_SIZES + 3;
  if (!(magnitude(s->F) * magnitude(s->K) <= 549755813888.0)) return STREAM_ROWS_ERROR_SIZES + 4;
  if (!(magnitude(s->F) * magnitude(s->M) <= 549755813888.0)) return STREAM_ROWS_ERROR_SIZES + 5;
  if (!(magnitude(s->K) * magnitude(s->M) <= 549755813888.0)) return STREAM_ROWS_ERROR_SIZES + 6;
  if (!(s->F == 4096)) return STREAM_ROWS_ERROR_SIZES + 7;
  if (!(s->K == 1024)) return STREAM_ROWS_ERROR_SIZES + 8;
  if (!(floor_div(s->M, 8) * 4096 <= 1073741823)) return STREAM_ROWS_ERROR_SIZES + 9;
  if (!(s->K * floor_div(s->M, 8) * 2 % 16 == 0)) return STREAM_ROWS_ERROR_SIZES + 10;
  if (!(floor_div(s->M, 8) * 2048 % 16 == 0)) return STREAM_ROWS_ERROR_SIZES + 11;
  if (!(min_of(ceil_div(floor_div(s->M, 8), 128) * 32, 132) <= 2147483647))
    return STREAM_ROWS_ERROR_SIZES + 12;
  if (!(floor_div(s->M, 8) * 8192 % 16 == 0)) return STREAM_ROWS_ERROR_SIZES + 13;
  if (!(min_of(ceil_div(floor_div(s->M, 8), 128) * 16, 132) <= 2147483647))
    return STREAM_ROWS_ERROR_SIZES + 14;
  return STREAM_ROWS_OK;
}

// Offsets in the workspace at these sizes; memory that is zeroed only once comes first.
typedef struct Places_sm_90a {
  size_t at_0;  // h.slices
  size_t zeroed, bytes;
} Places_sm_90a;

static Places_sm_90a places_sm_90a(const Sizes* s) {
  Places_sm_90a places;
  size_t end = 0;
  places.zeroed = end;
  places.at_0 = take(&end, ceil_div(s->F * floor_div(s->M, 8), 8) * 64);
  places.bytes = end;
  return places;
}

static size_t need_sm_90a(const Sizes* s) {
  const Places_sm_90a places = places_sm_90a(s);
  return places.bytes;
}

// Issue the work of a run on the stream.
static int issue_sm_90a(const CUfunction* functions, CUstream stream, const Arguments* a,
                        CUdeviceptr memory, const Places_sm_90a* places, Streams* streams) {
  const Sizes* s = &a->sizes;
  CUstream on = stream;
  int error = STREAM_ROWS_OK;
  CUdeviceptr at_x = (CUdeviceptr)a->x;
  CUdeviceptr at_up = (CUdeviceptr)a->up;
  CUdeviceptr at_down = (CUdeviceptr)a->down;
  CUdeviceptr at_y = (CUdeviceptr)a->y;
  CUdeviceptr at_h_slices = memory + places->at_0;
  // for loop0.index from 0 to 8 on 4 streams
  for (int64_t loop0_index = 0; loop0_index < 8; ++loop0_index) {
    on = use(streams, floor_mod(loop0_index, 4) + 1);
    // synchronize stream loop0.caller
    error = follow(streams, on, 0);
    if (error != STREAM_ROWS_OK) return error;
    CUdeviceptr at_x_slice = part(at_x, s->K * floor_div(s->M, 8) * loop0_index * 2);
    CUdeviceptr at_h =
        part(at_h_slices, ceil_div(s->F * floor_div(s->M, 8), 8) * floor_mod(loop0_index, 4) * 16);
    CUtensorMap map_stream_rows_s1_matmul_x_slice_map;
    error = encode(&map_stream_rows_s1_matmul_x_slice_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                   at_x_slice, (const cuuint64_t[]){1024, (cuuint64_t)(floor_div(s->M, 8)), 1},
                   (const cuuint64_t[]){2048, (cuuint64_t)(floor_div(s->M, 8) * 2048)},
                   (const cuuint32_t[]){64, 128, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != STREAM_ROWS_OK) return error;
    CUtensorMap map_stream_rows_s1_matmul_up_map;
    error = encode(&map_stream_rows_s1_matmul_up_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, at_up,
                   (const cuuint64_t[]){1024, 4096, 1}, (const cuuint64_t[]){2048, 8388608},
                   (const cuuint32_t[]){64, 128, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != STREAM_ROWS_OK) return error;
    {  // stream_rows_s1_matmul for s1
      long long n3 = s->M;
      void* parameters[4];
      parameters[0] = &map_stream_rows_s1_matmul_x_slice_map;
      parameters[1] = &map_stream_rows_s1_matmul_up_map;
      parameters[2] = &at_h;
      parameters[3] = &n3;
      error = launch(functions[0], min_of(ceil_div(floor_div(s->M, 8), 128) * 32, 132), 1, 1, 384,
                     1, 1, 215136, on, parameters);
      if (error != STREAM_ROWS_OK) return error;
    }
    CUdeviceptr at_y_slice = part(at_y, s->K * floor_div(s->M, 8) * loop0_index * 2);
    CUtensorMap map_stream_rows_s2_matmul_h_map;
    error = encode(&map_stream_rows_s2_matmul_h_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, at_h,
                   (const cuuint64_t[]){4096, (cuuint64_t)(floor_div(s->M, 8)), 1},
                   (const cuuint64_t[]){8192, (cuuint64_t)(floor_div(s->M, 8) * 8192)},
                   (const cuuint32_t[]){64, 128, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != STREAM_ROWS_OK) return error;
    CUtensorMap map_stream_rows_s2_matmul_down_map;
    error = encode(&map_stream_rows_s2_matmul_down_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                   at_down, (const cuuint64_t[]){4096, 1024, 1},
                   (const cuuint64_t[]){8192, 8388608}, (const cuuint32_t[]){64, 64, 1},
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != STREAM_ROWS_OK) return error;
    {  // stream_rows_s2_matmul for s2
      long long n3 = s->M;
      void* parameters[4];
      parameters[0] = &map_stream_rows_s2_matmul_h_map;
      parameters[1] = &map_stream_rows_s2_matmul_down_map;
      parameters[2] = &at_y_slice;
      parameters[3] = &n3;
      error = launch(functions[1], min_of(ceil_div(floor_div(s->M, 8), 128) * 16, 132), 1, 1, 384,
                     1, 1, 215168, on, parameters);
      if (error != STREAM_ROWS_OK) return error;
    }
  }
  on = stream;
  // for loop0.join from 0 to 4
  for (int64_t loop0_join = 0; loop0_join < 4; ++loop0_join) {
    // synchronize stream loop0.join + 1
    error = follow(streams, on, loop0_join + 1);
    if (error != STREAM_ROWS_OK) return error;
  }
  return error;
}

static int run_sm_90a(const CUfunction* functions, CUstream stream, const Arguments* a,
                      Workspace* w) {
  const Sizes* s = &a->sizes;
  if (!is_aligned(a->x, s->K * s->M, 16)) return STREAM_ROWS_ERROR_POINTER + 0;
  if (!is_aligned(a->up, s->F * s->K, 16)) return STREAM_ROWS_ERROR_POINTER + 1;
  if (!is_aligned(a->down, s->F * s->K, 16)) return STREAM_ROWS_ERROR_POINTER + 2;
  if (!is_aligned(a->y, s->K * s->M, 16)) return STREAM_ROWS_ERROR_POINTER + 3;
  Workspace none = {0};
  if (w == NULL) w = &none;
  const Places_sm_90a places = places_sm_90a(s);
  if (!is_enough(w, places.bytes)) return STREAM_ROWS_ERROR_WORKSPACE;
  if (w->streams == NULL) return STREAM_ROWS_ERROR_STREAMS;
  int error = STREAM_ROWS_OK;
  w->zeroed = 0;
  w->streams->all[0] = stream;
  error = issue_sm_90a(functions, stream, a, (CUdeviceptr)w->memory, &places, w->streams);
  error = join(w->streams, error);
  return error;
}

int stream_rows_create(stream_rows_program** program) {
  *program = NULL;
  int version = 0, major = 0, minor = 0;
  int error = cuda(cuDriverGetVersion(&version));
  if (error != STREAM_ROWS_OK) return error;
  if (version < 13000) return STREAM_ROWS_ERROR_OLD_DRIVER;
  CUcontext context = NULL;
  CUdevice device;
  error = cuda(cuCtxGetCurrent(&context));
  if (error != STREAM_ROWS_OK) return error;
  if (context == NULL) return STREAM_ROWS_ERROR_CONTEXT;
  error = cuda(cuCtxGetDevice(&device));
  if (error != STREAM_ROWS_OK) return error;
  error = cuda(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  if (error != STREAM_ROWS_OK) return error;
  error = cuda(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  if (error != STREAM_ROWS_OK) return error;
  const Build* build = find_build(major, minor);
  if (build == NULL) return STREAM_ROWS_ERROR_GPU;
  stream_rows_program* made = calloc(1, sizeof *made);
  if (made == NULL) return STREAM_ROWS_ERROR_MEMORY;
  made->context = context;
  made->build = build;
  for (int i = 0; i < build->count && error == STREAM_ROWS_OK; ++i) {
    error = load(&build->kernels[i], &made->modules[i], &made->functions[i]);
  }
  if (error != STREAM_ROWS_OK) {
    stream_rows_destroy(made);
    return error;
  }
  *program = made;
  return STREAM_ROWS_OK;
}

int stream_rows_destroy(stream_rows_program* program) {
  if (program == NULL) return STREAM_ROWS_OK;
  int error = cuda(cuCtxPushCurrent(program->context));
  if (error != STREAM_ROWS_OK) return error;
  for (int i = 0; i < program->build->count; ++i) {
    if (program->modules[i] == NULL) continue;
    const int failed = cuda(cuModuleUnload(program->modules[i]));
    if (error == STREAM_ROWS_OK) error = failed;
  }
  CUcontext context;
  cuCtxPopCurrent(&context);
  free(program);
  return error;
}

int stream_rows_streams_create(stream_rows_streams** streams) {
  *streams = NULL;
  Streams* made = calloc(1, sizeof *made);
  if (made == NULL) return STREAM_ROWS_ERROR_MEMORY;
  int error = cuda(cuCtxGetCurrent(&made->context));
  if (error == STREAM_ROWS_OK && made->context == NULL) error = STREAM_ROWS_ERROR_CONTEXT;
  for (int i = 1; i <= 4 && error == STREAM_ROWS_OK; ++i) {
    error = cuda(cuStreamCreate(&made->all[i], CU_STREAM_NON_BLOCKING));
  }
  if (error == STREAM_ROWS_OK) error = create_event(&made->turn);
  if (error != STREAM_ROWS_OK) {
    stream_rows_streams_destroy(made);
    return error;
  }
  *streams = made;
  return STREAM_ROWS_OK;
}

int stream_rows_streams_destroy(stream_rows_streams* streams) {
  if (streams == NULL) return STREAM_ROWS_OK;
  int error = STREAM_ROWS_OK, failed = STREAM_ROWS_OK;
  if (streams->context != NULL) error = cuda(cuCtxPushCurrent(streams->context));
  if (error != STREAM_ROWS_OK) return error;
  if (streams->turn != NULL) failed = cuda(cuEventDestroy(streams->turn));
  if (error == STREAM_ROWS_OK) error = failed;
  for (int i = 1; i <= 4; ++i) {
    if (streams->all[i] != NULL) failed = cuda(cuStreamDestroy(streams->all[i]));
    if (error == STREAM_ROWS_OK) error = failed;
  }
  CUcontext context;
  if (streams->context != NULL) cuCtxPopCurrent(&context);
  free(streams);
  return error;
}

int stream_rows_workspace_bytes(const stream_rows_program* program, const stream_rows_sizes* sizes,
                                size_t* bytes) {
  const Plan* plan;
  const int error = find_plan(program->build, sizes, &plan);
  *bytes = error == STREAM_ROWS_OK ? plan->need(sizes) : 0;
  return error;
}

int stream_rows_run(const stream_rows_program* program, CUstream stream,
                    const stream_rows_arguments* arguments, stream_rows_workspace* workspace) {
  const Plan* plan;
  const int error = find_plan(program->build, &arguments->sizes, &plan);
  if (error != STREAM_ROWS_OK) return error;
  return plan->run(&program->functions[plan->first], stream, arguments, workspace);
}

const char* stream_rows_error_text(int error) {
  if (error == STREAM_ROWS_OK) return "no error";
  if (error == STREAM_ROWS_ERROR_MEMORY) return "no memory of the host is left";
  if (error == STREAM_ROWS_ERROR_CONTEXT) return "no CUDA context is current";
  if (error == STREAM_ROWS_ERROR_OLD_DRIVER) return "the driver is older than CUDA 13.0";
  if (error == STREAM_ROWS_ERROR_GPU) return "the kernels are for other GPUs: sm_90a";
  if (error == STREAM_ROWS_ERROR_WORKSPACE)
    return "the workspace is too small, or at no multiple of 256 bytes";
  if (error == STREAM_ROWS_ERROR_STREAMS) return "the workspace has no streams";
  const int size = error - STREAM_ROWS_ERROR_SIZES;
  const int pointer = error - STREAM_ROWS_ERROR_POINTER;
  if (size >= 0 && size < 15) return size_texts[size];
  if (pointer >= 0 && pointer < 4) return pointer_texts[pointer];
  const char* text = NULL;
  if (error <= STREAM_ROWS_ERROR_CUDA) return "unknown error";
  const CUresult result = (CUresult)(error - STREAM_ROWS_ERROR_CUDA);
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) return "unknown CUDA error";
  return text;
}

