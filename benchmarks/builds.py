"""How long rows of suites take to build on this machine's processor, by stages; needs no GPU.

python -m benchmarks.builds [SUITE ...] [--only GLOB,...] [--repeat N] [--seconds S] [--jobs N]
                            [--out FILE.json]

SUITE: products, operands, attention, attention_backward; all without. A row is built from its text
to cubins without caches, again and again, in a process that has built another one before. Times
are of the clock: run it alone, or with `--jobs` at most half of the machine's cores.

The record has by row, in milliseconds: the first build, the best and the median one with the time
of a core that it took, and the median of each stage (STAGES). docs/products.md says what they are.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from platform import machine
from statistics import median
from typing import Any

from benchmarks import run
from benchmarks.entry import end_with
from benchmarks.rows import Row
from benchmarks.segmentation import tree, write
from fusec import driver
from fusec.options import CompileOptions
from fusec.run.binary.version import compiler_version
from fusec.schedule.registry import schedulers

LIMITS = {"products": 300, "operands": 300, "attention": 600, "attention_backward": 600}
"""Milliseconds for each row of a suite."""
STAGES = {
    "parse": ("parse",),
    "plan": ("partition", "passes", "segment", "schedule"),
    "render": ("codegen",),
    "nvrtc": ("build",),
}
"""The driver's stages that each of the record's is made of; `parse` is measured here."""


def rows_of(suite: str, only: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a suite that are not drawn and whose names a pattern fits, if any is."""
    return run.rows_of(suite, only, [])


def build(row: Row, target: str) -> tuple[int, dict[str, float], float]:
    """Return a row's kernels, the seconds of each stage, and those of cores."""
    options = CompileOptions(targets=(target,), use_cache=False)
    for entry in schedulers():
        vars(entry).pop("family", None)  # as families know what they chose for the same structure
    core, start = time.process_time(), time.perf_counter()
    fusion = replace(row).fusion  # as a row keeps what it has read
    read = time.perf_counter() - start
    program = driver.plan(fusion, options)
    driver.build(program)
    spent = {"parse": read, **program.timings.seconds}
    seconds = {name: sum(spent.get(s, 0.0) for s in stages) for name, stages in STAGES.items()}
    return len(program.kernel_sources), seconds, time.process_time() - core


def warm_up(target: str) -> None:
    """Import and load what is imported and loaded once."""
    build(rows_of("attention")[0], target)


def measured(suite: str, row: Row, target: str, repeats: int) -> dict[str, Any]:
    """Return what is recorded of a row."""
    every = [build(row, target) for _ in range(repeats)]
    totals = [sum(seconds.values()) for _, seconds, _ in every]
    return {
        "suite": suite,
        "row": row.name,
        "kernels": every[0][0],
        "first_ms": _ms(totals[0]),
        "best_ms": _ms(min(totals)),
        "median_ms": _ms(median(totals)),
        "core_ms": _ms(median(core for _, _, core in every)),
        "stages_ms": {n: _ms(median(seconds[n] for _, seconds, _ in every)) for n in STAGES},
    }


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return by kind of row the median and the most of the medians, and which exceed the limit."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(kind_of(row["suite"], row["row"]), []).append(row)
    return {
        kind: {
            "rows": len(some),
            "limit_ms": LIMITS[some[0]["suite"]],
            "median_ms": _rounded(r["median_ms"] for r in some),
            "most_ms": max(r["median_ms"] for r in some),
            "stages_ms": {n: _rounded(r["stages_ms"][n] for r in some) for n in STAGES},
            "exceeding": [r["row"] for r in some if r["median_ms"] > LIMITS[r["suite"]]],
        }
        for kind, some in kinds.items()
    }


def kind_of(suite: str, name: str) -> str:
    """Return the kind of a row: its name before the sizes, with the epilogue behind them."""
    if suite != "products":
        return "_".join(p for p in name.split("_") if not p[0].isdigit())
    kind, _, *epilogue = name.split("_")
    return "_".join([kind, *epilogue])


def _rounded(numbers: Any) -> float:
    return round(median(numbers), 1)


def processor() -> str:
    """Return the model of the processor, if the system says it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the rows, print each and a summary, and write the record as it grows."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.builds", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", default=[])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row later")
    parser.add_argument("--jobs", type=int, default=1, help="rows that are built at once")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    unknown = [s for s in given.suites if s not in LIMITS]
    if unknown:
        parser.error(f"no suite `{unknown[0]}`: one of {', '.join(LIMITS)}")
    wanted = [(s, r) for s in given.suites or LIMITS for r in rows_of(s, given.only)]
    record: dict[str, Any] = {
        "fusec_tree": tree(), "processor": processor() or machine(), "compiler": compiler_version(),
        "cores": len(os.sched_getaffinity(0)), "jobs": given.jobs, "repeat": given.repeat,
        "target": given.target, "summary": {}, "not_measured": [], "rows": [],
    }  # fmt: skip
    end = time.monotonic() + given.seconds
    pool = ProcessPoolExecutor(
        given.jobs, get_context("spawn"), initializer=warm_up, initargs=(given.target,)
    )
    with pool:
        waiting = [
            (row.name, pool.submit(measured, suite, row, given.target, given.repeat))
            for suite, row in wanted
        ]
        for name, future in waiting:
            if time.monotonic() > end and future.cancel():
                record["not_measured"].append(name)
                continue
            found = future.result()
            record["rows"].append(found)
            stages = "  ".join(f"{n} {ms:.0f}" for n, ms in found["stages_ms"].items())
            print(f"{name:<44} {found['median_ms']:>7.1f} ms  {stages}", flush=True)
            record["summary"] = summary(record["rows"])
            if given.out is not None:
                write(given.out, record)
    for kind, some in record["summary"].items():
        over = f"{len(some['exceeding'])} of {some['rows']} over {some['limit_ms']}"
        print(f"{kind:<28} median {some['median_ms']:.0f}, most {some['most_ms']:.0f} ms, {over}")
    return 1 if any(some["exceeding"] for some in record["summary"].values()) else 0


if __name__ == "__main__":
    end_with(main)
