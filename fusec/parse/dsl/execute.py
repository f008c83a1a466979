"""`fd.execute` and `fd.validate`: inputs to an executor, results back to the caller."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fusec import executor
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse.dsl.devices import Wrap
from fusec.parse.dsl.inputs import Actual, adopt
from fusec.parse.dsl.session import Executor


class StopRecording(BaseException):
    """A recorded script reads numbers that were not computed: the rest only checks results."""


class NotRun:
    """The result of an execution that was only recorded; using it ends the script."""

    def __getattr__(self, name: str) -> Any:
        raise StopRecording


def _stop(*_: Any, **__: Any) -> Any:
    raise StopRecording


_USES = """
    getitem iter len bool float int index array call eq ne lt le gt ge add radd sub rsub mul rmul
    truediv rtruediv pow rpow matmul rmatmul neg abs
"""
for _name in _USES.split():
    setattr(NotRun, f"__{_name}__", _stop)


class Ready:
    """A fusion with its program, which uses tensors without copies."""

    def __init__(self, fusion: Fusion) -> None:
        """Look up the program."""
        self.fusion, self._program = fusion, executor.program(fusion)
        into = fusion.effects.into
        self._fresh = [k for k, o in enumerate(fusion.outputs) if o.value not in into]

    def call(self, given: Sequence[Any]) -> list[Any]:
        """Return the outputs, except those written into inputs."""
        return self._listed(self._program(*given))

    def again(self, given: Sequence[Any]) -> list[Any] | None:
        """Return the same for inputs with the properties of the last ones, else None."""
        results = self._program.again(*given)
        return None if results is NotImplemented else self._listed(results)

    def validate(
        self, bound: Fusion, actuals: Sequence[Actual], given: Sequence[Any], references: Any
    ) -> list[Any]:
        """Return the outputs after comparing them, bound to the properties `actuals` of `given`."""
        inputs = _arrays(bound, actuals)  # before outputs are written into them
        results = self._program(*given)
        _check(bound, inputs, [results] if len(self.fusion.outputs) == 1 else results, references)
        return self._listed(results)

    def _listed(self, results: Any) -> list[Any]:
        listed = [results] if len(self.fusion.outputs) == 1 else results
        return [listed[k] for k in self._fresh]


def execute(
    bound: Fusion, actuals: Sequence[Actual], run: Executor, wrap: Wrap | None
) -> list[Any]:
    """Run a fusion bound to its inputs; outputs that are written into inputs are not returned."""
    return _deliver(bound, actuals, run(bound, tuple(actuals)), wrap)


def _deliver(
    bound: Fusion, actuals: Sequence[Actual], results: Sequence[Any] | None, wrap: Wrap | None
) -> list[Any]:
    if results is None:
        return [NotRun() for _ in bound.effects.fresh]
    returned: list[Any] = []
    for output, result in zip(bound.outputs, results, strict=True):
        target = bound.effects.into.get(output.value)
        if target is not None:
            actuals[bound.input_position[target.value]].write(result)
        else:
            returned.append(result if wrap is None else wrap(result, output.stride_order))
    return returned


def validate(
    bound: Fusion,
    actuals: Sequence[Actual],
    references: Sequence[Any] | None,
    run: Executor,
    wrap: Wrap | None,
) -> list[Any]:
    """Run a fusion and compare its outputs; FusecError names the first one that differs.

    Without references they are compared with fusec's own. The caller's references are expected to
    have the errors of a framework that runs operation by operation, rounding after each.
    """
    results = run(bound, tuple(actuals))
    if results is not None:
        # Compare before anything is written into inputs, which the reference reads.
        _check(bound, _arrays(bound, actuals), results, references)
    return _deliver(bound, actuals, results, wrap)


def _arrays(bound: Fusion, actuals: Sequence[Actual]) -> dict[str, Any]:
    return {i.value.name: a.array() for i, a in zip(bound.inputs, actuals, strict=True)}


def _check(
    bound: Fusion, inputs: Mapping[str, Any], results: Sequence[Any], references: Any
) -> None:
    import numpy as np

    from fusec.reference.errors.nodes import Model
    from fusec.reference.verdict import NOT_DECIDED, compare

    found = {
        o.value.name: np.asarray(adopt([r])[0].array())
        for o, r in zip(bound.outputs, results, strict=True)
    }
    given = None if references is None else _given(bound, found, references)
    model = Model(eager=given is not None)
    verdict = compare(bound, bound.hints, inputs, found, model=model, given=given, poison=False)
    if given is not None and not verdict.ok and _by_other(bound, inputs, found, given):
        return
    for output in verdict.outputs:
        if output.wrong:
            raise FusecError(
                f"output `{output.name}` differs from the reference in {output.wrong} elements",
                notes=[f"first at {output.worst[0].text()}"],
            )
        if output.word == NOT_DECIDED:
            warnings.warn(f"output `{output.name}` is inconclusive: {output.reason}", stacklevel=4)


def _by_other(
    bound: Fusion, inputs: Mapping[str, Any], found: Mapping[str, Any], given: Mapping[str, Any]
) -> bool:
    """Return whether outputs and references each match a definition that rounds less.

    The references may match the outputs' definition, or another one, which a warning names.
    """
    import numpy as np

    from fusec.reference.definitions import Definition, other_definitions
    from fusec.reference.errors.nodes import Model
    from fusec.reference.verdict import compare

    def is_right(outputs: Mapping[str, Any], model: Model) -> bool:
        return compare(bound, bound.hints, inputs, outputs, model=model, poison=False).ok

    dtypes = {o.value.name: o.value.dtype.numpy for o in bound.outputs}
    theirs = {n: np.asarray(a).astype(dtypes[n]) for n, a in {**found, **given}.items()}
    for other in (Definition(Model(), ""), *other_definitions(bound)):
        own = Model(early=other.model.early)  # attention kernels also round weights early
        if is_right(theirs, other.model) and is_right(found, own):
            if other.text:
                text = f"the references match an equivalent definition: with {other.text}"
                warnings.warn(text, stacklevel=5)
            return True
    return False


def _given(bound: Fusion, found: Mapping[str, Any], references: Sequence[Any]) -> dict[str, Any]:
    """Return the caller's references by the names of the returned outputs."""
    import numpy as np

    returned = [o.value.name for o in bound.effects.fresh]
    if len(references) != len(returned):
        raise FusecError(f"got {len(references)} references for {len(returned)} outputs")
    given = {n: np.asarray(r.array()) for n, r in zip(returned, adopt(references), strict=True)}
    for name, array in given.items():
        if array.shape != found[name].shape:
            raise FusecError(
                f"output `{name}` has shape {found[name].shape}, the reference has {array.shape}"
            )
    return given
