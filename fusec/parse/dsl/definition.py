"""FusionDefinition: nvFuser's way to write a fusion in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from fusec import executor
from fusec.codes.calls import MISSING_ARGUMENT
from fusec.codes.declarations import ALIAS_NOT_AN_INPUT
from fusec.diagnostics import FusecError, Span, WrongType
from fusec.generator import PARTS
from fusec.ir import dtype as dtypes
from fusec.ir.dim import Dim, symbol
from fusec.ir.graph import Fusion, Operand, Value
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.builder.size_operands import operand_of_size
from fusec.ops.builder.wording import PythonWording
from fusec.ops.frameworks import find_bare
from fusec.ops.names import check_name
from fusec.parse.dsl import calls, inputs, tensors
from fusec.parse.dsl.boundaries import nothing, span_of, value_of
from fusec.parse.dsl.datatype import DataType, as_dtype, need_dtype, of_dtype
from fusec.parse.dsl.divided import UNKNOWN_SIZE
from fusec.parse.dsl.executed import Executed
from fusec.parse.dsl.handles import Handle, Scalar, Tensor, Vector
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.naming import fusion_name, input_name, result_names
from fusec.parse.dsl.operations import Operations
from fusec.parse.dsl.place import Place, here, placed
from fusec.parse.dsl.refused import find_nvfuser_op, refuse, refuse_schedule
from fusec.parse.dsl.results import Results
from fusec.parse.dsl.session import current
from fusec.parse.dsl.size import Size
from fusec.parse.dsl.steps import Steps
from fusec.parse.dsl.suggested import with_call


def _name(value: Operand) -> str:
    return value.name if isinstance(value, Value) else str(value)


class FusionDefinition(Executed):
    """The Python definition of a fusion: `with FusionDefinition() as fd: ...`.

    `fd.execute(inputs)` runs it. Subclasses may override `definition` instead of using `with`, as
    in older versions of nvFuser. Wrong calls raise FusecError with file, line and column.
    """

    def __init__(
        self, id: Any = None, *_: Any, name: str | None = None, doc: str = "", **options: Any
    ) -> None:
        """Start an empty definition; a string as the first argument is its name.

        Without `doc` the script's docstring describes the fusion.
        """
        place = here()
        doc = doc or (place.doc if place is not None else "")
        source = "" if place is None else place.span.file
        own = (id if isinstance(id, str) else name) or fusion_name(source)
        with placed():
            super().__init__()
            words = PythonWording()
            start = partial(GraphBuilder, own, doc=doc, source=source, words=words)
            self._steps = Steps(start, self.divided)
        self.ops = self.Ops = Operations(self)
        self._inputs: list[tuple[str, int | None]] = []
        self._defaults: dict[str, Any] = {}
        self._unknown = False
        self._defined = self._scheduled = False
        self._has_outputs = False
        self._hints: dict[str, tuple[int, Span | None]] = {}
        self._sized: dict[str, Span | None] = {}
        self.executed_as: Fusion | None = None
        # The `Fusion` of nvFuser's first versions needs its definition.
        adopt: Callable[[FusionDefinition], None] | None = getattr(id, "adopt_definition", None)
        if adopt is not None:
            adopt(self)
        current().definitions.append(self)

    def _repr_html_(self) -> str | None:
        """Return the page of `fusec explain --html`, for notebooks; None before any output."""
        return executor.describe(self.graph(), "page") if self.is_complete else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._defined = kind is None

    @property
    def _builder(self) -> GraphBuilder:
        return self._steps.build.builder

    def knows(self, handle: Handle) -> bool:
        """Return whether the graph already has a handle's value."""
        return handle in self._steps.build.operands

    def operand_of(self, handle: Handle) -> Operand:
        """Return the operand of a handle; raise the error of its step if that needs sizes."""
        operand = self._steps.build.operands.get(handle)
        if operand is None:
            failure = self._steps.failure
            raise failure or FusecError("a value is used before its definition")
        return self._builder.resolve(operand)

    def operand_of_size(self, size: Dim) -> Operand:
        """Return a size as a number, computed from the inputs that have it."""
        return operand_of_size(self._builder, size)

    def known(self, size: Dim) -> Dim:
        """Return a size with the values of scalar inputs, if an execution has provided them."""
        return self._steps.build.known(size)

    def whole_number(self, scalar: Value) -> int | None:
        """Return the integer value of a scalar, if an execution has provided its inputs."""
        return self._steps.build.whole_number(scalar)

    def is_scalar_input(self, value: Value) -> bool:
        """Return whether a value is a scalar input that every execution provides."""
        return (value.name, None) in self._inputs

    def value_of(self, scalar: str) -> int | float:
        """Return the value of a scalar input; UnknownValue if no execution has provided it."""
        return self._steps.build.value_of(scalar)

    def define_dim(
        self,
        name: str,
        default: int | None = None,
        *,
        multiple_of: int = 1,
        buckets: Sequence[int] = (),
        anonymous: bool = False,
    ) -> Dim:
        """Declare a named size for shapes; dims support +, -, *, // and %.

        default: the size for which the fusion is scheduled. multiple_of: a divisor of every size.
        buckets: sizes for which kernels are compiled in advance.
        """
        declared: list[Dim] = []
        with placed() as place:
            if default is None:
                raise FusecError(
                    f"dim `{name}` needs a default size, the one it is planned for",
                    help=f"write `{name} = fd.define_dim({name!r}, 1024)`".replace("'", '"'),
                    code=MISSING_ARGUMENT,
                )
            size_by_default = default

            def step() -> None:
                size = self._builder.declare_dim(
                    name, size_by_default, multiple_of=multiple_of, anonymous=anonymous,
                    buckets=tuple(buckets), span=span_of(place),
                )  # fmt: skip
                declared.append(size)

            self._steps.declare(step)
        return Size(self, declared[0])

    def set_hint(self, symbol: str, value: int) -> None:
        """Set the size, at which decisions are made, of a dim or of a stride `x.stride0`."""
        with placed() as place:
            self._hints[symbol] = int(value), span_of(place)

    def size_of(self, scalar: str) -> Dim:
        """Return the size that an integer scalar input holds, which may be declared later."""
        with placed() as place:
            check_name(scalar, "scalar")
            self._sized[scalar] = span_of(place)
        return Size(self, symbol(scalar, extent=False))

    def define_tensor(
        self,
        *args: Any,
        name: str | None = None,
        range: tuple[float, float] | None = None,
        **options: Any,
    ) -> Tensor:
        """Declare an input tensor.

        Of the shape, -1 is an unknown size and 1 a broadcast dim; strides are in elements. range:
        the limits of random inputs.
        """
        with placed() as place:
            form = tensors.read_form(args, options)
            own = self._input_name(place, name, "T")
            low, high = range or (None, None)
            handle = Tensor(self)

            def step() -> None:
                shape = [
                    self._size(own, axis, size, hint)
                    for axis, (size, hint) in enumerate(zip(form.shape, form.hints, strict=True))
                ]
                strides = form.strides and [calls.as_size(s, "a stride") for s in form.strides]
                self._steps.build.operands[handle] = self._builder.input(
                    own, form.dtype, shape, strides=strides, contiguity=form.contiguity,
                    stride_order=form.stride_order, low=low, high=high, on_cpu=form.is_cpu,
                    span=span_of(place),
                )  # fmt: skip

            self._steps.declare(step)
            self._inputs.append((own, len(form.shape)))
        return handle

    def define_generator(self, part: str, *, name: str | None = None) -> Tensor:
        """Declare the `seed` or the `offset` of the program's generator, which no caller passes.

        Random operations without a seed read both implicitly; named ones can be shared.
        """
        with placed() as place:
            if part not in PARTS:
                raise FusecError(f"the generator has no {part!r}", help="`seed` or `offset`")
            own = input_name(self._builder, place, name, f"rng_{part}")
            handle = Tensor(self)

            def step() -> None:
                made = self._builder.generator_input(own, part, span_of(place))
                self._steps.build.operands[handle] = made

            self._steps.declare(step)
        return handle

    def _input_name(self, place: Place | None, given: str | None, letter: str) -> str:
        return input_name(self._builder, place, given, f"{letter}{len(self._inputs)}")

    def _size(self, tensor: str, axis: int, size: Any, hint: int | None) -> Dim | int:
        if isinstance(size, str):
            raise WrongType(
                f"dim {axis} of `{tensor}` is a size, got {size!r}",
                help=f'write `{size} = fd.define_dim("{size}", 1024)` before it, and `{size}` here',
            )
        declared = calls.as_size(size, f"dim {axis} of `{tensor}`")
        if declared != -1:
            return declared
        self._unknown = True
        if self._steps.build.sizes is not None:
            return int(self._steps.build.sizes[tensor, axis])
        default = UNKNOWN_SIZE if hint is None else hint
        return self._builder.anonymous_dim(f"{tensor}_size{axis}", default)

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> Tensor:
        """Declare an input with the dtype, shape and strides of a PyTorch tensor.

        static_sizes: whether its sizes are constants; else they are unknown sizes.
        """
        return self._declare_like(tensor, static_sizes)

    def _declare_like(self, tensor: Any, static_sizes: bool, *, is_cpu: bool = False) -> Tensor:
        with placed() as place:
            like = inputs.adopt([tensor])[0]
            name = self._input_name(place, None, "T")
        return self.define_tensor(
            sizes=like.shape or (), strides=like.strides, dtype=of_dtype(like.dtype),
            static_sizes=static_sizes, is_cpu=is_cpu, name=name,
        )  # fmt: skip

    def define_scalar(
        self,
        value: Any = None,
        dtype: Any = None,
        *,
        name: str | None = None,
        default: bool | int | float | complex | None = None,
    ) -> Scalar:
        """Return a constant, or declare a scalar input if no value is given.

        default: the value of the input in runs that do not give one.
        """
        with placed() as place:
            if isinstance(value, DataType):
                value, dtype = None, value
            known = as_dtype(dtype)
            if value is not None:
                return Scalar(self, calls.scalar_const(value, known))
            own = self._input_name(place, name, "S")
            return self._scalar_input(own, known or dtypes.F64, default, place)

    define_constant = define_scalar

    def _scalar_input(
        self, name: str, dtype: dtypes.DType, default: Any, place: Place | None
    ) -> Scalar:
        handle = Scalar(self)

        def step() -> None:
            self._steps.build.operands[handle] = self._builder.input(
                name, dtype, None, default=default, span=span_of(place)
            )

        self._steps.declare(step)
        self._unknown = self._unknown or dtype.is_integer
        self._inputs.append((name, None))
        self._defaults[name] = default
        return handle

    def define_vector(
        self, values: Any = None, dtype: Any = DataType.Int, *, size: int | None = None
    ) -> Vector:
        """Return a list of integer scalars: constants, or `size` scalar inputs."""
        with placed() as place:
            known = need_dtype(dtype)
            count = size if size is not None else values
            if isinstance(count, int):
                own = self._input_name(place, None, "V")
                names = [self._builder.fresh_name(f"{own}_{k}") for k in range(count)]
                return Vector(self, [self._scalar_input(n, known, None, place) for n in names])
            elements = [
                v if isinstance(v, Scalar) else Scalar(self, calls.scalar_const(v, known))
                for v in values
            ]
            return Vector(self, elements)

    def call(
        self, name: str, args: Sequence[Any], options: Mapping[str, Any], count: int | None = None
    ) -> Any:
        """Add one operation, of `count` results; `fd.ops.name(...)` comes here."""
        handles: list[Tensor | Scalar] = []
        with placed() as place:
            op = find_nvfuser_op(name)
            given = dict(options)
            own = given.pop("name", None)
            targets = () if place is None else place.targets
            several = len(targets) if op.many and op.results == ("out",) else 0
            # The results of `shape` are scalars, which take no names of their own.
            expected = several if several > 1 and op.name != "shape" else count
            arguments = calls.named_arguments(op, args, given)

            def apply(read: tuple[list[Any], dict[str, Any]]) -> None:
                named = -1 if op.many and expected is None else expected or len(op.results)
                names = result_names(self._builder, place, own, named)
                results = self._apply(op, read, names=names, span=span_of(place))
                if not handles:
                    handles.extend(calls.handle_of(self, r) for r in results)
                self._steps.build.operands.update(zip(handles, results, strict=True))

            self._steps.perform(
                lambda: calls.read_call(self, op, *arguments),
                apply,
                lambda: handles.extend(calls.guessed_handles(self, op, arguments, expected)),
                symbolic=self._unknown,
            )
            self.note_axes(op, arguments, handles)
        if op.name == "shape":
            return Vector(self, [h for h in handles if isinstance(h, Scalar)])
        return handles[0] if len(handles) == 1 else Results.of(op.name, op.results, handles)

    def _apply(self, op: OpDef, read: calls.Arguments, **place: Any) -> tuple[Operand, ...]:
        """Add a call with its operands and attributes to the graph; return its results."""
        try:
            return self._builder.call(op.name, *read, **place)
        except FusecError as error:
            raise with_call(error, self, self._builder, op, *read) from None

    def add_output(
        self, output: Any, alias_input: Any = None, stride_order: Sequence[int] | None = None
    ) -> None:
        """Make a value an output.

        alias_input: an input of the same shape and dtype, into whose memory the output is written.
        stride_order: the order of the dims in memory, as a permutation in which 0 is the
        innermost.
        """
        with placed() as place:
            if isinstance(stride_order, Handle):
                raise FusecError(
                    "`add_output` takes one output",
                    help="add each of them: `for y in ...: fd.add_output(y)`",
                )
            if is_list(alias_input):
                stride_order, alias_input = list[int](alias_input), None
            if not isinstance(output, Handle):
                if isinstance(output, Results) and output.names:
                    raise output.refused()
                several = is_list(output) and all(isinstance(o, Handle) for o in output)
                raise FusecError(
                    f"an output must be a tensor of the fusion, got {output!r}",
                    help="add each of them: `for y in ...: fd.add_output(y)`" if several else None,
                )

            def read() -> tuple[Operand, Value | None]:
                alias = None if alias_input is None else value_of(alias_input)
                return output.operand, alias

            def apply(read: tuple[Operand, Value | None]) -> None:
                value, alias = read
                try:
                    self._builder.output(
                        value, alias=alias, stride_order=stride_order or None, span=span_of(place)
                    )
                except FusecError as error:
                    if error.code is not ALIAS_NOT_AN_INPUT or alias is None:
                        raise
                    each = " and ".join(f"`fd.add_output({v})`" for v in (_name(value), alias.name))
                    help = f"`add_output` takes one output: write {each}"
                    raise error.changed(help=help) from None

            self._has_outputs = True
            self._steps.perform(read, apply, nothing, symbolic=self._unknown)

    def fusion(self) -> Fusion:
        """Return the fusion as defined so far, unknown sizes as symbols."""
        return self.graph()

    def graph(self) -> Fusion:
        """Return the same fusion; nvFuser's own `fusion` is not a method."""
        with placed():
            self._define()
            made = self._steps.finish()
            for name, (_, span) in self._hints.items():
                if name not in made.hints:
                    raise FusecError(f"the fusion has no dim or stride `{name}`", span=span)
            return inputs.with_hints(made, {name: size for name, (size, _) in self._hints.items()})

    @property
    def is_complete(self) -> bool:
        """Return whether there is something to run."""
        return self._has_outputs or (not self._defined and hasattr(self, "definition"))

    def _define(self) -> None:
        refuse_schedule(type(self), FusionDefinition)
        definition = getattr(self, "definition", None)
        if definition is not None and not self._defined:
            self._defined = True
            definition()
        scheduled = getattr(self, "multidevice_schedule", None)
        if scheduled is not None and not self._scheduled:
            self._scheduled = True
            scheduled()
        for name, span in self._sized.items():
            if (name, None) not in self._inputs:
                raise FusecError(f"the fusion has no scalar input `{name}`", span=span)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "definition":
            raise AttributeError(name)
        error, place = refuse(name, "FusionDefinition", dir(type(self))), here()
        if name in TABLE or find_bare(name) is not None:
            line = "" if place is None else place.span.text.strip()
            whole = f".{name}(" in line and line.count("(") == line.count(")")
            line = line.replace(f".{name}(", f".ops.{name}(") if whole else f"fd.ops.{name}(...)"
            raise error.changed(help=f"operations are methods of `ops`: write `{line}`")
        raise error

    def __repr__(self) -> str:
        from fusec.parse.twin import to_python

        return to_python(self.graph())
