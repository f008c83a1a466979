"""Takes a fusion to the GPU and compares with the reference: the one way of all GPU tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from emulated import can_run, emulated
from simulated import simulate

from fusec import driver
from fusec.diagnostics import InternalError
from fusec.files import with_planned_strides, with_sizes
from fusec.ir.evaluate import extents
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.options import DEFAULT_TARGET, CompileOptions
from fusec.reference.evaluate import evaluate
from fusec.reference.verdict import DIFFERS, Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.run.integers import exact_outputs

DRY = os.environ.get("FUSEC_GPU_DRY", "")
"""`build`: kernels are built, a stand-in computes results; `host`: small ones run on the host."""
_OPEN: list[Any] = []


@dataclass(frozen=True)
class Checked:
    """A fusion that ran and whose results are right."""

    compiled: driver.Package
    inputs: Mapping[str, Any]
    outputs: Mapping[str, np.ndarray]
    verdict: Verdict

    @property
    def schedulers(self) -> list[str]:
        """Return the scheduler of each segment."""
        return [s.scheduler for s in self.compiled.program.segmented.segments]


def the_device() -> Any:
    """Return this process's device."""
    from fusec.run.device import Device

    if not _OPEN:
        _OPEN.append(Device())
    return _OPEN[0]


def drop_device() -> None:
    """Close the device after a fault, so that the next test gets a context of its own."""
    device = _OPEN.pop()
    device.close()
    while device.call("cuDevicePrimaryCtxGetState", device._device)[1]:
        device.driver.cuDevicePrimaryCtxRelease(device._device)


def options() -> CompileOptions:
    """Return options for the device at hand."""
    target = DEFAULT_TARGET if DRY else the_device().facts.target.arch
    return CompileOptions(targets=(target,), targets_given=True, jobs=1)


def check_on_gpu(
    fusion: Fusion,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    *,
    run_sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    scheduler: str | Collection[str] | None = None,
    repeats: int = 1,
    decided: bool = True,
    exact: bool = True,
) -> Checked:
    """Compile for `sizes`, run, compare with the reference, and assert that all is right.

    run_sizes: other sizes to run at; inputs: in place of random ones; scheduler: what every segment
    must be (a name) or what the segments must be in order; repeats: runs that must agree bit by
    bit; decided: nothing may be left open, as random fusions do at jumps and poles;
    exact: partial sums of small integers are handed on as they are.
    """
    fusion = with_planned_strides(with_sizes(fusion, sizes or {}))
    compiled = driver.compile_fusion(fusion, options())
    used = [s.scheduler for s in compiled.program.segmented.segments]
    if isinstance(scheduler, str):
        assert set(used) == {scheduler}, _story(compiled, f"the schedulers are {used}")
    elif scheduler is not None:
        assert used == list(scheduler), _story(compiled, f"the schedulers are {used}")
    at = choose_sizes(fusion, run_sizes)
    given = {**random_inputs(fusion, at, seed), **(inputs or {})}
    outputs = run_again(compiled, given, at, repeats)
    model = driver.model_of(compiled.program.host, at)
    verdict = compare(fusion, at, given, outputs, model=model, seed=seed)
    right = verdict.ok or (not decided and verdict.word != DIFFERS)
    assert right or (DRY and _nearly(verdict)), _story(compiled, verdict.text())
    if exact and inputs is None and any(plan.workspaces for plan in compiled.program.plans):
        _check_integers(compiled, at, seed)
    return Checked(compiled, given, outputs, verdict)


def _check_integers(compiled: driver.Package, sizes: Mapping[str, int], seed: int) -> None:
    """Assert that blocks which add their partial sums in memory lose and double none of them.

    On integers so small that sums are exact, the results must agree to the bit.
    """
    fusion = compiled.program.original
    exact = exact_outputs(fusion, sizes)
    model = driver.model_of(compiled.program.host, sizes)
    if not exact or not model.keeps_whole_numbers:
        return
    inputs = random_inputs(fusion, sizes, seed, "integers")
    outputs = run_again(compiled, inputs, sizes, 1)
    verdict = compare(fusion, sizes, inputs, outputs, model=model, seed=seed)
    inexact = verdict.inexact(exact)
    assert not inexact, _story(compiled, f"{inexact} of integers\n{verdict.text()}")


def run_again(
    compiled: driver.Package, inputs: Mapping[str, Any], sizes: Mapping[str, int], repeats: int
) -> dict[str, np.ndarray]:
    if DRY == "host" and can_run(compiled.program, sizes):
        return _on_host(compiled, inputs, sizes)
    if DRY:
        compiled.program.host.check_guards(sizes)
        return _stand_in(compiled.program.original, inputs, sizes)
    from fusec.run.execute import Executable

    cubins = {name: a.cubin for (name, _), a in compiled.artifacts.items()}
    try:
        with Executable(the_device(), compiled.program.host, cubins).bind(inputs, sizes) as bound:
            bound.reset()
            bound.run()
            outputs = bound.outputs()
            for number in range(1, repeats):
                bound.reset()
                bound.run()
                for name, again in bound.outputs().items():
                    same = again.tobytes() == outputs[name].tobytes()
                    assert same, _story(compiled, f"`{name}` differs in run {number + 1}")
    except InternalError as error:
        drop_device()
        raise AssertionError(_story(compiled, "\n".join(map(str, _lines(error))))) from error
    return outputs


def _on_host(
    compiled: driver.Package, inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return what the kernels compute when they run on the host, thread by thread."""
    from fusec.run.execute import Executable

    with tempfile.TemporaryDirectory() as folder:
        device: Any = emulated(compiled.program, Path(folder))
        cubins = {name: b"" for name, _ in compiled.artifacts}
        with Executable(device, compiled.program.host, cubins).bind(inputs, sizes) as bound:
            bound.reset()
            bound.run()
            return {name: array.copy() for name, array in bound.outputs().items()}


def _lines(error: InternalError) -> list[str]:
    return [error.diagnostic.message, *error.diagnostic.notes]


def _stand_in(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return results in f32 arithmetic, so that a dry run tries the fusion and its bounds."""
    empty = any(0 in extents(v.type, sizes) for v in fusion.values)
    outputs = evaluate(fusion, inputs, sizes) if empty else simulate(fusion, inputs, sizes)
    outputs = {
        o.value.name: outputs[o.value.name].astype(o.value.dtype.numpy) for o in fusion.outputs
    }
    return {
        o.value.name: np.broadcast_to(outputs[o.value.name], extents(o.value.type, sizes))
        for o in fusion.outputs
    }


def _nearly(verdict: Verdict) -> bool:
    """Return whether few elements are beyond their limits: NumPy's f32 functions are less exact."""
    return all(o.wrong <= 0.01 * o.checked and not o.unwritten for o in verdict.outputs)


def _story(compiled: driver.Package, message: str) -> str:
    """Return a message with what one needs to look into it."""
    lines = [message]
    for segment, plan in zip(
        compiled.program.segmented.segments, compiled.program.plans, strict=True
    ):
        lines.append(f"segment {segment.name}: {segment.scheduler} {plan.parameters}")
        lines += [f"  {k.name} grid {list(map(str, k.grid))} block {k.block}" for k in plan.kernels]
    return "\n".join([*lines, to_text(compiled.program.original)])
