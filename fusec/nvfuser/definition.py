"""nvFuser's FusionDefinition: fusec's, with the text, handles and caches that clients use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fusec.diagnostics import FusecError
from fusec.ir.op import OpDef
from fusec.nvfuser import options
from fusec.nvfuser.direct_text import DirectCalls, keeps_all_dims
from fusec.nvfuser.errors import BadArgument, NotExecuted, Undefined
from fusec.nvfuser.on_cpu import check_outputs, has_gpu
from fusec.nvfuser.operations import RecordedOperations
from fusec.nvfuser.options import note_environment
from fusec.nvfuser.profiler import note
from fusec.nvfuser.repro import call_for, define_by, names_of
from fusec.nvfuser.results import order_results, promote_operands
from fusec.nvfuser.text import Calls
from fusec.ops import find_op
from fusec.parse import dsl
from fusec.parse.dsl.calls import Arguments
from fusec.parse.dsl.datatype import DataType, as_dtype
from fusec.parse.dsl.handles import Scalar, Tensor
from fusec.parse.dsl.inputs import flat
from fusec.parse.dsl.lists import is_list
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.scheduled import THIS
from fusec.parse.dsl.steps import Build, wants_sizes
from fusec.shard.propagate import with_readers_shardings

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion as Graph
    from fusec.ir.graph import Operand
    from fusec.nvfuser.caches import FusionExecutorCache


class FusionDefinition(dsl.FusionDefinition):
    """A fusion by nvFuser's first API: `repr` prints Python code that defines it again."""

    _prefers_torch = True
    _module: ClassVar[str] = "nvfuser"
    fec: FusionExecutorCache

    def __init__(self, id: Any = None, *args: Any, **options: Any) -> None:
        """Start an empty definition, or restore the one with a number from `fd.id()`."""
        note_environment()
        self.calls = self._new_calls()
        super().__init__(id, *args, **options)
        self.ops = self.Ops = RecordedOperations(self)
        self.segments: list[FusionDefinition] = []
        self._input_handles: list[Any] = []
        self._output_handles: list[Any] = []
        self._in_place: set[int] = set()
        self._written: dict[Any, Any] = {}
        self._began = False
        self._debug_output: str | None = None
        self._fake_inputs: list[Any] | None = None
        if isinstance(id, int):
            from fusec.nvfuser.caches import FusionCache

            with self:
                define_by(FusionCache.get().lines_of(id), self)

    def _new_calls(self) -> Calls:
        return Calls("T", "S", numbers_constants=True)

    # Methods that scripts call in a definition.

    def __enter__(self) -> Self:
        from fusec.nvfuser.caches import Fusion

        self._began = True
        self._fusion = Fusion(self)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if kind is None:
            self._finish_definition()

    def _finish_definition(self) -> None:
        from fusec.nvfuser.caches import FusionCache

        FusionCache.get().add(self)

    def define_tensor(self, *args: Any, **options: Any) -> Tensor:
        """Declare an input tensor; -1 is an unknown size, 1 a broadcast dim."""
        made: Tensor = self.calls.take(
            lambda _: self.calls.tensor(args, options),
            lambda: super(FusionDefinition, self).define_tensor(*args, **options),
        )
        self._input_handles.append(made)
        return made

    def define_scalar(self, value: Any = None, dtype: Any = None, **options: Any) -> Scalar:
        """Return a constant, or without a value declare a scalar input."""
        if isinstance(value, DataType):
            value, dtype = None, value
        made: Scalar = self.calls.take(
            lambda _: self.calls.scalar(value, as_dtype(dtype)),
            lambda: super(FusionDefinition, self).define_scalar(value, dtype, **options),
        )
        if value is None:
            self._input_handles.append(made)
        return made

    define_constant = define_scalar

    def define_vector(
        self, values: Any = None, dtype: Any = DataType.Int, *, size: int | None = None
    ) -> dsl.Vector:
        """Return a list of integer scalars: the given ones, or `size` new scalar inputs."""
        count = size if size is not None else values
        made: dsl.Vector = self.calls.take(
            lambda _: self.calls.vector(count),
            lambda: super(FusionDefinition, self).define_vector(values, dtype, size=size),
        )
        if isinstance(count, int):
            self._input_handles += made.elements
        return made

    def add_output(
        self, output: Any, alias_input: Any = None, stride_order: Sequence[int] | None = None
    ) -> None:
        """Make a value an output; with `alias_input` it is written into that input's memory."""
        if is_list(alias_input):
            stride_order, alias_input = list[int](alias_input), None
        self.calls.take(
            lambda _: self.calls.output(output, alias_input, stride_order),
            lambda: super(FusionDefinition, self).add_output(output, alias_input, stride_order),
        )
        self._output_handles.append(output)
        if alias_input is not None:
            self._in_place.add(len(self._output_handles) - 1)
            self._written[output] = alias_input

    def call(
        self, name: str, args: Sequence[Any], options: Mapping[str, Any], count: int | None = None
    ) -> Any:
        """Add one operation, also recording one that is not a call of `ops`, such as indexing."""
        return self.calls.take(
            lambda made: self.calls.operation(name, args, options, made),
            lambda: super(FusionDefinition, self).call(name, args, options, count),
        )

    def _apply(self, op: OpDef, read: Arguments, **place: Any) -> tuple[Operand, ...]:
        promoted = promote_operands(self._builder, op, read[0])
        results = super()._apply(op, (promoted, read[1]), **place)
        order_results(self._builder, op, read[0], results)
        return results

    def divided(self, fusion: Graph, build: Build) -> Graph:
        """Return a fusion with its mesh and shardings, and those that readers require."""
        made = super().divided(fusion, build)
        return made if wants_sizes(made) else with_readers_shardings(made)

    def transform(self, tensor: Tensor, text: str, change: Callable[[], None]) -> None:
        """Change the loop domain of a tensor by a call with this text."""
        self.calls.take(
            lambda _: f"{THIS}.{text}".replace(THIS, self.calls.value(tensor)),
            lambda: super(FusionDefinition, self).transform(tensor, text, change),
        )

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> Tensor:
        """Declare an input like a given tensor on a GPU, or like a CPU scalar."""
        device = getattr(tensor, "device", None)
        on_cpu = getattr(device, "type", "cuda") == "cpu"
        if on_cpu and len(tensor.shape) and has_gpu():
            with placed():
                raise BadArgument(
                    f"Found unsupported device {device}, only scalar CPU or CUDA tensors are "
                    "supported"
                )
        return self._declare_like(tensor, static_sizes, is_cpu=on_cpu and has_gpu())

    # Properties of the definition.

    def id(self) -> int | None:
        """Return the number of this definition among all distinct ones, None before its end."""
        from fusec.nvfuser.caches import FusionCache

        return FusionCache.get().number_of(self)

    @property
    def definition_name(self) -> str:
        """Return the name of the function that `repr` prints."""
        number = self.id()
        return f"nvfuser_fusion_id{0 if number is None else number}"

    def __repr__(self) -> str:
        body = "".join(f"    {line}\n" for line in self.calls.printed() or ["pass"])
        return f"\ndef {self.definition_name}(fd : FusionDefinition) -> None :\n{body}\n"

    @property
    def fusion(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the handle of the fusion."""
        executor_cache = self.__dict__.get("fec")
        return self._fusion if executor_cache is None else executor_cache.fusion()

    def inputs(self) -> list[Any]:
        """Return the inputs, in the order in which `execute` takes them."""
        return list(self._input_handles)

    def outputs(self) -> list[Any]:
        """Return the outputs."""
        return list(self._output_handles)

    # Execution.

    def execute(
        self,
        inputs: Iterable[Any],
        *,
        device: Any = None,
        override_user_schedule: bool = False,
        capture_debug_output: bool = False,
        print_repro: bool = False,
        profile: bool = False,
        save_repro_inputs: bool = False,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
    ) -> list[Any]:
        """Run the fusion on `inputs` and return its outputs, without those written into inputs.

        `device`: the GPU of the inputs or, without any, of the outputs. Options of nvFuser's own
        schedulers are checked by name and have no effect.
        """
        inputs = note(self, inputs)
        asked = profile or print_repro or save_repro_inputs or capture_debug_output
        if not (asked or _enable_options or _disable_options) and self._debug_output is None:
            results = self._again(inputs, device)
            if results is not None:
                return self._sharing(results, inputs)
        given = list(inputs)
        with placed():
            options.check(_enable_options, _disable_options)
        if profile:
            warnings.warn("execute(profile=True) is not supported", stacklevel=2)
        if print_repro:
            print(self.repro_script_for(given))
        if save_repro_inputs:
            self._fake_inputs = [call_for(x) for x in given]
        self._debug_output = "" if capture_debug_output else None
        return self._executor_cache().execute(given, device=device)

    def _executor_cache(self) -> FusionExecutorCache:
        made = self.__dict__.get("fec")
        if made is None:
            from fusec.nvfuser.caches import Fusion, FusionExecutorCache

            with placed():
                self._define()
                self._check_definition()
            made = self.fec = FusionExecutorCache(self.__dict__.get("_fusion") or Fusion(self))
        return made

    def run(self, inputs: Iterable[Any], device: Any) -> list[Any]:
        """Run this definition itself, regardless of the executor in `fec`."""
        given = list(inputs)
        return self._sharing(super().execute(given, device=device), given)

    def _sharing(self, results: list[Any], given: Iterable[Any]) -> list[Any]:
        """Return results, with the inputs themselves for outputs written there or identical."""
        if not self._written:
            return results
        values = dict(zip(self._input_handles, flat(given), strict=True))
        fresh = [o for k, o in enumerate(self._output_handles) if k not in self._in_place]
        own = (values.get(self._written.get(output, output)) for output in fresh)
        return [r if v is None else v for r, v in zip(results, own, strict=True)]

    def graph_for(self, inputs: Iterable[Any]) -> Graph:
        """Return the fusion specialized to the kinds of inputs."""
        return self._bound(inputs)[0]

    def _define(self) -> None:
        defined = self._defined
        super()._define()
        if not defined and self._defined:
            self._began = True
            self._finish_definition()

    def _check_definition(self) -> None:
        if not self._began:
            raise Undefined(
                "Fusion does not exist! "
                "Use `with FusionDefinition() as fd: ...` to define a fusion."
            )
        if not self._has_outputs:
            raise Undefined("Fusion is empty!")
        if self._steps.failure is None:
            check_outputs(self.graph())

    def validate(
        self,
        inputs: Iterable[Any],
        reference_outputs: Sequence[Any] | None = None,
        *,
        device: Any = None,
        **execute_options: Any,
    ) -> list[Any]:
        """Run the fusion and compare with given outputs, or with fusec's reference."""
        with placed():
            names = ("_enable_options", "_disable_options")
            options.check(*(execute_options.pop(name, None) for name in names))
            if execute_options:
                raise FusecError(f"validate has no argument `{min(execute_options)}`")
            self._define()
            self._check_definition()
        return super().validate(inputs, reference_outputs, device=device)

    def segment(self, inputs: Iterable[Any]) -> list[FusionDefinition]:
        """Return no segments: fusec partitions a fusion itself when it runs it."""
        return []

    # Results of compilation.

    def last_cuda_code(self, intrinsic_code: bool = False, **_: Any) -> str:
        """Return the kernels of the last execution."""
        return self._executed().get_most_recent_cuda_kernel()

    def cuda_code_for(self, inputs: Iterable[Any], intrinsic_code: bool = False, **_: Any) -> str:
        """Return the kernels for inputs that the fusion has run with."""
        return self._executed().get_cuda_kernel(inputs)

    def last_scheduled_fusion_ir(self, tensor_transforms: bool = False, **_: Any) -> str:
        """Return the segments of the last execution."""
        return self._executed().get_most_recent_scheduled_ir()

    def scheduled_fusion_ir_for(
        self, inputs: Iterable[Any], tensor_transforms: bool = False, **_: Any
    ) -> str:
        """Return the segments for inputs that the fusion has run with."""
        return self._executed().get_scheduled_ir(inputs)

    def fusion_ir(self) -> str:
        """Return the fusion in fusec's own text form."""
        return self.fusion.print_math()

    def _executed(self) -> FusionExecutorCache:
        if "fec" not in self.__dict__:
            with placed():
                raise NotExecuted("the fusion has never been executed")
        return self.fec

    def debug_output(self) -> str | None:
        """Return what the last execution printed: empty, or None if it was not captured."""
        return self._debug_output

    # Reproduction.

    def repro_script_for(self, inputs: Iterable[Any] | None = None) -> str:
        """Return a script that defines the fusion and, given inputs, executes it on like ones."""
        lines = [
            "# FusionDefinition repro, printed by fusec",
            "import torch",
            f"from {self._module} import {names_of(self.calls.lines)}",
            f"{self!r}with FusionDefinition() as fd:",
            f"    {self.definition_name}(fd)",
        ]
        if inputs is not None:
            described = [f"    {call_for(x)}," for x in inputs]
            lines += ["", "inputs = [", *described, "]", "fd.execute(inputs)"]
        return "\n".join(lines) + "\n"

    def last_repro_script(self) -> str:
        """Return the script for the inputs of the last `execute(..., save_repro_inputs=True)`."""
        if self._fake_inputs is None:
            raise AssertionError(
                "fd.last_repro_script() cannot provide a repro because fd.execute(inputs, "
                "save_repro_inputs=True) was not executed!"
            )
        return self.repro_script_for(self._fake_inputs)


class DirectDefinition(FusionDefinition):
    """A fusion by nvFuser's direct API, which prints differently."""

    _module = "nvfuser_direct"

    def _new_calls(self) -> Calls:
        return DirectCalls("tv", "c", numbers_constants=False)

    def call(
        self, name: str, args: Sequence[Any], options: Mapping[str, Any], count: int | None = None
    ) -> Any:
        """Add one operation, also recording one that is not a call of `ops`, such as indexing."""
        return self.calls.take(
            lambda made: self.calls.operation(name, args, options, made),
            lambda: super(FusionDefinition, self).call(name, args, options, count),
        )

    def _apply(self, op: OpDef, read: Arguments, **place: Any) -> tuple[Operand, ...]:
        # As printed, so that the graph that `repr` shows is planned, and rounds, as this one does.
        if keeps_all_dims(op, read[1], read[0]):
            op, read = find_op("expand"), (read[0], {"shape": read[1]["shape"]})
        return super()._apply(op, read, **place)

    @property
    def definition_name(self) -> str:
        """Return the name of the function that `repr` prints."""
        return "nvfuser_fusion"

    def __repr__(self) -> str:
        return super().__repr__().strip("\n") + "\n"

    def validate_definition(self) -> tuple[bool, str | None]:
        """Return whether there is something to run, and why not."""
        try:
            self._check_definition()
        except Undefined as error:
            return False, error.diagnostic.message
        return True, None
