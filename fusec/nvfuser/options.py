"""Options of nvFuser's `execute`: known ones tune nvFuser alone, others are refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fusec.diagnostics import FusecError

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


def check(enable: Iterable[str] | None, disable: Iterable[str] | None) -> None:
    """Raise FusecError for a name that is no option of nvFuser; the others choose nothing here."""
    for what, given, known in (("enable", enable, ENABLE), ("disable", disable, DISABLE)):
        for name in given or ():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                raise FusecError(
                    f"nvFuser has no {what} option `{name}`",
                    help=f"did you mean `{close[0]}`?" if close else None,
                )
