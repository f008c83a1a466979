/* A stand-in for libcuda: what the helper of calls asks for, noted or handed to a function. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int (*Launch)(const void *config, void *function, void **parameters);

static Launch launched;
static int capturing, refused, refused_calls;
static void *current = (void *)1;

void set_launch(Launch function) { launched = function; }
void set_capturing(int status) { capturing = status; }
void set_refused(int status) { refused = status; }
void set_refused_calls(int status) { refused_calls = status; }
void *context(void) { return current; }

/* Events, flags and calls of NCCL are noted in order, with what they are given. */

typedef struct {
    int kind, count;
    uint64_t given[16];
} Noted;

static Noted noted[256];
static int notes;

int take_notes(Noted *into)
{
    int count = notes;
    memcpy(into, noted, (size_t)count * sizeof *into);
    notes = 0;
    return count;
}

static int note(int kind, int count, const uint64_t *given)
{
    if (refused_calls)
        return refused_calls;
    Noted *each = &noted[notes++ % 256];
    each->kind = kind;
    each->count = count;
    if (count)
        memcpy(each->given, given, (size_t)count * sizeof *given);
    return 0;
}

#define NOTE(kind, ...)                                                                            \
    note(kind, (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)),                        \
         (const uint64_t[]){__VA_ARGS__})
#define WORD(pointer) ((uint64_t)(uintptr_t)(pointer))

/* Copies of addresses that are no memory of this process are noted alone. */
static int notes_copies;

void set_notes_copies(int whether) { notes_copies = whether; }

int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra)
{
    (void)extra;
    if (!launched) { /* grid, block and stream as CUlaunchConfig has them, and two parameters */
        const unsigned *shape = config;
        uint64_t stream;
        memcpy(&stream, (const char *)config + 32, sizeof stream);
        return NOTE(14, WORD(function), shape[0], shape[3], stream, *(uint64_t *)parameters[0],
                    *(uint64_t *)parameters[1]);
    }
    return refused ? refused : launched(config, function, parameters);
}

int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream)
{
    (void)stream;
    memset((void *)(uintptr_t)address, value, size);
    return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void *stream)
{
    if (notes_copies)
        return NOTE(9, target, source, size, WORD(stream));
    memcpy((void *)(uintptr_t)target, (void *)(uintptr_t)source, size);
    return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t size, void *stream)
{
    (void)stream;
    if (refused_calls)
        return refused_calls;
    memcpy((void *)(uintptr_t)target, source, size);
    return 0;
}

/* A map is its address, element type and modes. */
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address,
                           const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill)
{
    const int modes[] = {type, interleave, swizzle, promotion, fill};
    (void)rank, (void)extents, (void)strides, (void)box, (void)steps;
    memcpy(map, &address, sizeof address);
    memcpy((char *)map + sizeof address, modes, sizeof modes);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = capturing;
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = current;
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    current = context;
    return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = current;
    current = (void *)1;
    return 0;
}

int cuEventRecord(void *event, void *stream) { return NOTE(1, WORD(event), WORD(stream)); }

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return NOTE(2, WORD(stream), WORD(event), flags);
}

int cuStreamBatchMemOp_v2(void *stream, unsigned count, const void *operations, unsigned flags)
{
    const char *each = operations;
    int status = NOTE(3, WORD(stream), count, flags);
    for (unsigned k = 0; k < count && !status; k++, each += 48) {
        uint64_t words[4];
        memcpy(words, each, sizeof words);
        status = NOTE(4, words[0], words[1], words[2], words[3]);
    }
    return status;
}

int ncclAllReduce(uint64_t source, uint64_t target, size_t count, int type, int operation,
                  void *communicator, void *stream)
{
    return NOTE(5, source, target, count, (uint64_t)type, (uint64_t)operation, WORD(communicator),
                WORD(stream));
}

int ncclAllGather(uint64_t source, uint64_t target, size_t count, int type, void *communicator,
                  void *stream)
{
    return NOTE(6, source, target, count, (uint64_t)type, WORD(communicator), WORD(stream));
}

int ncclSend(uint64_t source, size_t count, int type, int peer, void *communicator, void *stream)
{
    return NOTE(7, source, count, (uint64_t)type, (uint64_t)peer, WORD(communicator), WORD(stream));
}

int ncclReduceScatter(uint64_t source, uint64_t target, size_t count, int type, int operation,
                      void *communicator, void *stream)
{
    return NOTE(10, source, target, count, (uint64_t)type, (uint64_t)operation, WORD(communicator),
                WORD(stream));
}

int ncclRecv(uint64_t target, size_t count, int type, int peer, void *communicator, void *stream)
{
    return NOTE(11, target, count, (uint64_t)type, (uint64_t)peer, WORD(communicator), WORD(stream));
}

int ncclBroadcast(uint64_t source, uint64_t target, size_t count, int type, int root,
                  void *communicator, void *stream)
{
    return NOTE(12, source, target, count, (uint64_t)type, (uint64_t)root, WORD(communicator),
                WORD(stream));
}

int ncclGroupStart(void) { return note(8, 0, NULL); }

int ncclGroupEnd(void) { return note(13, 0, NULL); }

int cuGraphExecKernelNodeSetParams_v2(void *graph, void *node, const void *parameters)
{
    return graph && parameters ? NOTE(15, WORD(node)) : 1;
}

/* The parameters of a copy are CUDA_MEMCPY3D. */
int cuGraphExecMemcpyNodeSetParams(void *graph, void *node, const void *parameters, void *context)
{
    uint64_t words[25];
    memcpy(words, parameters, sizeof words);
    int is_row = (int)words[4] == 2 && (int)words[15] == 2 && words[23] == 1 && words[24] == 1 &&
                 words[9] >= words[22] && words[20] >= words[22] && words[10] == 1;
    return graph && context && is_row ? NOTE(16, WORD(node), words[17], words[6], words[22]) : 1;
}

int cuGraphLaunch(void *graph, void *stream)
{
    return graph ? NOTE(17, WORD(graph), WORD(stream)) : 1;
}
