"""Scatters: a copy of the tensor, then the source at the positions that an index holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusec.index.domain import Domain
from fusec.index.instances import Lowering
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.dtype import F32, F64, I32, U8, U16, U32, DType
from fusec.ir.expression import Index, Var, delinearize, of_var
from fusec.ir.graph import Fusion, Node, Operand, Output, Value
from fusec.ops.build import make_node
from fusec.schedule.common import (
    INT32_MAX,
    is_empty,
    specialise,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.family import Family
from fusec.schedule.plan import (
    Argument,
    Kernel,
    KernelPlan,
    Plan,
    StepKernel,
    TensorArgument,
    Workspace,
    WorkspaceArgument,
)
from fusec.schedule.pointwise import Pointwise
from fusec.schedule.problem import Problem
from fusec.schedule.sort import Sorts
from fusec.schedule.sort_parts import free_name, needed
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target

FAMILIES = frozenset(
    {"pointwise", "movement", "factory", "scalar", "indexing", "random", "scatter"}
)
THREADS = 256
MANY_LINES = 16384
"""Lines that keep a GPU busy with a thread each."""
SHORT = 16
"""Elements of a line that a thread writes one after another without harm."""


@dataclass(frozen=True)
class ScatterParameters:
    """The choices of a scatter.

    way: `lines` (a thread writes a line of the source in its order), `elements` (integers, and
    floats where that is asked for, are added in the order of arrival), `winners` (the last element
    that claims a place writes it), or `sorted` (places are put in order, and each one's sum is
    taken in the order of the source).
    """

    way: str
    wide_index: bool


@dataclass(frozen=True, eq=False)
class Scatter(Problem):
    """A segment around a scatter, with all sizes put in.

    source: the fusion of what is read at each element: the index and the source. axis: the dim of
    the elements that meet; shape: of the elements.
    """

    node: Node
    source: Fusion
    axis: int
    shape: tuple[int, ...]

    @property
    def adds(self) -> bool:
        """Return whether elements are added to what is there."""
        return self.node.op.combine is not None

    @property
    def length(self) -> int:
        """Return how many elements of a line may meet."""
        return self.shape[self.axis]

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return product(e for k, e in enumerate(self.shape) if k != self.axis).value

    @property
    def line(self) -> Var:
        """Return the loop variable of lines."""
        return Var("line", dim(self.lines))

    @property
    def lowering(self) -> Lowering:
        """Return the lowering of what is read."""
        reference = self.node.operands[1]
        assert isinstance(reference, Value)
        return Lowering(self.source, Domain(reference, (), {}, {}), {})

    def at(self, place: Index) -> tuple[Index, ...]:
        """Return the coordinates of an element of a line."""
        others = [e for k, e in enumerate(self.shape) if k != self.axis]
        rest = iter(delinearize(of_var(self.line), others))
        return tuple(place if k == self.axis else next(rest) for k in range(len(self.shape)))

    def index_at(self, place: Index) -> tuple[Index, ...]:
        """Return the coordinates in the index."""
        return (place,) if of_slices(self.node) else self.at(place)


def of_slices(node: Node) -> bool:
    """Return whether an entry of the index stands for a whole slice."""
    return node.op.lookup is not None and node.op.lookup.slices


ScatterPlan = Plan[Scatter, ScatterParameters]


class Scatters(Family[Scatter, ScatterParameters, ScatterPlan]):
    """Accepts one scatter with elementwise operations before it."""

    name = "scatter"

    def problem(self, segment: Fusion) -> Scatter | Refusal:
        """Return the segment around its scatter."""
        return unsupported_nodes(segment, FAMILIES) or prepare(segment)

    def space(self, problem: Scatter, target: Target) -> Sequence[ScatterParameters]:
        """Return the parameters."""
        return (choose(problem),)

    def plan(self, problem: Scatter, parameters: ScatterParameters, target: Target) -> ScatterPlan:
        """Return a plan: the copy, and the kernels that write."""
        kernels = list(_copy(problem, target))
        workspaces: tuple[Workspace, ...] = ()
        if 0 not in problem.shape:
            made, workspaces = _writes(problem, parameters, target)
            kernels += made
        fusion, _ = specialise(problem.segment)
        return Plan(
            self.name,
            fusion,
            tuple(kernels),
            parameters,
            workspaces,
            specialised=problem.specialised,
            problem=problem,
        )

    def price(self, plan: ScatterPlan, target: Target) -> Estimate:
        """Return a price: the tensor copied, and the source read and written."""
        scatter, way = plan.problem, plan.parameters.way
        elements = scatter.lines * scatter.length
        flops, sfu = work(scatter.fusion)
        sorting = 100 if way == "sorted" else 0
        return Estimate(
            bytes=traffic(scatter.segment),
            workspace_bytes=elements * (sorting + 2 * scatter.node.output.dtype.size),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, "vector"),
            ctas=max(1, scatter.lines // THREADS if way == "lines" else elements // 256),
            kernels=2 + (way == "winners") + 12 * (way == "sorted"),
        )


def prepare(segment: Fusion) -> Scatter | Refusal:
    """Return a segment around its scatter, or why it has no kernels."""
    nodes = [n for n in segment.nodes if n.op.family == "scatter"]
    if len(nodes) != 1:
        return Refusal("scatters", f"{len(nodes)} scatters instead of one")
    if [o.value for o in segment.outputs] != [nodes[0].output]:
        return Refusal("outputs", "what is scattered is read when all of it is written")
    if is_empty(replace(segment, inputs=(), nodes=tuple(nodes))):
        return Refusal("empty", "the tensor has no elements")
    fusion, _ = specialise(segment)
    fusion = replace(fusion, outputs=tuple(replace(o, alias=None) for o in fusion.outputs))
    node = next(n for n in fusion.nodes if n.op.family == "scatter")
    axis: int = node.attributes["dim"]
    arg, index = node.operands[0].shape, node.operands[1].shape
    shape = node.operands[2].shape if of_slices(node) else index
    for k, extent in enumerate(shape):
        if k != axis and extent.value > arg[k].value:
            return Refusal("shape", f"extent {extent} of dim {k} exceeds the tensor's {arg[k]}")
    if node.operands[2].shape and not of_slices(node):
        pairs = zip(shape, node.operands[2].shape, strict=True)
        if any(small.value > large.value for small, large in pairs):
            return Refusal("shape", "the index is larger than the source")
    read = [o for o in node.operands[1:] if isinstance(o, Value)]
    source = needed(fusion, tuple(Output(v) for v in read))
    scatter = Scatter(segment, fusion, node, source, axis, tuple(e.value for e in shape))
    if scatter.lines * scatter.length > INT32_MAX // 2:
        return Refusal("size", "more than 2^30 elements are scattered")
    return scatter


def choose(scatter: Scatter) -> ScatterParameters:
    """Return the way: in the source's order where that fills the GPU, else one that is as exact."""
    node, dtype = scatter.node, scatter.node.output.dtype
    orderly = scatter.lines >= MANY_LINES or scatter.length <= SHORT
    if not scatter.adds:
        way = "lines" if orderly or _elements_of(scatter) > INT32_MAX else "winners"
    elif (dtype.is_integer and dtype.bits >= 32) or (
        dtype in (F32, F64) and not node.attributes["deterministic"]
    ):
        way = "elements"  # of integers, the order does not matter
    elif dtype.is_float and (dtype.is_half or not orderly):
        way = "sorted"
    else:
        way = "lines"
    return ScatterParameters(way, scatter.wide)


