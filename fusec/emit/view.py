"""The data that the C templates print of a package, as records."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from fusec.dataclasses import dataclass, field
from fusec.emit.code import Code, reads, reads_of
from fusec.emit.scratch import Place
from fusec.ir.dtype import DType
from fusec.ir.graph import DimFact


@dataclass(frozen=True)
class Size:
    """A field of the sizes: a dim, a stride, or an integer input that sizes depend on."""

    name: str
    comment: str
    default: int
    symbol: str


@dataclass(frozen=True)
class Field:
    """A field of the arguments; bytes: of memory at default sizes, None for a scalar.

    given: whether the caller sets it. source: the buffer or scalar that it represents.
    """

    name: str
    type: str
    comment: str
    source: str
    dtype: DType
    bytes: int | None = None
    default: str = ""
    given: bool = True
    written: bool = False


@dataclass(frozen=True)
class Pointer:
    """A pointer that is checked, and the number of its error message; elements: of its tensor."""

    field: str
    elements: Code
    alignment: int
    number: int


@dataclass(frozen=True)
class Condition:
    """A condition on sizes as an expression, and the number of its error message."""

    holds: Code
    number: int


@dataclass(frozen=True)
class PlacedMemory:
    """Memory in the workspace; bytes: an expression."""

    name: str
    comment: str
    bytes: Code
    zeroed: bool

    @classmethod
    def of(cls, name: str, place: Place, size: Code) -> PlacedMemory:
        """Return a named place, with its size as an expression."""
        return cls(name, ", then ".join(place.buffers), size, place.zeroed)


@dataclass(frozen=True)
class Statement:
    """A statement that cannot fail, such as the declaration of a buffer's address."""

    code: Code
    kind: str = "statement"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return self.code.reads


@dataclass(frozen=True)
class SetView:
    """An output that is a part of other memory: its address is returned to the caller."""

    field: str
    address: str
    kind: str = "view"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return frozenset(("a",))


@dataclass(frozen=True)
class Call:
    """A call that puts work on a stream, and returns an error.

    unless: the variable that is true if there is nothing to do.
    """

    code: Code
    comment: str = ""
    unless: str = ""
    kind: str = "call"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return self.code.reads


@dataclass(frozen=True)
class Map:
    """A tensor map; type, modes: the driver's enumerators. The others are lists of numbers."""

    name: str
    address: str
    type: str
    rank: int
    extents: Code
    strides: Code
    box: str
    modes: str
    kind: str = "map"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return self.extents.reads | self.strides.reads


@dataclass(frozen=True)
class LaunchKernel:
    """A launch for a segment; locals: declarations of parameters and of pointers to them.

    function: the call.
    """

    kernel: str
    segment: str
    locals: tuple[Code, ...]
    function: Code
    kind: str = "launch"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return reads_of((*self.locals, self.function))


@dataclass(frozen=True)
class Loop:
    """Steps that run `count` times; index: the variable that counts from 0."""

    comment: str
    index: str
    count: Code
    body: tuple[Step, ...]
    kind: str = "loop"

    @property
    def reads(self) -> frozenset[str]:
        """Return the variables of the enclosing function that it reads."""
        return self.count.reads.union(*(step.reads for step in self.body))


Step = Statement | SetView | Call | Map | LaunchKernel | Loop


