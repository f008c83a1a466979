"""The algorithms of a scatter: what each supports, its kernels and its workspaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import ceildiv, dim, product
from fusec.ir.dtype import F32, F64, I32, U8, U16, U32
from fusec.ir.graph import Fusion, Output, Value
from fusec.ops.builder.build import make_node
from fusec.ops.names import fresh_name
from fusec.schedule.blocks import check_access
from fusec.schedule.common import INT32_MAX, tensor_arguments
from fusec.schedule.plan import (
    Argument,
    Kernel,
    KernelPlan,
    StepKernel,
    TensorArgument,
    Workspace,
    WorkspaceArgument,
)
from fusec.schedule.scatter.problem import VECTOR_BYTES, Scatter, of_slices
from fusec.schedule.sort.family import Sorts
from fusec.schedule.sort.parts import needed
from fusec.segment.protocol import Refusal
from fusec.target import Target

THREADS = 256
Launches = tuple[list[Kernel], tuple[Workspace, ...]]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a scatter.

    why_illegal: why a scatter does not support it, or None; kernels: those that write, for a number
    of lines per vector, with their workspaces; scratch: bytes of workspace traffic; by_lines:
    whether a thread processes a line of the source, not an element; along_scratch: whether accesses
    to workspaces are contiguous.
    """

    why_illegal: Callable[[Scatter], Refusal | None]
    kernels: Callable[[Scatter, Target, int], Launches]
    scratch: Callable[[Scatter], int] = lambda scatter: 0
    by_lines: bool = False
    along_scratch: bool = False


def _check_lines(scatter: Scatter) -> Refusal | None:
    dtype = scatter.node.output.dtype
    if scatter.after is not None:
        return READ_AFTER
    if scatter.adds and dtype.is_half:
        return Refusal("dtype", f"atomic sums of {dtype} are rounded after each element")
    return None


def _check_compared(scatter: Scatter) -> Refusal | None:
    if not scatter.in_place:
        return Refusal("algorithm", "the compare algorithm needs a tensor that is written in place")
    return None


def _check_winners(scatter: Scatter) -> Refusal | None:
    if scatter.adds:
        return Refusal("algorithm", "a sum has no last writer")
    return Refusal("size", "more than 2^31 positions") if scatter.places > INT32_MAX else None


def _check_elements(scatter: Scatter) -> Refusal | None:
    dtype = scatter.node.output.dtype
    if not scatter.adds:
        return NOT_ADDED
    if scatter.after is not None:
        return READ_AFTER
    if not ((dtype.is_integer and dtype.bits >= 32) or dtype in (F32, F64)):
        return Refusal("dtype", f"{dtype} has no atomic add")
    if dtype.is_float and scatter.node.attributes["deterministic"]:
        return Refusal("deterministic", "sums in arrival order differ between runs")
    return None


def _check_sorted(scatter: Scatter) -> Refusal | None:
    dtype = scatter.node.output.dtype
    if not scatter.adds:
        return NOT_ADDED
    return None if dtype.is_float else Refusal("dtype", f"{dtype} is exact in any order")


READ_AFTER = Refusal("algorithm", "what is computed of a sum needs all of its elements at once")
NOT_ADDED = Refusal("algorithm", "not a sum: the last element must be written")


def widest_vector(scatter: Scatter) -> int:
    """Return how many adjacent lines a thread can write with one access."""
    size = max(v.dtype.size for v in scatter.stored)
    return next(w for w in (8, 4, 2, 1) if w * size <= VECTOR_BYTES and scatter.takes_vectors(w))


def check_vectors(scatter: Scatter, algorithm: str, width: int) -> Refusal | None:
    """Return why an algorithm cannot write vectors of that many lines, or None."""
    if width == 1:
        return None
    if algorithm == "elements":
        return Refusal("access", "sums in arrival order are added one by one")
    if algorithm == "winners" and not (scatter.in_place and scatter.of_slices):
        return Refusal("access", "each line has its own claims")
    return check_access(width, widest_vector(scatter))


def shares_warps(scatter: Scatter, width: int) -> bool:
    """Return whether all lanes of every warp share one element and its destination."""
    across = scatter.axis != len(scatter.shape) - 1
    return across and scatter.of_slices and scatter.lines // width % 32 == 0


