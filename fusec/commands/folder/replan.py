"""Check a compiled folder's plans: planning its fusion again must reproduce the records.

The manifest determines which memory kernels access: their sizes, blocks and workspaces. Only the
planner can confirm these, and it is fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

from fusec import target as targets
from fusec.commands.folder.manifest import (
    cubin_path,
    dims_of,
    inputs_of,
    kernels_at,
    outputs_of,
    parameters_of,
    plan_record,
)
from fusec.commands.folder.records import (
    AGAIN,
    MANIFEST,
    BuildRecord,
    Manifest,
    PlanRecord,
    damaged,
)
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.files import variant
from fusec.hostir.form import RECORDS
from fusec.ir.graph import Fusion
from fusec.options import REDEFINITIONS, CompileOptions
from fusec.shard.partition import partition
from fusec.version import __version__

_SHOWN = 80


def check_targets(path: Path, manifest: Manifest) -> None:
    """Raise FusecError unless there are plans, each for distinct known targets."""
    if not manifest.plans:
        raise damaged(path, "it has no plans")
    for number, plan in enumerate(manifest.plans):
        if not plan.targets:
            raise damaged(path, f"plans[{number}] has no targets")
    planned_for = [t for plan in manifest.plans for t in plan.targets]
    for listed in (manifest.targets, planned_for):
        for target in listed:
            if target not in targets.TARGETS:
                raise damaged(path, f"unknown target `{target}`")
        if {*listed} != {*planned_for}:
            raise damaged(path, "its targets differ from those of its plans")
    places = [(t, *sorted(p.sizes.items())) for p in manifest.plans for t in p.targets]
    if len({*manifest.targets}) < len(manifest.targets) or len({*places}) < len(places):
        raise damaged(path, "its targets differ from those of its plans")


def check_head(folder: Path, manifest: Manifest, fusion: Fusion) -> None:
    """Raise FusecError if the manifest's header disagrees with its fusion, as one rank runs it."""
    local = partition(fusion)
    wanted = replace(
        manifest,
        fusion=local.name,
        dims=dims_of(local),
        inputs=inputs_of(local),
        outputs=outputs_of(local),
    )
    difference = first_difference(manifest, wanted)
    if difference is not None:
        raise _differs(folder, manifest, difference)


@dataclass(frozen=True)
class Given:
    """Files of a compiled folder that affect plans: folders of rates and of measured schedules."""

    rates: Path
    tuned: Path


def planned_again(
    folder: Path, manifest: Manifest, number: int, fusion: Fusion, given: Given
) -> Compilation:
    """Return the program of a plan, with a folder's rates; FusecError if the plans differ.

    It may differ from the first choice if the compiler spilled registers for that one. The host
    program is the recorded one: its index checks name locations in the file that was compiled.
    """
    recorded = manifest.plans[number]
    try:
        fusion = variant(fusion, recorded.sizes)
        program = _as_recorded(Compilation(fusion, _options(manifest, recorded, given)), recorded)
        made = _record(manifest, recorded, program)
    except FusecError as error:
        reason = f"its fusion cannot be planned with its options: {error.diagnostic.message}"
        raise _differs(folder, manifest, reason) from None
    found, expected = without_labels(recorded), without_labels(made)
    difference = first_difference(found, expected, f"plans[{number}]")
    if difference is not None:
        raise _differs(folder, manifest, difference)
    return Compilation(fusion, program.options, **{**program.made, "host": recorded.program})


def _options(manifest: Manifest, recorded: PlanRecord, given: Given) -> CompileOptions:
    chosen = manifest.options
    if chosen.redefine not in REDEFINITIONS:
        raise FusecError(f"`redefine` must be one of {', '.join(REDEFINITIONS)}")
    return CompileOptions(
        targets=recorded.targets,
        targets_given=True,
        without=chosen.without,
        with_=chosen.with_,
        stop_after=chosen.stop_after,
        check_bounds=chosen.check_bounds,
        precise=chosen.precise,
        streams=chosen.streams,
        overlap=chosen.overlap,
        as_written=chosen.as_written,
        redefine=chosen.redefine,
        rates=given.rates,
        tuned=given.tuned,
    )


def _record(manifest: Manifest, recorded: PlanRecord, program: Compilation) -> PlanRecord:
    """Return the manifest's record of a program, with the recorded builds."""
    builds = {k.name: k.builds for k in recorded.kernels}

    def build_of(kernel: str, target: str) -> BuildRecord:
        # Registers and the like are informative and decide nothing.
        record = builds.get(kernel, {}).get(target, BuildRecord("", 0, 0, 0, "", 0))
        return replace(record, cubin=cubin_path(kernel, target))

    folder = kernels_at(recorded.targets, len(manifest.plans))
    return plan_record(program, folder, build_of, recorded.sizes)


def _as_recorded(program: Compilation, recorded: PlanRecord) -> Compilation:
    """Return the program with the plans of its segments that have the recorded parameters."""
    plans = list(program.plans)
    for number, wanted in enumerate(recorded.segments[: len(plans)]):
        others = chain(plans[number : number + 1], program.other_plans(number))
        alike = (plan for plan in others if parameters_of(plan) == wanted.parameters)
        plans[number] = next(alike, plans[number])
    return program.planned_as(tuple(plans))


def without_labels(plan: PlanRecord) -> PlanRecord:
    """Return the plan without the names of operations and locations in its index checks.

    They refer to the file that was compiled; fusion.yaml has other lines.
    """
    checks = tuple(replace(c, op="", place="") for c in plan.program.checks)
    return replace(plan, program=replace(plan.program, checks=checks))


def first_difference(found: Any, expected: Any, place: str = "") -> str | None:
    """Return where and how two records first differ; None if they are equal."""
    pairs = _differences(RECORDS.encode(found), RECORDS.encode(expected), place)
    return next(pairs, None)


def _differences(found: Any, expected: Any, place: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(expected, dict):
        given, wanted = cast("dict[str, Any]", found), cast("dict[str, Any]", expected)
        for key in (*wanted, *(k for k in given if k not in wanted)):
            yield from _entry(given, wanted, key, f"{place}.{key}" if place else key)
    elif isinstance(found, list) and isinstance(expected, list):
        left = dict(enumerate(cast("list[Any]", found)))
        right = dict(enumerate(cast("list[Any]", expected)))
        for k in range(max(len(left), len(right))):
            yield from _entry(left, right, k, f"{place}[{k}]")
    elif json.dumps(found) != json.dumps(expected):
        yield f"{place} is {_shown(found)}, expected {_shown(expected)}"


def _entry(
    found: Mapping[Any, Any], expected: Mapping[Any, Any], key: Any, place: str
) -> Iterator[str]:
    if key in found and key in expected:
        yield from _differences(found[key], expected[key], place)
    elif key in found:
        yield f"{place} is {_shown(found[key])}, expected nothing"
    else:
        yield f"{place} is missing, expected {_shown(expected[key])}"


def _shown(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _differs(folder: Path, manifest: Manifest, difference: str) -> FusecError:
    notes: list[str] = []
    if manifest.fusec != __version__:
        notes = [
            f"it was compiled by fusec {manifest.fusec}; fusec {__version__} may plan it "
            "differently"
        ]
    return FusecError(
        f"`{folder / MANIFEST}` differs from what fusec compiles from its fusion: {difference}",
        notes=notes,
        help=AGAIN,
    )
