"""`fd.execute` and `fd.validate`: inputs to an executor, results back to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse.dsl.inputs import Actual, adopt
from fusec.parse.dsl.session import Executor


class StopRecording(BaseException):
    """A recorded script asks for numbers that nobody computed: what follows is only checks."""


class NotRun:
    """The result of an execution that was only noted; using it ends the script."""

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


def execute(bound: Fusion, actuals: Sequence[Actual], executor: Executor) -> list[Any]:
    """Run a fusion bound to its inputs; outputs that are written into inputs are not returned."""
    return _deliver(bound, actuals, executor(bound, tuple(actuals)))


def _deliver(bound: Fusion, actuals: Sequence[Actual], results: Sequence[Any] | None) -> list[Any]:
    if results is None:
        return [NotRun() for o in bound.outputs if o.alias is None]
    wrap = next((a.wrap for a in actuals if a.wrap is not None), None)
    position = {i.value.name: k for k, i in enumerate(bound.inputs)}
    returned: list[Any] = []
    for output, result in zip(bound.outputs, results, strict=True):
        if output.alias is not None:
            actuals[position[output.alias]].write(result)
        else:
            returned.append(result if wrap is None else wrap(result))
    return returned


def validate(
    bound: Fusion, actuals: Sequence[Actual], references: Sequence[Any] | None, executor: Executor
) -> list[Any]:
    """Run a fusion and compare its outputs; FusecError names the first one that differs."""
    results = executor(bound, tuple(actuals))
    if results is not None:
        # Compared before anything is written into inputs, which the reference reads.
        found = [r for o, r in zip(bound.outputs, results, strict=True) if o.alias is None]
        _check(bound, found, _evaluated(bound, actuals) if references is None else references)
    return _deliver(bound, actuals, results)


def _check(bound: Fusion, found: Sequence[Any], references: Sequence[Any]) -> None:
    returned = [o for o in bound.outputs if o.alias is None]
    if len(references) != len(returned):
        raise FusecError(f"{len(references)} references are given for {len(returned)} outputs")
    expected = [r.array() for r in adopt(references)]
    for output, result, reference in zip(returned, found, expected, strict=True):
        _compare(output.value.name, output.value.dtype.epsilon, adopt([result])[0], reference)


def _evaluated(fusion: Fusion, actuals: Sequence[Actual]) -> list[Any]:
    from fusec.reference.evaluate import evaluate

    names = [i.value.name for i in fusion.inputs]
    arrays = {name: actual.array() for name, actual in zip(names, actuals, strict=True)}
    values = evaluate(fusion, arrays, fusion.hints)
    return [values[o.value.name] for o in fusion.outputs if o.alias is None]


def _compare(name: str, epsilon: float, actual: Actual, reference: Any) -> None:
    import numpy as np

    found = np.asarray(actual.array())
    expected = np.asarray(reference)
    if found.shape != expected.shape:
        raise FusecError(
            f"output `{name}` has shape {found.shape}, the reference has {expected.shape}"
        )
    wide = np.complex128
    a, b = found.astype(wide), expected.astype(wide)
    # Without an error bound for the caller's reference: 16 units of the output's own precision.
    tolerance = 16 * max(epsilon, 2.0**-24) if epsilon else 0.0
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    close = np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if not close.all():
        worst = np.unravel_index(int(np.argmax(~close)), close.shape)
        raise FusecError(
            f"output `{name}` differs from the reference in {int((~close).sum())} elements",
            notes=[f"first at {[int(i) for i in worst]}: {a[worst]:g}, expected {b[worst]:g}"],
        )
