"""Times every method by which blocks combine shared results against the default, in one run.

python -m benchmarks.grid_reduce [--only GLOB,...] [--rounds N] [--runs N] [--seconds S] [--jobs N]
                                 [--build] [--out FILE.json]

Long rows and long columns (sums, maxima and moments in f32, sums in f16) and a layer norm of rows
that many blocks share, written with Welford states and in two passes. Each method runs with the
splits of the default, those with turns also with a quarter of them (`few`), and methods that round
to 16 bits also with `workspace_dtype: half`. All contenders of a row alternate, with a cold L2; a
ratio is [median, low, high] of a method's time over the default's within rounds. Errors are against
a kernel that computes in fp64, of which NumPy checks some results. `distinct`: how many different
results --runs runs give. The exit code is 1 where a method with a fixed order gives more than one,
or an error is above GROSS. --build only builds, which needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.entry import end_with
from benchmarks.paired import medians, ratio
from benchmarks.run import target_at_hand
from fusec import driver
from fusec.bench.bound import BoundWork
from fusec.bench.data import Inputs
from fusec.bench.figures import error_of
from fusec.bench.fill import PERIOD
from fusec.bench.session import Session
from fusec.bench.timer import Contender
from fusec.bench.work import Work, of_package
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Override, Setting
from fusec.ir.evaluate import Array
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.device import Device, device_available
from fusec.run.inputs import choose_sizes
from fusec.schedule.grid_methods import REDUCTION, REDUCTION_METHODS, HalfPartials
from fusec.schedule.rows.reduction.choice import ReductionParameters

DEFAULT = "default"
ROUNDS, RUNS = 15, 1000
ARRIVALS = 50
"""Runs of methods in arrival order, whose results may differ."""
GROSS = 0.02
"""The norm of an error, over that of the result, that no rounding explains."""
EXACT = 1e-9
"""The same of a kernel that computes in fp64."""
SAMPLED = 3
"""Rows or columns of which NumPy computes the results in fp64, too."""
SMALL = 1 << 20
"""Bytes of an output up to which its bits are compared in all runs."""
SHAPES: Mapping[str, tuple[tuple[int, int], int]] = {
    "rows_64x1M": ((64, 1 << 20), 1),
    "rows_4096x131072": ((4096, 131072), 1),
    "columns_1Mx512": ((1 << 20, 512), 0),
    "columns_262144x1024": ((262144, 1024), 0),
}
KINDS: Mapping[str, tuple[str, str]] = {
    "sum": ("f32", "y = sum({x}, dims=[{axis}])"),
    "max": ("f32", "y = max({x}, dims=[{axis}])"),
    "moments": ("f32", "var, mean = var_mean({x}, dims=[{axis}], correction=0, keepdim=false)"),
    "sum_f16": ("f16", "y = sum({x}, dims=[{axis}])"),
}
NORMS: Mapping[str, Sequence[str]] = {
    "welford": ("var, mean = var_mean({x}, dims=[1], correction=0, keepdim=true)",),
    "two_pass": (
        "mean = mean({x}, dims=[1], keepdim=true)",
        "away = sub({x}, mean)",
        "var = mean(mul(away, away), dims=[1], keepdim=true)",
    ),
}
NORM = (8, 1 << 22)


@dataclass(frozen=True)
class Case:
    """A fusion to time: lines of operations on `{x}` over `{axis}`, and what they make."""

    name: str
    dtype: str
    shape: tuple[int, int]
    axis: int
    lines: Sequence[str]
    outputs: str

    def text(self, *, exact: bool = False, kept: int = 0) -> str:
        """Return the fusion; exact: computed in fp64. kept: the rows or columns that it has."""
        lines = [line.format(x="wide" if exact else "x", axis=self.axis) for line in self.lines]
        lines = ["wide = cast(x, f64)", *lines] if exact else lines
        extents = list(self.shape)
        extents[1 - self.axis] = kept or extents[1 - self.axis]
        size = ", ".join(map(str, extents))
        ops = "".join(f"  - {line}\n" for line in lines)
        return (
            f"fusion: {self.name.replace('/', '_')}\n"
            f'inputs: {{x: "{self.dtype}[{size}]"}}\nops:\n{ops}outputs: [{self.outputs}]\n'
        )


@dataclass(frozen=True)
class Way:
    """A method with its settings of each reduction; part: of the default's splits."""

    name: str
    method: str = ""
    part: int = 1
    halves: bool = False


