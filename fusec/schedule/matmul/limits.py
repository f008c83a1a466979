"""What kernels of matrix products are built for: tiles, parts of K, and ways to sum."""

from __future__ import annotations

STREAM_K = "stream_k"
"""The way to sum of a kernel with one CTA per SM, which have as many steps each."""
WARPS = 8
"""Warps of a block; they share K."""
PART, WEIGHT_PART, ACROSS_PART = 64, 128, 64
"""Elements of K that a warp takes at a time (matmul_gemv.cuh), of weights that are converted
(matmul_weights.cuh), and of such that lie along N (matmul_weights_across.cuh)."""
ROWS = (8, 16, 32)
"""Rows of a tile, by eights that fill an instruction of a tensor core."""
COLUMNS = (16, 32, 64)
"""Columns of a tile."""
