"""Host programs as data: buffers, and instructions over them in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import FusecError, Span
from fusec.hostir.check import Check
from fusec.hostir.instructions import For, Instruction, Launch, Post
from fusec.hostir.records import OMITTED
from fusec.ir.dim import Dim, Shape, dim, product, shape_text
from fusec.ir.dtype import DType
from fusec.properties import cached_property
from fusec.schedule.orders import PlannedOrder
from fusec.schedule.plan import Guard

if TYPE_CHECKING:
    from fusec.reference.errors.order import Order

VERSION = 1
"""Version of the format; it increases when a field changes its meaning or is removed."""


@dataclass(frozen=True)
class Buffer:
    """A named buffer; `role` is input, output, temporary or workspace. Strides in elements.

    alignment: required alignment of its address, in bytes.
    """

    name: str
    role: str
    dtype: DType
    shape: Shape
    strides: Shape
    alignment: int = 16

    @property
    def elements(self) -> Dim:
        """Return the number of elements of a dense buffer."""
        return product(self.shape)

    @property
    def dense_bytes(self) -> Dim:
        """Return the bytes of its elements, without gaps between them."""
        return self.elements * self.dtype.size

    def bytes(self, sizes: Mapping[str, int]) -> int:
        """Return how many bytes of memory it spans at `sizes`."""
        shape = [d.evaluate(sizes) for d in self.shape]
        return span(shape, [d.evaluate(sizes) for d in self.strides]) * self.dtype.size

    def __str__(self) -> str:
        layout = (
            ""
            if self.strides == dense_strides(self.shape)
            else f" strides {shape_text(self.strides)}"
        )
        return f"{self.role} {self.name}: {self.dtype}{shape_text(self.shape)}{layout}"


@dataclass(frozen=True)
class Scalar:
    """A scalar input, passed to kernels by value; `default` is used where none is given.

    of, part: for a part of a complex number the input that is given, and `real` or `imag`.
    """

    name: str
    dtype: DType
    default: bool | int | float | None = None
    of: str = field(default="", metadata=OMITTED)
    part: str = field(default="", metadata=OMITTED)

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {self.default}"
        whole = f" ({self.part} part of {self.of})" if self.of else ""
        return f"scalar {self.name}: {self.dtype}{default}{whole}"


@dataclass(frozen=True)
class IndexCheck:
    """An index that must be in [0, extent).

    number: in a kernel's report. index: its value if known from sizes; it is then checked before
    the run. op, name, place: the operation, the index and its source location.
    """

    number: int
    op: str
    name: str
    extent: Dim
    place: str
    index: Dim | None = None
    span: Span | None = field(default=None, compare=False)

    def __str__(self) -> str:
        value = self.name if self.index is None else str(self.index)
        return f"0 <= {value} < {self.extent} for `{self.op}` ({self.place})"

    def error(self, value: int, sizes: Mapping[str, int]) -> FusecError:
        """Return the error about an index out of bounds."""
        extent = self.extent.evaluate(sizes)
        return FusecError(
            f"`{self.op}`: index {value} of `{self.name}` is out of bounds for an extent of "
            f"{extent}",
            span=self.span,
            notes=() if self.span else (f"at {self.place}",) if self.place else (),
            help=f"expected 0 to {extent - 1}" if extent else "the tensor has no elements",
        )


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements of memory a tensor spans; 0 for an empty one."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def dense_strides(shape: Shape) -> Shape:
    """Return the strides of a dense row-major tensor."""
    return tuple(product(shape[k + 1 :]) for k in range(len(shape)))


@dataclass(frozen=True)
class HostProgram:
    """Everything that a run needs except the kernels' machine code."""

    version: int = field(default=VERSION, kw_only=True)
    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[str, ...]
    guards: tuple[Guard, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    """(output, input whose memory it is written into)"""
    checks: tuple[IndexCheck, ...] = field(default=(), metadata=OMITTED)
    orders: Mapping[str, PlannedOrder] = field(
        default_factory=dict[str, PlannedOrder], metadata=OMITTED
    )
    """The summation orders, by first result of each sum in the fusion before passes."""
    summation: Mapping[str, str] = field(default_factory=dict[str, str], metadata=OMITTED)
    """The digests of the outputs' summation trees."""
    approximated: tuple[str, ...] = field(default=(), metadata=OMITTED)
    """The values of the fusion before passes that approximate forms of operations compute."""
    inside: tuple[str, ...] = field(default=(), metadata=OMITTED)
    """Those that are computed as a part of the form of a product around them."""
    rounded_early: Mapping[str, int] = field(default_factory=dict[str, int], metadata=OMITTED)
    """Those of 16-bit floats that are rounded before they are scaled: see `KernelPlan`."""
    unrounded: tuple[str, ...] = field(default=(), metadata=OMITTED)
    """Those of 16-bit floats that are not rounded."""

    @cached_property
    def buffer(self) -> Mapping[str, Buffer]:
        """Return the buffers by name."""
        return {b.name: b for b in self.buffers}

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Return the tensors that the caller passes."""
        return tuple(b for b in self.buffers if b.role == "input")

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Return the kernel launches in order, those of loops once."""
        return tuple(i for i in every(self.instructions) if isinstance(i, Launch))

    @property
    def posts(self) -> tuple[Post, ...]:
        """Return the instructions that run segments, in order, those of loops once."""
        return tuple(i for i in every(self.instructions) if isinstance(i, Post))

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all guards hold at `sizes`."""
        return all(guard.holds(sizes) for guard in self.guards)

    def check_guards(self, sizes: Mapping[str, int]) -> None:
        """Raise FusecError for the first guard that does not hold at `sizes`."""
        for guard in self.guards:
            if not guard.holds(sizes):
                raise FusecError(
                    f"the kernels are not compiled for these sizes: `{guard}` does not hold",
                    notes=(
                        f"{guard.value} is {guard.value.evaluate(sizes)}",
                        *filter(None, [guard.reason]),
                    ),
                    help="compile for these sizes",
                )

    def check_indices(self, sizes: Mapping[str, int]) -> None:
        """Raise FusecError for the first index known from sizes that is out of bounds."""
        for check in self.checks:
            value = None if check.index is None else check.index.evaluate(sizes)
            if value is not None and not 0 <= value < check.extent.evaluate(sizes):
                raise check.error(value, sizes)

    def check_noted(self, number: int, value: int, sizes: Mapping[str, int]) -> None:
        """Raise FusecError for an index that a kernel reported by its check's number."""
        for check in self.checks:
            if check.number == number and check.index is None:
                raise check.error(value, sizes)

    def orders_at(self, sizes: Mapping[str, int]) -> dict[str, Order]:
        """Return the summation order of each sum at `sizes`."""
        return {name: order.at(sizes) for name, order in self.orders.items()}

    def text(self) -> str:
        """Return the program as text, one line for each buffer, guard and instruction."""
        lines = [f"host program {self.name}:"]
        lines += [f"  {b}" for b in self.buffers]
        lines += [f"  {s}" for s in self.scalars]
        lines += [f"  guard {g}" for g in self.guards]
        lines += [f"  check {c}" for c in self.checks]
        lines += [f"  order {name}: {order}" for name, order in self.orders.items()]
        lines += [f"  approximated {name}" for name in (*self.approximated, *self.inside)]
        lines += [f"  rounded early {name}: {t} terms" for name, t in self.rounded_early.items()]
        lines += [f"  not rounded {name}" for name in self.unrounded]
        lines += _lines(self.instructions)
        lines.append(f"  return {', '.join(self.outputs)}")
        return "\n".join(lines) + "\n"


def every(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yield instructions in order, each loop followed by its body."""
    for instruction in instructions:
        yield instruction
        if isinstance(instruction, For):
            yield from every(instruction.body)


def _lines(instructions: tuple[Instruction, ...], margin: str = "  ") -> list[str]:
    lines: list[str] = []
    for k, instruction in enumerate(instructions):
        lines.append(f"{margin}{k}: {instruction}")
        if isinstance(instruction, For):
            lines += _lines(instruction.body, f"{margin}  ")
    return lines


def check_program(program: HostProgram) -> None:
    """Raise FusecError where an instruction uses a buffer or symbol that does not exist yet."""
    if program.version != VERSION:
        raise FusecError(
            f"the host program has version {program.version}, expected {VERSION}",
            help="compile again",
        )
    given = (b.name for b in program.inputs)
    check = Check(program.name, (s.name for s in program.scalars), given)
    for instruction in program.instructions:
        check.instruction(instruction)
    check.ends((name, _may_be_empty(program, name)) for name in program.outputs)
    for name, order in program.orders.items():
        order.check(name)


def _may_be_empty(program: HostProgram, name: str) -> bool:
    """Return whether guards and its shape imply that a buffer has no elements."""
    if name not in program.buffer:
        return False
    fixed = {str(g.value): dim(g.bound) for g in program.guards if g.relation == "=="}
    elements = program.buffer[name].elements
    none = (g.value for g in program.guards if g.relation == "==" and g.bound == 0)
    # A guard may be about a factor of it.
    return elements.substitute(fixed) == 0 or any(elements.divide(n) is not None for n in none)
