"""The output of a run: the table of kernels, the verdict, differences from expected outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.explain.units import bytes_text, share_text, time_text

if TYPE_CHECKING:
    from fusec.driver import Package
    from fusec.hostir.instructions import Launch
    from fusec.ir.graph import Fusion
    from fusec.reference.verdict import Verdict
    from fusec.run.measure import Timing
    from fusec.segment.roofline import Rates, Roofline

HEADINGS = ("kernel", "scheduler", "time", "compulsory traffic", "GB/s", "share")


def count(number: int, noun: str) -> str:
    """Return `1 kernel`, `2 kernels`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_times(seconds: Mapping[str, float]) -> None:
    """Print the time of each stage."""
    for stage, time in seconds.items():
        print(f"  {stage:<9} {time * 1e3:8.1f} ms")


def print_table(
    package: Package, sizes: Mapping[str, int], timing: Timing, device: str, rates: Rates
) -> None:
    """Print the time of each kernel, and how close each segment comes to its limits.

    The limits are only printed at the sizes that kernels were planned for.
    """
    from fusec import target
    from fusec.segment import roofline

    program = package.program
    known = program.is_planned_for(sizes)
    segmented = program.segmented
    left = segmented.left_in_l2(target.find(package.targets[0]))
    segments = {s.name: (s, each) for s, each in zip(segmented.segments, left, strict=True)}
    labels = launch_labels(program.host.launches)
    rows: list[tuple[str, ...]] = [HEADINGS]
    for name, kernels in groupby(timing.kernels, key=lambda k: k.segment):
        segment = segments[name][0]
        least = roofline.of_segment(*segments[name]) if known else None
        own = [(labels[k.kernel, name], k.seconds) for k in kernels]
        rows += _rows(name, segment.scheduler, own, least, rates)
    print("\n".join(aligned(rows, left=(0, 1))))
    whole = roofline.of_fusion(segmented)
    least = "" if not known else (
        f" ({share_of(whole, timing.seconds, rates)}, "
        f"compulsory traffic {bytes_text(whole.compulsory_bytes)})"
    )  # fmt: skip
    print(
        f"total {time_text(timing.seconds)}{least}, median of {timing.repeats} runs with a cold "
        f"L2, on {device}"
    )


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> Iterator[str]:
    """Yield the lines of a table; columns in `left` are left-aligned, others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in cells).rstrip()


def kernel_count(launches: Sequence[Launch]) -> str:
    """Return `1 kernel`, or `2 kernels (3 launches)` if some are launched more than once."""
    kernels = len({launch.kernel for launch in launches})
    repeated = f" ({len(launches)} launches)" if kernels < len(launches) else ""
    return count(kernels, "kernel") + repeated


def launch_labels(launches: Iterable[Launch]) -> dict[tuple[str, str], str]:
    """Return the label of a launch by kernel and segment: `gelu_s0`, or `gelu_s0 for s2`.

    The segment is printed if a kernel is launched for several.
    """
    pairs = dict.fromkeys((launch.kernel, launch.segment) for launch in launches)
    segments = Counter(kernel for kernel, _ in pairs)
    return {
        (kernel, segment): kernel if segments[kernel] == 1 else f"{kernel} for {segment}"
        for kernel, segment in pairs
    }


def _rows(
    name: str,
    scheduler: str,
    launches: Sequence[tuple[str, float]],
    least: Roofline | None,
    rates: Rates,
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each launch of a segment, given its label and seconds.

    The lower bounds of a segment are for all of its launches together.
    """
    seconds, none = sum(each for _, each in launches), ("", "", "")
    known = none if least is None else _cells(least, seconds, rates)
    for label, each in launches:
        own = known if len(launches) == 1 else none
        yield (label, scheduler, time_text(each), *own)
    if len(launches) > 1:
        both = f"{name}, {count(len(launches), 'kernel')}"
        yield (both, scheduler, time_text(seconds), *known)


def _cells(least: Roofline, seconds: float, rates: Rates) -> tuple[str, str, str]:
    rate = least.compulsory_bytes / seconds / 1e9 if seconds else 0.0
    return (bytes_text(least.compulsory_bytes), f"{rate:.0f}", share_of(least, seconds, rates))


def share_of(least: Roofline, seconds: float, rates: Rates) -> str:
    """Return the fraction of the binding limit that is reached: `48 % of bandwidth`.

    Traffic above the memory bandwidth must come from L2, and is labelled so.
    """
    share, tensor = least.share(seconds, rates), least.tensor_share(seconds, rates)
    limit = "tensor cores" if tensor > share else "bandwidth"
    found = " (partly from L2)" if share > 1 else ""
    return f"{share_text(max(share, tensor), 1)} of {limit}{found}"


def print_verdict(package: Package, verdict: Verdict) -> None:
    """Print the verdict, and for each wrong output the kernel that computed it."""
    print(verdict.text())
    for output in verdict.outputs:
        if not output.ok:
            print(f"  `{output.name}` is computed by {origin(package, output.name)}")


def print_host_verdict(verdict: Verdict) -> None:
    """Print whether a host program agrees with the reference, which evaluated its segments."""
    if verdict.ok:
        checked = verdict.coverage.text()
        print(f"host program verified, no kernel was run (checked: {checked})")
    else:
        print(verdict.text())


def origin(package: Package, name: str) -> str:
    """Return the segment and kernel that write an output."""
    from fusec.hostir.instructions import Alias

    program = package.program
    # A view of another buffer is written under that buffer's name.
    of = {i.buffer: i.of for i in program.host.instructions if isinstance(i, Alias)}
    names = {name}
    while name in of:
        name = of[name]
        names.add(name)
    kinds = {s.name: s.scheduler for s in program.segmented.segments}
    for launch in reversed(program.host.launches):
        if names & {*launch.written}:
            return f"segment {launch.segment} ({kinds[launch.segment]}), kernel {launch.kernel}"
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
    """Return an array element in readable form."""
    number = value.item()
    if isinstance(number, complex):
        sign = "-" if str(number.imag).startswith("-") else "+"
        return f"{number.real:.6g}{sign}{abs(number.imag):.6g}i"
    if isinstance(number, (bool, int)):
        return str(number).lower()
    return f"{float(number):.6g}"


def no_array(path: str, name: str, arrays: Mapping[str, Any]) -> FusecError:
    """Return the error for a missing array, which lists the ones in the file."""
    return FusecError(
        f"`{path}` has no array `{name}`", help=f"it has {', '.join(sorted(arrays)) or 'none'}"
    )
