"""Emits a package as a TVM-FFI function: tensors by DLPack, sizes read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import Unsupported
from fusec.emit.c import rendered
from fusec.emit.code import Code, joined
from fusec.emit.expressions import Sizes
from fusec.emit.names import C_TYPES, literal
from fusec.emit.view import Field, ProgramView, Size
from fusec.hostir.program import Buffer, HostProgram, dense_strides
from fusec.ir.dim import shape_text, symbol
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion

_CODES = {
    "f16": "kDLFloat", "bf16": "kDLBfloat", "f8e4m3": "kDLFloat8_e4m3fn", "f8e5m2":
    "kDLFloat8_e5m2", "f8e8m0": "kDLFloat8_e8m0fnu", "bool": "kDLBool",
}  # fmt: skip
_KINDS = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "complex": "kDLComplex"}
_HALF_FORMATS = {
    "f16": (5, 10, 0x7BFF), "bf16": (8, 7, 0x7F7F), "f8e5m2": (5, 2, 0x7B), "f8e4m3": (4, 3, 0x7E),
}  # fmt: skip
"""Bits of exponent and mantissa, and the largest number as its bits."""


@dataclass(frozen=True)
class Tensor:
    """A tensor argument; shape, strides: expressions."""

    variable: str
    field: str
    number: int
    dtype: str
    rank: int
    shape: Code
    strides: Code


@dataclass(frozen=True)
class Value:
    """A field of the arguments or sizes, and the expression that is assigned to it."""

    field: str
    value: str


@dataclass(frozen=True)
class About:
    """An argument as named in messages, both texts as literals."""

    field: str
    name: str
    expected: str


@dataclass(frozen=True)
class FunctionView:
    """The function: `k` in its template."""

    name: str
    macro: str
    helpers: frozenset[str]
    signature: str
    arguments: tuple[About, ...]
    tensors: tuple[Tensor, ...]
    bound: tuple[Value, ...]
    scalars: tuple[Value, ...]
    streams: int


def source_of(view: ProgramView, fusion: Fusion, host: HostProgram) -> bytes:
    """Return the C++ source of the function; Unsupported for arguments it cannot pass."""
    return rendered("c/tvm_ffi.cc.j2", _Printer(view, fusion, host).view())


@dataclass
class _Printer:
    """Builds the view of a function."""

    view_: ProgramView
    fusion: Fusion
    host: HostProgram
    sizes: Sizes = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = Sizes({s.symbol: Code(f"s.{s.name}") for s in self.view_.sizes})

    def view(self) -> FunctionView:
        name = self.view_.name
        if self.view_.axes:
            raise Unsupported(
                f"`{name}` cannot be emitted for TVM-FFI: {self.view_.ranks} ranks run it "
                "together, and its function takes no communicators",
                help="--emit c",
            )
        hidden = next((f for f in self.view_.fields if not f.given), None)
        if hidden is not None:
            raise Unsupported(
                f"`{name}` cannot be emitted for TVM-FFI: output `{hidden.source}` is a view of "
                "other memory, and the function writes to preallocated outputs"
            )
        complex_ = next((s.of for s in self.host.scalars if s.of), None)
        if complex_ is not None:
            raise Unsupported(
                f"`{name}` cannot be emitted for TVM-FFI: it does not support complex numbers "
                f"such as `{complex_}`"
            )
        order = self._order()
        tensors = tuple(self._tensors(order))
        if not tensors:
            raise Unsupported(f"`{name}` cannot be emitted for TVM-FFI: it has no tensors")
        return FunctionView(
            name=name,
            macro=self.view_.macro,
            signature=", ".join(order),
            arguments=tuple(self._about(n) for n in order),
            tensors=tensors,
            bound=tuple(Value(s.name, self._bound(s, tensors, order)) for s in self.view_.sizes),
            scalars=tuple(self._scalars(order)),
            helpers=frozenset(self.sizes.called),
            streams=self.view_.streams,
        )

    def _order(self) -> tuple[str, ...]:
        """Return the arguments: the inputs in order, then outputs with memory of their own."""
        inputs = [i.value.name for i in self.fusion.inputs]
        outputs = [f.source for f in self.view_.fields if f.written and f.source not in inputs]
        return (*inputs, *outputs)

    @property
    def _fields(self) -> Mapping[str, Field]:
        return {f.source: f for f in self.view_.fields}

    def _about(self, name: str) -> About:
        given = self._fields.get(name)
        buffer = self.host.buffer.get(name)
        if buffer is None:
            scalar = next(s for s in self.host.scalars if s.name == name)
            kind = "an integer" if scalar.dtype.is_integer else "a number"
            kind = "true or false" if scalar.dtype.kind == "bool" else kind
            text = f"{kind} for {scalar.dtype}"
        else:
            text = f"a CUDA tensor {buffer.dtype}{shape_text(buffer.shape)}"
            if buffer.strides != dense_strides(buffer.shape):
                text += f" with strides {shape_text(buffer.strides)}"
        field_ = given.name if given is not None else self._size_of(name).name
        return About(field_, literal(name), literal(text))

    def _size_of(self, name: str) -> Size:
        return next(s for s in self.view_.sizes if s.symbol == name)

    def _tensors(self, order: tuple[str, ...]) -> Iterator[Tensor]:
        for number, name in enumerate(order):
            given, buffer = self._fields.get(name), self.host.buffer.get(name)
            if given is None or buffer is None:
                continue
            yield Tensor(
                variable=f"{given.name}_tensor",
                field=given.name,
                number=number,
                dtype=f"{{{code_of(buffer.dtype)}, {buffer.dtype.size * 8}, 1}}",
                rank=len(buffer.shape),
                shape=joined(", ", map(self.sizes.text, buffer.shape)),
                strides=joined(", ", map(self.sizes.text, buffer.strides)),
            )

    def _bound(self, size: Size, tensors: tuple[Tensor, ...], order: tuple[str, ...]) -> str:
        """Return where a size is read from: a scalar, an extent, a stride."""
        if size.symbol in order:
            scalar = next(s for s in self.host.scalars if s.name == size.symbol)
            return self._integer(scalar.dtype, size.name, order.index(size.symbol))
        wanted = symbol(size.symbol)
        for tensor in tensors:
            buffer: Buffer = self.host.buffer[order[tensor.number]]
            for axis, extent in enumerate(buffer.shape):
                times = extent.divide(wanted)
                if times is not None and times.is_const and times != 0:
                    by = "" if times == 1 else f" / {times}"
                    return f"{tensor.variable}.shape[{axis}]{by}"
        for tensor in tensors:
            buffer = self.host.buffer[order[tensor.number]]
            if wanted in buffer.strides:
                return f"stride_of({tensor.variable}, {buffer.strides.index(wanted)})"
        raise Unsupported(
            f"`{self.view_.name}` cannot be emitted for TVM-FFI: `{size.symbol}` is not an extent "
            "of any argument"
        )

    def _integer(self, dtype: DType, field_: str, number: int) -> str:
        least = "INT64_MIN" if dtype.bits == 64 else f"INT{dtype.bits}_MIN"
        most = f"INT{dtype.bits}_MAX"
        if dtype.kind == "uint":
            least, most = "0", "INT64_MAX" if dtype.bits == 64 else f"UINT{dtype.bits}_MAX"
        self.sizes.called.add("integer_of")
        return f"integer_of(given[{number}], about_{field_}, {least}, {most})"

    def _scalars(self, order: tuple[str, ...]) -> Iterator[Value]:
        for number, name in enumerate(order):
            given = self._fields.get(name)
            if given is None or name in self.host.buffer:
                continue
            yield Value(given.name, self._scalar(given.dtype, given.name, number))

    def _scalar(self, dtype: DType, field_: str, number: int) -> str:
        kind = C_TYPES.get(dtype.name)
        if dtype.is_integer:
            return f"static_cast<{kind}>({self._integer(dtype, field_, number)})"
        self.sizes.called.add("number_of")
        read = f"number_of(given[{number}], about_{field_})"
        if dtype.kind == "bool":
            return f"{read} != 0"
        if kind is not None:
            return f"static_cast<{kind}>({read})"
        if dtype.name not in _HALF_FORMATS:
            raise Unsupported(
                f"`{self.view_.name}` cannot be emitted for TVM-FFI: numbers of type {dtype} are "
                "not passed to it"
            )
        exponent, fraction, largest = _HALF_FORMATS[dtype.name]
        self.sizes.called.add("bits_of")
        bits = f"bits_of({read}, {exponent}, {fraction}, {largest})"
        return bits if dtype.size == 2 else f"static_cast<uint8_t>({bits})"


def code_of(dtype: DType) -> str:
    """Return DLPack's code of an element type."""
    if dtype.bits < 8:
        raise Unsupported(f"tensors of {dtype} cannot be passed to TVM-FFI")
    return _CODES.get(dtype.name) or _KINDS[dtype.kind]
