"""Fusions: inputs, nodes in SSA order and outputs, all immutable."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import Span
from fusec.ir.annotations import Override, Phase, Pin
from fusec.ir.dim import Dim, Shape, shape_text
from fusec.ir.dtype import DType
from fusec.ir.op import OpDef
from fusec.ir.sharding import Mesh, Sharding
from fusec.properties import cached_property

if TYPE_CHECKING:
    from fusec.ir.effects import Effects


@dataclass(frozen=True)
class Type:
    """An element type and a shape; the shape is None for a scalar (a 0-dim tensor has shape ())."""

    dtype: DType
    shape: Shape | None
    dim: Dim | None = None
    """For an integer scalar computed from sizes: its value."""

    def __str__(self) -> str:
        return f"{self.dtype}{'' if self.shape is None else shape_text(self.shape)}"


@dataclass(frozen=True, eq=False)
class Value:
    """A result of a node or an input, compared by identity; names are unique in a fusion."""

    name: str
    type: Type

    @property
    def dtype(self) -> DType:
        """Return the element type."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """Return the shape; () for a scalar."""
        return self.type.shape or ()

    @property
    def rank(self) -> int:
        """Return the number of dims."""
        return len(self.shape)

    @property
    def is_scalar(self) -> bool:
        """Return whether this is a scalar, not a tensor."""
        return self.type.shape is None

    @cached_property
    def is_empty(self) -> bool:
        """Return whether an extent is 0, so that there are no elements."""
        return any(e == 0 for e in self.shape)

    @cached_property
    def has_unit_extent(self) -> bool:
        """Return whether an extent is 1."""
        return any(e == 1 for e in self.shape)

    @property
    def dim(self) -> Dim | None:
        """Return the value of an integer scalar that is known from sizes."""
        return self.type.dim

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class Const:
    """A literal scalar operand; Python floats are f64, ints i64, bools bool.

    wrapped: the integer as written, if it does not fit the type of the computation.
    """

    value: bool | int | float | complex
    dtype: DType
    wrapped: int | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        # repr distinguishes 0.0 from -0.0 and True from 1, and nan compares equal to itself.
        return (
            isinstance(other, Const)
            and self.dtype == other.dtype
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    @property
    def type(self) -> Type:
        """Return the scalar type; an integer beyond 64 signed bits cannot be a size."""
        from fusec.ir.dim import dim

        value = self.value
        is_size = isinstance(value, int) and not isinstance(value, bool) and value < 2**63
        return Type(self.dtype, None, dim(value) if is_size else None)  # pyright: ignore[reportArgumentType]

    @property
    def is_scalar(self) -> bool:
        """Return True."""
        return True

    @property
    def shape(self) -> Shape:
        """Return ()."""
        return ()


Operand = Value | Const


@dataclass(frozen=True, eq=False)
class Node:
    """An application of an operation; `operands` omits absent optional operands.

    origin: the value for which a pass created the node, if its own name differs.
    """

    op: OpDef
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Value, ...]
    span: Span | None = None
    origin: str = field(default="", compare=False)

    @property
    def output(self) -> Value:
        """Return the first result."""
        return self.outputs[0]

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Return the operands that are values."""
        return tuple(o for o in self.operands if isinstance(o, Value))

    @cached_property
    def kind(self) -> Hashable:
        """Return the operation, its attributes and the types of its results; no operands."""
        from fusec.ir.structure import node_kind

        return node_kind(self)

    @property
    def compute_dtypes(self) -> tuple[DType, ...]:
        """Return the type to which each operand is converted."""
        return self.op.compute(self.operands, self.output.dtype)

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.outputs)
        operands = ", ".join(
            o.name if isinstance(o, Value) else repr(o.value) for o in self.operands
        )
        return f"{names} = {self.op.name}({operands})"


@dataclass(frozen=True)
class ComplexPart:
    """A real tensor or scalar as part of a complex one: `of` is its name, `index` is 1 for `im`.

    In memory the parts of a complex number are adjacent, the real one first.
    """

    of: str
    index: int
    dtype: DType


@dataclass(frozen=True)
class Input:
    """An input and its layout.

    strides: one Dim per dim, in elements; a stride that is only known at run time is a symbol of
        its own (`x.stride0`), an expanded dim has stride 0.
    low, high: the interval of random values (None: from the operations that use it).
    default: the value of a scalar input. on_cpu: a 0-dim tensor in CPU memory.
    part: its part of a complex input of the caller. generator: `seed` or `offset` if no caller
        passes this: it is the state of the program's random generator.
    ranks: the ranks that hold it; None: all.
    """

    value: Value
    strides: tuple[Dim, ...] = ()
    low: float | None = None
    high: float | None = None
    default: bool | int | float | complex | None = None
    on_cpu: bool = False
    span: Span | None = None
    part: ComplexPart | None = None
    generator: str = ""
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Output:
    """An output; `alias` names the input whose memory it is written into.

    stride_order: as in nvFuser, the rank of each dim counted from the fastest one (0), or None.
    part: its part of a complex output of the caller. strides: in elements, if it is stored in a
    larger tensor.
    """

    value: Value
    alias: str | None = None
    stride_order: tuple[int, ...] | None = None
    span: Span | None = None
    part: ComplexPart | None = None
    strides: Shape | None = None

    @property
    def step(self) -> int:
        """Return the stride of adjacent elements in memory: 2 in a complex tensor."""
        return 1 if self.part is None else 2


