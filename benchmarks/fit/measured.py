"""Recorded measurements, each with what predicts it again for a target with other coefficients.

A recorded program counts if its present plan has the segments, schedules and threads that were
measured. A prediction takes that plan as it is: coefficients change what is predicted of it, not
which plan is selected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from benchmarks import loop_times, programs_ranks
from benchmarks.grid_reduce import cases
from benchmarks.patterns import patterns
from benchmarks.product_schedules import Priced, product_of
from benchmarks.rows import Row
from benchmarks.run import rows_of
from benchmarks.segmentation import ROOT
from benchmarks.two_gpus import BYTES, NORM_ROWS
from fusec import driver
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.hostir.overlap import program_time
from fusec.ir.annotations import Override
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.schedule.family import Family
from fusec.schedule.plan import KernelPlan
from fusec.schedule.pressure import Pressure, most_registers
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Estimate
from fusec.segment.segmented import SegmentedFusion
from fusec.segment.traffic import with_writes
from fusec.target import Target, find

TARGET = "sm_90a"
OPTIONS = CompileOptions(targets=(TARGET,), targets_given=True)
RESULTS = ROOT / "benchmarks" / "results"
SUITES = (
    ("h200-matmul", "products"),
    ("h200-matmul", "operands"),
    ("h200-matmul", "attention"),
    ("h200-matmul", "attention_backward"),
    ("h200-memory", "memory"),
    ("h200-memory", "small"),
    ("h200-memory", "generated"),
)
"""Records of suites: their file, and their name in it."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """A recorded time in seconds, or registers of a thread; predict: returns it for a target."""

    record: str
    name: str
    value: float
    predict: Callable[[Target], float]


def read(name: str) -> Any:
    """Return a record of `benchmarks/results`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


# Programs on one GPU.


def planned(fusion: Fusion) -> Callable[[Target], float]:
    """Return what predicts the time of a fusion's present plans."""
    return of_program(Compilation(fusion, OPTIONS))


def of_program(program: Compilation) -> Callable[[Target], float]:
    """Return what predicts the time of a program's plans."""
    return partial(seconds, priced(program.segmented, program.plans))


def priced(found: SegmentedFusion, plans: Sequence[KernelPlan]) -> list[KernelPlan | Estimate]:
    """Return the plan of each segment; the estimate of one without a family, such as a copy."""
    parts: list[KernelPlan | Estimate] = []
    for segment, plan in zip(found.segments, plans, strict=True):
        if segment.estimate is not None:
            known = isinstance(find_scheduler(segment.scheduler), Family)
            parts.append(plan if known else segment.estimate)
    return parts


def seconds(parts: Iterable[KernelPlan | Estimate], target: Target) -> float:
    """Return the predicted time of some segments, one after the other."""
    return sum(_estimate(part, target).seconds(target) for part in parts)


def _estimate(part: KernelPlan | Estimate, target: Target) -> Estimate:
    if isinstance(part, Estimate):
        return part
    family: Any = find_scheduler(part.scheduler)
    found = family.estimate(part, target)
    assert isinstance(found, Estimate), found
    return with_writes(found, part.fusion)


def rows_in(
    suites: Iterable[tuple[str, str]],
) -> Iterator[tuple[str, Mapping[str, Any], Row]]:
    """Yield the recorded rows of suites: the record's name, what was measured, and the workload."""
    for file, name in suites:
        record = read(file)[name]
        for each in record if isinstance(record, list) else [record]:
            seeds = each["seed"] if isinstance(each["seed"], list) else [each["seed"]]
            known = {r.name: r for r in rows_of(each["suite"], [], seeds)}
            yield from ((name, measured, known[measured["name"]]) for measured in each["rows"])


def suites() -> Iterator[Measurement]:
    """Yield the rows of suites whose plans are those that were timed."""
    for name, measured, row in rows_in(SUITES):
        program = Compilation(row.fusion, OPTIONS)
        if is_as_timed(program, measured):
            yield Measurement(name, row.name, measured["ms"] / 1e3, of_program(program))


def is_as_timed(program: Compilation, row: Mapping[str, Any]) -> bool:
    """Return whether a program has the segments, schedules and threads of a recorded row."""
    pairs = zip(program.segmented.segments, program.plans, strict=True)
    kept = [(s, p) for s, p in pairs if s.estimate is not None]
    threads = sorted(prod(k.block) for _, p in kept for k in p.kernels)
    return (
        [s.scheduler for s, _ in kept] == [s["scheduler"] for s in row["segments"]]
        and threads == sorted(k["threads"] for k in row["kernels"])
        and all(
            _settings(p).items() >= s.get("schedule", {}).items()
            for (_, p), s in zip(kept, row["segments"], strict=True)
        )
    )


def _settings(plan: KernelPlan) -> dict[str, Any]:
    return dict(getattr(plan.parameters, "settings", {}))


