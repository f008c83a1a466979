// transpose_transpose: A matrix transposed and scaled in one pass.
// Source: examples/transpose.yaml
//   9: y = cast(mul(cast(permute(x, [1, 0]), f32), scale), bf16)
// Schedule: tiles of 64 x 64, read in vectors of 8 along lines, written in vectors of 8 along
//   columns.
#include "types.cuh"
#include "vector.cuh"

constexpr int kThreads = 256;
constexpr int kTile = 64;     // elements of a tile's side
constexpr int kPitch = 66;    // a line of the tile in shared memory, padded against bank conflicts
constexpr int kReadVec = 8;   // elements per access along lines
constexpr int kWriteVec = 8;  // elements per access along columns

extern "C" __global__ void __launch_bounds__(kThreads)
    transpose_transpose(const fusec::bf16* __restrict__ x,
                        fusec::bf16* __restrict__ y,
                        float scale) {
  __shared__ fusec::bf16 x_tile[kTile][kPitch];
  const int lines = 4096;
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
      const auto x_tile_vec = fusec::load_readonly<kReadVec>(x + column * lines + line);
#pragma unroll
      for (int v = 0; v < kReadVec; ++v) {
        x_tile[tile_line + v][tile_column] = x_tile_vec[v];
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
      fusec::Vec<fusec::bf16, kWriteVec> y_vec;
#pragma unroll
      for (int v = 0; v < kWriteVec; ++v) {
        const float mul_1 = fusec::to_float(x_tile[tile_line][tile_column + v]) * scale;
        y_vec[v] = fusec::convert<fusec::bf16>(mul_1);
      }
      fusec::store(y + line * columns + column, y_vec);
    }
  }
}
