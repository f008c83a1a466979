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
        halves = "f32 is multiplied exactly; `tf32` of both operands asks for tensor cores"
    hopper = halves or ("" if target.has_wgmma else f"{target.arch} has no wgmma")
    across = [o.buffer.name for o in problem.operands if not o.k_major]
    if problem.narrow is not None or problem.dtype == F32:
        if not hopper and across:
            hopper = f"wgmma takes {found} operands along K alone, and `{across[0]}` lies across it"
    elif problem.has_converted_weights:
        hopper = hopper or no_conversion(problem, facts)
    elif not hopper and problem.is_converted:
        hopper = f"copies in bulk do not convert {found} operands"
    if not hopper and not all(has_tensor_map(o, facts) for o in problem.operands):
        hopper = "an operand's rows do not begin at multiples of 16 bytes"
    if max(sizes.m, sizes.n, sizes.k) > MOST_COORDINATE:
        hopper = hopper or "coordinates of copies in bulk have 32 bits"
    empty = min(sizes.batches, sizes.m, sizes.n, sizes.k) == 0
    if empty:
        hopper = halves = "nothing is multiplied"
    if problem.cuts == "depth":
        hopper = hopper or "copies in bulk do not end where a group of summed elements does"
    split = hopper or ("groups are not split" if problem.cuts else "")
    if problem.has_converted_weights:
        hopper = hopper or "weights are converted by kernel `split_k` alone"
    vector = halves or ("f32 is not streamed" if problem.dtype == F32 else "")
    if not vector:
        chunked = all([is_chunked(problem, o, facts) for o in problem.operands])
        vector = no_vector(problem, chunked=chunked) or no_stream(problem, facts)
    if problem.computed is not None:
        alone = "rows are computed in front of it by kernels `vector` and `split_k` alone"
        if problem.joined is not None or problem.totals:
            split = vector = "and not of joined products, nor where results are reduced"
        alone += f", {split}" if split and vector else ""
        return {"wgmma": alone, "split_k": split, "vector": vector, "mma": alone, "simt": alone}
    if problem.scales and problem.has_converted_weights:
        alone = "scales along K of integers are applied by kernels `vector` and `split_k` alone"
        return {"wgmma": alone, "split_k": split, "vector": vector, "mma": alone, "simt": alone}
    if problem.scales:
        alone = "scales along K are applied where wgmma's sums are promoted"
        if problem.narrow is None:
            hopper = split = "scales along K are those of integers of B, or of two 8-bit floats"
        elif any(o.group not in (0, PROMOTED) for o in problem.operands):
            hopper = split = (
                f"sums are promoted every {PROMOTED} elements of K, scales are of others"
            )
        if problem.joined is not None:
            hopper = split = hopper or "scales along K of joined products are not applied"
        return {"wgmma": hopper, "split_k": split, "vector": alone, "mma": alone, "simt": alone}
    if problem.totals:
        if problem.staged_width == 1:
            hopper = hopper or f"{problem.n} columns are no pairs, by which they are reduced"
        alone = hopper or "results are reduced tile by tile by kernel `wgmma` alone"
        return {"wgmma": hopper, "split_k": alone, "vector": alone, "mma": alone, "simt": alone}
    if problem.joined is None:
        exact = "" if empty or problem.dtype != F32 else "10 bits of f32 are for tensor cores"
        return {"wgmma": hopper, "split_k": split, "vector": vector, "mma": halves, "simt": exact}
    if not hopper and not problem.slots.sizes:
        hopper = "joined products need an output or operand with aligned rows along the result's"
    alone = split or "joined products have kernels `wgmma` and `split_k` alone"
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
