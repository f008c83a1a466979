"""What commands load before they do anything: most of the time of a short one."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from paths import ROOT

from fusec.hostir.passes import PIPELINE, find_pass
from fusec.options import SCHEDULERS
from fusec.schedule.registry import find_scheduler, host_schedulers, schedulers

HELP = ("--help",)
OPERATION = ("ops", "rsqrt")
CHECK = ("check", "examples/layernorm.yaml")
DUMP = ("dump", "--cuda-kernel", "examples/linear_gelu.yaml")
EXPLAIN = ("explain", "examples/cross_entropy.yaml")
COMMANDS = (HELP, OPERATION, CHECK, DUMP, EXPLAIN)
HEAVY = {
    "numpy", "networkx", "cuda", "jinja2", "yaml", "ml_dtypes", "safetensors", "scipy", "filelock",
}  # fmt: skip
NEVER = {
    "asyncio", "concurrent", "cuda", "ml_dtypes", "multiprocessing", "networkx", "numpy", "scipy",
    "socket", "sqlite3", "subprocess",
}  # fmt: skip
"""What neither needs: arithmetic, graphs, other processes and the network."""


@cache
def loaded_after() -> dict[tuple[str, ...], set[str]]:
    """Return the modules that are loaded after each command, by their whole names."""
    code = (
        "import os, sys\n"
        "from fusec.cli import run_main\n"
        f"for command in {COMMANDS}:\n"
        "    child = os.fork()\n"  # each command starts with what `fusec` itself loads
        "    if not child:\n"
        "        assert run_main([*command]) == 0\n"
        "        print('MODULES', *sorted(sys.modules))\n"
        "        break\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    lines = [x for x in done.stdout.splitlines() if x.startswith("MODULES ")]
    return {c: {*line.split()[1:]} for c, line in zip(COMMANDS, lines, strict=True)}


def packages_after(command: tuple[str, ...]) -> set[str]:
    """Return the packages that are loaded after a command."""
    return {name.split(".")[0] for name in loaded_after()[command]}


@pytest.mark.parametrize("command", [HELP, CHECK], ids=" ".join)
def test_commands_load_what_they_need(command: tuple[str, ...]) -> None:
    loaded = packages_after(command)
    assert "click" in loaded
    assert loaded & NEVER == set()


def test_heavy_packages_load_where_they_are_used() -> None:
    assert packages_after(HELP) & HEAVY == set()
    assert packages_after(OPERATION) & HEAVY == {"yaml"}  # an example is tried
    assert packages_after(CHECK) & HEAVY == {"yaml", "jinja2"}  # it generates text


UNNEEDED = {
    "fusec.schedule.attention.backward", "fusec.schedule.attention.decode",
    "fusec.schedule.attention.forward", "fusec.schedule.attention.kernel", "fusec.schedule.host",
    "fusec.schedule.matmul", "fusec.schedule.pointwise.choice",
    "fusec.schedule.pointwise.concat", "fusec.schedule.pointwise.family",
    "fusec.schedule.rows.inner_outer_persistent", "fusec.schedule.scan",
    "fusec.schedule.scatter", "fusec.schedule.sort", "fusec.schedule.transpose",
    "fusec.hostir.passes.assign_streams", "fusec.hostir.passes.sink_waits",
    "fusec.hostir.passes.order_segments", "fusec.hostir.tasks", "fusec.hostir.steps",
    "fusec.ops.composite", "fusec.ops.matmul", "fusec.ops.movement.indexing",
    "fusec.ops.movement.windows", "fusec.ops.pointwise.special",
    "fusec.ops.pointwise.trigonometric", "fusec.ops.random", "fusec.ops.reduction.sorts",
    "fusec.passes.complex_as_pairs", "fusec.passes.hoist_scales",
    "fusec.passes.hoist_selections", "fusec.passes.scatters_as_selects",
    "fusec.passes.update_slices",
}  # fmt: skip
"""What a fusion with one reduction over rows does not need: other families, operations, passes."""
MOST_MODULES = 410
"""Modules of fusec that a check of it loads, at most."""


def test_a_check_loads_the_families_that_may_match() -> None:
    loaded = loaded_after()[CHECK]
    assert "fusec.schedule.rows.inner_persistent.family" in loaded
    assert {m for m in loaded for u in UNNEEDED if m == u or m.startswith(f"{u}.")} == set()
    assert len([m for m in loaded if m.startswith("fusec")]) <= MOST_MODULES


def test_the_text_of_a_product_loads_no_arithmetic() -> None:
    loaded = packages_after(DUMP)
    assert "jinja2" in loaded
    assert not loaded & {"numpy", "ml_dtypes", "cuda", "scipy", "safetensors"}


def test_an_explanation_asks_no_compiler_and_loads_no_exact_bounds() -> None:
    loaded = loaded_after()[EXPLAIN]
    assert not packages_after(EXPLAIN) & {"cuda", "jinja2", "safetensors", "torch"}
    assert "fusec.explain.record" in loaded
    assert not [m for m in loaded if m.startswith("fusec.exact")]


def test_registries_name_what_exists() -> None:
    every = [entry.name for entry in (*schedulers(), *host_schedulers())]
    assert len(set(every)) == len(every)
    assert {*SCHEDULERS} <= {*every}
    assert [find_scheduler(name).name for name in every] == every
    assert [find_pass(step.name).__name__ for step in PIPELINE] == [s.name for s in PIPELINE]
