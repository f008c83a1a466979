"""`fusec doctor --measure`: write a target file with the rates of the local GPU."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from fusec import driver
from fusec.activity import activity
from fusec.commands.link_rates import (
    links_by_ranks,
    links_problem,
    measure_as_rank,
)
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import asdict, dataclass, replace
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions
from fusec.run.device import Device, count_gpus
from fusec.run.distributed.ranks import from_environment
from fusec.segment.protocol import OVERLAP, Estimate, together
from fusec.target import Target, find
from fusec.target.table import FIELDS, FOLDER

PROBES = FOLDER / "probes"
BASE = ("launch", "bandwidth", "issue", "half_flops")
"""Probes of rates that hold for the whole GPU; the others are named family.access."""

REPEATS = 20


@dataclass(frozen=True)
class Probe:
    """The measured time of a probe's kernels in seconds, and their estimate."""

    name: str
    seconds: float
    estimate: Estimate


def calibrate(place: str, report: Report) -> int:
    """Measure every probe, write the target file, and print each rate next to the old one."""
    ranks = from_environment()
    if ranks.size > 1:
        return measure_as_rank(ranks, Path(place), _target_of)
    with Device() as device:
        options = driver.for_device(CompileOptions(), device.facts)
        known = find(options.target)
        probes = [_timed(device, path, options) for path in sorted(PROBES.glob("*.yaml"))]
        facts = device.facts
    measured = rates(replace(known, sms=facts.sms, l2=facts.l2), {p.name: p for p in probes})
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    gpus = count_gpus()
    problem = links_problem(gpus)
    if problem is None:
        measured = replace(measured, links=links_by_ranks(folder, gpus))
    path = folder / f"{known.arch}.toml"
    path.write_text(as_toml(replace(measured, device=facts.name), facts.text()))
    changes = comparison(known, measured)
    for change in changes:
        print(f"{change.name:<32} {change.before:>10.4g} {change.after:>10.4g}")
    report.facts["measured"] = {
        "file": str(path), "target": known.arch, "device": facts.name,
        "rates": [asdict(change) for change in changes], "links": problem,
    }  # fmt: skip
    if problem is not None:
        print(f"links: unchanged, because {problem}")
    print(f"{path}\n  = help: export FUSEC_TARGETS={folder}")
    return 0


def _target_of(device: Device) -> Target:
    return find(driver.for_device(CompileOptions(), device.facts).target)


def _timed(device: Device, path: Path, options: CompileOptions) -> Probe:
    with activity(f"measuring {path.stem}", immediately=True):
        return run_probe(device, path, options)


def run_probe(device: Device, path: Path, options: CompileOptions) -> Probe:
    """Return the time of a probe's kernels on random inputs, with a cold L2."""
    package = driver.compile_fusion(driver.load(str(path)), options)
    seconds = driver.measure(device, package, options.target, REPEATS).seconds
    return Probe(path.stem, seconds, estimate_of(package.program, path.stem))


def estimate_of(program: driver.Compilation, name: str) -> Estimate:
    """Return the estimate of a probe, which must be one segment of the family in its name."""
    segments = program.segmented.segments
    estimate = segments[0].estimate
    if len(segments) != 1 or estimate is None:
        raise FusecError(f"probe `{name}` takes {len(segments)} segments")
    return estimate


SHARES = {"pointwise.strided": 1 / 2, "pointwise.picked": 4 / 9}
"""The fraction of the probes' bytes with this access; the others are contiguous."""


def rates(known: Target, probes: Mapping[str, Probe]) -> Target:
    """Return the target with the measured rates; each formula inverts the cost model."""
    launch = probes["launch"].seconds
    target = replace(known, launch=launch)

    def rate(name: str, resource: str) -> float:
        """Return a rate of `target`, scaled by predicted over measured time of its resource."""
        probe = probes[name]
        said = probe.estimate.parts(target, target.write_back)
        return said[resource] / _alone(resource, said, probe.seconds - launch)

    target = replace(target, bandwidth=target.bandwidth * rate("bandwidth", "memory"))
    target = replace(target, issue=min(1.0, target.issue * rate("issue", "arithmetic")))
    matrix = probes["half_flops"]
    found: dict[str, dict[str, float]] = {f: dict(of) for f, of in known.rates.items()}
    # Contiguous accesses first: strided ones are measured relative to them.
    for name in sorted(probes.keys() - set(BASE), key=lambda n: (not n.endswith(".vector"), n)):
        probe = probes[name]
        family, access = name.split(".")
        seconds = max(probe.seconds - launch * probe.estimate.kernels, launch)
        said = replace(probe.estimate, efficiency=1.0).parts(target, target.write_back)
        reached = min(1.0, said["memory"] / _alone("memory", said, seconds))
        share = SHARES.get(name, 1.0)
        if share < 1.0:
            along = 1 / found["pointwise"]["vector"]
            reached = 1 / max(along, (1 / reached - (1 - share) * along) / share)
        found[family][access] = round(reached, 3)
    return replace(
        known,
        launch=_rounded(launch),
        bandwidth=_rounded(target.bandwidth),
        issue=round(target.issue, 3),
        half_flops=_rounded(2 * 8192**3 / (matrix.seconds - launch)),
        rates=found,
    )


def _alone(resource: str, parts: Mapping[str, float], seconds: float) -> float:
    """Return the seconds of one resource, given the total time of overlapping resources."""
    others = {n: 0.0 if n in (resource, "L2") else s for n, s in parts.items()}
    rest = together({"memory": 0.0, "L2": 0.0, **others})
    return max(seconds**OVERLAP - rest**OVERLAP, (seconds / 2) ** OVERLAP) ** (1 / OVERLAP)


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def as_toml(target: Target, about: str) -> str:
    """Return a target as the text of its file."""
    lines = [f"# Measured by `fusec doctor --measure`: {about}."]
    for name in (f.name for f in FIELDS):
        value = getattr(target, name)
        lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value!r}")
    lines.append(f'cost_of = "{target.cost_of}"')
    if target.clusters:
        lines += ["", "[clusters]"]
        lines += [f"{blocks} = {count}" for blocks, count in target.clusters.items()]
    for kind, link in target.links.items():
        lines += ["", f"[links.{kind}]"]
        lines += [f"{name} = {value!r}" for name, value in asdict(link).items() if value]
    for family, known in target.rates.items():
        lines += ["", f"[reach.{family}]"]
        lines += [f"{access} = {rate!r}" for access, rate in known.items()]
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    return text


@dataclass(frozen=True)
class Change:
    """A rate of a target: its name, the previous value, and the measured one."""

    name: str
    before: float
    after: float


def comparison(known: Target, measured: Target) -> list[Change]:
    """Return every rate, before and after."""
    rows = [
        (name, getattr(known, name), getattr(measured, name))
        for name in ("launch", "bandwidth", "issue", "half_flops")
    ]
    rows += [
        (f"{family}.{access}", known.rates[family][access], rate)
        for family, of in measured.rates.items()
        for access, rate in of.items()
    ]
    return [Change(*row) for row in rows]
