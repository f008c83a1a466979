"""Operations of nvFuser that are known by name and refused, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

_FP4 = "4-bit floats and block scales in a tensor core's own layout have no kernels"

REFUSED: Mapping[str, str] = {
    "cutlass_nvfp4_grouped_mm": _FP4,
    "nv_block_quantize": _FP4,
    "nv_grouped_block_quantize": _FP4,
    "preprocess_grouped_matmul_input_sf": _FP4,
}
"""Why each is refused, by name."""
