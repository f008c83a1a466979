"""The instructions of host programs, and the buffers that each reads and writes."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass, field
from fusec.hostir.records import OMITTED
from fusec.ir.dim import Dim, mod, shape_text, symbol
from fusec.schedule.plan import (
    Argument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)


@dataclass(frozen=True)
class Allocate:
    """Allocate memory of its own for a buffer."""

    buffer: str

    def __str__(self) -> str:
        return f"allocate {self.buffer}"


@dataclass(frozen=True)
class Free:
    """Free a buffer's memory."""

    buffer: str

    def __str__(self) -> str:
        return f"free {self.buffer}"


@dataclass(frozen=True)
class Alias:
    """Make a buffer a view of another one, at an offset in elements of the view."""

    buffer: str
    of: str
    offset: Dim

    def __str__(self) -> str:
        place = "" if self.offset == 0 else f" at {self.offset}"
        return f"alias {self.buffer} = {self.of}{place}"


@dataclass(frozen=True)
class Memset:
    """Fill a buffer with zeros; `once`: on allocation only, and kernels restore the zeros."""

    buffer: str
    once: bool = False

    def __str__(self) -> str:
        return f"memset {self.buffer}{' once' if self.once else ''}"


@dataclass(frozen=True)
class Copy:
    """Copy the elements of a buffer into another one of its shape."""

    target: str
    source: str

    def __str__(self) -> str:
        return f"copy {self.target} <- {self.source}"


@dataclass(frozen=True)
class EncodeTensorMap:
    """Encode a TMA descriptor (tensor map) of a buffer; launches refer to the map by name."""

    name: str
    map: TensorMapArgument

    def __str__(self) -> str:
        shape = shape_text(self.map.extents)
        box = "x".join(str(b) for b in self.map.box)
        return (
            f"encode {self.name} = {self.map.buffer} {shape} box {box} swizzle {self.map.swizzle}"
        )


@dataclass(frozen=True)
class Pushed:
    """A kernel that replaces a launch and the all-reduce before it.

    It sums the rows of `target` itself, from what ranks have in `source`, and is launched where
    GPUs can push to each other; otherwise both run as in the program. buffers: its arguments before
    the mailboxes. columns: elements of a row; blocks: maximum number of resident blocks.
    """

    kernel: str
    source: str
    target: str
    buffers: tuple[str, ...]
    columns: int
    threads: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.kernel} of {self.source} where GPUs push"


@dataclass(frozen=True)
class Launch:
    """Launch a kernel; arguments name buffers, scalars and tensor maps of the program.

    kernel: may be that of an earlier segment, equal to the one planned for `segment`. overlapped:
    whether it starts before the previous kernel ends, and waits for it (programmatic dependent
    launch). pushed: a kernel that replaces it and the all-reduce before it, where possible.
    """

    kernel: str
    segment: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    overlapped: bool = False
    pushed: Pushed | None = field(default=None, metadata=OMITTED)

    def __str__(self) -> str:
        arguments = ", ".join(argument_text(a) for a in self.arguments)
        extra = f" shared {self.shared_bytes}" if self.shared_bytes else ""
        if self.cluster != (1, 1, 1):
            extra += f" cluster {_triple(self.cluster)}"
        if self.overlapped:
            extra += " overlapped"
        shape = f"<{_triple(self.grid)}; {_triple(self.block)}>"
        other = f" or {self.pushed}" if self.pushed else ""
        return f"launch {self.kernel} for {self.segment} {shape}{extra} ({arguments}){other}"

    @property
    def written(self) -> tuple[str, ...]:
        """Return the buffers that the kernel writes, except workspaces."""
        return tuple(a.name for a in self.arguments if isinstance(a, TensorArgument) and a.written)


@dataclass(frozen=True)
class Post:
    """Run a segment on the current stream, into outputs that are allocated already."""

    segment: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"post {self.segment} ({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


@dataclass(frozen=True)
class GetStream:
    """Bind the number of the current stream to a name; 0 is the caller's."""

    name: str

    def __str__(self) -> str:
        return f"get stream {self.name}"


@dataclass(frozen=True)
class SetStream:
    """Set the current stream, for the instructions that follow."""

    stream: Dim

    def __str__(self) -> str:
        return f"set stream {self.stream}"


@dataclass(frozen=True)
class Synchronize:
    """Make the current stream wait for all work that a stream has so far."""

    stream: Dim

    def __str__(self) -> str:
        return f"synchronize stream {self.stream}"


@dataclass(frozen=True)
class Collective:
    """Start a collective between the ranks along an axis of the mesh, in stream order.

    kind: all_gather, all_reduce, reduce_scatter, all_to_all or broadcast. reduction: for the kinds
    that reduce, sum, prod, max or min. root: the index along the axis of the rank that broadcasts.
    to: the indices of the ranks that receive it, if not all do; the target of others is undefined.
    """

    kind: str
    target: str
    source: str
    axis: str
    ranks: int
    reduction: str = field(default="", metadata=OMITTED)
    root: Dim | None = field(default=None, metadata=OMITTED)
    to: tuple[int, ...] = field(default=(), metadata=OMITTED)

    def __str__(self) -> str:
        reduction = f" {self.reduction}" if self.reduction else ""
        root = "" if self.root is None else f" of {self.root}"
        root += f" to {', '.join(map(str, self.to))}" if self.to else ""
        where = f"over {self.axis}: {self.ranks}"
        return f"{self.kind}{reduction}{root} {self.target} <- {self.source} {where}"


