"""Counts which lines of device headers and kernels run on the host, and in which tests.

`python tests/lines_on_cpu.py RECORD.json [pytest arguments]` runs tests and writes, for each device
header and template, in which tests each of its lines ran; `--report RECORD.json` prints the lines
that no test reaches. A line that belongs to a debug build counts where one was built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cuda_on_cpu
import pytest
from paths import ROOT, TESTS

TEMPLATES = ROOT / "fusec" / "templates"
MADE_WRONG = re.compile(r"seen|wrong|dies|notice|mistake|broken")
"""Tests of edited kernels, whose lines are not those of the headers."""
PER_FUNCTION = int(os.environ.get("FUSEC_COUNTED_VARIANTS", "1000"))
"""Variants of a test that are counted, the first ones."""
Lines = dict[str, dict[int, set[str]]]
"""By file and line the tests that ran it; none of a line that was compiled and never ran."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests of wrong kernels, and most variants of the others."""
    taken: dict[str, int] = defaultdict(int)
    kept = list[pytest.Item]()
    for item in items:
        function = item.nodeid.split("[")[0]
        if not MADE_WRONG.search(function) and taken[function] < PER_FUNCTION:
            taken[function] += 1
            kept.append(item)
    items[:] = kept


def counts_of(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield file, line and count of each line that a library has, from its counters."""
    command = ["gcov", "--json-format", "--stdout", path.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent)
    for text in done.stdout.splitlines():
        for file in json.loads(text)["files"]:
            name = Path(file["file"]).name
            if name.endswith((".cuh", ".cu")):
                yield from ((name, line["line_number"], line["count"]) for line in file["lines"])


def template_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the statements of a template: line, and the parts of its text that are as written."""
    text = re.sub(r"\{#.*?#\}", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0].strip()
        parts = [part for part in re.split(r"\{\{.*?\}\}", code) if part.strip()]
        if not code.startswith(("{%", "#")) and len(re.sub(r"\W", "", "".join(parts))) >= 6:
            yield number, parts


@cache
def statements(template: str) -> dict[str, list[tuple[int, list[str]]]]:
    """Return the statements of a template and of those that it imports."""
    text = (TEMPLATES / template).read_text()
    found = {template: list(template_lines(text))}
    for other in re.findall(r'import "(\w+\.j2)"', text):
        found |= statements(other)
    return found


def has(text: str, parts: list[str]) -> bool:
    """Return whether a kernel's text has the parts of a statement near each other, in order."""
    first = text.find(parts[0])
    while first >= 0:
        at = first + len(parts[0])
        for part in parts[1:]:
            at = text.find(part, at, at + NEAR)
            if at < 0:
                break
            at += len(part)
        else:
            return True
        first = text.find(parts[0], first + 1)
    return False


NEAR = 120
"""Letters that what is filled in may have."""
MOST_TESTS = 40
"""Tests that are kept of a line."""


def add_kernel(lines: Lines, text: str, template: str, ran: dict[int, int], test: str) -> None:
    """Add the lines of the templates whose text a kernel has."""
    code = " ".join(line.strip() for n, line in enumerate(text.splitlines(), 1) if ran.get(n, 1))
    for name, own in statements(template).items():
        for number, parts in own:
            found = lines[name].setdefault(number, set())
            if len(found) < MOST_TESTS and has(code, parts):
                found.add(test)


def collect(folder: Path, tests: dict[str, str]) -> Lines:
    """Return what the counters of a run say; tests: by folder of a build."""
    lines: Lines = defaultdict(dict)
    for path in sorted(folder.rglob("*.gcda")):
        test = tests.get(str(path.parent), path.parent.name)
        kernels: dict[str, dict[int, int]] = defaultdict(dict)
        for name, number, count in counts_of(path):
            if name.endswith(".cu"):
                kernels[name][number] = max(count, kernels[name].get(number, 0))
                continue
            found = lines[name].setdefault(number, set())
            if count and len(found) < MOST_TESTS:
                found.add(test)
        for name, ran in kernels.items():
            text, template = path.parent / name, path.parent / f"{name}.template"
            if text.exists():
                add_kernel(lines, text.read_text(), template.read_text(), ran, test)
    return lines


BUILDS = "FUSEC_COUNTED_BUILDS"
"""Path of the file that says in which test each folder's kernels were built."""
BUILT: dict[str, str] = {}


def pytest_configure() -> None:
    """Note in which test kernels are built, and keep their texts beside their counters."""
    build_all = cuda_on_cpu.build_all

    def noted(kernels: Any, folder: Path, *rest: Any, **others: Any) -> Any:
        now = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
        BUILT.setdefault(str(folder), now)
        for kernel, text in kernels:
            if kernel.template:
                (folder / f"{kernel.name}.cu").write_text(text)
                (folder / f"{kernel.name}.cu.template").write_text(f"{kernel.template}.cu.j2")
        return build_all(kernels, folder, *rest, **others)

    cuda_on_cpu.build_all = noted


def pytest_sessionfinish() -> None:
    """Write in which test each folder's kernels were built."""
    Path(os.environ[BUILDS]).write_text(json.dumps(BUILT))


def run(record: Path, arguments: list[str]) -> None:
    """Run tests and write which lines ran in which."""
    with tempfile.TemporaryDirectory(prefix="lines.") as scratch:
        builds = Path(scratch) / "builds.json"
        environment = {**os.environ, cuda_on_cpu.COUNTED: "1", BUILDS: str(builds)}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(TESTS)])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "lines_on_cpu", *arguments]
        command += [f"--basetemp={scratch}/tests", "-p", "no:cacheprovider", "-n", "0"]
        subprocess.run(command, env=environment, cwd=ROOT)
        found = collect(Path(scratch), json.loads(builds.read_text()))
    data = {
        name: {str(n): sorted(tests) for n, tests in sorted(numbers.items())}
        for name, numbers in sorted(found.items())
    }
    record.write_text(json.dumps(data, indent=0) + "\n")


def unreached(record: dict[str, dict[str, list[str]]]) -> Iterator[tuple[str, int, str]]:
    """Yield the lines that no test reaches: file, number and text."""
    for path in sorted([*(TEMPLATES / "device").glob("*.cuh"), *TEMPLATES.glob("*.j2")]):
        text = path.read_text().splitlines()
        if path.name not in record and path.suffix == ".cuh":
            yield path.name, 0, "no test includes it"
        for number, tests in record.get(path.name, {}).items():
            if not tests and int(number) <= len(text):
                yield path.name, int(number), text[int(number) - 1].strip()


def main() -> None:
    """Run tests, or print the report of a record."""
    if sys.argv[1] == "--report":
        for file, number, line in unreached(json.loads(Path(sys.argv[2]).read_text())):
            print(f"{file}:{number}: {line}")
    else:
        run(Path(sys.argv[1]), sys.argv[2:])


if __name__ == "__main__":
    main()
