"""What fusec refuses of nvFuser's API by name: scheduling, views of internals, some operations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.op import OpDef
from fusec.ops import REFUSED, TABLE, find
from fusec.parse.dsl.place import here

_SCHEDULING = """
    sched schedule manual_execute manual_validate split merge reorder swizzle swizzle1d rfactor
    inner_split outer_split cache_after cache_before cache_fork set_memory_type set_device_mesh
    set_allocation_domain parallelize axis domain get_root_domain get_logical_domain
    get_loop_domain has_root inline_most inline_at transform_like parallelize_like
    bounded_transform_backward can_schedule find_compatible_schedulers compute_heuristics
    warp_specialize multidevice_schedule add_device_mesh ParallelType MemoryType CacheOp
    LoadStoreOpType IdMappingMode SchedulerType LaunchParams CompileParams HeuristicParams
    PointwiseParams ReductionParams MatmulParams KernelExecutor idm
"""
SCHEDULING = frozenset(_SCHEDULING.split())

_INTERNALS = """
    last_cuda_code cuda_code_for last_scheduled_fusion_ir scheduled_fusion_ir_for print_math
    print_kernel profile last_repro_script repro_script_for FusionExecutorCache FusionCache
    PythonProfiler LruFusionCache translate_fusion execute_with_dtensors nvf_cutlass clone
    validate_with_auto_inferred_outputs get_val_tolerances compute_tensor_descriptor
    SchedulerDesc multidevice Communicator DeviceMesh Sharding CommunicatorBackend
    MultiDeviceExecutor segment segment_index_space fusion_cache
"""
INTERNALS = frozenset(_INTERNALS.split())

_OPERATIONS = """
    rng_uniform launch_dependent_grid wait_for_prior_grid as_nested lstm
"""
OPERATIONS = frozenset(_OPERATIONS.split())
"""Operations of nvFuser that fusec may lack; asked only for names outside its own table."""


def find_op(name: str) -> OpDef:
    """Return an operation; Unsupported if only nvFuser has it, FusecError if nobody has."""
    if name not in TABLE and name not in REFUSED and name in OPERATIONS:
        raise Unsupported(
            f"the operation `{name}` of nvFuser", help="`fusec ops` lists all operations"
        )
    return find(name)


def refuse(name: str, owner: str, known: Iterable[str] = ()) -> FusecError:
    """Return the error for a name that `owner` lacks: unsupported, or mistyped."""
    place = here()
    span = None if place is None else place.span
    if name in SCHEDULING:
        return Unsupported(
            f"nvFuser's manual scheduling (`{name}`)",
            span=span,
            notes=["fusec chooses schedules itself"],
            help="`schedules:` of a fusion file overrides single parameters",
        )
    if name in INTERNALS:
        return Unsupported(
            f"`{name}` of nvFuser",
            span=span,
            help="`fusec dump` shows kernels, graphs and parameters",
        )
    close = difflib.get_close_matches(name, list(known), n=1)
    return FusecError(
        f"{owner} has no `{name}`",
        span=span,
        help=f"did you mean `{close[0]}`?" if close else None,
    )
