"""Random fusions whose kernels run on the CPU: `python tests/fuzz_on_cpu.py --help`.

Each is run in two orders of its threads and judged by the verdict; both runs must give the same
bits, and the emulator reports races, accesses outside of memory and hangs by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from cuda_on_cpu import SHARED, Function, build_all, run_plan

from fusec import driver
from fusec.ir.evaluate import Sizes
from fusec.ir.text import to_text
from fusec.parse import read_text
from fusec.run.arrays import StridedArray, lay_out
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.segment.segmented import Segment
from tools.draw import PRODUCTS, Run, draw_runs
from tools.fuzzing import theme_options, themes_of
from tools.reducing import file_text, read_case
from tools.schedules import is_repeatable
from tools.segments import by_reference, run_segments
from tools.tally import Tally
from tools.trial import Depth, Rejected, Trial, Trials, check_same, general, verify_outputs
from tools.work import Case, Result, Task

ORDERS: tuple[Mapping[str, Any], ...] = ({}, {"backwards": True, "at_once": True})
MOST_THREADS = 1 << 16
"""Threads of one launch; what has more is left out."""
BATCH = 6
"""Fusions whose kernels are compiled together, which takes less time."""
COMPILED = Depth(builds=False)


@dataclass
class Emulated:
    """A run on its way: what became of its compilation, and its kernels' functions."""

    task: Task
    run: Run
    trial: Trial
    program: driver.Compilation | None = None
    error: Exception | None = None
    functions: list[Function] = field(default_factory=list)

    @property
    def sources(self) -> list[tuple[Any, str]]:
        """Return the kernels and their texts."""
        assert self.program is not None
        return [(s.kernel, s.text) for own in self.program.sources for s in own]

    def result(self) -> Result:
        """Return what becomes of the run."""
        if self.error is None:
            try:
                self._emulate()
            except Exception as error:
                self.error = error
        if self.error is None:
            return Result(self.task, (self.trial.outcome("ok"),))
        outcome = self.trial.failed(self.error)
        return Result(self.task, (outcome,), (Case(to_text(self.run.fusion), self.run.without),))

    def _emulate(self) -> None:
        program = self.program
        assert program is not None
        if any(v.dtype.is_complex for v in program.original.values):
            raise Rejected("complex", "its parts would lie in two buffers here", undecided=True)
        if any(_threads(k, program.original.hints) > MOST_THREADS for k, _ in self.sources):
            raise Rejected("too many threads", "", undecided=True)
        fusion, sizes = program.original, dict(program.original.hints)
        inputs = random_inputs(fusion, sizes, self.task.number)
        first, second = (
            self.trial.at("emulate", lambda o=order: self._outputs(inputs, sizes, o))
            for order in ORDERS
        )
        model = driver.model_of(program.host, sizes)
        self.trial.at(
            "verify",
            lambda: verify_outputs(fusion, inputs, first, sizes, self.task.number, model),
        )
        if is_repeatable(fusion):
            check_same(first, second)

    def _outputs(
        self, inputs: Mapping[str, Any], sizes: Sizes, order: Mapping[str, Any]
    ) -> dict[str, Any]:
        program = self.program
        assert program is not None
        functions = iter(self.functions)
        plans = {s.id: p for s, p in zip(program.segmented.segments, program.plans, strict=True)}
        built = {n: [next(functions) for _ in p.kernels] for n, p in plans.items()}

        def emulated(segment: Segment, given: Mapping[str, Any], at: Sizes) -> Mapping[str, Any]:
            plan = plans[segment.id]
            if not plan.kernels:
                found, outputs = by_reference(segment, given, at), segment.fusion.outputs
                types = {o.value.name: o.value.dtype.numpy for o in outputs}
                return {name: np.asarray(found[name]).astype(types[name]) for name in types}
            return _run(plan, given, at, order, built[segment.id])

        return run_segments(program.segmented, inputs, sizes, emulated)


def _threads(kernel: Any, sizes: Sizes) -> int:
    return prod(kernel.block) * prod(extent.evaluate(sizes) for extent in kernel.grid)


def _run(
    plan: KernelPlan,
    given: Mapping[str, Any],
    sizes: Sizes,
    order: Mapping[str, Any],
    functions: Sequence[Function],
) -> Mapping[str, Any]:
    """Return what a plan's kernels compute on the CPU; Rejected where the emulator objects."""
    inputs: dict[str, Any] = {}
    for entry in plan.fusion.inputs:
        array = given[entry.value.name]
        if not entry.value.is_scalar and not isinstance(array, StridedArray):
            array = lay_out(array, tuple(s.evaluate(sizes) for s in entry.strides))
        inputs[entry.value.name] = array
    try:
        return run_plan(plan, inputs, Path(), built=functions, **order)
    except AssertionError as error:
        text = str(error)
        raise Rejected(f"emulator: {general(text.rpartition('): ')[2] or text)}", text) from None


