"""What the C templates print of a package, as records."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fusec.emit.scratch import Place
from fusec.ir.dtype import DType
from fusec.ir.graph import DimFact


@dataclass(frozen=True)
class Size:
    """A field of the sizes: a dim, a stride, or an integer input that sizes are made of."""

    name: str
    comment: str
    default: int
    symbol: str


@dataclass(frozen=True)
class Field:
    """A field of the arguments; bytes: of memory at default sizes, None for a scalar.

    given: whether the caller sets it. source: the buffer or scalar that it stands for.
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
    """A pointer that is checked, and the number of its text; elements: of its tensor."""

    field: str
    elements: str
    alignment: int
    number: int


@dataclass(frozen=True)
class Condition:
    """A condition on sizes as an expression, and the number of its text."""

    holds: str
    number: int


@dataclass(frozen=True)
class PlacedMemory:
    """Memory in the workspace; bytes: an expression."""

    name: str
    comment: str
    bytes: str
    zeroed: bool

    @classmethod
    def of(cls, name: str, place: Place, size: str) -> PlacedMemory:
        """Return a place under a name, of a size that is an expression."""
        return cls(name, ", then ".join(place.buffers), size, place.zeroed)


@dataclass(frozen=True)
class Address:
    """The declaration of a buffer's address."""

    code: str
    kind: str = "address"


@dataclass(frozen=True)
class SetView:
    """An output that is a part of other memory: the caller is told where it begins."""

    field: str
    address: str
    kind: str = "view"


@dataclass(frozen=True)
class Call:
    """A call of a helper that puts work on a stream, and returns an error."""

    code: str
    kind: str = "call"


@dataclass(frozen=True)
class Map:
    """A tensor map; type, modes: the driver's enumerators. The others list numbers."""

    name: str
    address: str
    type: str
    rank: int
    extents: str
    strides: str
    box: str
    modes: str
    kind: str = "map"


@dataclass(frozen=True)
class LaunchKernel:
    """A launch; locals: declarations of parameters and of pointers to them. function: the call."""

    kernel: str
    locals: tuple[str, ...]
    function: str
    kind: str = "launch"


Step = Address | SetView | Call | Map | LaunchKernel


def _reads(printed: object, struct: str) -> bool:
    """Return whether what is printed reads a field of a struct that it has a pointer to."""
    return re.search(rf"\b{struct}->", str(printed)) is not None


@dataclass(frozen=True)
class PlanView:
    """What is launched for some targets, at some sizes."""

    name: str
    purpose: str
    conditions: tuple[Condition, ...]
    pointers: tuple[Pointer, ...]
    places: tuple[PlacedMemory, ...]
    steps: tuple[Step, ...]

    @property
    def zeroed_places(self) -> tuple[PlacedMemory, ...]:
        """Return what is zeroed once."""
        return tuple(p for p in self.places if p.zeroed)

    @property
    def other_places(self) -> tuple[PlacedMemory, ...]:
        """Return the other memory."""
        return tuple(p for p in self.places if not p.zeroed)

    @property
    def sizes_unread(self) -> bool:
        """Return whether the places do not depend on sizes."""
        return not _reads([p.bytes for p in self.places], "s")

    @property
    def conditions_unread(self) -> bool:
        """Return whether the conditions do not depend on sizes."""
        return not _reads([c.holds for c in self.conditions], "s")

    @property
    def launches(self) -> bool:
        """Return whether there are kernels."""
        return any(isinstance(s, LaunchKernel) for s in self.steps)

    @property
    def on_stream(self) -> bool:
        """Return whether a step puts anything on the stream."""
        return any(isinstance(s, LaunchKernel | Call) for s in self.steps)

    def issue_parameters(self, constant: str) -> str:
        """Return what the function that issues the steps takes; constant: as of ProgramView."""
        given = ["const CUfunction* functions", "CUstream stream", f"{constant}Arguments* a"]
        if self.places:
            given += ["CUdeviceptr memory", f"const Places_{self.name}* places"]
        return ", ".join(given)

    @property
    def issue_arguments(self) -> str:
        """Return what it is called with."""
        memory = ["(CUdeviceptr)w->memory", "&places"] if self.places else []
        return ", ".join(["functions", "stream", "a", *memory])

    @property
    def unread_parameters(self) -> tuple[str, ...]:
        """Return those that the steps do not read."""
        read = {
            "functions": self.launches,
            "stream": self.on_stream,
            "a": _reads(self.steps, "a") or not self.step_sizes_unread,
            "memory": "memory + places->" in str(self.steps),
            "places": _reads(self.steps, "places"),
        }
        given = ["functions", "stream", "a", *(["memory", "places"] if self.places else [])]
        return tuple(name for name in given if not read[name])

    @property
    def run_sizes_unread(self) -> bool:
        """Return whether what a run checks and places does not depend on sizes."""
        return not self.places and not _reads(self.pointers, "s")

    @property
    def step_sizes_unread(self) -> bool:
        """Return whether the steps do not depend on sizes."""
        return not _reads(self.steps, "s")


@dataclass(frozen=True)
class KernelCode:
    """A kernel and the array with its machine code."""

    name: str
    cubin: str
    shared_bytes: int
    large_clusters: str


@dataclass(frozen=True)
class BuildPlan:
    """The name of a plan, and where in a build its kernels begin."""

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
        """Return the bytes as numbers, 24 a line."""
        rows = (self.content[k : k + 24] for k in range(0, len(self.content), 24))
        return "\n".join(",".join(map(str, row)) + "," for row in rows)


@dataclass(frozen=True)
class ProgramView:
    """A package: k of the templates.

    conditions, pointers: the texts of what all plans ask of them, as literals.
    constant: what stands before the type of the arguments, which views are written into.
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
    languages: str = ""

    @property
    def macro(self) -> str:
        """Return what the names of macros and enumerators begin with."""
        return self.name.upper()

    @property
    def constant(self) -> str:
        """Return `const ` where a run changes no argument."""
        return "const " if all(f.given for f in self.fields) else ""

    @property
    def driver_text(self) -> str:
        """Return the least CUDA version as people write it."""
        return f"{self.driver // 1000}.{self.driver % 1000 // 10}"

    @property
    def targets(self) -> str:
        """Return the targets, separated by commas."""
        return ", ".join(b.target for b in self.builds)

    @property
    def most_kernels(self) -> int:
        """Return how many kernels a program has at most, at least 1."""
        return max(1, *(len(b.kernels) for b in self.builds))
