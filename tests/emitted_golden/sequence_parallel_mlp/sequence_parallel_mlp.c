// sequence_parallel_mlp: see sequence_parallel_mlp.h.
// Built as C11 and linked with the driver (-lcuda) and NCCL (-lnccl).
#include "sequence_parallel_mlp.h"

#include <stdlib.h>

typedef sequence_parallel_mlp_sizes Sizes;
typedef sequence_parallel_mlp_arguments Arguments;
typedef sequence_parallel_mlp_workspace Workspace;

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

struct sequence_parallel_mlp_program {
  CUcontext context;
  const Build* build;
  CUmodule modules[4];
  CUfunction functions[4];
};

_Alignas(8) static const unsigned char sequence_parallel_mlp_s0_inner_persistent_sm_90a[41];
_Alignas(8) static const unsigned char sequence_parallel_mlp_s2_matmul_sm_90a[31];
_Alignas(8) static const unsigned char sequence_parallel_mlp_s3_matmul_sm_90a[31];
_Alignas(8) static const unsigned char sequence_parallel_mlp_s5_pointwise_sm_90a[34];
static const Build builds[1];
static const char* const size_texts[17];
static const char* const pointer_texts[6];

static int cuda(CUresult result) {
  return result == CUDA_SUCCESS ? SEQUENCE_PARALLEL_MLP_OK
                                : SEQUENCE_PARALLEL_MLP_ERROR_CUDA + (int)result;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }

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

// Encode a tensor map for TMA, innermost dim first; skipped for a tensor without elements.
static int encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, CUdeviceptr address,
                  const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                  CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                  CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob_fill) {
  static const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (extents[i] == 0) return SEQUENCE_PARALLEL_MLP_OK;
  }
  return cuda(cuTensorMapEncodeTiled(map, type, rank, (void*)address, extents, strides, box, steps,
                                     interleave, swizzle, promotion, oob_fill));
}

// Launch a kernel, unless its grid is empty.
static int launch(CUfunction function, int64_t x, int64_t y, int64_t z, unsigned int block_x,
                  unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                  CUstream stream, void** parameters) {
  if (x == 0 || y == 0 || z == 0) return SEQUENCE_PARALLEL_MLP_OK;
  return cuda(cuLaunchKernel(function, (unsigned int)x, (unsigned int)y, (unsigned int)z, block_x,
                             block_y, block_z, shared_bytes, stream, parameters, NULL));
}

static int nccl(ncclResult_t result) {
  return result == ncclSuccess ? SEQUENCE_PARALLEL_MLP_OK
                               : SEQUENCE_PARALLEL_MLP_ERROR_NCCL + (int)result;
}

// Find the index of this rank among those along an axis.
static int find_place(ncclComm_t ranks, int expected, int64_t* place) {
  int count = 0, rank = 0;
  if (ranks == NULL) return SEQUENCE_PARALLEL_MLP_ERROR_RANKS;
  int error = nccl(ncclCommCount(ranks, &count));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  if (count != expected) return SEQUENCE_PARALLEL_MLP_ERROR_RANKS;
  error = nccl(ncclCommUserRank(ranks, &rank));
  *place = rank;
  return error;
}

static int load(const Kernel* kernel, CUmodule* module, CUfunction* function) {
  int error = cuda(cuModuleLoadData(module, kernel->cubin));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  error = cuda(cuModuleGetFunction(function, *module, kernel->name));
  if (error == SEQUENCE_PARALLEL_MLP_OK && kernel->shared_bytes > 0) {
    error = cuda(cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    kernel->shared_bytes));
  }
  if (error == SEQUENCE_PARALLEL_MLP_OK && kernel->large_clusters) {
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
  for (int i = 1; i < build->plan_count && error != SEQUENCE_PARALLEL_MLP_OK; ++i) {
    *plan = &build->plans[i];
    error = (*plan)->check(sizes);
  }
  return error == SEQUENCE_PARALLEL_MLP_OK ? error : first;
}