def whole_name(entry: Input | Output) -> str:
    """Return the caller's name of an input or output."""
    return entry.value.name if entry.part is None else entry.part.of


@dataclass(frozen=True)
class DimFact:
    """A symbol with its default size and known properties."""

    name: str
    default: int
    multiple_of: int = 1
    anonymous: bool = False
    buckets: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Fusion:
    """A graph of operations on inputs; equality is structural: names and spans do not count.

    phases: the parts of a joint graph, in order; empty for a graph that runs as one. saved: in such
    a part, the inputs and outputs that one phase saves for another. boundaries: `explicit` if
    groups end only at `segment_set`. schedules: the user's settings of segments' schedules. mesh:
    the ranks that run it together. shardings: how values are sharded over them and over streams, by
    name, where specified. as_defined: the names of alternative definitions that plans do not use:
    the values they would redefine are computed as written.
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    dims: tuple[DimFact, ...] = ()
    doc: str = ""
    pins: tuple[Pin, ...] = ()
    phases: tuple[Phase, ...] = ()
    saved: tuple[str, ...] = ()
    boundaries: str = "free"
    schedules: tuple[Override, ...] = ()
    mesh: Mesh | None = None
    shardings: Mapping[str, Sharding] = field(default_factory=dict[str, Sharding])
    as_defined: frozenset[str] = frozenset()
    source: str = field(default="", compare=False)

    @property
    def given(self) -> tuple[Input, ...]:
        """Return the inputs that a caller passes: all but the state of the generator."""
        return tuple(i for i in self.inputs if not i.generator)

    @cached_property
    def producer(self) -> Mapping[Value, Node]:
        """Return the node that computes each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """Return the nodes that read each value, in order, without duplicates."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                users.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in users.items()}

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Return all values: inputs, then results in order."""
        return (*(i.value for i in self.inputs), *(v for n in self.nodes for v in n.outputs))

    @property
    def names(self) -> set[str]:
        """Return the names of all values and dims as a new set, to which `fresh_name` adds."""
        return {v.name for v in self.values} | {d.name for d in self.dims}

    @cached_property
    def input_of(self) -> Mapping[Value, Input]:
        """Return the Input of each input value."""
        return {i.value: i for i in self.inputs}

    @cached_property
    def input_position(self) -> Mapping[Value, int]:
        """Return the position of each input value in the order of inputs."""
        return {i.value: k for k, i in enumerate(self.inputs)}

    @cached_property
    def output_of(self) -> Mapping[Value, Output]:
        """Return the Output of each output value."""
        return {o.value: o for o in self.outputs}

    @cached_property
    def canonical_order(self) -> tuple[Node, ...]:
        """Return the nodes that outputs need, in an order that depends only on structure."""
        from fusec.ir.structure import canonical_order

        return canonical_order(self)

    @cached_property
    def effects(self) -> Effects:
        """Return the fusion's writes into its inputs."""
        from fusec.ir.effects import Effects

        return Effects(self)

    @cached_property
    def position(self) -> Mapping[Node, int]:
        """Return the position of each node in the order."""
        return {node: k for k, node in enumerate(self.nodes)}

    @cached_property
    def hints(self) -> Mapping[str, int]:
        """Return the default size of each symbol."""
        return {d.name: d.default for d in self.dims}

    def readers(self, value: Value, passes: Callable[[Node], bool]) -> Iterator[tuple[Node, Value]]:
        """Yield the readers of a value, also through nodes that pass it on, and what they read."""
        left, seen = [value], set[Value]()
        while left:
            current = left.pop()
            if current in seen:
                continue
            seen.add(current)
            for node in self.users.get(current, ()):
                yield node, current
                if passes(node):
                    left += node.outputs

    def find(self, name: str) -> Value | None:
        """Return the value called `name`."""
        return next((v for v in self.values if v.name == name), None)

    def with_nodes(self, nodes: Iterable[Node], outputs: Iterable[Output] | None = None) -> Fusion:
        """Return the fusion with other nodes, and other outputs if given."""
        return replace(
            self, nodes=tuple(nodes), outputs=self.outputs if outputs is None else tuple(outputs)
        )

    def structure(self, *, offsets: bool = True) -> tuple[Any, ...]:
        """Return a key for structural equality: values and symbols are numbered by first use.

        offsets: whether literals count that only select random numbers.
        """
        from fusec.ir.structure import structure_of

        return structure_of(self, offsets=offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fusion) and self.structure() == other.structure()

    def __hash__(self) -> int:
        return hash(self.structure())


def needed_nodes(
    nodes: Sequence[Node], wanted: Iterable[Value], given: Collection[Value] = ()
) -> list[Node]:
    """Return those of some nodes, in order, that compute `wanted` from the `given` values."""
    live, kept = {v for v in wanted if v not in given}, list[Node]()
    for node in reversed(nodes):
        if any(v in live for v in node.outputs):
            live.update(v for v in node.inputs if v not in given)
            kept.append(node)
    kept.reverse()
    return kept
