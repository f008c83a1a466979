"""FusionDefinition: nvFuser's way to write a fusion in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from fusec import ops as table
from fusec.diagnostics import FusecError, Span
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion, Pin, Value
from fusec.ops.build import GraphBuilder
from fusec.ops.names import IDENTIFIER, KEYWORDS
from fusec.parse.dsl import calls, inputs, tensors
from fusec.parse.dsl.datatype import DataType, as_dtype, need_dtype, of_dtype
from fusec.parse.dsl.handles import Handle, Scalar, Tensor, Vector
from fusec.parse.dsl.place import Place, here
from fusec.parse.dsl.refused import refuse
from fusec.parse.dsl.session import current

UNKNOWN_SIZE = 64
"""The default of a `-1` until `execute` shows the actual size."""

_EXECUTE_OPTIONS = """
    device save_repro_inputs _enable_options _disable_options override_user_schedule profile
    capture_debug_output print_repro auto_schedule fusion_execution_cache
"""


class Operations:
    """`fd.ops`: one method for every operation of the table."""

    def __init__(self, definition: FusionDefinition) -> None:
        """Offer the operations on `definition`."""
        self._definition = definition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        with placed():
            op = table.find(calls.OLD_NAMES.get(name, name.rstrip("_")))

        def method(*args: Any, **options: Any) -> Any:
            return self._definition.call(op.name, args, options)

        method.__name__, method.__doc__ = name, op.doc
        return method

    def __dir__(self) -> Iterable[str]:
        return sorted(table.TABLE)


@contextmanager
def placed() -> Iterator[Place | None]:
    """Give the place of the script's call, and put it on errors that have none."""
    place = here()
    try:
        yield place
    except FusecError as error:
        raise error.at(None if place is None else place.span) from None


