// Maps the index of a CTA to an output tile of a batched GEMM. Tiles are traversed column by column
// in raster groups of kRasterGroup tile rows, so that concurrent CTAs share rows of A and columns of B in
// L2. `index` counts the tiles of all batches. Any thread of a CTA may call these functions.
#pragma once

namespace fusec {

struct MatmulTile {
  int batch;
  int row;     // in tiles
  int column;  // in tiles
};

template <int kRasterGroup>
__device__ __forceinline__ MatmulTile matmul_tile(int index, int tile_rows, int tile_columns) {
  const int tiles_per_batch = tile_rows * tile_columns;
  const int batch = index / tiles_per_batch;
  const int within_batch = index - batch * tiles_per_batch;
  const int band = within_batch / (kRasterGroup * tile_columns);
  const int within_band = within_batch - band * kRasterGroup * tile_columns;
  const int rows_left = tile_rows - band * kRasterGroup;
  const int band_rows = rows_left < kRasterGroup ? rows_left : kRasterGroup;
  return {batch, band * kRasterGroup + within_band % band_rows, within_band / band_rows};
}

// The same for clusters of kRows x kColumns neighbouring tiles; `index` counts clusters, and `rank`
// selects the tile in the cluster.
template <int kRasterGroup, int kRows, int kColumns>
__device__ __forceinline__ MatmulTile cluster_tile(int index, int tile_rows,
                                                          int tile_columns, int rank) {
  const MatmulTile first = matmul_tile<kRasterGroup>(index, (tile_rows + kRows - 1) / kRows,
                                              (tile_columns + kColumns - 1) / kColumns);
  return {first.batch, first.row * kRows + rank % kRows, first.column * kColumns + rank / kRows};
}

// Returns the number of tiles of `size` elements that cover `extent`.
template <class Index>
__device__ __forceinline__ int tile_count(Index extent, int size) {
  return static_cast<int>((extent + size - 1) / size);
}

// The source of an operand's tile: rows (or columns) from `position` on, out of `extent`; strides
// are in elements.
template <class S, class Index>
struct MatmulOperand {
  const S* data;  // start of its batch
  Index position;
  Index extent;
  Index stride;
  Index depth_stride;
};

template <class S, class Index>
__device__ __forceinline__ MatmulOperand<S, Index> matmul_operand(const S* data, Index position,
                                                                  Index extent, Index stride,
                                                                  Index depth_stride) {
  return {data, position, extent, stride, depth_stride};
}

}  // namespace fusec