def pattern_times() -> Iterator[Measurement]:
    """Yield the fusions of one access pattern each, whose schedulers are those that were timed."""
    for name, row in read("predictions")["rows"].items():
        text = patterns().get(name)
        if text is not None:
            program = Compilation(read_text(text), OPTIONS)
            used = [s.scheduler for s in program.segmented.segments if s.estimate is not None]
            if used == [scheduler for scheduler, _ in row["segments"].values()]:
                predict = of_program(program)
                yield Measurement("predictions", name, row["us"] / 1e6, predict)


def grid_reduces() -> Iterator[Measurement]:
    """Yield reductions over several blocks, by the method that combines their results."""
    rows = read("grid-reduce")["rows"]
    for case in cases():
        fusion = read_text(case.text())
        for method, found in rows[case.name].get("methods", {}).items():
            if method == "default" or method.endswith("half"):
                continue
            chosen = tuple(
                Override(segment, name, value)
                for segment, settings in found["schedule"].items()
                for name, value in settings.items()
            )
            try:
                predict = planned(replace(fusion, schedules=chosen))
            except FusecError:
                continue  # its segments or settings are not those that were timed
            yield Measurement("grid-reduce", f"{case.name} {method}", found["us"] / 1e6, predict)


# Schedules of one GEMM.


def schedules() -> Iterator[Measurement]:
    """Yield the times of many schedules of the same products."""
    target = find(TARGET)
    for row in read("h200-schedules")["rows"]:
        product = Priced(*product_of(row["name"]), target)
        times: dict[str, float] = dict(map(tuple, row["schedules"]))
        for text, parameters in product.of(times).items():
            predict = partial(_of_schedule, product, parameters)
            yield Measurement(
                "h200-schedules", f"{row['name']}: {text}", times[text] / 1e6, predict
            )


def _of_schedule(product: Priced, parameters: Any, target: Target) -> float:
    product.target = target
    return product.seconds(parameters) + target.launch


# Several GPUs.


def loops() -> Iterator[Measurement]:
    """Yield loops around ranks and their sequences, by call and by replay."""
    for times in loop_times.recorded():
        for slices, us in times.by_slices.items():
            found = loop_times.segmented(times.name, times.ranks, slices)
            predict = partial(_of_program, found, times.way)
            yield Measurement("loops", f"{times}, {slices} slices", us / 1e6, predict)


def sums() -> Iterator[Measurement]:
    """Yield sums over ranks, and sums with a norm, by replay."""
    for file, ranks in loop_times.RECORDS:
        record = read(file)
        texts = {("all_reduce", str(n)): programs_ranks.total(ranks, n // 2) for n in BYTES}
        for rows in NORM_ROWS:
            name = f"{rows}x{programs_ranks.HIDDEN}"
            texts["norm", name] = programs_ranks.norm(ranks, rows)
        for (part, name), text in texts.items():
            found = Compilation(read_text(text), OPTIONS).segmented
            us = record[part][name]["replay"]["fusec"]
            yield Measurement(
                f"{file} {part}", name, us / 1e6, partial(_of_program, found, "replay")
            )


def _of_program(found: Any, way: str, target: Target) -> float:
    return loop_times.microseconds(program_time(found, target, OPTIONS.streams), way) / 1e6


# Registers.


def registers() -> Iterator[Measurement]:
    """Yield the registers of the examples' kernels as NVRTC built them, by their golden files.

    Those count that launch bounds leave more: what limits the others is no coefficient.
    """
    for path in sorted((ROOT / "examples" / "golden").glob("*/registers.json")):
        built = json.loads(path.read_text(encoding="utf-8"))["kernels"]
        file = ROOT / "examples" / f"{path.parent.name}.yaml"
        for program in driver.programs(str(file), OPTIONS) if file.exists() else ():
            for plan in program.plans:
                for kernel in plan.kernels:
                    of = kernel.of or plan
                    pressure = find_scheduler(of.scheduler).pressure(of, kernel)
                    taken = built.get(kernel.name, {}).get(TARGET, {}).get("registers")
                    most = most_registers(prod(kernel.block), kernel.least_blocks)
                    if taken is not None and taken < most:
                        predict = partial(_registers, pressure)
                        yield Measurement("registers", kernel.name, taken, predict)


def _registers(pressure: Pressure, target: Target) -> float:
    return pressure.registers(target.cost.registers)


RECORDS: Mapping[str, Callable[[], Iterator[Measurement]]] = {
    "suites": suites,
    "patterns": pattern_times,
    "grid-reduce": grid_reduces,
    "schedules": schedules,
    "loops": loops,
    "sums": sums,
    "registers": registers,
}
"""What yields recorded measurements, by name."""


def measurements(names: Iterable[str] = RECORDS) -> list[Measurement]:
    """Return the measurements of some records."""
    return [each for name in names for each in RECORDS[name]()]