def _elements_of(scatter: Scatter) -> int:
    return product(scatter.node.output.shape).value


def _copy(scatter: Scatter, target: Target) -> tuple[Kernel, ...]:
    """Return the kernel that copies the tensor to the output."""
    node = scatter.node
    copy = replace(make_node("set", [node.operands[0]], {}, ["copied"]), outputs=(node.output,))
    at = scatter.fusion.nodes.index(node)
    nodes = (*scatter.fusion.nodes[:at], copy)
    fusion = needed(scatter.fusion.with_nodes(nodes), scatter.fusion.outputs)
    fusion = _with_used_inputs(fusion)
    plan = Pointwise().build(fusion, target)
    name = f"{scatter.fusion.name}_scatter_copy"
    return tuple(replace(k, name=name, of=plan) for k in plan.kernels)


def _with_used_inputs(fusion: Fusion) -> Fusion:
    read = {v for n in fusion.nodes for v in n.inputs} | {o.value for o in fusion.outputs}
    return replace(fusion, inputs=tuple(i for i in fusion.inputs if i.value in read))


def _writes(
    scatter: Scatter, parameters: ScatterParameters, target: Target
) -> tuple[list[Kernel], tuple[Workspace, ...]]:
    """Return the kernels that write the source, and their workspaces."""
    elements = dim(scatter.lines * scatter.length)
    if parameters.way == "lines":
        step = "add" if scatter.adds else "write"
        return [_kernel(scatter, parameters, step, dim(scatter.lines))], ()
    if parameters.way == "elements":
        return [_kernel(scatter, parameters, "add", elements)], ()
    if parameters.way == "winners":
        name = free_name("winners", scatter.fusion)
        claims = Workspace(name, U32, dim(_elements_of(scatter)), "zeroed per launch")
        steps = ("claim", "win")
        return [_kernel(scatter, parameters, s, elements, claims) for s in steps], (claims,)
    sorting, order = _order(scatter, target)
    taken = Workspace(order.name, order.dtype, product(order.shape))
    kernels = [_taken_over(k, sorting, taken) for k in sorting.kernels]
    kernels.append(_kernel(scatter, parameters, "add", elements, taken))
    return kernels, (taken, *sorting.workspaces)