class FusionDefinition:
    """A fusion being defined: `with FusionDefinition() as fd: ...`, then `fd.execute(inputs)`.

    Subclasses may put their definition into a method `definition`, as nvFuser's older versions do.
    """

    def __init__(
        self, id: Any = None, *_: Any, name: str | None = None, doc: str = "", **options: Any
    ) -> None:
        """Start an empty definition; a string in the first place is its name."""
        place = here()
        own = id if isinstance(id, str) else name
        source = "" if place is None else place.span.file
        self.builder = GraphBuilder(own or _name_from(source), doc=doc, source=source)
        self.ops = self.Ops = Operations(self)
        self._defined = False
        self._has_outputs = False
        self._finished: Fusion | None = None
        self._hints: dict[str, int] = {}
        self.executed_as: Fusion | None = None
        if hasattr(id, "adopt_definition"):
            id.adopt_definition(self)
        current().definitions.append(self)

    def __enter__(self) -> FusionDefinition:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._defined = kind is None

    def define_dim(
        self,
        name: str,
        default: int,
        *,
        multiple_of: int = 1,
        buckets: Sequence[int] = (),
        anonymous: bool = False,
    ) -> Dim:
        """Declare a named size, for use in shapes; dims take part in +, -, *, // and %."""
        with placed() as place:
            self._finished = None
            return self.builder.declare_dim(
                name, default, multiple_of=multiple_of, anonymous=anonymous,
                buckets=tuple(buckets), span=_span(place),
            )  # fmt: skip

    def set_hint(self, symbol: str, value: int) -> None:
        """Set the size, at which decisions are made, of a dim or of a stride `x.stride0`."""
        self._finished = None
        self._hints[symbol] = value

    def define_tensor(
        self,
        *args: Any,
        name: str | None = None,
        range: tuple[float, float] | None = None,
        **options: Any,
    ) -> Tensor:
        """Declare an input tensor; -1 is an unknown size, 1 a broadcast dim."""
        with placed() as place:
            self._finished = None
            form = tensors.read_form(args, options)
            own = self._name(place, name, "T")
            low, high = range or (None, None)
            shape = tuple(
                self._size(own, axis, size, hint)
                for axis, (size, hint) in enumerate(zip(form.shape, form.hints, strict=True))
            )
            strides = form.strides and tuple(calls.as_size(s, "a stride") for s in form.strides)
            value = self.builder.input(
                own, form.dtype, shape, strides=strides, contiguity=form.contiguity,
                stride_order=form.stride_order, low=low, high=high, on_cpu=form.is_cpu,
                span=_span(place),
            )  # fmt: skip
            return Tensor(self, value)

    def _size(self, tensor: str, axis: int, size: Any, hint: int | None) -> Dim | int:
        known = calls.as_size(size, f"dim {axis} of `{tensor}`")
        if known != -1:
            return known
        default = UNKNOWN_SIZE if hint is None else hint
        return self.builder.anonymous_dim(f"{tensor}_size{axis}", default)

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> Tensor:
        """Declare an input like a given tensor."""
        with placed() as place:
            like = inputs.adopt([tensor])[0]
            name = self._name(place, None, "T")
        return self.define_tensor(
            sizes=like.shape or (), strides=like.strides, dtype=of_dtype(like.dtype),
            static_sizes=static_sizes, name=name,
        )  # fmt: skip

    def define_scalar(
        self,
        value: Any = None,
        dtype: Any = None,
        *,
        name: str | None = None,
        default: bool | int | float | complex | None = None,
    ) -> Scalar:
        """Return a constant, or without a value declare a scalar input."""
        with placed() as place:
            if isinstance(value, DataType):
                value, dtype = None, value
            known = as_dtype(dtype)
            if value is not None:
                return Scalar(self, calls.scalar_const(value, known))
            return self._scalar_input(
                self._name(place, name, "S"), known or dtypes.F64, default, place
            )

    define_constant = define_scalar

    def _scalar_input(
        self, name: str, dtype: dtypes.DType, default: Any, place: Place | None
    ) -> Scalar:
        self._finished = None
        value = self.builder.input(name, dtype, None, default=default, span=_span(place))
        return Scalar(self, value)

    def define_vector(
        self, values: Any = None, dtype: Any = DataType.Int, *, size: int | None = None
    ) -> Vector:
        """Return a list of integer scalars: given ones, or as many scalar inputs as `size` says."""
        with placed() as place:
            known = need_dtype(dtype)
            count = size if size is not None else values
            if isinstance(count, int):
                own = self._name(place, None, "V")
                names = [self.builder.fresh_name(f"{own}_{k}") for k in range(count)]
                return Vector(self, [self._scalar_input(n, known, None, place) for n in names])
            elements = [
                v if isinstance(v, Scalar) else Scalar(self, calls.scalar_const(v, known))
                for v in values
            ]
            return Vector(self, elements)

    def call(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Add one operation; `fd.ops.name(...)` comes here."""
        with placed() as place:
            self._finished = None
            op = table.find(name)
            named = dict(options)
            own = named.pop("name", None)
            operands, attributes = calls.read_call(self, op, args, named)
            names = self._result_names(place, own, len(op.results))
            results = self.builder.call(
                op.name, operands, attributes, names=names, span=_span(place)
            )
        handles = [calls.handle_of(self, r) for r in results]
        if op.name == "shape":
            return Vector(self, [h for h in handles if isinstance(h, Scalar)])
        return handles[0] if len(handles) == 1 else tuple(handles)

    def add_output(
        self, output: Any, alias_input: Any = None, stride_order: Sequence[int] | None = None
    ) -> None:
        """Make a value an output; with `alias_input` it is written into that input's memory."""
        with placed() as place:
            self._finished = None
            if isinstance(alias_input, (list, tuple)):
                stride_order, alias_input = list[int](alias_input), None
            if not isinstance(output, Handle):
                raise FusecError(f"an output is a tensor of the fusion, got {output!r}")
            alias = None if alias_input is None else _value_of(alias_input)
            self._has_outputs = True
            self.builder.output(
                output.operand, alias=alias, stride_order=stride_order or None, span=_span(place)
            )

    def pin(self, name: str, values: Sequence[Tensor], scheduler: str | None = None) -> None:
        """Name a segment: the operations that make `values`, and optionally its scheduler."""
        with placed() as place:
            self._finished = None
            names = tuple(_value_of(v).name for v in values)
            self.builder.pin(Pin(name, names, scheduler, _span(place)))

    def fusion(self) -> Fusion:
        """Return the fusion as defined so far."""
        with placed():
            if self._finished is None:
                self._define()
                self._finished = inputs.with_hints(self.builder.finish(), self._hints)
            return self._finished

    @property
    def is_complete(self) -> bool:
        """Return whether there is something to run."""
        return self._has_outputs or (not self._defined and hasattr(self, "definition"))

    def _define(self) -> None:
        definition = getattr(self, "definition", None)
        if definition is not None and not self._defined:
            if type(self).schedule is not FusionDefinition.schedule:
                raise refuse("schedule", "FusionDefinition")
            self._defined = True
            definition()

    def schedule(self) -> None:
        """Refuse: schedules are chosen by fusec."""
        raise refuse("schedule", "FusionDefinition")

    def execute(self, inputs: Iterable[Any], **options: Any) -> list[Any]:
        """Run the fusion on `inputs` and return its outputs, without those written into inputs."""
        with placed():
            unknown = options.keys() - set(_EXECUTE_OPTIONS.split())
            if unknown:
                raise FusecError(f"execute has no argument `{min(unknown)}`")
            from fusec.parse.dsl.execute import execute

            bound, actuals = self._bound(inputs)
            return execute(bound, actuals, current().executor)

    def _bound(self, given: Iterable[Any]) -> tuple[Fusion, tuple[inputs.Actual, ...]]:
        actuals = inputs.adopt(given)
        bound = inputs.bind(self.fusion(), actuals)
        self.executed_as = self.executed_as or bound
        return bound, actuals

    def validate(
        self, inputs: Iterable[Any], reference_outputs: Sequence[Any] | None = None, **_: Any
    ) -> list[Any]:
        """Run the fusion and compare with given outputs, or with fusec's reference."""
        with placed():
            from fusec.parse.dsl.execute import validate

            bound, actuals = self._bound(inputs)
            return validate(bound, actuals, reference_outputs, current().executor)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "definition":
            raise AttributeError(name)
        raise refuse(name, "FusionDefinition", dir(type(self)))

    def __repr__(self) -> str:
        from fusec.parse.twin import to_python

        return to_python(self.fusion())

    def _name(self, place: Place | None, given: str | None, letter: str) -> str:
        """Return the name of a new input: as given, as assigned to, or T0, T1, ..."""
        if given is not None:
            return given
        targets = place.targets if place is not None else ()
        if len(targets) == 1 and _is_usable(targets[0]):
            return self.builder.fresh_name(targets[0])
        count = len(self.builder.value_names)
        return self.builder.fresh_name(f"{letter}{count}")

    def _result_names(
        self, place: Place | None, given: str | Sequence[str] | None, count: int
    ) -> list[str] | None:
        if given is not None:
            return [given] if isinstance(given, str) else list(given)
        targets = place.targets if place is not None else ()
        if len(targets) != count or not all(_is_usable(t) for t in targets):
            return None
        if len(set(targets)) < len(targets):
            return None
        return [self.builder.fresh_name(t) for t in targets]


def _span(place: Place | None) -> Span | None:
    return None if place is None else place.span


def _value_of(handle: Any) -> Value:
    operand = handle.operand if isinstance(handle, Handle) else handle
    if not isinstance(operand, Value):
        raise FusecError(f"a tensor of the fusion is needed here, got {handle!r}")
    return operand


def _is_usable(name: str) -> bool:
    return name not in KEYWORDS and not name.startswith("__") and name != "_"


def _name_from(source: str) -> str:
    stem = Path(source).stem
    return stem if IDENTIFIER.match(stem) and _is_usable(stem) else "fusion"
