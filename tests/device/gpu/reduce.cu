// Reductions of each shape, three in a row: the second and third see the first's shared memory.
// THREADS_X and THREADS_Y (threads) and OPERATOR (a combiner) and ELEMENT (its type) are defined by
// the test.
#include "reduce.cuh"
#include "types.cuh"

extern "C" __global__ void rows(const ELEMENT* source, ELEMENT* target) {
  const int place = threadIdx.y * THREADS_X + threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    const ELEMENT value = source[round * THREADS_X * THREADS_Y + place];
    target[round * THREADS_X * THREADS_Y + place] =
        fusec::block_reduce_rows<fusec::OPERATOR<ELEMENT>, THREADS_X, THREADS_Y>(value);
  }
}

extern "C" __global__ void columns(const ELEMENT* source, ELEMENT* target) {
  const int place = threadIdx.y * THREADS_X + threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    const ELEMENT value = source[round * THREADS_X * THREADS_Y + place];
    target[round * THREADS_X * THREADS_Y + place] =
        fusec::block_reduce_columns<fusec::OPERATOR<ELEMENT>, THREADS_X, THREADS_Y>(value);
  }
}