def _kernel(
    scatter: Scatter,
    parameters: ScatterParameters,
    step: str,
    threads: Dim,
    *workspaces: Workspace,
) -> StepKernel[str]:
    """Return a kernel of a step: `write`, `add`, `claim` or `win`."""
    fusion = replace(_with_used_inputs(scatter.source), outputs=scatter.fusion.outputs)
    if step == "claim":
        fusion = replace(fusion, outputs=())
    template = {"lines": "lines", "sorted": "sorted"}.get(parameters.way, "elements")
    return StepKernel(
        name=f"{scatter.fusion.name}_scatter_{step}",
        template=f"scatter_{template}",
        step=step,
        grid=(ceildiv(threads, THREADS), dim(1), dim(1)),
        block=(THREADS, 1, 1),
        arguments=tensor_arguments(fusion, workspaces),
    )


def _order(scatter: Scatter, target: Target) -> tuple[KernelPlan, Value]:
    """Return the plan that orders the elements of each line by where they go, and its result."""
    index = scatter.node.operands[1]
    assert isinstance(index, Value)
    extent = scatter.node.output.shape[scatter.axis].value
    key = next((t for t in (U8, U16) if extent <= 1 << t.bits), I32)
    nodes = [*scatter.source.nodes]
    if index.dtype != key:
        nodes.append(
            make_node("cast", [index], {"dtype": key}, [free_name("where", scatter.fusion)])
        )
        index = nodes[-1].output
    axis = 0 if of_slices(scatter.node) else scatter.axis
    ways = {"dim": axis, "descending": False, "stable": True}
    nodes.append(make_node("argsort", [index], ways, [free_name("order", scatter.fusion)]))
    order = nodes[-1].output
    fusion = needed(scatter.source.with_nodes(nodes), (Output(order),))
    return Sorts().build(_with_used_inputs(fusion), target), order


def _taken_over(kernel: Kernel, plan: KernelPlan, order: Workspace) -> Kernel:
    """Return a kernel of the sort, with its result in a workspace."""

    def argument(a: Argument) -> Argument:
        own = isinstance(a, TensorArgument) and a.name == order.name
        return WorkspaceArgument(order.name, order.dtype) if own else a

    return replace(kernel, arguments=tuple(argument(a) for a in kernel.arguments), of=plan)


def source_of(scatter: Scatter) -> tuple[Operand, DType]:
    """Return what is written, and the type in which it is added."""
    return scatter.node.operands[2], scatter.node.output.dtype.compute
