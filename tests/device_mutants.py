"""Draws wrong device headers and templates by rule, and records which of them tests notice.

`python tests/device_mutants.py LINES.json RECORD.json [FIRST [LAST]]`: each mutant is one place of
a header or template, changed by one rule, in a copy of the tree. LINES.json says in which tests a
line runs (lines_on_cpu.py); these are run until one fails. What lives is to be argued singly. With
FUSEC_TESTS_SHARED set to a folder, all runs share the emulator that one of them compiles.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

import pytest
from mutants import RULES, changed
from paths import ROOT

SEED = 20261129
COUNT = 60
SECONDS = 400
"""Of a mutant's tests, after which it counts as alive."""
COPY = "FUSEC_MUTANTS_COPY"
"""Set in a copy of the tree."""
TEMPLATES = ROOT / "fusec" / "templates"
NO_CODE = ("//", "#", '"', "static_assert", "template", "{%", "constexpr", "inline constexpr")


@dataclass(frozen=True)
class Mutant:
    """A changed line of a header or template."""

    file: str
    number: int
    rule: str
    before: str
    after: str


@cache
def places(rule: str) -> dict[str, list[Mutant]]:
    """Return the mutants of a rule by file."""
    found: dict[str, list[Mutant]] = {}
    for path in sorted([*TEMPLATES.glob("*.j2"), *TEMPLATES.glob("device/*.cuh")]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0].rstrip()
            if line.lstrip().startswith(NO_CODE) or "asm" in line or "__device__" in line:
                continue
            for after in changed(rule, code):
                name = str(path.relative_to(TEMPLATES))
                found.setdefault(name, []).append(Mutant(name, number, rule, line, after))
    return found


def draw(count: int, seed: int) -> Iterator[Mutant]:
    """Yield distinct mutants: a rule, then a file, then a place."""
    random, seen = Random(seed), set[Mutant]()
    while len(seen) < count:
        by_file = places(random.choice(list(RULES)))
        mutant = random.choice(by_file[random.choice(sorted(by_file))])
        if mutant not in seen:
            seen.add(mutant)
            yield mutant


def tests_of(mutant: Mutant, lines: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return the tests in which the line of a mutant runs, or the nearest line that is counted."""
    own = lines.get(Path(mutant.file).name, {})
    before = [int(n) for n in own if int(n) <= mutant.number]
    return own[str(max(before))] if before else []


def fate(mutant: Mutant, tests: list[str]) -> str:
    """Return how a mutant dies: the test that fails and its message; nothing where it lives."""
    path = TEMPLATES / mutant.file
    original = path.read_text()
    lines = original.splitlines()
    lines[mutant.number - 1] = mutant.after
    path.write_text("\n".join([*lines, ""]))
    try:
        end = time.monotonic() + SECONDS
        for test in tests:
            failure = failure_of(test, end - time.monotonic())
            if failure or time.monotonic() > end:
                return failure
        return ""
    finally:
        path.write_text(original)


def failure_of(test: str, seconds: float) -> str:
    """Return how a test fails, in a process that has imported what it needs already."""
    with tempfile.NamedTemporaryFile("r+") as said:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(said.fileno(), 1)
            given = ["-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-n", "0"]
            code = pytest.main([*given, "-m", "nightly or not nightly", test])
            sys.stdout.flush()
            os._exit(int(code))
        end, status = time.monotonic() + max(seconds, 1.0), 0
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"no end: {test}"
            time.sleep(0.1)
        status = os.waitstatus_to_exitcode(ended[1])
        said.seek(0)
        text = said.read()
    if status == 0:
        return ""
    told = [line for line in text.splitlines() if line.startswith(("E ", "FAILED"))]
    return f"{test}: " + (" | ".join(told)[:400] if status == 1 else f"{status} {text[-300:]}")


def main() -> None:
    """Write the record, after each mutant; in a copy of the tree, whose files are changed."""
    if COPY not in os.environ:
        with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
            tree = Path(folder) / "tree"
            left_out = shutil.ignore_patterns(".git", ".gpu", "__pycache__")
            shutil.copytree(ROOT, tree, ignore=left_out)
            environment = {**os.environ, COPY: "1", "PYTHONPATH": str(tree)}
            paths = [str(Path(a).resolve()) for a in sys.argv[1:3]]
            command = [sys.executable, str(tree / "tests" / Path(__file__).name), *paths]
            subprocess.run([*command, *sys.argv[3:]], env=environment, cwd=tree, check=True)
        return
    lines = json.loads(Path(sys.argv[1]).read_text())
    record, (first, last) = Path(sys.argv[2]), ([int(a) for a in sys.argv[3:]] + [0, COUNT])[:2]
    found: list[dict[str, object]] = []
    for number, mutant in enumerate(draw(COUNT, SEED)):
        if first <= number < last:
            tests = tests_of(mutant, lines)
            dies = fate(mutant, tests)
            found.append({"number": number, **asdict(mutant), "tests": tests, "dies": dies})
            print(number, mutant.file, mutant.number, mutant.rule, dies[:120], flush=True)
            record.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
