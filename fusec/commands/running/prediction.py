"""Output of `fusec run` without a GPU: predicted times, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusec.commands.report import aligned, kernel_count, launch_labels
from fusec.escape import visible
from fusec.models.folder import is_model_folder
from fusec.parse.source import STDIN

if TYPE_CHECKING:
    from fusec.driver import Package
    from fusec.explain.facts import Segmentation, SegmentFacts

HEADINGS = ("kernel", "scheduler", "predicted", "bytes", "bound by")


def print_prediction(package: Package) -> Segmentation:
    """Print the cost model's prediction for each kernel of a package that was built but not run.

    Return the record with the predictions.
    """
    from fusec.explain.record import record_of
    from fusec.explain.text import moved
    from fusec.explain.units import time_text

    (target,), launches = package.targets, package.program.host.launches
    record = record_of(package.program, target)
    kernels: dict[str, list[str]] = {}
    labels = launch_labels(launches)
    for launch in launches:
        label = labels[launch.kernel, launch.segment]
        kernels.setdefault(launch.segment, []).append(label)
    built = kernel_count(launches)
    print(f"{record.fusion}: {built} built for {target}, predicted for {_place(record)}")
    rows: list[tuple[str, ...]] = [HEADINGS]
    for segment in record.segments:
        rows += _rows(segment, kernels.get(segment.name, []))
    print("\n".join(aligned(rows, left=(0, 1, 4))))
    print(f"total {time_text(record.seconds)}, traffic {moved(record.bytes, record.floor_bytes)}")
    return record


def _place(record: Segmentation) -> str:
    sizes = ", ".join(f"{n}={s}" for n, s in record.sizes.items() if "." not in n)
    return record.target["device"] + (f" at {sizes}" if sizes else "")


def _rows(segment: SegmentFacts, kernels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel; the segment's figures are in the first one."""
    from fusec.explain.units import bytes_text, time_text

    size = bytes_text(segment.bytes + segment.workspace_bytes)
    bound = segment.bound.replace("_", " ")
    first, *others = kernels or [f"({', '.join(segment.outputs)}: no kernel)"]
    yield first, segment.scheduler, time_text(segment.seconds), size, bound
    yield from ((name, "", "", "", "") for name in others)


def print_next(path: str, sizes: Mapping[str, int]) -> None:
    """Print the commands that show more, on this machine and on one with a GPU."""
    set_ = "".join(f" --set {name}={size}" for name, size in sizes.items())
    path = "FILE" if path == STDIN else path
    compiled = Path(path).is_dir() and not is_model_folder(path)
    file = str(Path(path, "fusion.yaml")) if compiled else path
    file, path = visible(shlex.quote(file)) + set_, visible(shlex.quote(path)) + set_
    rows = [
        (f"  fusec explain {file}", "why it was partitioned this way; what limits each kernel"),
        (f"  fusec dump {file} --cuda-kernel", "the CUDA source"),
        (f"  fusec run {path} --print 4", "values, from the fp64 reference on this CPU"),
    ]
    print("next:")
    print("\n".join(aligned(rows, left=(0, 1))))
    print("  With a GPU, the same command measures and verifies.")
