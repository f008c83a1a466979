"""What commands load before they do anything: most of the time of a short one."""

from __future__ import annotations

import pytest
from test_layers import modules_after, submodules_after

from fusec.hostir.passes import PIPELINE, find_pass
from fusec.options import SCHEDULERS
from fusec.schedule.registry import find_scheduler, host_schedulers, schedulers

COMMANDS = {
    ("--help",): {"yaml", "jinja2"},
    ("check", "examples/layernorm.yaml"): set[str](),
}
NEVER = {
    "asyncio", "concurrent", "cuda", "ml_dtypes", "multiprocessing", "networkx", "numpy", "scipy",
    "socket", "sqlite3", "subprocess",
}  # fmt: skip
"""What neither needs: arithmetic, graphs, other processes and the network."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_load_what_they_need(command: tuple[str, ...]) -> None:
    loaded = modules_after(*command)
    assert "click" in loaded
    assert loaded & (NEVER | COMMANDS[command]) == set()


UNNEEDED = {
    "fusec.schedule.attention", "fusec.schedule.attention_choice", "fusec.schedule.concat",
    "fusec.schedule.host", "fusec.schedule.host_operations",
    "fusec.schedule.inner_outer_persistent", "fusec.schedule.matmul",
    "fusec.schedule.matmul_choice", "fusec.schedule.pointwise", "fusec.schedule.scan",
    "fusec.schedule.scatter", "fusec.schedule.sort", "fusec.schedule.transpose",
    "fusec.hostir.passes.assign_streams", "fusec.hostir.passes.late_waits",
    "fusec.hostir.passes.order_segments", "fusec.hostir.tasks", "fusec.hostir.steps",
}  # fmt: skip
"""What a fusion with one reduction over rows does not need: other families, passes over orders."""


def test_a_check_loads_the_families_that_may_match() -> None:
    loaded = submodules_after("check", "examples/layernorm.yaml")
    assert "fusec.schedule.inner_persistent" in loaded
    assert {m for m in loaded for u in UNNEEDED if m == u or m.startswith(f"{u}.")} == set()


def test_registries_name_what_exists() -> None:
    every = [entry.name for entry in (*schedulers(), *host_schedulers())]
    assert len(set(every)) == len(every)
    assert {*SCHEDULERS} <= {*every}
    assert [find_scheduler(name).name for name in every] == every
    assert [find_pass(step.name).__name__ for step in PIPELINE] == [s.name for s in PIPELINE]
