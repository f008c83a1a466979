"""One graph through all stages, with what each of them took and found."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import corpus_reference
from benchmarks.corpus_graph import old_forms, read_graph
from benchmarks.corpus_inputs import (
    Prepared,
    draw_inputs,
    elements,
    fits,
    prepare,
    reduce_examples,
    with_scalars,
)
from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.reference.verdict import Verdict

STAGES = ("parse", "passes", "segment", "compile", "run", "verify")
SAMPLED_TOTAL = 8_000_000_000
"""Elements of all values beyond which a graph is not run: drawing inputs takes too long."""


@dataclass(frozen=True)
class Settings:
    """What all graphs of a run share."""

    graphs: Path
    cuda: bool = False
    references: bool = False
    target: str = "sm_90a"
    seed: int = 0


@dataclass
class Record:
    """What is known about one graph; `stage` is the furthest one begun."""

    name: str
    stage: str = "parse"
    exit: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    message: str = ""

    def data(self) -> dict[str, Any]:
        """Return the record as it is written."""
        seconds = {stage: round(s, 3) for stage, s in self.seconds.items()}
        head: dict[str, Any] = {"name": self.name, "stage": self.stage, "exit": self.exit}
        return {**head, "message": self.message, "seconds": seconds, **self.facts}


class Differs(FusecError):
    """Results differ, or are not decided: exit code 1."""

    exit_code = 1
    severity = "not verified"


def run_graph(name: str, settings: Settings, device: Any, note: Callable[[str], None]) -> Record:
    """Take a graph as far as it goes; `note` hears each stage before it begins."""
    record = Record(name)
    try:
        _Run(name, settings, device, record, note).run()
    except FusecError as error:
        record.exit = error.exit_code
        # Places are lines of the runner: the message names values of the graph.
        notes = tuple(n for n in error.diagnostic.notes if " is defined at " not in n)
        record.message = replace(error.diagnostic, span=None, notes=notes).render()
        if error.exit_code == 3:
            record.facts["refused_at"] = record.stage
            record.stage = "refused"
    except Exception as error:
        record.exit = 70
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
        record.message = f"{type(error).__name__}: {error}\n  at {places}"
    return record


class _Run:
    def __init__(
        self,
        name: str,
        settings: Settings,
        device: Any,
        record: Record,
        note: Callable[[str], None],
    ) -> None:
        self.name, self.settings, self.device = name, settings, device
        self.record, self.note = record, note
        self.options = CompileOptions(targets=(settings.target,), jobs=1)

    def timed(self, stage: str, function: Callable[[], Any]) -> Any:
        self.note(stage)
        self.record.stage = stage
        return self.counted(stage, function)

    def counted(self, stage: str, function: Callable[[], Any]) -> Any:
        """Return what a function returns; its time counts for `stage`, the record's stays."""
        start = time.perf_counter()
        try:
            return function()
        finally:
            spent = time.perf_counter() - start
            self.record.seconds[stage] = self.record.seconds.get(stage, 0.0) + spent

    def run(self) -> None:
        prepared: Prepared = self.timed("parse", self.parse)
        self.record.facts.update(prepared.changes)
        package = self.compile(prepared.fusion)
        if self.settings.cuda:
            self.run_and_verify(prepared, package)
        elif self.settings.references and fits(prepared.fusion):
            self.compare_references(prepared)

    def parse(self) -> Prepared:
        prepared = prepare(read_graph(self.settings.graphs / f"{self.name}.json"), "graph")
        runs = self.settings.cuda or self.settings.references
        return reduce_examples(prepared) if runs else prepared

    def compile(self, fusion: Fusion) -> driver.Package:
        program, facts = driver.Compilation(fusion, self.options), self.record.facts
        self.timed("passes", lambda: program.fusion)
        segmented = self.timed("segment", lambda: program.segmented)
        facts["segments"] = len(segmented.segments)
        facts["schedulers"] = dict(sorted(Counter(s.scheduler for s in segmented.segments).items()))
        facts["bytes"] = segmented.bytes
        self.timed("segment", lambda: program.plans)
        package = self.timed("compile", lambda: driver.build(program))
        artifacts = package.artifacts.values()
        facts["kernels"] = len(artifacts)
        facts["spills"] = max((a.spill_bytes for a in artifacts), default=0)
        return package

    def run_and_verify(self, prepared: Prepared, package: driver.Package) -> None:
        fusion = prepared.fusion
        largest, total = elements(fusion)
        if total > SAMPLED_TOTAL:
            self.record.message = f"not run: {total} elements, the largest tensor has {largest}"
            return
        inputs = self.drawn(prepared)
        outputs, verdict = self.judged(package, inputs)
        self.record.facts["checked"] = verdict.coverage.text()
        self.record.facts["ratio"] = round(verdict.ratio, 3)
        self.record.facts["power"] = float(f"{verdict.power:.2g}")
        words = Counter(o.word for o in verdict.outputs)
        self.record.facts["outputs"] = dict(words)
        if not verdict.ok:
            raise Differs(f"the verdict is: {verdict.word}", notes=[verdict.text()])
        self.run_integers(prepared, package)
        ordered = [outputs[o.value.name] for o in fusion.outputs]
        self.counted("other reference", lambda: self.compare_other(prepared, inputs, ordered))

    def drawn(self, prepared: Prepared, kind: str = "reals") -> dict[str, Any]:
        """Return random inputs; drawing them is no part of a verification."""
        return self.counted("inputs", lambda: draw_inputs(prepared, self.settings.seed, kind))

    def judged(
        self, package: driver.Package, inputs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Verdict]:
        """Return what the kernels compute, and the verdict on it."""
        from fusec.reference.verdict import compare
        from fusec.run.execute import execute

        fusion, program = package.program.original, package.program.host
        cubins = package.cubins(self.options.target)
        outputs = self.timed(
            "run", lambda: execute(self.device, program, cubins, inputs, fusion.hints)
        )
        model = driver.model_of(program, fusion.hints)
        return outputs, self.timed(
            "verify", lambda: compare(fusion, fusion.hints, inputs, outputs, model=model)
        )

    def run_integers(self, prepared: Prepared, package: driver.Package) -> None:
        """Run once more where sums of integers are exact: results must agree to the bit."""
        from fusec.run.integers import exact_outputs

        exact = exact_outputs(with_scalars(prepared), prepared.fusion.hints)
        if not exact:
            return
        inputs = self.drawn(prepared, "integers")
        _, verdict = self.judged(package, inputs)
        self.record.facts["exact"] = len(exact)
        inexact = verdict.inexact(exact)
        if inexact or verdict.word == "differs":
            what = ", ".join(inexact) or "the verdict"
            raise Differs(f"of integer inputs, {what} differs", notes=[verdict.text()])

    def compare_references(self, prepared: Prepared) -> None:
        from fusec.reference.evaluate import evaluate

        fusion, inputs = prepared.fusion, draw_inputs(prepared, self.settings.seed)
        results = evaluate(fusion, inputs, fusion.hints)
        self.compare_other(prepared, inputs, [results[o.value.name] for o in fusion.outputs])

    def compare_other(
        self, prepared: Prepared, inputs: Mapping[str, Any], outputs: list[Any]
    ) -> None:
        reference = corpus_reference.load_reference(self.settings.graphs)
        if reference is None:
            return
        old = old_forms(prepared.graph)
        if old:
            why = f"skipped: the record of {', '.join(old)} is in an old form"
            self.record.facts["other_reference"] = why
            return
        if not fits(prepared.fusion):
            self.record.facts["other_reference"] = "skipped: too large"
            return
        verdict, why = corpus_reference.compare(
            reference, prepared.graph, prepared.fusion, inputs, outputs
        )
        self.record.facts["other_reference"] = verdict + (f": {why}" if why else "")
        if verdict == "differs":
            raise Differs("the results differ from the other reference", notes=[why])
