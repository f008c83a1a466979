"""Execution of a definition on inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fusec.ir.graph import Fusion
from fusec.parse.dsl import devices
from fusec.parse.dsl.boundaries import Boundaries
from fusec.parse.dsl.devices import Wrap
from fusec.parse.dsl.divided import Divided
from fusec.parse.dsl.draws import with_generator
from fusec.parse.dsl.inputs import Actual, adopt_all, flat, sizes_of
from fusec.parse.dsl.parts import bind_parts, is_divided, whole_sizes
from fusec.parse.dsl.place import placed
from fusec.parse.dsl.session import current
from fusec.parse.dsl.steps import Sizes, Steps, wants_sizes

if TYPE_CHECKING:
    from fusec.parse.dsl.execute import Ready


class Executed(Divided, Boundaries, ABC):
    """The calls of a definition that run it."""

    _inputs: list[tuple[str, int | None]]
    _defaults: dict[str, Any]
    _prefers_torch = False
    _ready: tuple[Ready, Any] | None = None
    _steps: Steps
    executed_as: Fusion | None

    @abstractmethod
    def graph(self) -> Fusion:
        """Return the fusion as defined so far."""

    @abstractmethod
    def _define(self) -> None: ...

    def execute(self, inputs: Iterable[Any], *, device: Any = None) -> list[Any]:
        """Run the fusion on `inputs` and return its outputs, without those written into inputs.

        `device`: the GPU of the inputs or, without any, of the outputs.
        """
        results = self._again(inputs, device)
        if results is not None:
            return results
        from fusec.parse.dsl.execute import Ready, execute

        with placed():
            given = tuple(flat(inputs))
            if current().calls and devices.all_on_gpu(given):
                with devices.on_device(devices.check_device(given, devices.index_of(device))):
                    ready = Ready(self._fusion_for(given))
                    results = ready.call(given)
                self._ready = (ready, device) if self._steps.made is ready.fusion else None
                return results
            bound, actuals = self._bound(given)
            return self._on(device, actuals, lambda wrap: execute(
                bound, actuals, current().executor, wrap))  # fmt: skip

    def _again(self, inputs: Iterable[Any], device: Any) -> list[Any] | None:
        """Return the outputs for inputs with the properties of the last ones, else None.

        All properties that affect the outputs are compared.
        """
        if self._ready is None or not isinstance(inputs, (list, tuple)):
            return None
        ready, last = self._ready
        if device != last or not current().calls or self._steps.made is not ready.fusion:
            return None
        return ready.again(inputs)  # pyright: ignore[reportUnknownArgumentType]

    def _fusion_for(self, given: Sequence[Any]) -> Fusion:
        """Return the fusion for the given inputs, the same one unless it needs their sizes."""
        self._define()
        made = None if self._steps.failure else self._steps.finish()
        if made is None or (self._unknown and wants_sizes(made)):
            made = self._steps.finish(self._whole_sizes(self._adopted(given)))
        self.executed_as = self.executed_as or made
        return made

    def _on(
        self, device: Any, actuals: Sequence[Actual], run: Callable[[Wrap | None], list[Any]]
    ) -> list[Any]:
        """Run on a GPU that the inputs allow, with results of the caller's kind."""
        index = devices.check_device([a.tensor for a in actuals], devices.index_of(device))
        with devices.on_device(index):
            return run(devices.wrap_for(actuals, index, prefers_torch=self._prefers_torch))

    def _adopted(self, given: Iterable[Any]) -> tuple[Actual, ...]:
        return adopt_all([name for name, _ in self._inputs], self._defaults, given)

    def _bound(self, given: Iterable[Any]) -> tuple[Fusion, tuple[Actual, ...]]:
        """Return the fusion for the given inputs; if it needs sizes, it is built with theirs."""
        self._define()
        actuals = self._adopted(given)
        made, bound = None if self._steps.failure else self.graph(), None
        if made is not None and not (is_divided(made) and wants_sizes(made)):
            bound = bind_parts(made, actuals)
        if bound is None or (self._unknown and wants_sizes(bound)):
            bound = bind_parts(self._steps.finish(self._whole_sizes(actuals)), actuals)
        self.executed_as = self.executed_as or bound
        return bound, with_generator(bound, actuals)

    def _whole_sizes(self, actuals: Sequence[Actual]) -> Sizes:
        """Return the sizes of whole tensors, given a rank's parts of them."""
        own = sizes_of(self._inputs, actuals)
        return whole_sizes(own, self.ranks_of_inputs(self._steps.build))

    def validate(
        self,
        inputs: Iterable[Any],
        reference_outputs: Sequence[Any] | None = None,
        *,
        device: Any = None,
    ) -> list[Any]:
        """Run the fusion and compare with given outputs, or with fusec's reference."""
        from fusec.parse.dsl.execute import Ready, validate

        with placed():
            given = tuple(flat(inputs))
            bound, actuals = self._bound(given)
            draws = any(i.generator for i in bound.inputs)  # from a state that a program advances
            if current().calls and devices.all_on_gpu(given) and not draws:
                with devices.on_device(devices.check_device(given, devices.index_of(device))):
                    ready = Ready(self._fusion_for(given))
                    return ready.validate(bound, actuals, given, reference_outputs)
            return self._on(device, actuals, lambda wrap: validate(
                bound, actuals, reference_outputs, current().executor, wrap))  # fmt: skip
