"""Which kernels can run a GEMM, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.index.access import Facts
from fusec.ir.dtype import F32, DType
from fusec.schedule.matmul.choice import (
    KERNELS,
    MOST_COORDINATE,
    MatmulParameters,
    Sizes,
    sizes_of,
)
from fusec.schedule.matmul.gemv import no_vector
from fusec.schedule.matmul.operands.access import has_tensor_map, is_chunked
from fusec.schedule.matmul.operands.block_scales import PROMOTED
from fusec.schedule.matmul.operands.computed import no_computing
from fusec.schedule.matmul.operands.weights import no_conversion, no_stream
from fusec.schedule.matmul.problem import Product
from fusec.target import Target


def kernels(problem: Product, target: Target, sizes: Sizes, facts: Facts) -> dict[str, str]:
    """Return the reason why each kernel cannot run the GEMM, empty if it can."""
    halves = _no_tensor_cores(problem)
    hopper = _no_hopper(problem, target, sizes, facts, halves)
    empty = min(sizes.batches, sizes.m, sizes.n, sizes.k) == 0
    if empty:
        hopper = halves = "K is 0"
    if problem.cuts == "depth":
        hopper = hopper or "bulk copies cannot end at a group boundary along K"
    split = hopper or ("split-K does not support groups" if problem.cuts else "")
    if problem.has_converted_weights:
        hopper = hopper or "only kernel `split_k` converts weights"
    gemv = halves or _not_streamed(problem, facts)
    if problem.computed is not None:
        return _for_producer(problem, split, gemv)
    if problem.scales and problem.has_converted_weights:
        alone = "only kernels `gemv` and `split_k` support block scales of integers along K"
        return _only(alone, split_k=split, gemv=gemv)
    if problem.scales:
        return _for_scales(problem, hopper, split)
    if problem.totals:
        if problem.staged_width == 1:
            hopper = hopper or f"a fused reduction needs an even number of columns, got {problem.n}"
        alone = hopper or "only kernel `wgmma` supports a fused reduction of the result"
        return _only(alone, wgmma=hopper)
    if problem.dual is not None:
        return _for_dual(problem, hopper, split)
    exact = "" if empty or problem.dtype != F32 else "TF32 needs tensor cores"
    return {"wgmma": hopper, "split_k": split, "gemv": gemv, "mma": halves, "simt": exact}


def _only(alone: str, **reasons: str) -> dict[str, str]:
    """Return the reason of each kernel: its own, or that only some kernels support the GEMM."""
    return {name: reasons.get(name, alone) for name in KERNELS}


def _no_tensor_cores(problem: Product) -> str:
    """Return why no kernel on tensor cores supports the operands' types; empty if some do."""
    if problem.dtype is not None:
        return ""
    dtypes = dict.fromkeys(o.buffer.dtype for o in problem.operands)
    if dtypes.keys() == {F32}:
        return "f32 GEMMs do not use tensor cores; apply `tf32` to both operands to use them"
    return f"{_named(dtypes)} operands have no tensor-core kernel"


def _named(dtypes: Iterable[DType]) -> str:
    return " and ".join(str(dtype) for dtype in dtypes)


def _no_hopper(
    problem: Product, target: Target, sizes: Sizes, facts: Facts, no_tensor_cores: str
) -> str:
    """Return why no kernel with wgmma and bulk tensor copies runs the GEMM; empty if one can."""
    reason = no_tensor_cores or ("" if target.has_wgmma else f"{target.arch} has no wgmma")
    reason = reason or _no_layout(problem, facts)
    if not reason and not all(has_tensor_map(o, facts) for o in problem.operands):
        reason = "the rows of an operand are not aligned to 16 bytes"
    if not reason and max(sizes.m, sizes.n, sizes.k) > MOST_COORDINATE:
        reason = "coordinates of bulk tensor copies have 32 bits"
    return reason


def _no_layout(problem: Product, facts: Facts) -> str:
    """Return why wgmma does not support the operands' layout in memory; empty if it does."""
    found = _named(dict.fromkeys(o.buffer.dtype for o in problem.operands))
    if problem.narrow is not None or problem.dtype == F32:
        across = [o.buffer.name for o in problem.operands if not o.k_major]
        if across:
            return f"wgmma needs {found} operands contiguous along K, and `{across[0]}` is not"
    elif problem.has_converted_weights:
        return no_conversion(problem, facts)
    elif problem.is_converted:
        return f"bulk copies do not convert {found} operands"
    return ""


def _not_streamed(problem: Product, facts: Facts) -> str:
    """Return why kernel `gemv` does not run a GEMM of operand types that it supports."""
    if problem.dtype == F32:
        return "the kernel does not support f32"
    chunked = all([is_chunked(problem, o, facts) for o in problem.operands])
    return no_vector(problem, chunked=chunked) or no_stream(problem, facts)


def _for_producer(problem: Product, split: str, gemv: str) -> dict[str, str]:
    """Return the reasons for a GEMM with a fused producer of one operand."""
    alone = "only kernels `gemv` and `split_k` support a fused producer"
    if problem.dual is not None or problem.totals:
        split = gemv = "and not for dual GEMMs or fused reductions"
    alone += f", {split}" if split and gemv else ""
    return _only(alone, split_k=split, gemv=gemv)


def _for_scales(problem: Product, hopper: str, split: str) -> dict[str, str]:
    """Return the reasons for a GEMM whose operands have block scales along K."""
    if problem.narrow is None:
        hopper = split = "block scales along K need integers in B, or two 8-bit float operands"
    elif any(o.group not in (0, PROMOTED) for o in problem.operands):
        hopper = split = (
            f"accumulators are promoted every {PROMOTED} elements of K, which does not match "
            "the scale blocks"
        )
    if problem.dual is not None:
        hopper = split = hopper or "a dual GEMM does not support block scales along K"
    alone = "block scales along K are applied when wgmma accumulators are promoted"
    return _only(alone, wgmma=hopper, split_k=split)


def _for_dual(problem: Product, hopper: str, split: str) -> dict[str, str]:
    """Return the reasons for a dual GEMM."""
    if not hopper and not problem.slots.sizes:
        hopper = (
            "a dual GEMM needs an output or epilogue operand with aligned rows along the result's"
        )
    alone = split or "only kernels `wgmma` and `split_k` support a dual GEMM"
    return _only(alone, wgmma=hopper, split_k=split)


def relied_on(
    problem: Product, parameters: MatmulParameters, target: Target, hints: Mapping[str, int]
) -> Facts:
    """Return the divisibility that a kernel's copies rely on."""
    facts = Facts(hints)
    no_computing(problem, facts)
    if parameters.uses_tma:
        kernels(problem, target, sizes_of(problem, hints), facts)
    elif parameters.loads_chunks:
        for operand in (problem.a, problem.b):
            is_chunked(problem, operand, facts)
    return facts
