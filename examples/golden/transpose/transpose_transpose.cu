// transpose_transpose: A matrix transposed and scaled in one pass.
// Source: transpose.yaml
//   9: y = cast(mul(cast(permute(x, [1, 0]), f32), scale), bf16)
// Schedule: tiles of 64 x 128, read in vectors of 8 along lines, written in vectors of 8 along
//   columns.
#include "transposed.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kThreads = 256;
constexpr int kTileLines = 64;     // elements of a tile along lines
constexpr int kTileColumns = 128;  // elements of a tile along columns
constexpr int kReadVec = 8;        // elements per access along lines
constexpr int kWriteVec = 8;       // elements per access along columns
constexpr int kPack = 2;           // adjacent columns per thread
constexpr int kLineVecs = kTileLines / kReadVec;
constexpr int kColumnVecs = kTileColumns / kWriteVec;
constexpr int kReadStep = kThreads / kLineVecs * kPack;  // columns between the vectors of a thread
constexpr int kWriteStep = kThreads / kColumnVecs;       // lines between the vectors of a thread
constexpr int kReads = kTileColumns / kReadStep;
constexpr int kWrites = kTileLines / kWriteStep;

extern "C" __global__ void __launch_bounds__(kThreads)
    transpose_transpose(const fusec::bf16* __restrict__ x,
                        fusec::bf16* __restrict__ y,
                        float scale) {
  __shared__ __align__(16) fusec::bf16 x_tile[kTileLines * kTileColumns];
  const int lines = 4096;
  const int columns = 2048;
  const int column_tiles = (columns + kTileColumns - 1) / kTileColumns;
  const int first_column = blockIdx.x % column_tiles * kTileColumns;
  const int first_line = blockIdx.x / column_tiles * kTileLines;

  // Read along the lines, clamped to the last ones, and transpose.
  {
    const int tile_line = threadIdx.x % kLineVecs * kReadVec;
    const int tile_column = threadIdx.x / kLineVecs * kPack;
    const int line = min(first_line + tile_line, lines - kReadVec);
    fusec::Vec<fusec::bf16, kReadVec> x_tile_lines[kReads][kPack];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
#pragma unroll
      for (int c = 0; c < kPack; ++c) {
        const int column = min(first_column + tile_column + i * kReadStep + c, columns - 1);
        x_tile_lines[i][c] = fusec::load_readonly<kReadVec>(x + column * lines + line);
      }
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int x_tile_at =
          fusec::transposed_offset<fusec::bf16, kTileColumns, kReadVec, kWriteVec>(
              tile_line, tile_column + i * kReadStep);
      fusec::store_transposed<kTileColumns>(x_tile + x_tile_at, x_tile_lines[i]);
    }
  }
  __syncthreads();

  // Write along the columns.
  const int tile_column = threadIdx.x % kColumnVecs * kWriteVec;
  const int tile_line = threadIdx.x / kColumnVecs;
  const int column = first_column + tile_column;
  if (column >= columns) return;
  fusec::Vec<fusec::bf16, kWriteVec> x_tile_columns[kWrites];
#pragma unroll
  for (int i = 0; i < kWrites; ++i) {
    const int x_tile_at = fusec::transposed_offset<fusec::bf16, kTileColumns, kReadVec, kWriteVec>(
        tile_line + i * kWriteStep, tile_column);
    x_tile_columns[i] = fusec::load<kWriteVec>(x_tile + x_tile_at);
  }
#pragma unroll
  for (int i = 0; i < kWrites; ++i) {
    const int line = first_line + tile_line + i * kWriteStep;
    if (line >= lines) break;
    fusec::Vec<fusec::bf16, kWriteVec> y_vec;
#pragma unroll
    for (int v = 0; v < kWriteVec; ++v) {
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::to_float(x_tile_columns[i][v]) * scale);
    }
    fusec::store(y + line * columns + column, y_vec);
  }
}
