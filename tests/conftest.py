"""Skips GPU tests without a GPU, writes the record of a GPU run, and spares the tests' time."""

from __future__ import annotations

import gc
import json
import os
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

DRY = "FUSEC_GPU_DRY"
"""Set to run the GPU tests without a GPU; see gpu_check.DRY."""
RECORD = "FUSEC_GPU_RECORD"
"""Path of the record to write, e.g. tests/gpu_record.json."""
SHARED = "FUSEC_TESTS_SHARED"
"""Set here: a folder that all processes of a run have; see cuda_on_cpu.SHARED."""
TREES = "FUSEC_TREES"
"""Git tree hashes that the record keeps: `fusec=<hash>,tests=<hash>,examples=<hash>`."""

# No test depends on schedules that were measured on some machine, but those of these schedules.
os.environ["FUSEC_TUNED"] = "0"
# Small products take longer in two threads than in one, of which each test process has its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

OUTCOMES: dict[str, str] = {}


@cache
def missing_gpu() -> str | None:
    """Return why GPU tests are skipped."""
    if os.environ.get(DRY):
        return None
    from fusec.run.device import device_available

    reason = device_available()
    return None if reason is None else f"no CUDA GPU: {reason}"


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tell of a folder that all processes of this run have, for what is compiled once."""
    own = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    os.environ.setdefault(SHARED, str(own.parent if is_worker else own))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file to one process: they share fixtures, plans and built kernels."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for circles as seldom as `fusec` does, and never among what was collected."""
    from fusec.cli import COLLECT_EVERY

    gc.set_threshold(COLLECT_EVERY)
    gc.collect()
    gc.freeze()


_SAMPLED = """
    around_attention_on_cpu attention_backward_on_cpu attention_decode_on_cpu
    attention_on_cpu build_once complex_kernels computed_on_cpu concat contracts crafted
    device_headers direct_stores_on_cpu fences fp8_on_cpu half_partials hopper_on_cpu
    inner_outer_persistent inner_persistent joined_on_cpu kernel_limits large layouts
    loop_price masks_on_cpu matmul_groups matmul_kernels matmul_plans matmul_vector
    parallel_examples persistent_on_cpu planned_orders races ranges_on_cpu ring row_tiles
    scan scatter segment_exact sort tf32_on_cpu tf32_wgmma_on_cpu totals_on_cpu transpose
    weight_forms_on_cpu weights_on_cpu weights_once_on_cpu
"""
SAMPLED = frozenset(_SAMPLED.split())
"""Files of tests, without `test_`, whose variants take minutes together: every second one is
`nightly`, chosen by its name."""


def _runs_nightly(item: pytest.Item) -> bool:
    if item.get_closest_marker("nightly") is not None:
        return True
    if item.get_closest_marker("gpu") is not None:
        return False
    is_sampled = item.path.stem.removeprefix("test_") in SAMPLED and hasattr(item, "callspec")
    return is_sampled and crc32(item.nodeid.rpartition("/")[2].encode()) % 2 == 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that run nightly, unless `-m` names that mark."""
    for item in items:
        if _runs_nightly(item):
            item.add_marker(pytest.mark.nightly)
    if "nightly" in config.getoption("markexpr"):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly") is not None]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in nightly]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test where there is no GPU."""
    if item.get_closest_marker("gpu") is not None and missing_gpu() is not None:
        pytest.skip(str(missing_gpu()))


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the outcome of a GPU test; with xdist the controller is told of all of them."""
    if "gpu" not in report.keywords:
        return
    # An error in setup or teardown counts as a failure of the test.
    counts = report.when == "call" or report.outcome != "passed"
    if counts and OUTCOMES.get(report.nodeid) != "failed":
        OUTCOMES[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record where one is asked for."""
    path = os.environ.get(RECORD)
    is_worker = hasattr(session.config, "workerinput")
    if path and not is_worker and OUTCOMES:
        Path(path).write_text(json.dumps(record(), indent=1) + "\n")


def record() -> dict[str, Any]:
    """Return the record of this session."""
    from fusec.run.device import Device, device_available

    facts: dict[str, str] = {"device": "none", "driver": "none"}
    if device_available() is None:
        with Device() as device:
            facts = {"device": device.facts.name, "driver": device.facts.driver}
    given = os.environ.get(TREES, "")
    trees = dict(part.split("=", 1) for part in given.split(",") if "=" in part)
    by_outcome = {
        outcome: sorted(node for node, found in OUTCOMES.items() if found == outcome)
        for outcome in ("passed", "failed", "skipped")
    }
    return {**facts, "trees": trees, **by_outcome}