def compiled(task: Task, run: Run) -> Emulated:
    """Return a run that is compiled up to its kernels' text."""
    found = Emulated(task, run, Trial(Trials(COMPILED), run))
    try:
        found.program = found.trial.compile()
    except Exception as error:
        found.error = error
    return found


def build(batch: Sequence[Emulated], folder: Path) -> None:
    """Compile the kernels of some runs together, or one by one where that fails."""
    good = [each for each in batch if each.error is None]
    try:
        functions = iter(build_all([s for each in good for s in each.sources], folder))
    except AssertionError as error:
        if len(good) == 1:
            lines = str(error).splitlines()
            first = next((x.partition("error: ")[2] for x in lines if "error: " in x), lines[0])
            good[0].error = Rejected(f"g++: {general(first)}", str(error))
            return
        for each in good:
            build([each], folder)
        return
    for each in good:
        each.functions = [next(functions) for _ in each.sources]


def run_batch(numbers: Sequence[int], seed: int, themes: tuple[str, ...]) -> list[Result]:
    """Return what becomes of some fusions: as they are where their number is even, or a variant."""
    batch: list[Emulated] = []
    for number in numbers:
        run = draw_runs(seed, number, themes)[number % 2]
        batch.append(compiled(Task(seed, number, themes=themes), run))
    return results_of(batch)


def results_of(batch: Sequence[Emulated]) -> list[Result]:
    """Return what becomes of some runs."""
    with tempfile.TemporaryDirectory() as folder:
        build(batch, Path(folder))
        return [each.result() for each in batch]


def results(
    seed: int,
    first: int,
    count: int,
    seconds: float,
    themes: tuple[str, ...],
    jobs: int = 1,
    size: int = BATCH,
) -> Iterator[Result]:
    """Yield what becomes of fusions, `size` at a time; begin no batch when `seconds` are over."""
    end = time.monotonic() + seconds

    def numbers() -> Iterator[range]:
        for start in range(first, first + count, size):
            if time.monotonic() > end:
                return
            yield range(start, min(start + size, first + count))

    if jobs == 1:
        for batch in numbers():
            yield from run_batch(batch, seed, themes)
        return
    with ProcessPoolExecutor(jobs) as pool:
        begun = numbers()
        waiting = [pool.submit(run_batch, b, seed, themes) for b in islice(begun, jobs)]
        while waiting:
            yield from waiting.pop(0).result()
            waiting += [pool.submit(run_batch, b, seed, themes) for b in islice(begun, 1)]


def main() -> int:
    """Run what the command line says; return 1 where any run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="fusion files instead of random fusions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--time", type=float, default=1e9, help="seconds after which to stop")
    parser.add_argument("--theme", action="append", default=[], help="as of `python -m tools.fuzz`")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--keep", default="fuzz-failures")
    parser.add_argument("--json")
    given = parser.parse_args()
    themes = themes_of(given.theme) if given.theme else tuple(PRODUCTS)
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cuda_on_cpu.") as shared:
        os.environ.setdefault(SHARED, shared)
        if given.files:
            cases = [read_case(Path(f)) for f in given.files]
            runs = [Run(read_text(c.text), c.without) for c in cases]
            found = iter(results_of([compiled(Task(0, n), r) for n, r in enumerate(runs)]))
        else:
            found = results(given.seed, given.first, given.count, given.time, themes, given.jobs)
        for result in found:
            tally.add(result)
            _keep(result, Path(given.keep))
    spent = time.monotonic() - began
    print(tally.summary(spent))
    if given.json:
        about = {"seed": given.seed, "themes": themes, "where": "on the CPU emulator"}
        Path(given.json).write_text(json.dumps({**about, **tally.data(spent)}, indent=1) + "\n")
    return 1 if tally.statuses["failed"] else 0


def _keep(result: Result, folder: Path) -> None:
    outcome, number = result.outcomes[0], result.task.number
    if outcome.status != "failed":
        return
    folder.mkdir(exist_ok=True)
    path = folder / f"{result.task.seed}-{number}.yaml"
    themes = theme_options(result.task.themes)
    command = f"python tests/fuzz_on_cpu.py --seed {result.task.seed} --first {number} --count 1"
    print(f"{path}: {outcome.signature}\n  {command}{themes}", flush=True)
    (case,) = result.cases
    assert case is not None
    path.write_text(f"# {command}{themes}\n" + file_text(case, outcome, path.name))
    path.with_suffix(".txt").write_text(outcome.message)


if __name__ == "__main__":
    raise SystemExit(main())