def every(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield steps in order, each loop followed by its body."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from every(step.body)


@dataclass(frozen=True)
class Axis:
    """An axis of the mesh: its field, its ranks, and the number of ranks of the inner axes.

    source: its name in the fusion.
    """

    name: str
    size: int
    inner: int
    source: str


@dataclass(frozen=True)
class Placed:
    """A run-time variable with the index of the rank along an axis."""

    variable: str
    axis: Axis


@dataclass(frozen=True)
class PlanView:
    """The plan for some targets, at some sizes.

    ranks: the rank's indices. streams: number of streams in addition to the caller's; events:
    number of communication operations that are awaited later.
    """

    name: str
    purpose: str
    conditions: tuple[Condition, ...]
    pointers: tuple[Pointer, ...]
    places: tuple[PlacedMemory, ...]
    steps: tuple[Step, ...]
    ranks: tuple[Placed, ...] = ()
    streams: int = 0
    events: int = 0

    @property
    def zeroed_places(self) -> tuple[PlacedMemory, ...]:
        """Return the memory that is zeroed once."""
        return tuple(p for p in self.places if p.zeroed)

    @property
    def other_places(self) -> tuple[PlacedMemory, ...]:
        """Return the other memory."""
        return tuple(p for p in self.places if not p.zeroed)

    @property
    def sizes_unread(self) -> bool:
        """Return whether the places do not depend on sizes."""
        return not reads((p.bytes for p in self.places), "s")

    @property
    def conditions_unread(self) -> bool:
        """Return whether the conditions do not depend on sizes."""
        return not reads((c.holds for c in self.conditions), "s")

    @property
    def launches(self) -> bool:
        """Return whether there are kernels."""
        return any(isinstance(s, LaunchKernel) for s in every(self.steps))

    @property
    def on_stream(self) -> bool:
        """Return whether a step puts anything on the stream."""
        return any(isinstance(s, LaunchKernel | Call) for s in every(self.steps))

    def issue_parameters(self, constant: str) -> str:
        """Return the parameters of the function that issues the steps; constant: of ProgramView."""
        kinds = {
            "functions": "const CUfunction* ", "stream": "CUstream ", "a": f"{constant}Arguments* ",
            "memory": "CUdeviceptr ", "places": f"const Places_{self.name}* ",
            "streams": "Streams* ",
        }  # fmt: skip
        return ", ".join(f"{kinds.get(name, 'int64_t ')}{name}" for name in self._passed)

    @property
    def issue_arguments(self) -> str:
        """Return the arguments of its call."""
        own = {"memory": "(CUdeviceptr)w->memory", "places": "&places", "streams": "w->streams"}
        return ", ".join(own.get(name, name) for name in self._passed)

    @property
    def _passed(self) -> tuple[str, ...]:
        memory = ("memory", "places") if self.places else ()
        streams = ("streams",) if self.streams else ()
        placed = (p.variable for p in self.ranks)
        read = (name for name in placed if self._reads(name))
        return ("functions", "stream", "a", *memory, *streams, *read)

    @property
    def unread_parameters(self) -> tuple[str, ...]:
        """Return the parameters that the steps do not read."""
        read = {
            "functions": self.launches,
            "stream": self.streams > 0 or self.on_stream,
            "a": self._reads("a", "s"),
            "memory": self._reads("memory"),
            "places": self._reads("places"),
            "streams": self._reads("streams"),
        }
        return tuple(name for name in self._passed if not read.get(name, True))

    @property
    def run_sizes_unread(self) -> bool:
        """Return whether the checks and the placement of a run do not depend on sizes."""
        return not self.places and not reads((p.elements for p in self.pointers), "s")

    @property
    def step_sizes_unread(self) -> bool:
        """Return whether the steps do not depend on sizes."""
        return not self._reads("s")

    def _reads(self, *names: str) -> bool:
        """Return whether a step reads one of some parameters and variables."""
        return any(not step.reads.isdisjoint(names) for step in self.steps)


@dataclass(frozen=True)
class KernelCode:
    """A kernel and the array with its machine code."""

    name: str
    cubin: str
    shared_bytes: int
    large_clusters: str


@dataclass(frozen=True)
class BuildPlan:
    """The name of a plan, and the index of its first kernel in a build."""

    name: str
    first: int


@dataclass(frozen=True)
class BuildView:
    """The kernels for one target, and the plans that launch them."""

    target: str
    major: int
    minor: int
    just_one: str
    kernels: tuple[KernelCode, ...]
    plans: tuple[BuildPlan, ...]


@dataclass(frozen=True)
class Cubin:
    """Machine code as an array."""

    name: str
    content: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return len(self.content)

    @property
    def bytes(self) -> str:
        """Return the bytes as numbers, 24 per line."""
        rows = (self.content[k : k + 24] for k in range(0, len(self.content), 24))
        return "\n".join(",".join(map(str, row)) + "," for row in rows)


@dataclass(frozen=True)
class ProgramView:
    """A package: `k` in the templates.

    conditions, pointers: the error messages of all plans' checks, as literals. constant: the
    qualifier of the arguments' type, to which the addresses of views are written.
    """

    name: str
    facts: tuple[DimFact, ...]
    sizes: tuple[Size, ...]
    fields: tuple[Field, ...]
    plans: tuple[PlanView, ...]
    conditions: tuple[str, ...]
    pointers: tuple[str, ...]
    builds: tuple[BuildView, ...]
    cubins: tuple[Cubin, ...]
    helpers: frozenset[str]
    driver: int
    axes: tuple[Axis, ...] = ()
    languages: str = ""

    @property
    def streams(self) -> int:
        """Return the maximum number of streams of a run in addition to the caller's."""
        return max(p.streams for p in self.plans)

    @property
    def events(self) -> int:
        """Return the maximum number of communication operations that are awaited later."""
        return max(p.events for p in self.plans)

    @property
    def rank_order(self) -> str:
        """Return how ranks are numbered."""
        if len(self.axes) == 1:
            return f"the rank index along {self.axes[0].name}"
        return f"in row-major order of {', '.join(axis.name for axis in self.axes)}"

    @property
    def sends(self) -> bool:
        """Return whether ranks send blocks to each other in groups of calls."""
        return not self.helpers.isdisjoint({"send_and_receive", "exchange_blocks"})

    @property
    def ranks(self) -> int:
        """Return how many ranks run it together; 1 without a mesh."""
        return prod(axis.size for axis in self.axes)

    @property
    def macro(self) -> str:
        """Return the prefix of macros and enumerators."""
        return self.name.upper()

    @property
    def constant(self) -> str:
        """Return `const ` where a run changes no argument."""
        return "const " if all(f.given for f in self.fields) else ""

    @property
    def driver_text(self) -> str:
        """Return the minimum CUDA version in the usual form."""
        return f"{self.driver // 1000}.{self.driver % 1000 // 10}"

    @property
    def targets(self) -> str:
        """Return the targets, separated by commas."""
        return ", ".join(b.target for b in self.builds)

    @property
    def most_kernels(self) -> int:
        """Return the maximum number of kernels of a program, at least 1."""
        return max(1, *(len(b.kernels) for b in self.builds))
