"""Which kernels can run a matrix product, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.index.access import Facts
from fusec.ir.dtype import F32
from fusec.schedule.matmul_access import has_tensor_map, is_chunked
from fusec.schedule.matmul_block_scales import PROMOTED
from fusec.schedule.matmul_choice import HOPPER, MOST_COORDINATE, MatmulParameters, Sizes, sizes_of
from fusec.schedule.matmul_computed import no_computing
from fusec.schedule.matmul_problem import Product
from fusec.schedule.matmul_vector import no_vector
from fusec.schedule.matmul_weights import no_conversion, no_stream
from fusec.target import Target


def kernels(problem: Product, target: Target, sizes: Sizes, facts: Facts) -> dict[str, str]:
    """Return each kernel with the reason why it cannot run the product, empty where it can."""
    found = " and ".join(dict.fromkeys(str(o.buffer.dtype) for o in problem.operands))
    halves = f"{found} operands have no tensor-core kernel" if problem.dtype is None else ""
    if halves and {o.buffer.dtype for o in problem.operands} == {F32}:
        halves = "f32 GEMMs do not use tensor cores; apply `tf32` to both operands to use them"
    hopper = halves or ("" if target.has_wgmma else f"{target.arch} has no wgmma")
    across = [o.buffer.name for o in problem.operands if not o.k_major]
    if problem.narrow is not None or problem.dtype == F32:
        if not hopper and across:
            hopper = f"wgmma needs {found} operands contiguous along K, and `{across[0]}` is not"
    elif problem.has_converted_weights:
        hopper = hopper or no_conversion(problem, facts)
    elif not hopper and problem.is_converted:
        hopper = f"bulk copies do not convert {found} operands"
    if not hopper and not all(has_tensor_map(o, facts) for o in problem.operands):
        hopper = "the rows of an operand are not aligned to 16 bytes"
    if max(sizes.m, sizes.n, sizes.k) > MOST_COORDINATE:
        hopper = hopper or "coordinates of bulk tensor copies have 32 bits"
    empty = min(sizes.batches, sizes.m, sizes.n, sizes.k) == 0
    if empty:
        hopper = halves = "K is 0"
    if problem.cuts == "depth":
        hopper = hopper or "bulk copies cannot end at a group boundary along K"
    split = hopper or ("split-K does not support groups" if problem.cuts else "")
    if problem.has_converted_weights:
        hopper = hopper or "only kernel `split_k` converts weights"
    vector = halves or ("the kernel does not support f32" if problem.dtype == F32 else "")
    if not vector:
        chunked = all([is_chunked(problem, o, facts) for o in problem.operands])
        vector = no_vector(problem, chunked=chunked) or no_stream(problem, facts)
    if problem.computed is not None:
        alone = "only kernels `vector` and `split_k` support a fused producer"
        if problem.joined is not None or problem.totals:
            split = vector = "and not for dual GEMMs or fused reductions"
        alone += f", {split}" if split and vector else ""
        return {"wgmma": alone, "split_k": split, "vector": vector, "mma": alone, "simt": alone}
    if problem.scales and problem.has_converted_weights:
        alone = "only kernels `vector` and `split_k` support block scales of integers along K"
        return {"wgmma": alone, "split_k": split, "vector": vector, "mma": alone, "simt": alone}
    if problem.scales:
        alone = "block scales along K are applied when wgmma accumulators are promoted"
        if problem.narrow is None:
            hopper = split = "block scales along K need integers in B, or two 8-bit float operands"
        elif any(o.group not in (0, PROMOTED) for o in problem.operands):
            hopper = split = (
                f"accumulators are promoted every {PROMOTED} elements of K, which does not match "
                "the scale blocks"
            )
        if problem.joined is not None:
            hopper = split = hopper or "a dual GEMM does not support block scales along K"
        return {"wgmma": hopper, "split_k": split, "vector": alone, "mma": alone, "simt": alone}
    if problem.totals:
        if problem.staged_width == 1:
            hopper = hopper or f"a fused reduction needs an even number of columns, got {problem.n}"
        alone = hopper or "only kernel `wgmma` supports a fused reduction of the result"
        return {"wgmma": hopper, "split_k": alone, "vector": alone, "mma": alone, "simt": alone}
    if problem.joined is None:
        exact = "" if empty or problem.dtype != F32 else "TF32 needs tensor cores"
        return {"wgmma": hopper, "split_k": split, "vector": vector, "mma": halves, "simt": exact}
    if not hopper and not problem.slots.sizes:
        hopper = (
            "a dual GEMM needs an output or epilogue operand with aligned rows along the result's"
        )
    alone = split or "only kernels `wgmma` and `split_k` support a dual GEMM"
    return {"wgmma": hopper, "split_k": split, "vector": alone, "mma": alone, "simt": alone}


def relied_on(
    problem: Product, parameters: MatmulParameters, target: Target, hints: Mapping[str, int]
) -> Facts:
    """Return the divisibility that a kernel's copies rely on."""
    facts = Facts(hints)
    no_computing(problem, facts)
    if parameters.kernel in HOPPER:
        kernels(problem, target, sizes_of(problem, hints), facts)
    elif parameters.kernel in ("mma", "vector"):
        for operand in (problem.a, problem.b):
            is_chunked(problem, operand, facts)
    return facts
