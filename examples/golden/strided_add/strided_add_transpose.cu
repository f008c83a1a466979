// strided_add_transpose: Adds two matrices that are read in place, one with padded rows, one
//   transposed.
// Source: examples/strided_add.yaml
//   13: z = add(x, y)
// Schedule: tiles of 32 x 32, read in vectors of 4 along lines, written in vectors of 4 along
//   columns.
#include "types.cuh"
#include "vector.cuh"

constexpr int kThreads = 256;
constexpr int kTile = 32;     // elements of a tile's side
constexpr int kPitch = 33;    // a line of the tile in shared memory, padded against bank conflicts
constexpr int kReadVec = 4;   // elements per access along lines
constexpr int kWriteVec = 4;  // elements per access along columns

extern "C" __global__ void __launch_bounds__(kThreads)
    strided_add_transpose(const float* __restrict__ x,
                          const float* __restrict__ y,
                          float* __restrict__ z,
                          fusec::i64 x_stride0) {
  __shared__ float y_tile[kTile][kPitch];
  const int lines = 1024;
  const int columns = 2048;
  const int column_tiles = (columns + kTile - 1) / kTile;
  const int first_column = blockIdx.x % column_tiles * kTile;
  const int first_line = blockIdx.x / column_tiles * kTile;

  // Read along the lines, turn, and leave the tile in shared memory.
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kTile / kReadVec; i += kThreads) {
    const int tile_line = i % (kTile / kReadVec) * kReadVec;
    const int tile_column = i / (kTile / kReadVec);
    const int line = first_line + tile_line;
    const int column = first_column + tile_column;
    if (line < lines && column < columns) {
      const auto y_tile_vec = fusec::load_readonly<kReadVec>(y + column * lines + line);
#pragma unroll
      for (int v = 0; v < kReadVec; ++v) {
        y_tile[tile_line + v][tile_column] = y_tile_vec[v];
      }
    }
  }
  __syncthreads();

  // Write along the columns.
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kTile / kWriteVec; i += kThreads) {
    const int tile_column = i % (kTile / kWriteVec) * kWriteVec;
    const int tile_line = i / (kTile / kWriteVec);
    const int line = first_line + tile_line;
    const int column = first_column + tile_column;
    if (line < lines && column < columns) {
      const auto x_vec = fusec::load_readonly<kWriteVec>(x + line * x_stride0 + column);
      fusec::Vec<float, kWriteVec> z_vec;
#pragma unroll
      for (int v = 0; v < kWriteVec; ++v) {
        z_vec[v] = x_vec[v] + y_tile[tile_line][tile_column + v];
      }
      fusec::store(z + line * columns + column, z_vec);
    }
  }
}
