"""Known but unsupported operations of nvFuser, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

_FP4 = "4-bit floats and block scales in the tensor core layout have no kernels"
_BLOCKS = (
    "4-bit floats and scales in f8e8m0 have no kernels; reshape to blocks, then max, div and cast "
    "give fp8 with scales in f32"
)

REFUSED: Mapping[str, str] = {
    "cutlass_nvfp4_grouped_mm": _FP4,
    "nv_block_quantize": _BLOCKS,
    "nv_grouped_block_quantize": _BLOCKS,
    "preprocess_grouped_matmul_input_sf": _FP4,
}
"""The reason for each, by name."""
