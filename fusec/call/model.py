"""A callable imported model: it owns its weights, and the caller passes its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fusec.call.chain import Chain
from fusec.call.frameworks import kind_of
from fusec.call.given import merge_arguments, require_all
from fusec.call.interfaces import DeviceArray
from fusec.call.program import Program
from fusec.diagnostics import FusecError
from fusec.ir.evaluate import Array
from fusec.run.arrays import dense_strides
from fusec.run.device import open_device


class Model:
    """A program with the weights of a model: call it with the model's own inputs, in its order.

    Weights are copied once to each GPU that is used; state that the model updates is updated there.
    """

    def __init__(
        self,
        program: Program | Chain,
        weights: Mapping[str, Array],
        inputs: Sequence[str | Constant | None],
        outputs: Sequence[str | Constant],
    ) -> None:
        """Bind weights, by name, to a program of all inputs.

        inputs: those of a call, None for one that is not read, a constant for one that must have
        the value of the export. outputs: the results of a call, also constants. FusecError for a
        name that the program does not have.
        """
        for word, names, known in (
            ("input", (*(n for n in inputs if isinstance(n, str)), *weights), program.inputs),
            ("output", [n for n in outputs if isinstance(n, str)], program.outputs),
        ):
            unknown = next((n for n in names if n not in known), None)
            if unknown is not None:
                raise FusecError(
                    f"model.json names the {word} `{unknown}`, not in fusion `{program.name}`",
                    help=f"import the model again, or name that {word} `{unknown}` in fusion.yaml",
                )
        self.program, self.weights = program, dict(weights)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._on_gpu: dict[int, dict[str, Any]] = {}

    @property
    def name(self) -> str:
        """Return the fusion's name."""
        return self.program.name

    @property
    def inputs(self) -> dict[str, str]:
        """Return the types of the arguments of a call, by name and in order."""
        return {n: t for n, t in self.program.inputs.items() if n not in self.weights}

    @property
    def outputs(self) -> dict[str, str]:
        """Return the types of the results of a call, by name and in order."""
        known = self.program.outputs
        return {n: known[n] for n in self._outputs if isinstance(n, str)}

    def __repr__(self) -> str:
        """Return the signature."""
        given = ", ".join(f"{n}: {t}" for n, t in self.inputs.items())
        results = ", ".join(f"{n}: {t}" for n, t in self.outputs.items())
        return f"<Model {self.name}({given}) -> {results}, {len(self.weights)} weights>"

    def __call__(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Return the output, or a tuple of several, including constants of the export."""
        names = [n for n in self._inputs if isinstance(n, str)]
        constants = {c.name: c.value for c in self._inputs if not isinstance(c, (str, type(None)))}
        fixed = [f"{name}={value!r}" for name, value in constants.items()]
        takes = f"`{self.name}` takes {', '.join((*names, *fixed)) or 'nothing'}"
        if len(arguments) > len(self._inputs):
            raise FusecError(f"got {len(arguments)} arguments, {takes}")
        pairs = zip(self._inputs, arguments, strict=False)
        placed = {n if isinstance(n, str) else n.name: a for n, a in pairs if n is not None}
        given = merge_arguments(placed, named, [*names, *constants], takes)
        for name in constants.keys() & given.keys():
            _check_constant(name, constants[name], given.pop(name))
        require_all(names, given, takes)
        found = self.program(stream=stream, **given, **self._weights_for(given))
        results = found if isinstance(found, tuple) else (found,)  # pyright: ignore[reportUnknownVariableType]
        by_name: dict[str, Any] = dict(zip(self.program.outputs, results, strict=True))  # pyright: ignore[reportUnknownArgumentType]
        returned = [by_name[n] if isinstance(n, str) else n.value for n in self._outputs]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _weights_for(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the weights on the device of a call's arrays."""
        device = None
        for array in given.values():
            kind = kind_of(array)
            if kind is not None:
                device = kind.view(array).device
                break
        if device is None:
            return self.weights
        if device not in self._on_gpu:
            self._on_gpu[device] = {n: _uploaded(a, device) for n, a in self.weights.items()}
        return self._on_gpu[device]


def _check_constant(name: str, value: object, given: Any) -> None:
    """Raise FusecError for an argument whose value differs from the exported constant."""
    if type(given) is not type(value) or given != value:
        raise FusecError(
            f"argument `{name}` is {given!r}, and the model was exported with {value!r}",
            help="export the model again with the other value",
        )


class Constant(Protocol):
    """A non-tensor argument with the value that it must have."""

    @property
    def name(self) -> str:
        """Return the argument's name."""
        ...

    @property
    def value(self) -> object:
        """Return None, a bool, a number or a string."""
        ...


def _uploaded(array: Array, index: int) -> DeviceArray:
    from fusec.ir.dtype import of_numpy

    made = DeviceArray(array.shape, dense_strides(array.shape), of_numpy(array.dtype), index)
    if array.nbytes:
        device = open_device(index)
        with device.current():
            device.call("cuMemcpyHtoD", made.address, array.ctypes.data, array.nbytes)
    return made
