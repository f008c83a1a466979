// What the stand-ins for libcuda and NCCL share.
#pragma once

#include <stdbool.h>

#include "cuda.h"

typedef bool (*Attempt)(void* given);

CUresult fake_cuda_enqueue(CUstream stream, Attempt attempt, void* given);
void fake_cuda_complain(const char* function, const char* rule);
bool fake_cuda_is_memory(const void* address, size_t bytes);
void fake_cuda_defer(unsigned long long seed);
bool fake_cuda_defers(void);
void fake_cuda_lock(void);
void fake_cuda_unlock(void);
bool fake_cuda_wait(void);
void fake_cuda_notify(void);
