"""Draws wrong device headers and templates by rule, and records which of them tests notice.

`python tests/device_mutants.py LINES.json RECORD.json [FIRST [LAST]]`: each mutant is one place of a
header or template, changed by one rule, in a copy of the tree. LINES.json says in which tests a line
runs (lines_on_cpu.py); these are run until one fails. What lives is to be argued singly.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

from mutants import RULES, changed

SEED = 20261129
COUNT = 60
SECONDS = 240
"""Of a mutant's tests, after which it counts as alive."""
AT_ONCE = 6
"""Tests that are run in one process."""
ROOT = Path(__file__).parents[1]
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


def fate(mutant: Mutant, tests: list[str], tree: Path) -> str:
    """Return how a mutant dies: the test that fails and its message; nothing where it lives."""
    path = tree / "fusec" / "templates" / mutant.file
    original = path.read_text()
    lines = original.splitlines()
    lines[mutant.number - 1] = mutant.after
    path.write_text("\n".join([*lines, ""]))
    try:
        return _failure(tests, tree)
    finally:
        path.write_text(original)


def _failure(tests: list[str], tree: Path) -> str:
    end = time.monotonic() + SECONDS
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    for first in range(0, len(tests), AT_ONCE):
        left = end - time.monotonic()
        if left < 1:
            return ""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--tb=line",
            "-p",
            "no:cacheprovider",
        ]
        command += ["-n", "0", "-m", "nightly or not nightly", *tests[first : first + AT_ONCE]]
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=left
            )
        except subprocess.TimeoutExpired:
            return "no end"
        if done.returncode == 1:
            told = [t for t in done.stdout.splitlines() if t.startswith(("E ", "FAILED", "/"))]
            return " | ".join(told)[:400] or done.stdout[-400:]
        assert done.returncode == 0, done.stdout[-2000:]
    return ""


def main() -> None:
    """Write the record, after each mutant."""
    lines = json.loads(Path(sys.argv[1]).read_text())
    record, (first, last) = Path(sys.argv[2]), ([int(a) for a in sys.argv[3:]] + [0, COUNT])[:2]
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".gpu", "__pycache__"))
        for number, mutant in enumerate(draw(COUNT, SEED)):
            if not first <= number < last:
                continue
            tests = tests_of(mutant, lines)
            dies = fate(mutant, tests, tree)
            found.append({"number": number, **asdict(mutant), "tests": len(tests), "dies": dies})
            print(
                number, mutant.file, mutant.number, mutant.rule, len(tests), dies[:80], flush=True
            )
            record.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
