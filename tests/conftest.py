"""Skips GPU tests without a GPU, writes the record of a GPU run, and spares the tests' time."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import paths  # noqa: F401
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

DRY = "FUSEC_GPU_DRY"
"""Set to run the GPU tests without a GPU; see gpu_check.DRY."""
RECORD = "FUSEC_GPU_RECORD"
"""Path of the record to write, e.g. tests/gpu_record.json."""
SHARED, KEPT = "FUSEC_TESTS_SHARED", "FUSEC_TESTS_KEPT"
"""Set here: folders that all processes of a run have, and all runs; see cuda_on_cpu."""
TIMES = "FUSEC_TEST_TIMES"
"""Path of a file that gets the processor seconds of each test, its subprocesses' included."""
TREES = "FUSEC_TREES"
"""Git tree hashes that the record keeps: `fusec=<hash>,tests=<hash>,examples=<hash>`."""

# No test depends on schedules that were measured on some machine, but those of these schedules.
os.environ["FUSEC_TUNED"] = "0"
# Tests replace parts of fusec, and look at what it plans: nothing is taken from other processes.
os.environ["FUSEC_PLAN_CACHE"] = "0"
# Small products take longer in two threads than in one, of which each test process has its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Integers of the package's modules would be among those that are drawn: to find them in all that is
# imported takes seconds of each process, and what a test draws would depend on the tests before it.
vars(providers)["_get_local_constants"] = lambda: providers._local_constants  # pyright: ignore

# How long an example takes depends on what else the machine does; no test is about time.
settings.register_profile("fusec", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fusec")

OUTCOMES: dict[str, str] = {}


@cache
def missing_gpu() -> str | None:
    """Return why GPU tests are skipped."""
    if os.environ.get(DRY):
        return None
    from fusec.run.device import device_available

    reason = device_available()
    return None if reason is None else f"no CUDA GPU: {reason}"


def pytest_configure(config: pytest.Config) -> None:
    """Keep what kernels on the CPU share in pytest's cache, and byte code in some environments.

    Where no byte code is to be written beside the modules, each process would compile all of them
    again, of which a run of the tests has hundreds.
    """
    if hasattr(config, "cache"):
        os.environ.setdefault(KEPT, str(config.cache.mkdir("cuda_on_cpu")))
    if sys.dont_write_bytecode and hasattr(config, "cache"):
        folder = str(config.cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
        sys.dont_write_bytecode = False


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tell of a folder that all processes of this run have, for what is compiled once."""
    own = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    os.environ.setdefault(SHARED, str(own.parent if is_worker else own))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file to one process: they share fixtures, plans and built kernels.

    The files that read the package's syntax trees go to one process, too, which parses them once.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "package_trees" if _reads_trees(config.rootpath / file) else file

    return Scheduling(config, log)


@cache
def _reads_trees(file: Path) -> bool:
    return "\nfrom package_trees import " in file.read_text(encoding="utf-8")


def _begins_behind() -> bool:
    """Return whether this process collects the last files first.

    Processes collect all files, and one of two finds half of them compiled by the other.
    """
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(number) % 2 == 1


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Turn the order of files around in a process that begins behind.

    Until all tests are collected nothing is looked for that goes: modules and items stay.
    """
    gc.disable()
    outcome = yield
    if _begins_behind() and isinstance(collector, (pytest.Session, pytest.Dir)):
        outcome.get_result().result.reverse()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for circles as seldom as `fusec` does, and never among what was collected."""
    from fusec.cli import COLLECT_EVERY

    gc.set_threshold(COLLECT_EVERY)
    gc.freeze()
    gc.enable()


VARIANTS: dict[str, dict[str, int]] = json.loads(
    (Path(__file__).parent / "variants.json").read_text()
)
"""By file and test, how many of its variants run by default; the others are nightly."""


def _nightly(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that run nightly: marked so, or variants beyond those of a default run."""
    found = [item for item in items if item.get_closest_marker("nightly") is not None]
    variants: dict[tuple[str, str], dict[str, pytest.Item]] = {}
    for item in items:
        marked = any(item.get_closest_marker(name) for name in ("gpu", "nightly"))
        if hasattr(item, "callspec") and not marked:
            name = item.nodeid.partition("::")[2]
            variants.setdefault((item.path.name, name.partition("[")[0]), {})[name] = item
    for (file, test), each in variants.items():
        found += [each[name] for name in _beyond(file, test, each)]
    return found


def _beyond(file: str, test: str, names: Iterable[str]) -> list[str]:
    """Return the names of the variants of a test that do not run by default.

    Which variants run is drawn, by the names of test and file: the same ones in every run.
    """
    ordered = sorted(names, key=lambda name: crc32(f"{file}::{name}".encode()))
    return ordered[VARIANTS.get(file, {}).get(test, len(ordered)) :]


def _excludes_gpu(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "not gpu"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of GPU tests where `-m` excludes these: they are not even imported."""
    if not collection_path.name.startswith("test_gpu_") or not _excludes_gpu(config):
        return None
    return True if "\npytestmark = pytest.mark.gpu\n" in collection_path.read_text() else None


@pytest.hookimpl(hookwrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Any:
    """Make no items of the variants that are left out below: more than half of all.

    A test keeps one variant, by which it is left out as a whole: without any, it would run.
    """
    yield
    calls: list[Any] = getattr(metafunc, "_calls", [])  # there is no public way to take some away
    test = metafunc.definition
    if not calls or "nightly" in str(metafunc.config.getoption("markexpr")):
        return
    left = ("gpu", "nightly") if _excludes_gpu(metafunc.config) else ("nightly",)
    name = test.nodeid.partition("::")[2]
    kept = [c for c in calls if not any(mark.name in left for mark in c.marks)]
    if any(test.get_closest_marker(mark) for mark in left):
        kept = []
    elif test.get_closest_marker("gpu") is None:
        drawn = {f"{name}[{c.id}]" for c in kept if all(mark.name != "gpu" for mark in c.marks)}
        beyond = {*_beyond(test.path.name, name, drawn)}
        kept = [c for c in kept if f"{name}[{c.id}]" not in beyond]
    calls[:] = kept or calls[:1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that run nightly, unless `-m` names that mark.

    All processes have the tests in one order, in which each has collected those of a file.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path)
    nightly = _nightly(items)
    for item in nightly:
        item.add_marker(pytest.mark.nightly)
    if "nightly" in str(config.getoption("markexpr")):
        return
    if nightly:
        left = set(map(id, nightly))
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if id(item) not in left]


@pytest.fixture
def quick_collection() -> Iterator[None]:
    """Let `gc.collect` look only among what the test makes: all tests' caches take seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Note the processor time of a test where a file for it is given; see variants.py."""
    path = os.environ.get(TIMES)
    before = sum(os.times()[:4])
    yield
    if path:
        spent = sum(os.times()[:4]) - before
        with Path(path).open("a") as file:
            file.write(json.dumps([item.nodeid, round(spent, 3)]) + "\n")


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