// For sm_90a: check whether the kernels support these sizes.
static int check_sm_90a(const Sizes* s) {
  if (!(s->T >= 0)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 0;
  if (!(s->D >= 0)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 1;
  if (!(s->F >= 0)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 2;
  if (!(magnitude(s->D) * magnitude(s->F) <= 39268272420.0))
    return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 3;
  if (!(magnitude(s->D) * magnitude(s->T) <= 39268272420.0))
    return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 4;
  if (!(magnitude(s->F) * magnitude(s->T) <= 39268272420.0))
    return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 5;
  if (!(s->D == 8192)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 6;
  if (!(s->F == 7168)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 7;
  if (!(s->T * 8192 <= 1073741823)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 8;
  if (!(s->T * 32768 <= 1073741823)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 9;
  if (!(s->T <= 2147483647)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 10;
  if (!(s->T * 65536 % 16 == 0)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 11;
  if (!(min_of(ceil_div(s->T * 4, 128) * 45, 132) <= 2147483647))
    return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 12;
  if (!(s->T * 57344 % 16 == 0)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 13;
  if (!(min_of(ceil_div(s->T * 4, 128) * 43, 132) <= 2147483647))
    return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 14;
  if (!(s->T * 4 <= 2147483647)) return SEQUENCE_PARALLEL_MLP_ERROR_SIZES + 15;
  return SEQUENCE_PARALLEL_MLP_OK;
}

// Offsets in the workspace at these sizes; memory that is zeroed only once comes first.
typedef struct Places_sm_90a {
  size_t at_0;  // a, then p
  size_t at_1;  // a_full, then p_partial
  size_t at_2;  // h
  size_t zeroed, bytes;
} Places_sm_90a;

static Places_sm_90a places_sm_90a(const Sizes* s) {
  Places_sm_90a places;
  size_t end = 0;
  places.zeroed = end;
  places.at_0 = take(&end, s->D * s->T * 2);
  places.at_1 = take(&end, s->D * s->T * 8);
  places.at_2 = take(&end, s->F * s->T * 8);
  places.bytes = end;
  return places;
}

static size_t need_sm_90a(const Sizes* s) {
  const Places_sm_90a places = places_sm_90a(s);
  return places.bytes;
}

// Issue the work of a run on the stream.
static int issue_sm_90a(const CUfunction* functions, CUstream stream, const Arguments* a,
                        CUdeviceptr memory, const Places_sm_90a* places) {
  const Sizes* s = &a->sizes;
  int error = SEQUENCE_PARALLEL_MLP_OK;
  CUdeviceptr at_x = (CUdeviceptr)a->x;
  CUdeviceptr at_scale = (CUdeviceptr)a->scale;
  CUdeviceptr at_up = (CUdeviceptr)a->up;
  CUdeviceptr at_down = (CUdeviceptr)a->down;
  CUdeviceptr at_y = (CUdeviceptr)a->y;
  CUdeviceptr at_a = memory + places->at_0;
  {  // sequence_parallel_mlp_s0_inner_persistent for s0
    void* parameters[] = {&at_x, &at_scale, &at_a};
    error = launch(functions[0], s->T, 1, 1, 128, 1, 1, 0, stream, parameters);
    if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  }
  CUdeviceptr at_a_full = memory + places->at_1;
  // all_gather a_full <- a over tp: 4
  error = nccl(ncclAllGather((const void*)at_a, (void*)at_a_full, (size_t)(s->D * s->T * 2),
                             ncclInt8, a->ranks.tp, stream));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  CUdeviceptr at_h = memory + places->at_2;
  CUtensorMap map_sequence_parallel_mlp_s2_matmul_a_full_map;
  error = encode(&map_sequence_parallel_mlp_s2_matmul_a_full_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 3, at_a_full, (const cuuint64_t[]){8192, (cuuint64_t)(s->T * 4), 1},
                 (const cuuint64_t[]){16384, (cuuint64_t)(s->T * 65536)},
                 (const cuuint32_t[]){64, 128, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  CUtensorMap map_sequence_parallel_mlp_s2_matmul_up_map;
  error = encode(&map_sequence_parallel_mlp_s2_matmul_up_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                 at_up, (const cuuint64_t[]){8192, 7168, 1}, (const cuuint64_t[]){16384, 117440512},
                 (const cuuint32_t[]){64, 160, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  {  // sequence_parallel_mlp_s2_matmul for s2
    long long n3 = s->T;
    void* parameters[4];
    parameters[0] = &map_sequence_parallel_mlp_s2_matmul_a_full_map;
    parameters[1] = &map_sequence_parallel_mlp_s2_matmul_up_map;
    parameters[2] = &at_h;
    parameters[3] = &n3;
    error = launch(functions[1], min_of(ceil_div(s->T * 4, 128) * 45, 132), 1, 1, 384, 1, 1, 202832,
                   stream, parameters);
    if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  }
  CUdeviceptr at_p_partial = memory + places->at_1;
  CUtensorMap map_sequence_parallel_mlp_s3_matmul_h_map;
  error = encode(&map_sequence_parallel_mlp_s3_matmul_h_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                 at_h, (const cuuint64_t[]){7168, (cuuint64_t)(s->T * 4), 1},
                 (const cuuint64_t[]){14336, (cuuint64_t)(s->T * 57344)},
                 (const cuuint32_t[]){64, 128, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  CUtensorMap map_sequence_parallel_mlp_s3_matmul_down_map;
  error = encode(&map_sequence_parallel_mlp_s3_matmul_down_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                 at_down, (const cuuint64_t[]){7168, 8192, 1},
                 (const cuuint64_t[]){14336, 117440512}, (const cuuint32_t[]){64, 192, 1},
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  {  // sequence_parallel_mlp_s3_matmul for s3
    long long n3 = s->T;
    void* parameters[4];
    parameters[0] = &map_sequence_parallel_mlp_s3_matmul_h_map;
    parameters[1] = &map_sequence_parallel_mlp_s3_matmul_down_map;
    parameters[2] = &at_p_partial;
    parameters[3] = &n3;
    error = launch(functions[2], min_of(ceil_div(s->T * 4, 128) * 43, 132), 1, 1, 384, 1, 1, 223312,
                   stream, parameters);
    if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  }
  CUdeviceptr at_p = memory + places->at_0;
  // reduce_scatter sum p <- p_partial over tp: 4
  error = nccl(ncclReduceScatter((const void*)at_p_partial, (void*)at_p, (size_t)(s->D * s->T),
                                 ncclBfloat16, ncclSum, a->ranks.tp, stream));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  {  // sequence_parallel_mlp_s5_pointwise for s5
    long long n3 = s->T;
    void* parameters[] = {&at_x, &at_p, &at_y, &n3};
    error = launch(functions[3], s->T * 4, 1, 1, 256, 1, 1, 0, stream, parameters);
    if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  }
  return error;
}

static int run_sm_90a(const CUfunction* functions, CUstream stream, const Arguments* a,
                      Workspace* w) {
  const Sizes* s = &a->sizes;
  if (!is_aligned(a->x, s->D * s->T, 16)) return SEQUENCE_PARALLEL_MLP_ERROR_POINTER + 0;
  if (!is_aligned(a->scale, s->D, 16)) return SEQUENCE_PARALLEL_MLP_ERROR_POINTER + 1;
  if (!is_aligned(a->up, s->D * s->F, 16)) return SEQUENCE_PARALLEL_MLP_ERROR_POINTER + 2;
  if (!is_aligned(a->down, s->D * s->F, 16)) return SEQUENCE_PARALLEL_MLP_ERROR_POINTER + 3;
  if (!is_aligned(a->y, s->D * s->T, 16)) return SEQUENCE_PARALLEL_MLP_ERROR_POINTER + 4;
  Workspace none = {0};
  if (w == NULL) w = &none;
  const Places_sm_90a places = places_sm_90a(s);
  if (!is_enough(w, places.bytes)) return SEQUENCE_PARALLEL_MLP_ERROR_WORKSPACE;
  int error = SEQUENCE_PARALLEL_MLP_OK;
  int64_t tp_place;
  error = find_place(a->ranks.tp, 4, &tp_place);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  w->zeroed = 0;
  error = issue_sm_90a(functions, stream, a, (CUdeviceptr)w->memory, &places);
  return error;
}

int sequence_parallel_mlp_create(sequence_parallel_mlp_program** program) {
  *program = NULL;
  int version = 0, major = 0, minor = 0;
  int error = cuda(cuDriverGetVersion(&version));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  if (version < 13000) return SEQUENCE_PARALLEL_MLP_ERROR_OLD_DRIVER;
  CUcontext context = NULL;
  CUdevice device;
  error = cuda(cuCtxGetCurrent(&context));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  if (context == NULL) return SEQUENCE_PARALLEL_MLP_ERROR_CONTEXT;
  error = cuda(cuCtxGetDevice(&device));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  error = cuda(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  error = cuda(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  const Build* build = find_build(major, minor);
  if (build == NULL) return SEQUENCE_PARALLEL_MLP_ERROR_GPU;
  sequence_parallel_mlp_program* made = calloc(1, sizeof *made);
  if (made == NULL) return SEQUENCE_PARALLEL_MLP_ERROR_MEMORY;
  made->context = context;
  made->build = build;
  for (int i = 0; i < build->count && error == SEQUENCE_PARALLEL_MLP_OK; ++i) {
    error = load(&build->kernels[i], &made->modules[i], &made->functions[i]);
  }
  if (error != SEQUENCE_PARALLEL_MLP_OK) {
    sequence_parallel_mlp_destroy(made);
    return error;
  }
  *program = made;
  return SEQUENCE_PARALLEL_MLP_OK;
}

int sequence_parallel_mlp_destroy(sequence_parallel_mlp_program* program) {
  if (program == NULL) return SEQUENCE_PARALLEL_MLP_OK;
  int error = cuda(cuCtxPushCurrent(program->context));
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  for (int i = 0; i < program->build->count; ++i) {
    if (program->modules[i] == NULL) continue;
    const int failed = cuda(cuModuleUnload(program->modules[i]));
    if (error == SEQUENCE_PARALLEL_MLP_OK) error = failed;
  }
  CUcontext context;
  cuCtxPopCurrent(&context);
  free(program);
  return error;
}

int sequence_parallel_mlp_connect(sequence_parallel_mlp_ranks* ranks, const ncclUniqueId* id,
                                  int rank) {
  const sequence_parallel_mlp_ranks none = {0};
  *ranks = none;
  return nccl(ncclCommInitRank(&ranks->tp, 4, *id, rank));
}

int sequence_parallel_mlp_disconnect(sequence_parallel_mlp_ranks* ranks) {
  int error = SEQUENCE_PARALLEL_MLP_OK, failed = SEQUENCE_PARALLEL_MLP_OK;
  if (ranks->tp != NULL) failed = nccl(ncclCommDestroy(ranks->tp));
  if (error == SEQUENCE_PARALLEL_MLP_OK) error = failed;
  ranks->tp = NULL;
  return error;
}

int sequence_parallel_mlp_workspace_bytes(const sequence_parallel_mlp_program* program,
                                          const sequence_parallel_mlp_sizes* sizes, size_t* bytes) {
  const Plan* plan;
  const int error = find_plan(program->build, sizes, &plan);
  *bytes = error == SEQUENCE_PARALLEL_MLP_OK ? plan->need(sizes) : 0;
  return error;
}

int sequence_parallel_mlp_run(const sequence_parallel_mlp_program* program, CUstream stream,
                              const sequence_parallel_mlp_arguments* arguments,
                              sequence_parallel_mlp_workspace* workspace) {
  const Plan* plan;
  const int error = find_plan(program->build, &arguments->sizes, &plan);
  if (error != SEQUENCE_PARALLEL_MLP_OK) return error;
  return plan->run(&program->functions[plan->first], stream, arguments, workspace);
}

const char* sequence_parallel_mlp_error_text(int error) {
  if (error == SEQUENCE_PARALLEL_MLP_OK) return "no error";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_MEMORY) return "no memory of the host is left";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_CONTEXT) return "no CUDA context is current";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_OLD_DRIVER) return "the driver is older than CUDA 13.0";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_GPU) return "the kernels are for other GPUs: sm_90a";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_WORKSPACE)
    return "the workspace is too small, or at no multiple of 256 bytes";
  if (error == SEQUENCE_PARALLEL_MLP_ERROR_RANKS)
    return "a communicator is NULL, or has another number of ranks than the mesh";
  if (error >= SEQUENCE_PARALLEL_MLP_ERROR_NCCL)
    return ncclGetErrorString((ncclResult_t)(error - SEQUENCE_PARALLEL_MLP_ERROR_NCCL));
  const int size = error - SEQUENCE_PARALLEL_MLP_ERROR_SIZES;
  const int pointer = error - SEQUENCE_PARALLEL_MLP_ERROR_POINTER;
  if (size >= 0 && size < 16) return size_texts[size];
  if (pointer >= 0 && pointer < 5) return pointer_texts[pointer];
  const char* text = NULL;
  if (error <= SEQUENCE_PARALLEL_MLP_ERROR_CUDA) return "unknown error";
  const CUresult result = (CUresult)(error - SEQUENCE_PARALLEL_MLP_ERROR_CUDA);
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) return "unknown CUDA error";
  return text;
}

