"""Runs every kernel of products and attention under compute-sanitizer, many at once.

python tests/sanitize.py [--tools memcheck,racecheck,synccheck] [--jobs N] [--seconds S] [NAME ...]

Kernels are debug builds. Prints what the tools report, and which kernels are clean; the exit code
is 1 where one is not. Each kernel has a process of its own, which may take S seconds. It needs a
GPU and CUDA's toolkit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu_variants import VARIANTS
from paths import TESTS

TOOLS: dict[str, tuple[str, ...]] = {
    # The bindings of CUDA ask the driver for functions that it may not have.
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
    "synccheck": (),
}
FOUND = 9
"""The exit code of a tool that has found something."""
TEST = TESTS / "gpu" / "test_gpu_sanitized.py"
SHOWN = 40
"""Lines of a report that are printed."""


def command(tool: str, name: str) -> list[str]:
    """Return what watches two launches of a kernel."""
    watched = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    watched += ["-p", "no:xdist", f"{TEST}::test_launches[{name}]"]
    given = ("--tool", tool, *TOOLS[tool], "--error-exitcode", str(FOUND))
    return ["compute-sanitizer", *given, "--print-limit", "20", *watched]


def watch(tool: str, name: str, seconds: float) -> list[str]:
    """Return what is wrong with a kernel, as a tool says it; nothing where it is clean."""
    given: dict[str, Any] = {"capture_output": True, "text": True, "timeout": seconds}
    try:
        done = subprocess.run(command(tool, name), env={**os.environ, "FUSEC_DEBUG": "1"}, **given)
    except subprocess.TimeoutExpired:
        return [f"not done within {seconds:g} s"]
    if done.returncode == 0:
        return []
    lines = done.stdout.splitlines()
    reported = [line for line in lines if line.startswith("=========")]
    return (reported if done.returncode == FOUND else lines + done.stderr.splitlines())[:SHOWN]


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch the kernels that are named, or all."""
    parser = argparse.ArgumentParser(prog="tests/sanitize.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tools", type=lambda text: text.split(","), default=list(TOOLS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args(arguments)
    unknown = [*({*given.names} - {*VARIANTS}), *({*given.tools} - {*TOOLS})]
    if unknown:
        parser.error(f"no `{unknown[0]}`: one of {', '.join((*VARIANTS, *TOOLS))}")
    if shutil.which("compute-sanitizer") is None:
        print("environment: compute-sanitizer is not on PATH", file=sys.stderr)
        return 4
    every = [(tool, name) for tool in given.tools for name in given.names or VARIANTS]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda each: watch(*each, given.seconds), every))
    for (tool, name), lines in zip(every, found, strict=True):
        print(f"{tool} {name}: {'clean' if not lines else ''}", *lines, sep="\n  " if lines else "")
    dirty = sum(map(bool, found))
    print(f"{len(every) - dirty} of {len(every)} clean")
    return 1 if dirty else 0


if __name__ == "__main__":
    sys.exit(main())
