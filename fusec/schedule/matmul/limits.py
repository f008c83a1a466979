"""Limits of GEMM kernels: tiles, chunks of K, and methods of summation."""

from __future__ import annotations

STREAM_K = "stream_k"
"""The split-K method of a kernel with one CTA per SM and equally many steps in each."""
WARPS = 8
"""Warps of a block; they split K."""
PART, WEIGHT_PART, ACROSS_PART = 64, 128, 64
"""Elements of K that a warp loads at a time: of B (matmul_gemv.cuh), of converted weights
(matmul_weights.cuh), and of N-major weights (matmul_weights_across.cuh)."""
ROWS = (8, 16, 32)
"""Rows of a tile, in multiples of the 8 of a tensor core instruction."""
COLUMNS = (16, 32, 64)
"""Columns of a tile."""
