"""Kernel plans: an ordered tuple of kernels with parameters, geometry, arguments and workspaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from fusec.dataclasses import dataclass, field
from fusec.ir.dim import Dim, Shape
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion
from fusec.schedule.orders import PlannedOrder

if TYPE_CHECKING:
    from fusec.index.instances import Instance

P = TypeVar("P", covariant=True)
R = TypeVar("R", covariant=True)
S = TypeVar("S", covariant=True)


@dataclass(frozen=True)
class TensorArgument:
    """A pointer to the buffer of a value (by name); `written` says that the kernel writes it."""

    name: str
    dtype: DType
    written: bool = False
    restrict: bool = True


@dataclass(frozen=True)
class SizeArgument:
    """An integer computed on the host from sizes: `int` (32 bits) or `long long`."""

    name: str
    value: Dim
    wide: bool = False


@dataclass(frozen=True)
class ScalarArgument:
    """A scalar input of the fusion, passed by value in its own type."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class WorkspaceArgument:
    """A pointer to a workspace of the plan."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map (TMA descriptor), innermost dim first, passed as a __grid_constant__ parameter.

    extents in elements; strides in bytes for all dims but the innermost; box in elements. The other
    fields end the names of the driver's enumerators; element strides are 1. data_type: that of the
    buffer's own type where it is empty; `TFLOAT32` rounds floats to 10 bits on the way.
    """

    name: str
    buffer: str
    dtype: DType
    extents: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    swizzle: str = "128B"
    interleave: str = "NONE"
    l2_promotion: str = "L2_128B"
    oob_fill: str = "NONE"
    data_type: str = field(default="", metadata={"omitted": True})


@dataclass(frozen=True)
class MailboxArgument:
    """The mailboxes of a sum over ranks, `fusec::PushSum`; transports know it (decision 251)."""

    name: str


Argument = (
    TensorArgument
    | SizeArgument
    | ScalarArgument
    | WorkspaceArgument
    | TensorMapArgument
    | MailboxArgument
)


@dataclass(frozen=True)
class Workspace:
    """Scratch memory of a plan.

    size in elements; init: `none`, `zeroed once` (the kernel resets it) or `zeroed per launch`.
    """

    name: str
    dtype: DType
    size: Dim
    init: str = "none"


@dataclass(frozen=True)
class Staged:
    """A load whose vectors stay on chip: its element type, and its place in shared memory.

    offset, bytes: of one copy; in registers they say nothing.
    """

    instance: Instance
    offset: int
    bytes: int


def staged_in_turn(loads: Iterable[tuple[Instance, int]]) -> tuple[Staged, ...]:
    """Return loads, of which each takes so many bytes, one after the other."""
    staged: list[Staged] = []
    offset = 0
    for instance, size in loads:
        staged.append(Staged(instance, offset, size))
        offset += size
    return tuple(staged)


@dataclass(frozen=True)
class Guard:
    """A condition on sizes for a valid build: `value relation bound`, by ==, % (is 0) or <=."""

    value: Dim
    relation: str
    bound: int
    reason: str = ""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the guard holds at `sizes`."""
        value = self.value.evaluate(sizes)
        if self.relation == "%":
            return value % self.bound == 0
        return value == self.bound if self.relation == "==" else value <= self.bound

    def __str__(self) -> str:
        tail = " == 0" if self.relation == "%" else ""
        return f"{self.value} {self.relation} {self.bound}{tail}"


@dataclass(frozen=True)
class View:
    """An output without a kernel: `base`'s memory, at an offset and with strides in elements."""

    name: str
    base: str
    offset: Dim
    shape: Shape
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class HostCopy:
    """A copy by the driver: a view of an input into an output, or a part of one.

    offset: where the part begins in the output, in elements; it has the strides of the output.
    """

    target: str
    offset: Dim
    source: View


