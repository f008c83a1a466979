/* A stand-in for libcuda: what the helper of calls asks for, noted or handed to a function. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int (*Launch)(const void *config, void *function, void **parameters);

static Launch launched;
static int capturing, refused;
static void *current = (void *)1;

void set_launch(Launch function) { launched = function; }
void set_capturing(int status) { capturing = status; }
void set_refused(int status) { refused = status; }
void *context(void) { return current; }

int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra)
{
    (void)extra;
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
    (void)stream;
    memcpy((void *)(uintptr_t)target, (void *)(uintptr_t)source, size);
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

int cuGraphExecKernelNodeSetParams_v2(void *graph, void *node, const void *parameters)
{
    (void)node;
    return graph && parameters ? 0 : 1;
}

int cuGraphLaunch(void *graph, void *stream)
{
    (void)stream;
    return graph ? 0 : 1;
}
