"""`fusec diff`: two versions of fusions by traffic, predicted time, kernels and CUDA source."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fusec.commands.report import count
from fusec.commands.terminal.diagnose import Report
from fusec.commands.versions import Kernel, Version, holds_golden, versions_of
from fusec.dataclasses import dataclass, replace
from fusec.escape import visible
from fusec.explain.units import bytes_text, time_text
from fusec.options import CompileOptions

SAME, DIFFERS, ADDED, REMOVED = "same", "differs", "added", "removed"


@dataclass(frozen=True)
class KernelChange:
    """A kernel before and after; diff: of its source."""

    before: Kernel | None
    after: Kernel | None
    diff: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return its current name, or its former one if it was removed."""
        kernel = self.after or self.before
        assert kernel is not None
        return kernel.name

    @property
    def status(self) -> str:
        """Return `same`, `differs`, `added` or `removed`."""
        if self.before is None or self.after is None:
            return ADDED if self.before is None else REMOVED
        built = self.before.registers, self.after.registers
        same = not self.diff and (None in built or built[0] == built[1])
        return SAME if same else DIFFERS

    def facts(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "name": self.name, "status": self.status, "diff": list(self.diff),
            "scheduler": _both(self.before, self.after, lambda k: k.scheduler),
            "registers": _both(self.before, self.after, lambda k: k.registers),
        }  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A fusion before and after, for one target; one of the two may be missing."""

    before: Version | None
    after: Version | None
    kernels: tuple[KernelChange, ...] = ()

    @property
    def status(self) -> str:
        """Return `same`, `differs`, `added` or `removed`; unrecorded fields do not differ."""
        if self.before is None or self.after is None:
            return ADDED if self.before is None else REMOVED
        figures = (
            (self.before.bytes, self.after.bytes),
            (self.before.compulsory_bytes, self.after.compulsory_bytes),
            (self.before.seconds, self.after.seconds),
        )
        moved = any(None not in pair and pair[0] != pair[1] for pair in figures)
        return DIFFERS if moved or any(k.status != SAME for k in self.kernels) else SAME

    @property
    def version(self) -> Version:
        """Return the version after, or the only one."""
        found = self.after or self.before
        assert found is not None
        return found

    def facts(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        sides = self.before, self.after
        return {
            "fusion": self.version.fusion, "target": self.version.target, "status": self.status,
            "bytes": _both(*sides, lambda v: v.bytes),
            "compulsory_bytes": _both(*sides, lambda v: v.compulsory_bytes),
            "predicted_seconds": _both(*sides, lambda v: v.seconds),
            "kernels": [kernel.facts() for kernel in self.kernels],
        }  # fmt: skip


def _both(before: Any, after: Any, of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a figure of both sides as a JSON object."""
    return {
        "before": None if before is None else of(before),
        "after": None if after is None else of(after),
    }


def diff(before: str, after: str, options: CompileOptions, report: Report) -> int:
    """Compare two files or folders; print the differences, and return 1 if there are any."""
    pairs = compare(*_sides(before, after, options))
    report.facts["status"] = DIFFERS if any(p.status != SAME for p in pairs) else SAME
    report.facts["pairs"] = [pair.facts() for pair in pairs]
    for pair in pairs:
        print(visible(f"{pair.version.fusion} {pair.version.target}: {pair.status}"))
        for line in _lines(pair):
            print(visible(line))
    return int(report.facts["status"] != SAME)


def _sides(before: str, after: str, options: CompileOptions) -> tuple[list[Version], list[Version]]:
    """Return both sides; a file is planned for the targets of a folder on the other side.

    Against golden files it is planned as they are, without measured schedules.
    """
    if any(holds_golden(path) for path in (before, after)):
        options = replace(options, untuned=True)
    found = dict[str, list[Version]]()
    for path in sorted(dict.fromkeys((before, after)), key=lambda p: not Path(p).is_dir()):
        if found and not options.targets_given and not Path(path).is_dir():
            (known,) = found.values()
            archs = tuple(dict.fromkeys(v.target for v in known))
            options = replace(options, targets=archs)
        found[path] = versions_of(path, options)
    return found[before], found[after]


def compare(before: Sequence[Version], after: Sequence[Version]) -> list[Pair]:
    """Pair the fusions of both sides by name and target; if each side has only one, pair these."""
    one = len({v.fusion for v in before}) == len({v.fusion for v in after}) == 1
    old = {("" if one else v.fusion, v.target): v for v in before}
    new = {("" if one else v.fusion, v.target): v for v in after}
    return [_pair(old.get(key), new.get(key)) for key in dict.fromkeys((*old, *new))]


def _pair(before: Version | None, after: Version | None) -> Pair:
    if before is None or after is None:
        return Pair(before, after)
    old, new = _by_own_name(before), _by_own_name(after)
    changes = (_change(old.get(key), new.get(key)) for key in dict.fromkeys((*old, *new)))
    return Pair(before, after, tuple(changes))


def _by_own_name(version: Version) -> Mapping[str, Kernel]:
    """Return kernels by their names without the fusion's name, which may differ."""
    return {k.name.removeprefix(version.fusion): k for k in version.kernels}


def _change(before: Kernel | None, after: Kernel | None) -> KernelChange:
    if before is None or after is None:
        return KernelChange(before, after)
    old, new = before.text.splitlines(), after.text.splitlines()
    names = f"before/{before.name}.cu", f"after/{after.name}.cu"
    lines = difflib.unified_diff(old, new, *names, lineterm="", n=2)
    return KernelChange(before, after, tuple(lines))


def _lines(pair: Pair) -> Iterator[str]:
    """Yield the text output for a pair: figures that differ, then kernels, then their diffs."""
    before, after = pair.before, pair.after
    if before is None or after is None or pair.status == SAME:
        return
    yield from _figure("bytes", before.bytes, after.bytes, bytes_text)
    yield from _figure(
        "compulsory traffic", before.compulsory_bytes, after.compulsory_bytes, bytes_text
    )
    yield from _figure("predicted", before.seconds, after.seconds, time_text)
    numbers = len(before.kernels), len(after.kernels)
    if numbers[0] != numbers[1]:
        yield f"  kernels       {numbers[0]} -> {numbers[1]}"
    for kernel in pair.kernels:
        if kernel.status != SAME:
            yield f"  {kernel.name}: {_about(kernel)}"
    for kernel in pair.kernels:
        yield from kernel.diff


def _figure(
    name: str, before: float | None, after: float | None, text: Callable[[float], str]
) -> Iterator[str]:
    if before is None or after is None or before == after:
        return
    by = f" ({after / before - 1:+.1%})" if before else ""
    yield f"  {name:<12}  {text(before)} -> {text(after)}{by}"


def _about(change: KernelChange) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        kernel = before or after
        assert kernel is not None
        return f"{change.status} ({kernel.scheduler})"
    told = list[str]()
    if before.scheduler != after.scheduler:
        told.append(f"{before.scheduler} -> {after.scheduler}")
    if None not in (before.registers, after.registers) and before.registers != after.registers:
        told.append(f"{before.registers} -> {after.registers} registers")
    if change.diff:
        edited = sum(line[0] in "+-" for line in change.diff) - 2
        told.append(f"{count(edited, 'line')} of text")
    return ", ".join(told)