@dataclass(frozen=True)
class HostPlan:
    """What the host does for a segment: copies and outputs filled with zeros, or an evaluation.

    evaluated: whether the segment is computed on the CPU; there are no copies then.
    """

    copies: tuple[HostCopy, ...] = ()
    zeros: tuple[str, ...] = ()
    evaluated: bool = False

    def __str__(self) -> str:
        if self.evaluated:
            return "evaluated on the CPU; its time is not predicted"
        counts = ((len(self.copies), "copy", "copies"), (len(self.zeros), "memset", "memsets"))
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)


@dataclass(frozen=True)
class Kernel:
    """One launch: a template, geometry and arguments.

    grid: blocks, as Dim expressions of the sizes that are not specialised; block: threads;
    shared_bytes: dynamic shared memory; cluster: blocks per cluster. least_blocks: that an SM is to
    hold, 0 to leave that to the assembler. overlapped: whether it starts while the kernel before it
    still runs, for whose end it waits itself; followed: whether it lets the kernel after it do so.
    of: the plan that a kernel was made for, where
    another plan has taken it over. all_registers: whether a thread gets all registers that one
    block on an SM leaves it, since the compiler spills with what it gives by itself.
    """

    name: str
    template: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    of: KernelPlan | None = None
    all_registers: bool = False
    least_blocks: int = 0
    overlapped: bool = False
    followed: bool = False

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of all arguments."""
        return tuple(a.name for a in self.arguments)

    @property
    def map_names(self) -> tuple[str, ...]:
        """Return the names of the tensor maps among the arguments."""
        return tuple(a.name for a in self.arguments if isinstance(a, TensorMapArgument))


@dataclass(frozen=True)
class StepKernel(Kernel, Generic[S]):
    """One launch of several; step: what this one does of what the plan's parameters say."""

    step: S = field(kw_only=True)


@dataclass(frozen=True)
class PushedKernel(Kernel):
    """The same work as the kernel before it in a plan, on rows of a sum over ranks that it takes.

    It takes the place of that kernel and of the all-reduce that returns `target`, where GPUs push
    to one another. source: what the sum is of on each rank; columns: of a row; blocks: most that
    run at the same time on the target.
    """

    source: str = field(kw_only=True)
    target: str = field(kw_only=True)
    columns: int = field(kw_only=True)
    blocks: int = field(kw_only=True)


@dataclass(frozen=True)
class KernelPlan:
    """How a segment runs: `fusion` is the segment with the specialised sizes put in.

    parameters: the scheduler's choices. views: the outputs that no kernel writes, as they are other
    tensors' memory; what is neither has no element.
    orders: in which the kernels add, of the segment's sums by the name of their first result.
    rounded_early: values of half types that kernels round before they scale them, not after, with
    how many terms of a row, from its first on, are scaled by the largest of them: a tile of keys.
    unrounded: those that kernels have as they were computed: sums of their parts are scaled.
    host: what the host does instead of kernels, where a file asks for it.
    """

    scheduler: str
    fusion: Fusion
    kernels: tuple[Kernel, ...]
    parameters: object
    workspaces: tuple[Workspace, ...] = ()
    guards: tuple[Guard, ...] = ()
    specialised: Mapping[str, int] = field(default_factory=dict[str, int])
    views: tuple[View, ...] = ()
    orders: Mapping[str, PlannedOrder] = field(default_factory=dict[str, PlannedOrder])
    rounded_early: Mapping[str, int] = field(default_factory=dict[str, int])
    unrounded: tuple[str, ...] = ()
    host: HostPlan | None = None

    @property
    def runs_as_post(self) -> bool:
        """Return whether the segment is computed: by kernels, or by the host."""
        return bool(self.kernels) or (self.host is not None and self.host.evaluated)


@dataclass(frozen=True)
class Plan(KernelPlan, Generic[P, R]):
    """A plan of one family; problem: what it found in the segment, from which text is printed."""

    parameters: R
    problem: P = field(kw_only=True, compare=False, repr=False)
