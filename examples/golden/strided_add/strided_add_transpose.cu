// strided_add_transpose: Adds two matrices that are read in place, one with padded rows, one
//   transposed.
// Source: strided_add.yaml
//   13: z = x + y
// Schedule: tiles of 32 x 64, read in vectors of 4 along lines, written in vectors of 4 along
//   columns.
#include "transposed.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kThreads = 256;
constexpr int kTileLines = 32;    // elements of a tile along lines
constexpr int kTileColumns = 64;  // elements of a tile along columns
constexpr int kReadVec = 4;       // elements per access along lines
constexpr int kWriteVec = 4;      // elements per access along columns
constexpr int kPack = 1;          // adjacent columns per thread
constexpr int kLineVecs = kTileLines / kReadVec;
constexpr int kColumnVecs = kTileColumns / kWriteVec;
constexpr int kReadStep = kThreads / kLineVecs * kPack;  // columns between the vectors of a thread
constexpr int kWriteStep = kThreads / kColumnVecs;       // lines between the vectors of a thread
constexpr int kReads = kTileColumns / kReadStep;
constexpr int kWrites = kTileLines / kWriteStep;

extern "C" __global__ void __launch_bounds__(kThreads)
    strided_add_transpose(const float* __restrict__ x,
                          const float* __restrict__ y,
                          float* __restrict__ z,
                          fusec::i64 x_stride0) {
  __shared__ __align__(16) float y_tile[kTileLines * kTileColumns];
  const int lines = 1024;
  const int columns = 2048;
  const int column_tiles = (columns + kTileColumns - 1) / kTileColumns;
  const int first_column = blockIdx.x % column_tiles * kTileColumns;
  const int first_line = blockIdx.x / column_tiles * kTileLines;

  // Read along the lines, clamped to the last ones, and transpose.
  {
    const int tile_line = threadIdx.x % kLineVecs * kReadVec;
    const int tile_column = threadIdx.x / kLineVecs * kPack;
    const int line = min(first_line + tile_line, lines - kReadVec);
    fusec::Vec<float, kReadVec> y_tile_lines[kReads][kPack];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
#pragma unroll
      for (int c = 0; c < kPack; ++c) {
        const int column = min(first_column + tile_column + i * kReadStep + c, columns - 1);
        y_tile_lines[i][c] = fusec::load_readonly<kReadVec>(y + column * lines + line);
      }
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int y_tile_at = fusec::transposed_offset<float, kTileColumns, kReadVec, kWriteVec>(
          tile_line, tile_column + i * kReadStep);
      fusec::store_transposed<kTileColumns>(y_tile + y_tile_at, y_tile_lines[i]);
    }
  }
  __syncthreads();

  // Write along the columns.
  const int tile_column = threadIdx.x % kColumnVecs * kWriteVec;
  const int tile_line = threadIdx.x / kColumnVecs;
  const int column = first_column + tile_column;
  if (column >= columns) return;
  fusec::Vec<float, kWriteVec> y_tile_columns[kWrites];
#pragma unroll
  for (int i = 0; i < kWrites; ++i) {
    const int y_tile_at = fusec::transposed_offset<float, kTileColumns, kReadVec, kWriteVec>(
        tile_line + i * kWriteStep, tile_column);
    y_tile_columns[i] = fusec::load<kWriteVec>(y_tile + y_tile_at);
  }
#pragma unroll
  for (int i = 0; i < kWrites; ++i) {
    const int line = first_line + tile_line + i * kWriteStep;
    if (line >= lines) break;
    const auto x_vec = fusec::load_readonly<kWriteVec>(x + line * x_stride0 + column);
    fusec::Vec<float, kWriteVec> z_vec;
#pragma unroll
    for (int v = 0; v < kWriteVec; ++v) {
      z_vec[v] = x_vec[v] + y_tile_columns[i][v];
    }
    fusec::store(z + line * columns + column, z_vec);
  }
}