def cases() -> list[Case]:
    """Return all fusions, those of one input next to each other."""
    found: list[Case] = []
    for name, (shape, axis) in SHAPES.items():
        for kind, (dtype, line) in KINDS.items():
            outputs = "var, mean" if kind == "moments" else "y"
            found.append(Case(f"{name}/{kind}", dtype, shape, axis, [line], outputs))
    for form, lines in NORMS.items():
        lines = [*lines, "y = mul(sub({x}, mean), rsqrt(add(var, 1e-5)))"]
        found.append(Case(f"layernorm_8x4M/{form}", "f32", NORM, 1, lines, "y, var, mean"))
    return found


def ways(dtype: str) -> list[Way]:
    """Return what is timed of a case: the default first."""
    found = [Way(DEFAULT)]
    for name, method in REDUCTION_METHODS.items():
        found.append(Way(name, name))
        if method.is_serial:
            found.append(Way(f"{name} few", name, part=4))
        if method.halves is not HalfPartials.NEVER and dtype == "f16":
            found.append(Way(f"{name} half", name, halves=True))
    return found


def build(text: str, way: Way, target: str) -> tuple[Work, dict[str, Any]] | str:
    """Return a fusion built in a way, and the schedules of its reductions, or why it is not."""
    fusion = read_text(text, "case.yaml")
    options = CompileOptions(targets=(target,), targets_given=True, jobs=1, untuned=True)
    try:
        package = driver.compile_fusion(fusion, options)
        if way.method:
            chosen = _settings(package, way)
            if isinstance(chosen, str):
                return chosen
            overrides = tuple(
                Override(segment, name, value)
                for segment, settings in chosen.items()
                for name, value in settings.items()
            )
            package = driver.compile_fusion(replace(fusion, schedules=overrides), options)
    except FusecError as error:
        return error.diagnostic.message
    plans = {s.name: p.parameters for s, p in _reductions(package)}
    schedules = {
        name: {n: p.settings[n] for n in ("grid_reduce", "splits", "threads_x", "threads_y")}
        for name, p in plans.items()
        if isinstance(p, ReductionParameters)
    }
    return of_package(package, target), schedules


def _reductions(package: driver.Package) -> list[tuple[Any, Any]]:
    program = package.program
    pairs = zip(program.segmented.segments, program.plans, strict=True)
    return [(s, p) for s, p in pairs if s.scheduler == REDUCTION]


