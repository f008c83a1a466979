"""What a run prints: the table of kernels, the verdict, differences from expected outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError

if TYPE_CHECKING:
    from fusec.commands.job import Job
    from fusec.ir.graph import Fusion
    from fusec.reference.verdict import Verdict
    from fusec.run.measure import Timing

HEADINGS = ("kernel", "scheduler", "time", "bytes", "GB/s", "of bandwidth")


def count(number: int, noun: str) -> str:
    """Return `1 kernel`, `2 kernels`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_times(seconds: Mapping[str, float]) -> None:
    """Print the time of each stage."""
    for stage, time in seconds.items():
        print(f"  {stage:<9} {time * 1e3:8.1f} ms")


def print_table(job: Job, timing: Timing, device: str, bandwidth: float) -> None:
    """Print each kernel's time, the bytes it must move, and its share of the bandwidth."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for kernel in timing.kernels:
        scheduler, moved = job.segments.get(kernel.segment, ("", 0))
        rate = moved / kernel.seconds if kernel.seconds else 0.0
        share = f"{100 * rate / bandwidth:.0f} %"
        time = f"{kernel.seconds * 1e6:.1f} us"
        rows.append((kernel.kernel, scheduler, time, size_text(moved), f"{rate / 1e9:.0f}", share))
    print("\n".join(aligned(rows, left=(0, 1))))
    print(
        f"total {timing.seconds * 1e6:.1f} us, median of {timing.repeats} runs with a cold L2, "
        f"on {device}"
    )


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> Iterator[str]:
    """Yield the lines of a table; the columns in `left` begin alike, the others end alike."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in cells).rstrip()


def print_verdict(job: Job, verdict: Verdict) -> None:
    """Print the verdict, and for each wrong output where it was made."""
    print(verdict.text())
    for output in verdict.outputs:
        if not output.ok:
            print(f"  `{output.name}` is made by {origin(job, output.name)}")


def origin(job: Job, name: str) -> str:
    """Return the segment and kernel that write an output."""
    from fusec.hostir.program import Alias

    if job.program is None:
        return "the reference"
    # What is a view of another buffer is written under that one's name.
    of = {i.buffer: i.of for i in job.program.instructions if isinstance(i, Alias)}
    names = {name}
    while name in of:
        name = of[name]
        names.add(name)
    for launch in reversed(job.program.launches):
        if names & {*launch.written}:
            scheduler, _ = job.segments.get(launch.segment, ("?", 0))
            return f"segment {launch.segment} ({scheduler}), kernel {launch.kernel}"
    return "no kernel: it is a view of an input"


def print_outputs(
    fusion: Fusion, sizes: Mapping[str, int], outputs: Mapping[str, Any], values: int
) -> None:
    """Print the type of each output at `sizes`, with its first values in row-major order."""
    import numpy as np

    for output in fusion.outputs:
        value = output.value
        extents = ", ".join(str(d.evaluate(sizes)) for d in value.shape)
        print(f"  {value.name}: {value.dtype}[{extents}]")
        if values and value.name in outputs:
            array = np.asarray(outputs[value.name])
            shown = [number_text(v) for v in array.reshape(-1)[:values]]
            text = ", ".join([*shown, "..."] if array.size > values else shown)
            indent = "    "
            print(fill(text or "no elements", 100, initial_indent=indent, subsequent_indent=indent))


def number_text(value: Any) -> str:
    """Return an element of an array as people write it."""
    number = value.item()
    if isinstance(number, complex):
        sign = "-" if str(number.imag).startswith("-") else "+"
        return f"{number.real:.6g}{sign}{abs(number.imag):.6g}i"
    if isinstance(number, (bool, int)):
        return str(number).lower()
    return f"{float(number):.6g}"


def size_text(size: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def no_array(path: str, name: str, arrays: Mapping[str, Any]) -> FusecError:
    """Return the error that says what a file has instead."""
    return FusecError(
        f"`{path}` has no array `{name}`", help=f"it has {', '.join(sorted(arrays)) or 'none'}"
    )
