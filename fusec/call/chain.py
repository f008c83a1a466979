"""The programs of a model and the caller's functions between them, called as one program."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fusec.call.arrays import Kind
from fusec.call.frameworks import kind_of
from fusec.call.program import Program
from fusec.diagnostics import FusecError
from fusec.ir.dtype import of_numpy
from fusec.run.arrays import dense_strides


class External(Protocol):
    """An external call: the arguments of a function, and the names of its results."""

    @property
    def target(self) -> str:
        """Return the operation, as `aten.conv2d.default`."""
        ...

    @property
    def results(self) -> Sequence[str | None]:
        """Return the names of its results, None for those that are not read."""
        ...

    @property
    def types(self) -> Sequence[str]:
        """Return the types of its results."""
        ...

    @property
    def reads(self) -> Sequence[str]:
        """Return the names of the tensors that it reads."""
        ...

    def bind(self, tensor: Callable[[str], Any], /) -> tuple[list[Any], dict[str, Any]]:
        """Return its positional and named arguments."""
        ...


Step = Program | tuple[External, Callable[..., Any]]


class Chain:
    """Programs and external calls in execution order, connected by names."""

    def __init__(
        self, name: str, steps: Sequence[Step], inputs: Mapping[str, str], outputs: Sequence[str]
    ) -> None:
        """Take the steps; inputs: types of a call's arguments; outputs: names of its results."""
        self.name, self.inputs, self._steps = name, dict(inputs), tuple(steps)
        made: dict[str, str] = {}
        for step in self._steps:
            if isinstance(step, Program):
                made |= step.outputs
            else:
                results = zip(step[0].results, step[0].types, strict=True)
                made |= {n: t for n, t in results if n is not None}
        unknown = next((n for n in outputs if n not in made), None)
        if unknown is not None:
            raise FusecError(
                f"model.json names the output `{unknown}`, which no fusion of `{name}` has",
                help="import the model again",
            )
        self.outputs = {n: made[n] for n in dict.fromkeys(outputs)}
        self._ends = self._last_uses()
        self._copies: dict[tuple[str, int | None, str], Any] = {}

    def _last_uses(self) -> list[set[str]]:
        """Return for each step the values that no later step reads."""
        seen, found = {*self.outputs, *self.inputs}, list[set[str]]()
        for step in reversed(self._steps):
            reads = {*(step.inputs if isinstance(step, Program) else step[0].reads)}
            found.append(reads - seen)
            seen |= reads
        return found[::-1]

    def __call__(self, *, stream: Any = None, **given: Any) -> Any:
        """Return the outputs, as a tuple of several; external calls run on the current stream."""
        if stream is not None:
            raise FusecError(
                "`stream` is not supported with external calls",
                help="make the stream your framework's current one",
            )
        known = dict(given)
        like = next((a for a in given.values() if kind_of(a) is not None), None)
        for step, ends in zip(self._steps, self._ends, strict=True):
            if isinstance(step, Program):
                results = step(**{name: known[name] for name in step.inputs})
                listed = results if isinstance(results, tuple) else (results,)  # pyright: ignore[reportUnknownVariableType]
                known |= zip(step.outputs, listed, strict=True)  # pyright: ignore[reportUnknownArgumentType]
            else:
                known |= self._called(*step, known, like)
            for name in ends:
                del known[name]
        found = tuple(known[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found

    def _called(
        self, call: External, function: Callable[..., Any], known: Mapping[str, Any], like: Any
    ) -> dict[str, Any]:
        """Return the results of an external call by name."""
        positional, named = call.bind(lambda name: self._own(name, known[name], like))
        results = function(*positional, **named)
        listed: list[Any] = [*results] if isinstance(results, (tuple, list)) else [results]
        if len(listed) < len(call.results):
            raise FusecError(
                f"the function for `{call.target}` returned {len(listed)} values, expected "
                f"{len(call.results)}"
            )
        named_results = zip(call.results, listed, strict=False)
        return {name: result for name, result in named_results if name is not None}

    def _own(self, name: str, array: Any, like: Any) -> Any:
        """Return an array as one of the caller's framework; copies of weights are cached."""
        kind, wanted = kind_of(array), kind_of(like)
        if kind is None or wanted is None or kind.name == wanted.name:
            return array
        if name not in self.inputs:
            return as_like(array, wanted, like)
        key = name, wanted.view(like).device, wanted.name
        if key not in self._copies:
            self._copies[key] = as_like(array, wanted, like)
        return self._copies[key]


def as_like(array: Any, kind: Kind, like: Any) -> Any:
    """Return an array as one of another framework: on the CPU a copy, on a GPU a view."""
    own = kind_of(array)
    if own is not None and own.view(array).device is not None:
        package: Any = sys.modules[type(like).__module__.partition(".")[0]]
        return package.from_dlpack(array)
    dense: Any = np.ascontiguousarray(array)
    strides = dense_strides(dense.shape)
    made = kind.empty(dense.shape, strides, of_numpy(dense.dtype), None, 0)
    ctypes.memmove(kind.view(made).address, dense.ctypes.data, dense.nbytes)
    return kind.give(made, like)
