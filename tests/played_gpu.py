"""A GPU that is played: runs of `fusec run` compute the reference, in times that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from fusec import driver
from fusec.commands.running import run as run_command
from fusec.run.measure import KernelTime, Timing
from fusec.segment.roofline import Rates


def play_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have `fusec run` find a GPU; return its state.

    wrong: what is added to each output's first element; runs: how many there were. A launch takes
    2 us, a whole run 3 us.
    """
    state: dict[str, Any] = {"wrong": 0.0, "runs": 0}

    def execute(package: Any, inputs: Any, sizes: Any, options: Any) -> Any:
        (target,), program = package.targets, package.program
        launches = program.host.launches
        assert set(package.cubins(target)) == {launch.kernel for launch in launches}
        outputs = driver.reference(program.original, inputs, sizes)
        for array in outputs.values():
            array.reshape(-1)[0] += array.dtype.type(state["wrong"])
        state["runs"] += 1
        times = tuple(KernelTime(k.kernel, k.segment, 2e-6) for k in launches)
        timing = Timing(3e-6, times, options.repeats) if options.repeats else None
        return outputs, timing, "a played GPU", Rates(1e12, 1e15)

    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    monkeypatch.setattr(run_command, "_execute", execute)
    return state
