"""What a worker does: a task in, what became of its runs out; both are plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.parse import read_text
from tools.draw import GENERAL, Run, draw_runs
from tools.trial import Outcome, Trials, kind_of

Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Case:
    """A run as text: a fusion file and the passes that are left out."""

    text: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """A fusion to draw by number, about one of some themes, or a case that is given."""

    seed: int
    number: int
    case: Case | None = None
    themes: tuple[str, ...] = GENERAL


@dataclass(frozen=True)
class Result:
    """The outcomes of a task's runs, the cases that did not come through, and what was drawn."""

    task: Task
    outcomes: tuple[Outcome, ...]
    cases: tuple[Case | None, ...] = ()
    counts: Counts = field(default_factory=dict[str, Counter[str]])

    @property
    def fatal(self) -> bool:
        """Return whether the process that did this is of no more use."""
        return any(o.fatal for o in self.outcomes)


def perform(trials: Trials, task: Task) -> Result:
    """Return what becomes of a task."""
    if task.case is not None:
        try:
            run = Run(read_text(task.case.text, "case.yaml"), task.case.without)
        except Exception as error:
            outcome = Outcome("failed", "text", kind_of(error), _trace(error))
            return Result(task, (outcome,), (task.case,))
        return Result(task, (trials.perform(run),), (task.case,))
    try:
        runs = draw_runs(task.seed, task.number, task.themes)
    except Exception as error:
        return Result(task, (Outcome("failed", "draw", kind_of(error), _trace(error)),), (None,))
    outcomes: list[Outcome] = []
    cases: list[Case | None] = []
    for run in runs:
        outcomes.append(trials.perform(run))
        bad = outcomes[-1].status in ("failed", "undecided")
        cases.append(Case(to_text(run.fusion), run.without) if bad else None)
        if outcomes[-1].fatal:
            break
    return Result(task, tuple(outcomes), tuple(cases), _counts(runs[0].fusion))


def _trace(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))[-6000:]


def _counts(fusion: Fusion) -> Counts:
    """Return what a fusion is made of, by kind."""
    tensors = [v for v in fusion.values if not v.is_scalar]
    layouts = Counter(_layout(fusion, k) for k in range(len(fusion.inputs)))
    return {
        "operations": Counter(n.op.name for n in fusion.nodes),
        "families": Counter(n.op.family for n in fusion.nodes),
        "ranks": Counter(str(v.rank) for v in tensors),
        "dtypes": Counter(v.dtype.name for v in tensors),
        "nodes": Counter([_bucket(len(fusion.nodes))]),
        "outputs": Counter(_outputs(fusion)),
        "layouts": layouts,
    }


def _bucket(count: int) -> str:
    return next((f"up to {b}" for b in (2, 4, 8, 16, 32) if count <= b), "more")


def _outputs(fusion: Fusion) -> list[str]:
    into = fusion.effects.into
    kinds = ["in place" if o.value in into else "ordered" if o.stride_order else "plain"
             for o in fusion.outputs]  # fmt: skip
    return [f"{len(kinds)} outputs", *kinds]


def _layout(fusion: Fusion, number: int) -> str:
    entry = fusion.inputs[number]
    if entry.value.is_scalar:
        return "scalar"
    if entry.on_cpu:
        return "on the host"
    strides = [s.evaluate(fusion.hints) for s in entry.strides]
    if 0 in strides:
        return "expanded"
    dense = 1
    for stride, extent in sorted(zip(strides, entry.value.shape, strict=True), key=lambda p: p[0]):
        if stride < dense:
            return "overlapping"
        if stride > dense:
            return "sliced"
        dense = stride * extent.evaluate(fusion.hints)
    return "dense" if strides == sorted(strides, reverse=True) else "transposed"
