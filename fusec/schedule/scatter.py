"""Scatters: a copy of the tensor, then the source at the positions that an index holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

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
from fusec.schedule.space import Field, Parameters
from fusec.segment.price import traffic, work
from fusec.segment.protocol import Estimate, Refusal
from fusec.target import Target

FAMILIES = frozenset(
    {"pointwise", "movement", "factory", "scalar", "indexing", "random", "scatter"}
)
THREADS = 256
WHOLE_WAYS = ("lines", "sorted", "compared")
"""Ways with a template of their own."""
MANY_LINES = 16384
"""Lines that keep a GPU busy with a thread each."""
MOST_COMPARED = 256
"""Elements of a line up to which each is compared with those before or after it."""
SHORT = 16
"""Elements of a line that a thread writes one after another without harm."""


@dataclass(frozen=True)
class ScatterParameters(Parameters):
    """The choices of a scatter.

    way: `lines` (a thread writes a line of the source in its order), `elements` (integers, and
    floats where that is asked for, are added in the order of arrival), `winners` (the last element
    that claims a place writes it), `compared` (an element looks for others with its place), or
    `sorted` (places are put in order, and each one's sum is taken in the order of the source).
    """

    way: str
    wide_index: bool
    free: ClassVar = (Field("way", ("lines", "elements", "winners", "sorted", "compared")),)


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
    def in_place(self) -> bool:
        """Return whether the tensor lies where the result is to lie."""
        return bool(self.fusion.effects.updates)

    @property
    def of_slices(self) -> bool:
        """Return whether all lines go to the same places, as far as is made use of."""
        if of_slices(self.node):
            return True
        index = self.node.operands[1]
        if not self.in_place or not isinstance(index, Value):
            return False
        where = self.lowering.at(index, self.at(of_var(Var("element", dim(self.length)))), ())
        return self.line not in where.variables

    @property
    def length(self) -> int:
        """Return how many elements of a line may meet."""
        return self.shape[self.axis]

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return product(e for k, e in enumerate(self.shape) if k != self.axis).value

    @property
    def placed(self) -> int:
        """Return the number of elements of the index that are told apart."""
        return self.length * (1 if self.of_slices else self.lines)

    @property
    def sorted_elements(self) -> int:
        """Return the number of elements that are put in order."""
        return self.length * (1 if of_slices(self.node) else self.lines)

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

    def likeliest(self, problem: Scatter, target: Target) -> ScatterParameters:
        """Return the parameters: in the source's order where that fills the GPU."""
        return likeliest(problem)

    def trouble(
        self, problem: Scatter, parameters: ScatterParameters, target: Target
    ) -> Refusal | None:
        """Return why no kernel has some parameters, or None."""
        return _trouble(problem, parameters.way)

    def plan(self, problem: Scatter, parameters: ScatterParameters, target: Target) -> ScatterPlan:
        """Return a plan: the copy, and the kernels that write."""
        kernels = [] if problem.in_place else list(_copy(problem, target))
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
        """Return a price: the tensor copied, where that is, and the source read and written."""
        scatter, way = plan.problem, plan.parameters.way
        elements = scatter.lines * scatter.length
        size = scatter.node.output.dtype.size
        flops, sfu = work(scatter.fusion)
        scratch = {"sorted": 100 * scatter.sorted_elements}
        if scatter.in_place:
            scratch["winners"] = 12 * scatter.placed
        return Estimate(
            bytes=traffic(scatter.segment),
            workspace_bytes=scratch.get(way, 0) + (0 if scatter.in_place else 2 * elements * size),
            flops=flops,
            sfu=sfu,
            efficiency=target.reach(self.name, "vector"),
            ctas=max(1, scatter.lines // THREADS if way == "lines" else elements // 256),
            kernels=len(plan.kernels),
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
    if not fusion.effects.updates:
        # The copy comes first: what is overwritten may be read by what is scattered.
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


def _trouble(scatter: Scatter, way: str) -> Refusal | None:
    node, dtype = scatter.node, scatter.node.output.dtype
    if way == "lines" and scatter.adds and dtype.is_half:
        return Refusal("dtype", f"sums of {dtype} in memory are rounded after each element")
    if way == "compared" and not scatter.in_place:
        return Refusal("way", "elements are compared where a tensor is written in place")
    if way == "winners":
        if scatter.adds:
            return Refusal("way", "of elements that are added, none wins")
        if _elements_of(scatter) > INT32_MAX:
            return Refusal("size", "more than 2^31 places")
    if way in ("elements", "sorted") and not scatter.adds:
        return Refusal("way", "elements are not added: the last one is to be written")
    if way == "elements":
        if not ((dtype.is_integer and dtype.bits >= 32) or dtype in (F32, F64)):
            return Refusal("dtype", f"{dtype} is not added in memory by one instruction")
        if dtype.is_float and node.attributes["deterministic"]:
            return Refusal("deterministic", "sums in the order of arrival differ between runs")
    if way == "sorted" and not dtype.is_float:
        return Refusal("dtype", f"{dtype} is exact in any order")
    return None


def likeliest(scatter: Scatter) -> ScatterParameters:
    """Return the way: in the source's order where that fills the GPU, else one that is as exact."""
    node, dtype = scatter.node, scatter.node.output.dtype
    orderly = scatter.lines >= MANY_LINES or scatter.length <= SHORT
    exact = dtype.is_integer and dtype.bits >= 32
    arriving = dtype in (F32, F64) and scatter.adds and not node.attributes["deterministic"]
    rounded = scatter.adds and dtype.is_half
    compared = scatter.in_place and scatter.length <= MOST_COMPARED and (rounded or not orderly)
    if compared and not (scatter.adds and (exact or arriving)):
        way = "compared"
    elif not scatter.adds:
        way = "lines" if orderly or _elements_of(scatter) > INT32_MAX else "winners"
    elif exact or arriving:
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
    return replace(fusion, inputs=fusion.effects.inputs_for(read))


def _writes(
    scatter: Scatter, parameters: ScatterParameters, target: Target
) -> tuple[list[Kernel], tuple[Workspace, ...]]:
    """Return the kernels that write the source, and their workspaces."""
    elements = dim(scatter.lines * scatter.length)
    if parameters.way == "lines":
        step = "accumulate" if scatter.adds else "write"
        return [_kernel(scatter, parameters, step, dim(scatter.lines))], ()
    if parameters.way in ("elements", "compared"):
        step = "accumulate" if scatter.adds else "write"
        return [_kernel(scatter, parameters, step, elements)], ()
    if parameters.way == "winners":
        name = free_name("winners", scatter.fusion)
        claims = Workspace(name, U32, dim(_elements_of(scatter)), "zeroed per launch")
        if scatter.in_place:
            return _claims_of_few(scatter, parameters, replace(claims, init="none"))
        steps = ("claim", "win")
        return [_kernel(scatter, parameters, s, elements, claims) for s in steps], (claims,)
    sorting, order = _order(scatter, target)
    taken = Workspace(order.name, order.dtype, product(order.shape))
    kernels = [_taken_over(k, sorting, taken) for k in sorting.kernels]
    kernels.append(_kernel(scatter, parameters, "accumulate", elements, taken))
    return kernels, (taken, *sorting.workspaces)


def _claims_of_few(
    scatter: Scatter, parameters: ScatterParameters, claims: Workspace
) -> tuple[list[Kernel], tuple[Workspace, ...]]:
    """Return the kernels where only the claims that are looked at are cleared before."""
    if scatter.of_slices:
        claims = replace(claims, size=scatter.node.output.shape[scatter.axis])
    placed, elements = dim(scatter.placed), dim(scatter.lines * scatter.length)
    kernels = [_kernel(scatter, parameters, s, placed, claims) for s in ("clear", "claim")]
    return [*kernels, _kernel(scatter, parameters, "win", elements, claims)], (claims,)


def _kernel(
    scatter: Scatter,
    parameters: ScatterParameters,
    step: str,
    threads: Dim,
    *workspaces: Workspace,
) -> StepKernel[str]:
    """Return a kernel of a step: `write`, `add`, `clear`, `claim` or `win`."""
    read = {v for n in scatter.source.nodes for v in n.inputs}
    read |= {o.value for o in scatter.source.outputs}
    outputs = () if step in ("clear", "claim") else scatter.fusion.outputs
    fusion = replace(scatter.source, outputs=outputs)
    fusion = replace(fusion, inputs=fusion.effects.inputs_for(read))
    template = parameters.way if parameters.way in WHOLE_WAYS else "elements"
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
