"""JSON records of kernels, verdicts and outputs in command reports (docs/json.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusec.commands.terminal.diagnose import Report
    from fusec.driver import Compilation, Package
    from fusec.explain.facts import Segmentation
    from fusec.ir.graph import Fusion
    from fusec.reference.verdict import OutputVerdict, Verdict
    from fusec.run.measure import Timing
    from fusec.segment.roofline import Rates, Roofline

Facts = dict[str, Any]


def named_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of dims that the user named."""
    return {name: size for name, size in sizes.items() if "." not in name}


def predicted_registers(program: Compilation) -> dict[tuple[str, str], int]:
    """Return the predicted registers of each kernel, by kernel and target."""
    from fusec import target
    from fusec.schedule.segments import occupancies

    return {
        (kernel.name, arch): told.registers
        for arch in program.targets
        for plan in program.plans
        for kernel, told in zip(plan.kernels, occupancies(plan, target.find(arch)), strict=True)
    }


def begin_run(report: Report, fusion: Fusion, sizes: Mapping[str, int]) -> Facts:
    """Return the record of one more run in a report; all but fusion and sizes is unknown yet."""
    run: Facts = {
        "fusion": fusion.name, "sizes": named_sizes(sizes), "ranks": 1, "target": None,
        "device": None, "kernels": [], "segments": [], "edited": [], "copies": [],
        "seconds": None,
        "repeats": None, "predicted_seconds": None, "bytes": None, "compulsory_bytes": None,
        "l2_bytes": None, "share": None, "reads_l2": None, "tensor_share": None,
        "verdict": None, "expected": None, "outputs": [], "stages": {},
    }  # fmt: skip
    report.facts.setdefault("runs", []).append(run)
    return run


def kernel_facts(package: Package, program: Compilation) -> list[Facts]:
    """Return the kernels of one of a package's programs, as the compiler built them.

    A kernel that several segments launch is listed once for each of them.
    """
    predicted = predicted_registers(program)
    segments = defaultdict[str, dict[str, None]](dict)
    for launch in program.host.launches:
        segments[launch.kernel][launch.segment] = None
    return [
        {
            "name": name, "segment": segment, "target": arch,
            "registers": artifact.registers, "predicted_registers": predicted.get((name, arch)),
            "spill_bytes": artifact.spill_bytes, "shared_bytes": artifact.shared_bytes,
            "cubin_sha256": sha256(artifact.cubin).hexdigest(),
        }
        for (name, arch), artifact in package.artifacts_of(program).items()
        for segment in segments[name] or [None]
    ]  # fmt: skip


def built_facts(package: Package) -> Facts:
    """Return the target and the kernels of a package that was run."""
    return {
        "target": package.targets[0],
        "kernels": [
            {**kernel, "seconds": None} for kernel in kernel_facts(package, package.program)
        ],
        "edited": list(package.edited),
    }


def predicted_facts(record: Segmentation) -> Facts:
    """Return the cost model's predictions for kernels that were built but not run."""
    segments = [
        {
            "name": s.name, "scheduler": s.scheduler, "seconds": None,
            "predicted_seconds": s.seconds, "bytes": s.bytes + s.workspace_bytes,
            "compulsory_bytes": s.floor_bytes, "l2_bytes": s.l2_bytes, "share": None,
            "reads_l2": None, "tensor_share": None, "bound": s.bound,
        }
        for s in record.segments
    ]  # fmt: skip
    return {
        "segments": segments, "predicted_seconds": record.seconds, "bytes": record.bytes,
        "compulsory_bytes": record.floor_bytes,
    }  # fmt: skip


def timed_facts(
    package: Package, sizes: Mapping[str, int], timing: Timing, device: str, rates: Rates
) -> Facts:
    """Return the times of a run, and how close each segment comes to its limits.

    Limits and predictions are for the sizes that kernels were planned for: null at others.
    """
    from fusec import target
    from fusec.segment import roofline

    program = package.program
    known = program.is_planned_for(sizes)
    spent = defaultdict[tuple[str, str], float](float)
    for k in timing.kernels:
        spent[k.kernel, k.segment] += k.seconds
    gpu, segmented = target.find(package.targets[0]), program.segmented
    predicted, left = segmented.times(gpu), segmented.left_in_l2(gpu)
    segments = list[Facts]()
    for segment, guess, stays in zip(segmented.segments, predicted, left, strict=True):
        seconds = sum(k.seconds for k in timing.kernels if k.segment == segment.name)
        estimate = segment.estimate
        least = roofline.of_segment(segment, stays) if known else None
        moved = None if estimate is None else estimate.bytes + estimate.workspace_bytes
        segments.append(
            {
                "name": segment.name,
                "scheduler": segment.scheduler,
                "seconds": seconds,
                "predicted_seconds": guess if known else None,
                "bytes": moved if known else None,
                "bound": None,
                **_limits(least, seconds, rates),
            }
        )
    whole = roofline.of_fusion(program.segmented) if known else None
    kernels = [
        {**kernel, "seconds": spent.get((kernel["name"], kernel["segment"]))}
        for kernel in kernel_facts(package, program)
    ]
    return {
        "device": device, "seconds": timing.seconds, "repeats": timing.repeats, "kernels": kernels,
        "segments": segments, "predicted_seconds": sum(predicted) if known else None,
        "bytes": program.segmented.bytes if known else None,
        **_limits(whole, timing.seconds, rates),
    }  # fmt: skip


def _limits(least: Roofline | None, seconds: float, rates: Rates) -> Facts:
    if least is None:
        return dict.fromkeys(("compulsory_bytes", "l2_bytes", "share", "reads_l2", "tensor_share"))
    share = least.share(seconds, rates)
    return {
        "compulsory_bytes": least.compulsory_bytes, "l2_bytes": least.l2_bytes, "share": share,
        "reads_l2": share > 1, "tensor_share": least.tensor_share(seconds, rates),
    }  # fmt: skip


def verdict_facts(verdict: Verdict, accepted: bool, against: str) -> Facts:
    """Return a verdict; against: `reference`, or the file that outputs are compared with."""
    return {
        "against": against, "word": verdict.word, "accepted": accepted,
        "coverage": verdict.coverage.text(), "definition": None,
        "compared": [_output(o) for o in verdict.outputs],
    }  # fmt: skip


def _output(output: OutputVerdict) -> Facts:
    worst = [
        {"index": w.index, "found": w.found, "expected": w.expected, "limit": w.limit}
        for w in output.worst
    ]
    return {
        "name": output.name, "word": output.word, "reason": output.reason,
        "checked": output.checked, "wrong": output.wrong, "unwritten": output.unwritten,
        "undecided": output.open, "max_error": output.error, "sigma": output.ratio,
        "scale_error": output.power, "lost_part": output.lost, "worst": worst,
    }  # fmt: skip


def output_facts(
    fusion: Fusion, sizes: Mapping[str, int], outputs: Mapping[str, Any], values: int
) -> list[Facts]:
    """Return the outputs of a run, each with its first `values` elements if it was computed."""
    import numpy as np

    found = list[Facts]()
    for value in (o.value for o in fusion.outputs):
        shape, shown = [d.evaluate(sizes) for d in value.shape], None
        if values and value.name in outputs:
            shown = [v.item() for v in np.asarray(outputs[value.name]).reshape(-1)[:values]]
        found.append(
            {"name": value.name, "dtype": value.dtype.name, "shape": shape, "values": shown}
        )
    return found
