"""Options of nvFuser's `execute` and environment: known ones have no effect, with a note.

Others are rejected by name.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection

from fusec.diagnostics import FusecError, note_once

_ENABLE = """
    communication compile_params cutlass_scheduler fuse_matmul fuse_multiple_matmuls
    id_model_extra_validation io_to_lower_precision kernel_db kernel_debug kernel_lineinfo
    kernel_profile memory_promotion reuse_zeroed_memory static_fusion_count wait_debugger
    warn_register_spill tma_pointwise tma_inner_persistent tma_reduction ws_normalization
    host_ir_lowering host_ir_jit insert_resharding_after fast_math p2p_protocol p2p_transport
    multicast_protocol id_model
"""
_DISABLE = """
    compile_to_sass contig_indexing expr_simplify fallback fma greedy_scheduler
    grouped_grid_welford_outer_opt index_hoist magic_zero matmul_expr_eval nvrtc_caching nvtx
    parallel_compile predicate_elimination python_inline_definitions kernel_reuse
    var_name_remapping welford_vectorization resize_scheduler reuse_mismatched_type_registers
    multidevice infer_contiguity id_model
"""
ENABLE = frozenset(_ENABLE.split())
DISABLE = frozenset(_DISABLE.split())


def check(enable: Collection[str] | None, disable: Collection[str] | None) -> None:
    """Note which options have no effect; FusecError for a name that is not an option of nvFuser."""
    for what, given, known in (("enable", enable, ENABLE), ("disable", disable, DISABLE)):
        for name in given or ():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                raise FusecError(
                    f"nvFuser has no {what} option `{name}`",
                    help=f"did you mean `{close[0]}`?" if close else None,
                )
        if given:
            note_once(f"_{what}_options {', '.join(sorted(given))}: {_NO_EFFECT}")


INERT = ("NVFUSER_ENABLE", "NVFUSER_DISABLE", "NVFUSER_PROF")
"""Environment variables of nvFuser that have no effect in fusec."""


def note_environment() -> None:
    """Note which of nvFuser's environment variables are set and have no effect."""
    for name in INERT:
        if os.environ.get(name):
            note_once(f"{name}: {_NO_EFFECT}")


_NO_EFFECT = "no effect, it tunes nvFuser's own kernels"
