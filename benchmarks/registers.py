"""Registers as predicted and as built: `python -m benchmarks.registers GRAPHS...`, without a GPU.

A graph is a fusion file, a graph of the corpus, or a folder of these. Beside the plans that fusec
chooses, others in which a thread holds more tell whether spills are foretold.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.corpus_graph import read_graph
from benchmarks.corpus_inputs import prepare
from benchmarks.entry import end_with
from benchmarks.segmentation import tree
from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.files import fusions_of
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.run.build import Source, build
from fusec.run.spills import SPILL_LIMIT
from fusec.schedule.plan import KernelPlan, Plan
from fusec.schedule.pressure import occupancy, resident_blocks
from fusec.schedule.registry import find_scheduler
from fusec.schedule.rows.inner_outer_persistent.choice import InnerOuterParameters
from fusec.schedule.rows.inner_persistent.family import InnerPersistentParameters
from fusec.schedule.rows.outer_persistent import OuterPersistentParameters
from fusec.target import find

TARGET = "sm_90a"
OPTIONS = CompileOptions(targets=(TARGET,))
RESULT = Path(__file__).parent / "results" / "registers.json"
MOST_HELD = 256
"""Elements of a row or a column that a thread keeps in a plan that is made to hold more."""


@dataclass(frozen=True)
class Measured:
    """A kernel as predicted and as built; chosen: whether its plan is the one fusec chooses."""

    graph: str
    kernel: str
    template: str
    threads: int
    wanted: int
    predicted: int
    registers: int
    spill_bytes: int
    foretold: bool
    blocks: int
    predicted_blocks: int
    chosen: bool


def graphs(paths: Iterable[Path]) -> Iterator[tuple[str, Callable[[], Fusion]]]:
    """Yield the name of each graph, and what reads it."""
    for path in paths:
        if path.is_dir():
            yield from graphs(sorted((*path.glob("*.yaml"), *path.glob("*.json"))))
        elif path.suffix == ".json":
            yield path.stem, lambda path=path: prepare(read_graph(path), "graph").fusion
        else:
            yield path.stem, lambda path=path: fusions_of(str(path), OPTIONS)[0]


def measure(paths: Iterable[Path]) -> Iterator[Measured]:
    """Yield what is known of each kernel whose text is new, of the plans chosen and of others."""
    seen: set[str] = set()
    for name, read in graphs(paths):
        try:
            plans = driver.Compilation(read(), OPTIONS).plans
        except FusecError:
            continue  # what is refused has no kernel
        for plan in plans:
            yield from _kernels(name, plan, seen, chosen=True)
            for other in holding_more(plan):
                yield from _kernels(name, other, seen, chosen=False)


def holding_more(plan: KernelPlan) -> Iterator[KernelPlan]:
    """Yield plans with two, four and eight times the vectors to a thread, or as many blocks."""
    if not isinstance(plan, Plan):
        return
    known: Plan[Any, Any] = plan
    for times in (2, 4, 8):
        family: Any = find_scheduler(plan.scheduler)
        parameters = _more(family, known, times)
        if parameters is not None:
            yield family.plan(known.problem, parameters, find(TARGET))


def _more(family: Any, plan: Plan[Any, Any], times: int) -> object | None:
    p = plan.parameters
    if isinstance(p, InnerPersistentParameters) and p.threads_x % times == 0:
        threads = p.threads_x // times
        rows = max(p.threads_y, -(-32 // threads))
        more = replace(p, storage="registers", threads_x=threads, threads_y=rows)
        more = family.with_derived(plan.problem, more)
        return more if more.chunks * p.vector_width <= MOST_HELD else None
    if isinstance(p, OuterPersistentParameters) and p.threads_y % times == 0:
        threads = p.threads_y // times
        more = replace(p, storage="registers", threads_y=threads)
        more = family.with_derived(plan.problem, more)
        fits = more.chunks * p.vector_width <= MOST_HELD and threads * p.threads_x >= 32
        return more if fits else None
    if isinstance(p, InnerOuterParameters):
        # Beyond that the compiler passes over what launch bounds ask for.
        most = 2048 // (p.threads_x * p.threads_y)
        return replace(p, blocks=p.blocks * times) if p.blocks * times <= min(32, most) else None
    return None


def _kernels(name: str, plan: KernelPlan, seen: set[str], *, chosen: bool) -> Iterator[Measured]:
    target = find(TARGET)
    for kernel, source in zip(plan.kernels, plan_sources(plan), strict=True):
        if source.digest in seen:
            continue
        seen.add(source.digest)
        of = kernel.of or plan
        told = occupancy(kernel, find_scheduler(of.scheduler).pressure(of, kernel), target)
        built = build([Source.of(source)], (TARGET,))[(source.name, TARGET)]
        shared = kernel.shared_bytes + built.shared_bytes
        yield Measured(
            name,
            kernel.name,
            kernel.template,
            told.threads,
            told.wanted,
            told.registers,
            built.registers,
            built.spill_bytes,
            told.spills,
            resident_blocks(told.threads, built.registers, shared, target),
            told.blocks,
            chosen,
        )


def figures(kernels: Sequence[Measured]) -> dict[str, Any]:
    """Return how many predictions hold."""
    chosen = [k for k in kernels if k.chosen]
    spilling = [k for k in kernels if k.spill_bytes > SPILL_LIMIT]
    foretold = [k for k in kernels if k.foretold]
    return {
        "kernels": len(chosen),
        "blocks_right": _share(chosen, lambda k: k.blocks == k.predicted_blocks),
        "blocks_within_one": _share(chosen, _within_one),
        "built_again": sum(k.spill_bytes > SPILL_LIMIT for k in chosen),
        "spilling_a_little": sum(0 < k.spill_bytes <= SPILL_LIMIT for k in chosen),
        "other_plans": len(kernels) - len(chosen),
        "spilling": len(spilling),
        "foretold_of_spilling": _share(spilling, lambda k: k.foretold),
        "spilling_of_foretold": _share(foretold, lambda k: k.spill_bytes > 0),
    }


def _within_one(kernel: Measured) -> bool:
    return abs(kernel.blocks - kernel.predicted_blocks) <= 1


def _share(kernels: Sequence[Measured], holds: Callable[[Measured], bool]) -> float | None:
    return round(sum(map(holds, kernels)) / len(kernels), 3) if kernels else None


def by_template(kernels: Sequence[Measured]) -> Mapping[str, dict[str, Any]]:
    """Return the figures of the chosen kernels of each template."""
    found: dict[str, list[Measured]] = {}
    for kernel in kernels:
        if kernel.chosen:
            found.setdefault(kernel.template, []).append(kernel)
    keys = ("kernels", "blocks_right", "blocks_within_one")
    return {t: {k: figures(found[t])[k] for k in keys} for t in sorted(found)}


def main(arguments: Sequence[str]) -> None:
    """Print the figures of some graphs and record them, with the kernels furthest off."""
    warnings.simplefilter("ignore")
    kernels = list(measure(map(Path, arguments)))
    chosen = [k for k in kernels if k.chosen]
    worst = sorted(chosen, key=lambda k: -abs(k.blocks - k.predicted_blocks))[:20]
    result = {
        "fusec_tree": tree(),
        "target": TARGET,
        **figures(kernels),
        "templates": by_template(kernels),
        "furthest_off": [asdict(k) for k in worst],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "furthest_off"}, indent=1))


if __name__ == "__main__":
    end_with(lambda: main(sys.argv[1:] or ["examples"]))