@dataclass(frozen=True)
class Send:
    """Start to send a buffer to the rank at an index along a mesh axis, in stream order.

    Operations up to the next wait form one group: ranks may send before they receive.
    """

    source: str
    axis: str
    place: Dim

    def __str__(self) -> str:
        return f"send {self.source} to {self.axis}: {self.place}"


@dataclass(frozen=True)
class Receive:
    """Start to receive a buffer from the rank at an index along an axis of the mesh."""

    target: str
    axis: str
    place: Dim

    def __str__(self) -> str:
        return f"receive {self.target} from {self.axis}: {self.place}"


@dataclass(frozen=True)
class Wait:
    """Make the current stream wait for the communication that was started with a buffer."""

    buffer: str

    def __str__(self) -> str:
        return f"wait {self.buffer}"


@dataclass(frozen=True)
class Share:
    """Let the ranks along an axis of the mesh read a buffer in place, until it is unshared.

    In stream order each waits until all ranks have reached it. views: the buffer of each rank, by
    index along the axis: names of memory that this rank must not write. copy_of: the input that the
    buffer is a dense copy of, if any.
    """

    source: str
    views: tuple[str, ...]
    axis: str
    copy_of: str = field(default="", metadata=OMITTED)

    def __str__(self) -> str:
        views = ", ".join(self.views)
        return f"share {self.source} as {views} over {self.axis}: {len(self.views)}"


@dataclass(frozen=True)
class Unshare:
    """Wait, in stream order, until no rank along an axis reads a shared buffer any more."""

    source: str
    views: tuple[str, ...]
    axis: str

    def __str__(self) -> str:
        return f"unshare {self.source} over {self.axis}: {len(self.views)}"


@dataclass(frozen=True)
class For:
    """Run instructions `count` times; `index` counts from 0 and may occur in their sizes.

    streams: number of streams on which the iterations run round-robin; 0 if all run on the current
    one.
    """

    index: str
    count: Dim
    body: tuple[Instruction, ...]
    streams: int = field(default=0, metadata=OMITTED)

    def __str__(self) -> str:
        on = f" on {self.streams} streams" if self.streams else ""
        return f"for {self.index} from 0 to {self.count}{on}:"


def stream_number(loop: For) -> Dim:
    """Return which of its streams, counted from 0, an iteration of a loop runs on."""
    streams = (i.stream for i in loop.body if isinstance(i, SetStream))
    own = next((s for s in streams if loop.index in s.symbols), None)
    return mod(symbol(loop.index, extent=False), loop.streams) if own is None else own - 1


def loop_name(loop: For) -> str:
    """Return `loop0` of an index `loop0.index`."""
    return loop.index.partition(".")[0]


Instruction = (
    Allocate
    | Free
    | Alias
    | Memset
    | Copy
    | EncodeTensorMap
    | Launch
    | Post
    | GetStream
    | SetStream
    | Synchronize
    | Collective
    | Send
    | Receive
    | Wait
    | Share
    | Unshare
    | For
)


def reads(instruction: Instruction) -> frozenset[str]:
    """Return the buffers whose contents an instruction reads, or a loop's body."""
    match instruction:
        case Copy(_, source) | Send(source) | Share(source):
            return frozenset({source})
        case Collective():
            return frozenset({instruction.source})
        case Launch():
            # Semaphores in a workspace persist across launches; tensor maps are read, never
            # written.
            arguments = instruction.arguments
            named = {a.name for a in arguments if isinstance(a, WorkspaceArgument)}
            named |= {a.name for a in arguments if isinstance(a, TensorArgument) and not a.written}
            return frozenset(named | _mapped(instruction))
        case Post():
            return frozenset(instruction.inputs)
        case For():
            return frozenset[str]().union(*map(reads, instruction.body))
        case _:
            return frozenset()


def writes(instruction: Instruction) -> frozenset[str]:
    """Return the buffers whose contents an instruction changes, or a loop's body."""
    match instruction:
        case Memset(buffer):
            return frozenset({buffer})
        case Copy(target) | Receive(target):
            return frozenset({target})
        case Unshare(source, views):
            return frozenset({source, *views})  # from here on they belong to the other ranks again
        case Share(_, views):
            return frozenset(views)
        case Collective():
            return frozenset({instruction.target})
        case Launch():
            spaces = (a.name for a in instruction.arguments if isinstance(a, WorkspaceArgument))
            return frozenset((*instruction.written, *spaces))
        case Post():
            return frozenset(instruction.outputs)
        case For():
            return frozenset[str]().union(*map(writes, instruction.body))
        case _:
            return frozenset()


def _mapped(launch: Launch) -> frozenset[str]:
    return frozenset(a.buffer for a in launch.arguments if isinstance(a, TensorMapArgument))


def _triple(values: Iterable[object]) -> str:
    return ", ".join(str(v) for v in values)


def argument_text(argument: Argument) -> str:
    """Return one launch argument as text; `!` marks those that are written."""
    if isinstance(argument, TensorArgument):
        return f"{argument.name}{'!' if argument.written else ''}"
    if isinstance(argument, SizeArgument):
        return str(argument.value)
    return f"{argument.name}!" if isinstance(argument, WorkspaceArgument) else argument.name
