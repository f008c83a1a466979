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
    fields are the suffixes of the driver's enumerators; element strides are 1. data_type: that of
    the buffer's own type if empty; `TFLOAT32` rounds floats to 10 mantissa bits when they are
    copied.
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
    """A load whose vectors stay on chip: its element type, and its position in shared memory.

    offset, bytes: of one copy; unused if it is in registers.
    """

    instance: Instance
    offset: int
    bytes: int


def staged_in_turn(loads: Iterable[tuple[Instance, int]]) -> tuple[Staged, ...]:
    """Return loads laid out one after the other in shared memory, each with its size in bytes."""
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
    """The host's work for a segment: copies and outputs filled with zeros, or an evaluation.

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

    grid: blocks, as Dim expressions of the sizes that are not specialized; block: threads;
    shared_bytes: dynamic shared memory; cluster: blocks per cluster. least_blocks: least blocks per
    SM in the launch bounds, 0 to leave that to ptxas. overlapped: whether it starts while the
    previous kernel still runs and waits for its end itself; followed: whether it lets the next
    kernel do so. of: the plan that a kernel was made for, if another plan has adopted it.
    all_registers: whether a thread gets all registers that allow one block per SM, because the
    compiler's default would spill.
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
    """One launch of several; step: the part of the plan's parameters that this launch executes."""

    step: S = field(kw_only=True)


@dataclass(frozen=True)
class PushedKernel(Kernel):
    """The same work as the previous kernel of a plan, on rows that it sums over ranks itself.

    It replaces that kernel and the all-reduce that returns `target`, if GPUs push to one another.
    source: each rank's summand; columns: of a row; blocks: most that are resident at the same time
    on the target.
    """

    source: str = field(kw_only=True)
    target: str = field(kw_only=True)
    columns: int = field(kw_only=True)
    blocks: int = field(kw_only=True)


@dataclass(frozen=True)
class KernelPlan:
    """How a segment runs: `fusion` is the segment with specialized sizes substituted.

    parameters: the scheduler's choices. views: the outputs that no kernel writes, because they are
    views of other tensors; an output that is neither has no elements. orders: the summation orders
    of the kernels, by the name of a sum's first result. rounded_early: 16-bit float values that
    kernels round before they scale them rather than after, with how many terms of a row, from its
    first on, are scaled by the largest of them: a tile of keys. unrounded: those that kernels use
    without rounding, because they scale sums of their parts. host: what the host does instead of
    kernels, if a file pins the segment to it.
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
    """A plan of one scheduler; problem: its analysis of the segment, for code generation."""

    parameters: R
    problem: P = field(kw_only=True, compare=False, repr=False)
