"""Every template at every pair of values of its free fields, run on a GPU.

Under `compute-sanitizer --tool memcheck` or `racecheck`, these are the launches to watch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from emulated import EmulatedDevice
from gpu_check import DRY, check_on_gpu
from spaces import CASES, space_of

from fusec import driver
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.bound import Bound
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_inputs

ARRIVAL = ("parallel", "elements")
"""Values of fields by which floats are added in arrival order: runs may differ."""


def scheduled(name: str, settings: Mapping[str, Setting]) -> Fusion:
    """Return the fusion of a case as one segment of its scheduler, with a schedule set."""
    case = CASES[name]
    made = [v for op in case.fusion.nodes for v in op.outputs]
    values = ", ".join(v.name for v in made)
    fields = ", ".join(f"{k}: {str(v).lower()}" for k, v in settings.items())
    return read_text(
        f"fusion: small\n{case.text}segments:\n"
        f"  whole: {{values: [{values}], scheduler: {case.scheduler}}}\n"
        f"schedules:\n  {case.scheduler}: {{{fields}}}\n"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_pair_of_values_is_right_on_a_gpu(name: str) -> None:
    space = space_of(name)
    for record in space.covering[:2] if DRY else space.covering:
        fusion = scheduled(name, record.settings)
        repeats = 1 if {*record.settings.values()} & {*ARRIVAL} else 3
        checked = check_on_gpu(fusion, scheduler=CASES[name].scheduler, repeats=repeats)
        (plan,) = checked.compiled.program.plans
        assert plan.parameters == record


def test_schedules_that_are_far_from_the_likeliest_are_set() -> None:
    """All fields are set at once: what each prefix of them would need is no matter."""
    name = "inner_persistent"
    for record in space_of(name).covering:
        (plan,) = driver.plan(scheduled(name, record.settings), CompileOptions()).plans
        assert plan.parameters == record


class Emulated(EmulatedDevice):
    """Tells kernels of one name apart by what stands for their machine code."""

    def load(self, cubin: bytes, entry: str) -> Any:
        """Return the name of the kernel here."""
        return cubin.decode()


def test_plans_beside_each_other_have_workspaces_of_their_own(tmp_path: Path) -> None:
    """What a tuner runs in turn shares inputs and outputs, and no counters or partial sums."""
    device: Any = Emulated({})
    inputs: dict[str, Any] = {}
    bound: list[Bound] = []
    for threads in (16, 4):  # another number of blocks that count arrivals
        settings = {"threads_x": threads, "threads_y": 8, "splits": 5, "vector_width": 1}
        planned = driver.plan(scheduled("reduction_outer", settings), CompileOptions())
        cubins: dict[str, bytes] = {}
        for source in planned.kernel_sources:
            own = f"{source.name}_{threads}"
            (folder := tmp_path / own).mkdir()
            device.kernels[own] = cuda_on_cpu.build(source.kernel, source.text, folder)
            cubins[source.name] = own.encode()
        sizes = choose_sizes(planned.original)
        inputs = inputs or random_inputs(planned.original, sizes, 0)
        bound.append(Executable(device, planned.host, cubins).bind(inputs, sizes, *bound[:1]))
    for each in bound:
        each.reset()
    for each in (*bound, *bound):
        each.run()
    for each in bound:
        np.testing.assert_allclose(
            each.outputs()["y"], inputs["x"].array.sum(0), rtol=1e-5, atol=1e-5
        )
