"""Parts of nvFuser's API that are rejected by name: scheduling, internals, some operations."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from types import CodeType
from typing import Any

from fusec.codes.names import UNKNOWN_OPERATION
from fusec.diagnostics import FusecError, Span, Unsupported
from fusec.ir.op import OpDef
from fusec.ops import REFUSED, TABLE, find_op
from fusec.ops.find import nearest
from fusec.parse.dsl.place import Place, here

_SCHEDULING = """
    sched schedule manual_execute manual_validate split merge reorder swizzle swizzle1d rfactor
    inner_split outer_split cache_after cache_before cache_fork set_memory_type
    set_allocation_domain parallelize axis domain get_root_domain get_logical_domain
    get_loop_domain has_root inline_most inline_at transform_like parallelize_like
    bounded_transform_backward can_schedule find_compatible_schedulers compute_heuristics
    warp_specialize ParallelType MemoryType CacheOp
    LoadStoreOpType IdMappingMode SchedulerType LaunchParams CompileParams HeuristicParams
    PointwiseParams ReductionParams MatmulParams KernelExecutor idm Merge Split IterDomain
    BroadcastOp SqueezeOp ReshapeOp
"""
SCHEDULING = frozenset(_SCHEDULING.split())

_SEVERAL_GPUS = """
    multidevice_schedule add_device_mesh
"""
SEVERAL_GPUS = frozenset(_SEVERAL_GPUS.split())

_INTERNALS = """
    last_cuda_code cuda_code_for last_scheduled_fusion_ir scheduled_fusion_ir_for
    last_repro_script repro_script_for profile nvf_cutlass validate_with_auto_inferred_outputs
    get_val_tolerances SchedulerDesc segment_index_space segment_index_space_maps fusion_cache
"""
INTERNALS = frozenset(_INTERNALS.split())

_OPERATIONS = """
    rng_uniform launch_dependent_grid wait_for_prior_grid as_nested lstm
"""
OPERATIONS = frozenset(_OPERATIONS.split())
"""Operations of nvFuser that fusec may lack; only used for names outside its own table."""


_MEANT = {
    "op": "ops", "operations": "ops", "output": "add_output", "add_outputs": "add_output",
    "outputs": "add_output", "add_input": "define_tensor", "input": "define_tensor",
    "tensor": "define_tensor", "scalar": "define_scalar",
}  # fmt: skip
"""Other graph builders' names for the methods of a definition."""


class MissingName(FusecError, AttributeError):
    """A name that does not exist, so that `hasattr` answers False."""


class UnsupportedName(Unsupported, AttributeError):
    """A name of nvFuser that fusec does not support, so that `hasattr` answers False."""


def find_nvfuser_op(name: str) -> OpDef:
    """Return an operation; Unsupported if only nvFuser has it, FusecError if neither has it."""
    if name not in TABLE and name not in REFUSED and name in OPERATIONS:
        raise Unsupported(
            f"the operation `{name}` of nvFuser", help="`fusec ops` lists all operations"
        )
    return find_op(name)


def find_method(name: str) -> OpDef:
    """Return the operation of `fd.ops.name`; raise the same errors, usable by `hasattr`."""
    try:
        return find_nvfuser_op(name)
    except FusecError as error:
        kind = UnsupportedName if isinstance(error, Unsupported) else MissingName
        old = error.diagnostic
        raise kind(
            old.message, span=old.span, notes=old.notes, help=old.help, code=error.code
        ) from None


def of_definition(name: str, place: Place | None) -> MissingName:
    """Return the error for a method of the definition that is called as an operation."""
    line = "" if place is None else place.span.text.strip()
    called = f".ops.{name}("
    whole = called in line and line.count("(") == line.count(")")
    written = line.replace(called, f".{name}(") if whole else f"fd.{name}(...)"
    help = f"it is a method of the definition: write `{written}`"
    return MissingName(f"`{name}` is not an operation", help=help, code=UNKNOWN_OPERATION)


def refuse_schedule(kind: type, base: type) -> None:
    """Raise Unsupported at a method of a subclass that would schedule kernels manually."""
    own = getattr(kind, "schedule", None)
    if own is not getattr(base, "schedule", None):
        raise refuse("schedule", base.__name__, span=_line_of(own))


def _line_of(method: Any) -> Span | None:
    code: CodeType | None = getattr(method, "__code__", None)
    if code is None:
        return None
    text = linecache.getline(code.co_filename, code.co_firstlineno).rstrip("\n")
    start = len(text) - len(text.lstrip())
    return Span(code.co_filename, code.co_firstlineno, start + 1, len(text) - start, text)


def refuse(
    name: str, owner: str, known: Iterable[str] = (), *, span: Span | None = None
) -> MissingName | UnsupportedName:
    """Return the error for a name that `owner` lacks: unsupported, or mistyped."""
    if span is None:
        place = here()
        span = None if place is None else place.span
    if name in SEVERAL_GPUS:
        return UnsupportedName(
            f"`{name}` of nvFuser's scheduling for several GPUs",
            span=span,
            notes=["define `multidevice_schedule` in a subclass"],
            help=(
                "use `t.set_device_mesh(mesh)` and `t.axis(0).parallelize(ParallelType.mesh_x)` "
                "to shard a tensor"
            ),
        )
    if name in SCHEDULING:
        return UnsupportedName(
            f"nvFuser's manual scheduling (`{name}`)",
            span=span,
            notes=[
                "fusec selects schedules itself; scripts can only parallelize over meshes and "
                "streams"
            ],
            help=(
                "`fd.schedule(y, threads_x=128)` sets schedule parameters for `y`; `fd.pin(name, "
                "values, scheduler)` fixes a segment and its scheduler"
            ),
        )
    if name in INTERNALS:
        return UnsupportedName(
            f"`{name}` of nvFuser",
            span=span,
            help="`fusec dump` shows kernels, graphs and parameters",
        )
    close = _MEANT.get(name) or nearest(name, known)
    return MissingName(
        f"{owner} has no `{name}`",
        span=span,
        help=f"did you mean `{close}`?" if close else None,
    )