def _settings(package: driver.Package, way: Way) -> dict[str, dict[str, Setting]] | str:
    """Return the fields that a way sets of each reduction, or why there is nothing to time.

    Splits are those of the default, two where it has none.
    """
    found: dict[str, dict[str, Setting]] = {}
    for segment, plan in _reductions(package):
        own = plan.parameters.splits
        splits = max(2, own // way.part)
        if way.part > 1 and splits == max(2, own):
            return f"{segment.name} has {own} splits by default, of which few are no fewer"
        found[segment.name] = {"grid_reduce": way.method, "splits": splits}
        if way.halves:
            found[segment.name]["workspace_dtype"] = "half"
    used = ", ".join(s.scheduler for s in package.program.segmented.segments)
    return found or f"the default has no `{REDUCTION}`, but {used}"


Built = Mapping[str, "Future[tuple[Work, dict[str, Any]] | str]"]


class Row:
    """A case on the device: its contenders, and what is right."""

    def __init__(self, session: Session, case: Case, inputs: Inputs, built: Built) -> None:
        """Load the kernels of all contenders that were built."""
        self.session, self.case = session, case
        self.missing: dict[str, str] = {}
        self.schedules: dict[str, Any] = {}
        self.bound: dict[str, BoundWork] = {}
        self._stack = ExitStack()
        for name, future in built.items():
            found = future.result()
            if isinstance(found, str):
                self.missing[name] = found
                continue
            work, self.schedules[name] = found
            bound = BoundWork(session.device, work, inputs)
            self.bound[name] = self._stack.enter_context(bound)

    def close(self) -> None:
        """Give everything back."""
        self._stack.close()

    def results(self, name: str, most: float = float("inf")) -> dict[str, Array]:
        """Return the outputs of a run, those of up to so many bytes."""
        bound = self.bound[name]
        bound.issue()
        self.session.device.synchronise(f"running {self.case.name}, {name}")
        outputs = bound.outputs.items()
        return {n: t.download(self.session.device) for n, t in outputs if t.size <= most}

    def distinct(self, name: str, runs: int) -> int:
        """Return how many different results some runs give."""
        seen: set[bytes] = set()
        for _ in range(runs):
            digest = sha256()
            for array in self.results(name, SMALL).values():
                digest.update(array.tobytes())
            seen.add(digest.digest())
        return len(seen)

    def measure(self, exact: Mapping[str, Array], rounds: int, runs: int) -> dict[str, Any]:
        """Return times, ratios to the default, errors and how many results there are."""
        contenders = [Contender(name, bound.issue) for name, bound in self.bound.items()]
        every = self.session.timer.race(contenders, rounds)
        times = {t.name: [seconds * 1e6 for seconds in t.runs] for t in every}
        rows: dict[str, Any] = {}
        for name in self.bound:
            method = REDUCTION_METHODS.get(name.split()[0])
            row: dict[str, Any] = {
                "us": medians(times)[name],
                "ratio": ratio(times, name, DEFAULT),
                "error": error_of(self.results(name), exact).norm,
                "schedule": self.schedules[name],
            }
            if method is not None and "few" not in name:
                arrives = method.on_request
                if arrives or method.is_serial:
                    row["runs"] = min(runs, ARRIVALS) if arrives else runs
                    row["distinct"] = self.distinct(name, row["runs"])
                row["order"] = method.order.value
            rows[name] = row
        return {"methods": rows, "refused": self.missing}


def sampled_error(case: Case, inputs: Inputs, found: Mapping[str, Array]) -> float:
    """Return the error of some results in fp64 against those that NumPy has of their inputs."""
    kept = case.shape[1 - case.axis]
    at = np.unique(np.linspace(0, kept - 1, SAMPLED).astype(int))
    tensor = inputs.tensors["x"]
    period = min(PERIOD, case.shape[0] * case.shape[1])
    size = tensor.dtype.size
    block = inputs.device.download(tensor.address, period * size).view(tensor.dtype.numpy)
    rows, columns = (at if axis != case.axis else np.arange(case.shape[axis]) for axis in (0, 1))
    part = block[(rows[:, None] * case.shape[1] + columns) % period]
    fusion = read_text(case.text(exact=True, kept=len(at)), "sampled.yaml")
    arrays = {"x": StridedArray(part.reshape(-1), part.shape, dense_strides(part.shape))}
    expected = driver.reference(fusion, arrays, choose_sizes(fusion))
    chosen = {name: np.take(array, at, axis=0) for name, array in found.items()}
    return error_of(chosen, expected).norm


def wrong_in(name: str, row: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a case: bits that vary in a fixed order, and gross errors."""
    wrong: list[str] = []
    if row.get("fp64_error", 0.0) > EXACT:
        wrong.append(f"{name}, fp64: error {row['fp64_error']:.3g}")
    for method, found in row.get("methods", {}).items():
        if found["error"] > GROSS:
            wrong.append(f"{name}, {method}: error {found['error']:.3g}")
        if found.get("order") == "fixed" and found.get("distinct", 1) > 1:
            wrong.append(f"{name}, {method}: {found['distinct']} results in {found['runs']} runs")
    return wrong


def timed(
    session: Session,
    chosen: Sequence[Case],
    built: Mapping[str, Built],
    exact: Mapping[str, Future[Any]],
    given: argparse.Namespace,
    end: float,
) -> dict[str, Any]:
    """Return what is measured of all cases, one input after the other."""
    rows: dict[str, Any] = {}
    inputs: Inputs | None = None
    of: tuple[str, tuple[int, int]] | None = None
    for case in sorted(chosen, key=lambda c: (c.shape, c.dtype)):
        if time.monotonic() > end:
            rows[case.name] = {"not_timed": f"after {given.seconds:g} s"}
            continue
        if inputs is None or of != (case.dtype, case.shape):
            if inputs is not None:
                inputs.close()
            fusion = read_text(case.text(), "case.yaml")
            of = case.dtype, case.shape
            inputs = Inputs(session.device, fusion, choose_sizes(fusion))
        reference = Row(session, case, inputs, {"fp64": exact[case.name]})
        try:
            expected = reference.results("fp64")
        finally:
            reference.close()
        off = sampled_error(case, inputs, expected)
        row = Row(session, case, inputs, built[case.name])
        try:
            rows[case.name] = row.measure(expected, given.rounds, given.runs)
            rows[case.name]["fp64_error"] = off
        finally:
            row.close()
        report(case.name, rows[case.name])
    if inputs is not None:
        inputs.close()
    return rows


def report(name: str, row: Mapping[str, Any]) -> None:
    """Print a line for each method."""
    for method, found in row["methods"].items():
        low, high = found["ratio"][1:]
        distinct = f", results: {found['distinct']}" if "distinct" in found else ""
        splits = "+".join(str(s["splits"]) for s in found["schedule"].values())
        print(
            f"{name:32} {method:16} x{splits:8} {found['us']:9.1f} us  {found['ratio'][0]:.3f} "
            f"[{low:.3f}, {high:.3f}]  error {found['error']:.2e}{distinct}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Time what is chosen, and return whether something is wrong."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.grid_reduce",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--only", default="*", help="patterns of cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=75.0, help="start no case later")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--build", action="store_true", help="only build, which needs no GPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    reason, end = device_available(), time.monotonic() + given.seconds
    if reason is not None and not given.build:
        raise FusecError(reason, help="--build builds without a GPU")
    patterns = given.only.split(",")
    chosen = [c for c in cases() if any(fnmatch(c.name, p) for p in patterns)]
    target = target_at_hand(reason)
    rows: dict[str, Any] = {}
    facts: dict[str, Any] = {"target": target, "fusec_tree": os.environ.get("FUSEC_TREE", "")}
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        exact = {
            c.name: pool.submit(build, c.text(exact=True), Way("fp64"), target) for c in chosen
        }
        built = {
            c.name: {w.name: pool.submit(build, c.text(), w, target) for w in ways(c.dtype)}
            for c in chosen
        }
        if given.build:
            for case in chosen:
                found = {name: future.result() for name, future in built[case.name].items()}
                rows[case.name] = {
                    "schedules": {n: f[1] for n, f in found.items() if not isinstance(f, str)},
                    "refused": {n: f for n, f in found.items() if isinstance(f, str)},
                    "exact": isinstance(exact[case.name].result(), tuple),
                }
        else:
            with Session(given.jobs) as session:
                facts |= device_facts(session.device)
                rows = timed(session, chosen, built, exact, given, end)
    wrong = [line for name, row in rows.items() for line in wrong_in(name, row)]
    record = {**facts, "rounds": given.rounds, "wrong": wrong, "rows": rows}
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


def device_facts(device: Device) -> dict[str, Any]:
    """Return what was measured on."""
    return {"device": device.facts.name, "driver": device.facts.driver}


if __name__ == "__main__":
    end_with(main)
