"""Times kernels of one segment on the local device, interleaved, and checks their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusec import driver
from fusec.diagnostics import FusecError, InternalError
from fusec.ir.evaluate import Array
from fusec.reference.verdict import DIFFERS, VERIFIED, compare
from fusec.run.bound import Bound
from fusec.run.device import Device
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.measure import in_turn
from fusec.tune.job import Built, Failed, Job

LIMIT = 3e7
"""Maximum operations times elements that the fp64 reference evaluates: a few seconds."""
GROSS = 2.0**-4
"""Tolerance of an element against the default's, relative to the largest result."""
SEED = 20251


class OneJob:
    """A segment with random inputs on a device; `step` is called with the record about to run."""

    def __init__(
        self, device: Device, job: Job, step: Callable[[int], None] = lambda number: None
    ) -> None:
        """Generate the inputs."""
        self.device, self.job, self._step = device, job, step
        self.sizes = choose_sizes(job.fusion)
        self.inputs = random_inputs(job.fusion, self.sizes, SEED)
        self._first: Bound | None = None
        self._bound: dict[str, tuple[Executable, Bound]] = {}

    def close(self) -> None:
        """Free all memory, the first program's last: the others use it."""
        for executable, bound in reversed(self._bound.values()):
            bound.close()
            executable.close()
        self._bound = {}
        self._first = None

    def bound(self, built: Built) -> Bound:
        """Return a record's kernels, bound to the same memory as the first ones."""
        if built.form not in self._bound:
            executable = Executable(self.device, built.host, built.cubins)
            bound = executable.bind(self.inputs, self.sizes, self._first)
            self._bound[built.form] = executable, bound
            self._first = self._first or bound
        return self._bound[built.form][1]

    def times(self, built: Sequence[Built], repeats: int) -> list[float | Failed]:
        """Return the median seconds of each, run round-robin, or why one cannot run."""
        found: list[float | Failed] = [0.0] * len(built)
        ready: list[tuple[int, Bound]] = []
        for number, each in enumerate(built):
            self._step(number)
            try:
                bound = self.bound(each)
                bound.reset()
                bound.run()
                self.device.synchronise("running the kernels")
                ready.append((number, bound))
            except InternalError:  # a fault: the device can no longer be used
                raise
            except FusecError as error:
                found[number] = Failed(each.settings, error.diagnostic.message)
        self._step(len(built))
        if ready:
            for (number, _), seconds in zip(
                ready, in_turn([bound for _, bound in ready], repeats), strict=True
            ):
                found[number] = seconds
        return found

    def wrong(self, built: Built, default: Built) -> str | None:
        """Return what is wrong with the results of a record.

        They are correct if bitwise equal to the default's; else no element may be far from the
        default's, and the fp64 reference verifies as many slices as it evaluates in a few seconds.
        """
        expected, found = self.results(default), self.results(built)
        if all(found[n].tobytes() == array.tobytes() for n, array in expected.items()):
            return None
        for name, array in expected.items():
            if _is_far(found[name], array):
                return f"`{name}` is far from the result of the default plan"
        model = driver.model_of(built.host, self.sizes)
        verdict = compare(
            self.job.fusion, self.sizes, self.inputs, found, model=model, limit=LIMIT, seed=SEED
        )
        if verdict.word == VERIFIED:
            return None
        if verdict.word == DIFFERS:
            return verdict.text()
        return "they differ from the default plan's, and verification is inconclusive"

    def results(self, built: Built) -> Mapping[str, Array]:
        """Return the outputs of a record's kernels, run once on poisoned memory."""
        bound = self.bound(built)
        bound.reset()
        bound.run()
        return bound.outputs()


def _is_far(found: Array, expected: Array) -> bool:
    """Return whether an element is off relative to the largest, or NaN or infinite in one only."""
    if found.dtype.kind in "biu":
        return found.tobytes() != expected.tobytes()
    left, right = _wide(found), _wide(expected)
    finite = np.isfinite(right)
    if not np.array_equal(finite, np.isfinite(left)):
        return True
    largest = np.max(np.abs(right), where=finite, initial=0.0)
    off = np.abs(np.subtract(left, right, where=finite, out=np.zeros_like(right)))
    return bool(np.max(off, initial=0.0) > GROSS * largest)


def _wide(array: Array) -> Any:
    """Return floats in a type that can represent their differences."""
    if array.dtype.kind == "c" or array.dtype.itemsize > 4:
        return array
    return array.astype(np.float32)