def _by_lines(scatter: Scatter, target: Target, width: int) -> Launches:
    return [_kernel(scatter, "lines", _writing(scatter), scatter.lines // width)], ()


def _by_elements(scatter: Scatter, target: Target, width: int) -> Launches:
    return [_kernel(scatter, "elements", "accumulate", scatter.elements)], ()


def _by_comparing(scatter: Scatter, target: Target, width: int) -> Launches:
    return [_kernel(scatter, "compared", _writing(scatter), scatter.elements // width)], ()


def _by_claims(scatter: Scatter, target: Target, width: int) -> Launches:
    """Return the kernels of claims; in place, only claims that are read are cleared."""
    claims = Workspace(fresh_name(scatter.fusion.names, "winners"), U32, dim(scatter.places))
    steps = {"claim": scatter.elements, "win": scatter.elements // width}
    if not scatter.in_place:
        claims = replace(claims, init="zeroed per launch")
    else:
        steps = {"clear": scatter.placed, **steps, "claim": scatter.placed}
        if scatter.of_slices:
            claims = replace(claims, size=scatter.node.output.shape[scatter.axis])
    return [_kernel(scatter, "elements", s, n, claims) for s, n in steps.items()], (claims,)


def _by_order(scatter: Scatter, target: Target, width: int) -> Launches:
    sorting, order = _order(scatter, target)
    taken = Workspace(order.name, order.dtype, product(order.shape))
    kernels = [_taken_over(k, sorting, taken) for k in sorting.kernels]
    threads = scatter.elements // width
    kernels.append(_kernel(scatter, "sorted", "accumulate", threads, taken))
    return kernels, (taken, *sorting.workspaces)


def _writing(scatter: Scatter) -> str:
    return "accumulate" if scatter.adds else "write"


def _kernel(
    scatter: Scatter, template: str, step: str, threads: int, *workspaces: Workspace
) -> StepKernel[str]:
    """Return a kernel of a step: `write`, `accumulate`, `clear`, `claim` or `win`."""
    read = {v for n in scatter.source.nodes for v in n.inputs}
    read |= {o.value for o in scatter.source.outputs}
    outputs = () if step in ("clear", "claim") else scatter.fusion.outputs
    blocks = ceildiv(dim(threads), THREADS)
    if scatter.siblings is not None and outputs:
        read |= {i.value for i in scatter.siblings.fusion.inputs}
        blocks = blocks + -(-scatter.siblings.elements // (scatter.siblings.width * THREADS))
    if scatter.after is not None and outputs:
        read |= {i.value for i in scatter.after.fusion.inputs}
    fusion = replace(scatter.source, outputs=outputs)
    fusion = replace(fusion, inputs=fusion.effects.inputs_for(read))
    return StepKernel(
        name=f"{scatter.fusion.name}_scatter_{step}",
        template=f"scatter_{template}",
        step=step,
        grid=(blocks, dim(1), dim(1)),
        block=(THREADS, 1, 1),
        arguments=tensor_arguments(fusion, workspaces),
    )


def _order(scatter: Scatter, target: Target) -> tuple[KernelPlan, Value]:
    """Return the plan that sorts the elements of each line by destination, and its result."""
    index = scatter.node.operands[1]
    assert isinstance(index, Value)
    extent = scatter.node.output.shape[scatter.axis].value
    key = next((t for t in (U8, U16) if extent <= 1 << t.bits), I32)
    nodes, taken = [*scatter.source.nodes], scatter.fusion.names
    if index.dtype != key:
        name = fresh_name(taken, "where")
        nodes.append(make_node("cast", [index], {"dtype": key}, [name]))
        index = nodes[-1].output
    axis = 0 if of_slices(scatter.node) else scatter.axis
    attributes = {"dim": axis, "descending": False, "stable": True}
    nodes.append(make_node("argsort", [index], attributes, [fresh_name(taken, "order")]))
    order = nodes[-1].output
    fusion = needed(scatter.source.with_nodes(nodes), (Output(order),))
    return Sorts().build(with_used_inputs(fusion), target), order


def _taken_over(kernel: Kernel, plan: KernelPlan, order: Workspace) -> Kernel:
    """Return a kernel of the sort, with its result in a workspace."""

    def argument(a: Argument) -> Argument:
        own = isinstance(a, TensorArgument) and a.name == order.name
        return WorkspaceArgument(order.name, order.dtype) if own else a

    return replace(kernel, arguments=tuple(argument(a) for a in kernel.arguments), of=plan)


def with_used_inputs(fusion: Fusion) -> Fusion:
    """Return a fusion with only the inputs that its nodes and outputs need."""
    read = {v for n in fusion.nodes for v in n.inputs} | {o.value for o in fusion.outputs}
    return replace(fusion, inputs=fusion.effects.inputs_for(read))


def _claimed_bytes(scatter: Scatter) -> int:
    return 12 * scatter.placed if scatter.in_place else 0


def _sorted_bytes(scatter: Scatter) -> int:
    return 100 * scatter.sorted_elements


ALGORITHMS: Mapping[str, Algorithm] = {
    "lines": Algorithm(_check_lines, _by_lines, by_lines=True),
    "elements": Algorithm(_check_elements, _by_elements),
    "winners": Algorithm(_check_winners, _by_claims, _claimed_bytes),
    "sorted": Algorithm(_check_sorted, _by_order, _sorted_bytes, along_scratch=True),
    "compared": Algorithm(_check_compared, _by_comparing),
}
