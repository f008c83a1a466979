"""Shrink a run that fails, as long as it keeps failing in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from fusec import foreign
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.ir.text import to_text
from fusec.parse import read_text
from tools.edits import candidates
from tools.pool import Pool
from tools.trial import Depth, Outcome
from tools.work import Case, Task

SLOW_SECONDS = 30.0
"""Time of all stages of a run beyond which it counts as a failure."""
WITHOUT = re.compile(r"--without (\w+)")


@dataclass(frozen=True)
class Reduced:
    """The smallest case found, what becomes of it, and how many were tried."""

    case: Case
    outcome: Outcome
    tried: int


def reduce_case(pool: Pool, case: Case, outcome: Outcome, deadline: float) -> Reduced:
    """Return the smallest case that fails as `outcome` does, found before `deadline`."""
    tried, best = 0, Reduced(case, outcome, 0)
    seen = {case}
    while True:
        progress = False
        for group in _groups(_simpler(best.case), max(1, pool.jobs)):
            fresh = [c for c in group if c not in seen]
            seen.update(fresh)
            tried += len(fresh)
            found = _first_alike(pool, fresh, outcome)
            if found is not None:
                best, progress = Reduced(*found, tried), True
                break
            if time.monotonic() > deadline:
                return replace(best, tried=tried)
        if not progress:
            return replace(best, tried=tried)


def _groups(cases: Iterator[Case], size: int) -> Iterator[list[Case]]:
    while group := list(islice(cases, size)):
        yield group


def _first_alike(pool: Pool, cases: list[Case], outcome: Outcome) -> tuple[Case, Outcome] | None:
    """Return the first of some cases, in their order, that fails in the same way."""
    tasks = [Task(0, number, case) for number, case in enumerate(cases)]
    results = {r.task.number: r.outcomes[0] for r in pool.run(tasks)}
    for number, case in enumerate(cases):
        found = results.get(number)
        if found is not None and is_alike(found, outcome):
            return case, found
    return None


def is_alike(found: Outcome, outcome: Outcome) -> bool:
    """Return whether two outcomes are of one kind."""
    return (found.status, found.signature) == (outcome.status, outcome.signature)


def _simpler(case: Case) -> Iterator[Case]:
    """Yield cases with a pass less left out, then with simpler fusions."""
    if len(case.without) > 1:
        yield Case(case.text)
    for name in case.without:
        yield Case(case.text, tuple(n for n in case.without if n != name))
    try:
        fusion = read_text(case.text, "case.yaml")
    except FusecError:
        # The text itself is what fails.
        return
    for simpler in candidates(fusion):
        text = to_text(simpler)
        if len(text) <= len(case.text) + 200:
            yield Case(text, case.without)


def file_text(case: Case, outcome: Outcome, name: str) -> str:
    """Return a case as a fusion file that says how it fails and how to see that."""
    left_out = "".join(f" --without {n}" for n in case.without)
    first = outcome.message.strip().splitlines()[:1]
    lines = [f"fusec run {name}{left_out}", *(x[:160] for x in (outcome.signature, *first))]
    return "".join(f"# {line}\n" for line in lines) + case.text


def read_case(path: Path) -> Case:
    """Return the case of a file: passes to leave out stand in its first lines."""
    text = foreign.read_text(path, "a fusion file", foreign.TEXT_BYTES)
    head = [line for line in text.splitlines() if line.startswith("#")]
    without = tuple(dict.fromkeys(WITHOUT.findall("\n".join(head))))
    return Case(to_text(read_text(text, str(path))), without)


def depth_for(device: str, *, builds: bool) -> Depth:
    """Return how deep runs go on this machine; EnvironmentProblem where the device is missing."""
    from fusec.run.device import Device, device_available

    reason = "not wanted" if device == "none" or not builds else device_available()
    if reason is None:
        with Device() as opened:
            target, gpus = opened.facts.target, opened.count
        if target is not None:
            return Depth(on_gpu=True, target=target.arch, gpus=gpus, slow=SLOW_SECONDS)
        reason = "fusec does not know this GPU"
    if device == "cuda":
        raise EnvironmentProblem(reason, help="use --device none to go without a GPU")
    return Depth(builds=builds, slow=SLOW_SECONDS)


def reduce_file(path: str, device: str, jobs: int, seconds: float, output: str | None) -> int:
    """Shrink a failing fusion file; 0 if it fails and was shrunk, 1 if it does not fail."""
    case = read_case(Path(path))
    with Pool(depth_for(device, builds=True), jobs) as pool:
        outcome = next(iter(pool.run([Task(0, 0, case)]))).outcomes[0]
        if outcome.status in ("ok", "refused"):
            print(f"{path}: {outcome.status} {outcome.kind}".rstrip())
            return 1
        found = reduce_case(pool, case, outcome, time.monotonic() + seconds)
    target = Path(output) if output else Path(path).with_suffix(".min.yaml")
    target.write_text(file_text(found.case, found.outcome, target.name))
    print(f"{found.outcome.signature}\n{target}: {found.tried} tried")
    print(found.case.text, end="")
    return 0
