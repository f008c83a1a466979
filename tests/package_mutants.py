"""Draws mutants of the package by rule and records which test of a default run notices each.

`python tests/package_mutants.py RECORD [--count N] [--seed SEED]`: each mutant is one place of a
module or of a kernel's template changed by one rule, in a copy of the checkout. Tests that are near
to it run until one fails that passes without the change. RECORD is written after each mutant, and
says by `argued` why one that lives does no harm; those that die or are argued do not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from paths import ROOT

SEED, COUNT = 20261129, 60
FILES_AT_ONCE, ROUNDS = 3, 3
"""Test files of a process, and processes for a mutant: the nearest tests come first."""
SECONDS = 240
"""For the tests of one process; what takes longer hangs, if it does not without the mutant."""
HANGS = "hangs"
LAST = ("schedule/test_spaces.py", "commands/test_golden.py::test_golden_files")
"""Tests of all that kernels and examples need, after those that are near."""

COMPARED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in",
    "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
COMPUTED = {"+": "-", "-": "+", "*": "+", "//": "*", "%": "//", "|": "&", "&": "|"}
IN_TEMPLATES: dict[str, tuple[str, str]] = {
    "test": (r"(?<=\{% if )(?!not )(?=\w)", "not "),
    "bound": (r"(?<= )<(?= )", "<="),
    "offset": (r"(?<=\w) \+ (?=\w)", " - "),
    "factor": (r" \* (?=k[A-Z])", " + "),
    "barrier": (r"__syncthreads\(\);", ""),
}
"""Where a rule applies in a line of a template, and what stands there instead."""


@dataclass(frozen=True)
class Place:
    """A part of a file that a rule replaces; around: the function that it is of."""

    file: str
    rule: str
    start: int
    end: int
    new: str
    around: str = ""


class Places(ast.NodeVisitor):
    """Collects the places of a module to which rules apply."""

    def __init__(self, file: str, text: str) -> None:
        """Begin without any."""
        self.file, self.text, self.around = file, text, ""
        self.found: list[Place] = []
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode()))
        self.starts, self.bytes = starts, text.encode()

    def ends(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the first byte of a node, and the one after its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def add(self, rule: str, start: int, end: int, new: str) -> None:
        """Note a place inside of a function."""
        if self.around:
            self.found.append(Place(self.file, rule, start, end, new, self.around))

    def between(self, rule: str, left: ast.expr, right: ast.expr, to: dict[str, str]) -> None:
        """Note the operator between two operands."""
        start, end = self.ends(left)[1], self.ends(right)[0]
        between = self.bytes[start:end].decode()
        words = sorted(to, key=len, reverse=True)
        found = re.search("|".join(map(re.escape, words)), between)
        if found is not None:
            new = between[: found.start()] + to[found[0]] + between[found.end() :]
            self.add(rule, start, end, new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit the statements of a function, not its defaults and annotations."""
        around, self.around = self.around, node.name
        for line in node.body:
            self.visit(line)
        self.around = around

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts: before Python 3.12 their parts have no places."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave `strict`: it asserts what holds."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Note a comparison of two values."""
        if len(node.ops) == 1:
            self.between("comparison", node.left, node.comparators[0], COMPARED)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Note an operator of numbers or sets."""
        if not isinstance(node.left, ast.Constant | ast.JoinedStr):
            self.between("operator", node.left, node.right, COMPUTED)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Note the first `and` or `or`."""
        self.between("logic", node.values[0], node.values[1], {"and": "or", "or": "and"})
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Note a `not`."""
        if isinstance(node.op, ast.Not):
            self.add("not", self.ends(node)[0], self.ends(node.operand)[0], "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Note a number or a truth value."""
        if isinstance(node.value, int):
            new = not node.value if isinstance(node.value, bool) else node.value + 1
            self.add("constant", *self.ends(node), str(new))

    def visit_If(self, node: ast.If) -> None:
        """Note the test of a branch that returns early or does something."""
        start, end = self.ends(node.test)
        self.add("branch", start, end, f"not ({self.bytes[start:end].decode()})")
        self.generic_visit(node)


def in_template(file: str, text: str) -> Iterator[Place]:
    """Yield the places of a template to which rules apply."""
    for rule, (pattern, new) in IN_TEMPLATES.items():
        for match in re.finditer(pattern, text):
            start = len(text[: match.start()].encode())
            yield Place(file, rule, start, start + len(match[0].encode()), new)


@dataclass
class Mutant:
    """A mutant as it is recorded; dies: the test that notices it, empty where none does."""

    file: str
    rule: str
    line: int
    before: str
    after: str
    dies: str = ""
    argued: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Return what tells it from others, on whatever line it is."""
        return self.file, self.rule, self.before, self.after


def mutant_of(place: Place) -> tuple[Mutant, bytes]:
    """Return a mutant and the text of its file."""
    old = (ROOT / place.file).read_bytes()
    new = old[: place.start] + place.new.encode() + old[place.end :]
    line = old[: place.start].count(b"\n")
    shown = (text.split(b"\n")[line].strip().decode() for text in (old, new))
    return Mutant(place.file, place.rule, line + 1, *shown), new


def files() -> list[str]:
    """Return the modules of the package and the templates."""
    found = [f for f in sorted((ROOT / "fusec").rglob("*")) if f.suffix in (".py", ".j2")]
    return [str(path.relative_to(ROOT)) for path in found]


def places_of(file: str) -> list[Place]:
    """Return the places of a file to which rules apply."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".j2"):
        return list(in_template(file, text))
    visitor = Places(file, text)
    visitor.visit(ast.parse(text))
    return visitor.found


def drawn(count: int, seed: int) -> Iterator[Place]:
    """Yield a place of each of some files: large ones do not have all of them.

    By digests of what they are: an edit elsewhere changes no other mutant.
    """

    def order(*parts: object) -> bytes:
        return sha256(repr((seed, *parts)).encode()).digest()

    left = count
    for file in sorted(files(), key=order):
        found = places_of(file)
        if found and left:
            yield min(found, key=lambda place: order(mutant_of(place)[0].key))
            left -= 1


@cache
def tests() -> dict[str, str]:
    """Return the test files with their texts, and those of the helpers that they import."""
    helpers = {f.stem: f.read_text(encoding="utf-8") for f in (ROOT / "tests").glob("*.py")}
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"^from (\w+) import", text, re.MULTILINE)
        near = [text, *(helpers[name] for name in named if name in helpers)]
        found[str(path.relative_to(ROOT / "tests"))] = "\n".join(near)
    return found


def words_of(test: str) -> frozenset[str]:
    """Return the words that name a test file."""
    return frozenset(Path(test).stem.split("_"))


@cache
def named_so() -> Counter[str]:
    """Return how many test files have a word in their name: a rare one says more."""
    return Counter(word for test in tests() for word in words_of(test))


def nearest(place: Place) -> list[str]:
    """Return test files, those first that name the module or the function, or lie beside it."""
    module = place.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    path = Path(place.file)
    if path.suffix == ".j2":
        module = path.name.partition(".")[0]
    words = {*re.split(r"[_/.]", path.stem)}
    function = re.compile(rf"\b{place.around.strip('_')}\b") if len(place.around) > 4 else None

    def score(test: str) -> float:
        text = tests()[test]
        common = sum(12 / (1 + named_so()[word]) for word in words & words_of(test))
        imported = bool(re.search(rf"\b{re.escape(module)}\b", text))
        named = function is not None and function.search(text) is not None
        beside = len(path.parts) > 2 and test.startswith(f"{path.parts[1]}/")
        return 8 * imported + 4 * named + 2 * beside + common - len(text) / 1e5

    others = [test for test in tests() if test not in LAST and not test.startswith("gpu/")]
    most = FILES_AT_ONCE * ROUNDS - len(LAST)
    return [*sorted(others, key=score, reverse=True)[:most], *LAST]


def run(checkout: Path, names: list[str]) -> str:
    """Return the first test that fails, or HANGS; empty where all pass."""
    command = (
        *(sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:xdist"),
        *("-m", "not gpu and not nightly", "--tb", "no", *(f"tests/{name}" for name in names)),
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "FUSEC_CACHE_DIR": f"{checkout}/cache",
    }
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return HANGS
    if done.returncode in (0, 5):
        return ""
    found = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else "pytest does not start"


class Trial:
    """A copy of the checkout in which mutants live one after the other."""

    def __init__(self, folder: Path) -> None:
        """Copy what git knows."""
        self.checkout = folder / "checkout"
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        for name in listed:
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.checkout / name)
        self.broken = set[str]()  # test files that fail, or take too long, without a mutant

    def fate(self, place: Place, text: bytes) -> str:
        """Return the test by which a mutant dies; empty if it lives."""
        near = nearest(place)
        for first in range(0, len(near), FILES_AT_ONCE):
            names = [n for n in near[first : first + FILES_AT_ONCE] if n not in self.broken]
            while names and (failed := self.failing(place, text, names)):
                file = failed.partition("::")[0]
                suspects = [n for n in names if n.partition("::")[0] == file] or names
                if not run(self.checkout, suspects):
                    return failed
                self.broken.update(suspects)
                names = [name for name in names if name not in suspects]
        return ""

    def failing(self, place: Place, text: bytes, names: list[str]) -> str:
        """Return the first test that fails in the mutant."""
        (self.checkout / place.file).write_bytes(text)
        try:
            return run(self.checkout, names)
        finally:
            (self.checkout / place.file).write_bytes((ROOT / place.file).read_bytes())


def main() -> int:
    """Run the mutants that a record lacks; 1 if one lives that nothing is said about."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    kept: dict[str, Any] = (
        json.loads(arguments.record.read_text()) if arguments.record.exists() else {"mutants": []}
    )
    known = {m.key: m for m in (Mutant(**each) for each in kept["mutants"])}
    found: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        for number, place in enumerate(drawn(arguments.count, arguments.seed), start=1):
            mutant, text = mutant_of(place)
            if mutant.key in known and (known[mutant.key].dies or known[mutant.key].argued):
                mutant = known[mutant.key]
            else:
                mutant.dies = trial.fate(place, text)
            found.append(mutant)
            print(
                f"{number}: {mutant.file}:{mutant.line} {mutant.dies or mutant.argued or 'LIVES'}",
                flush=True,
            )
            fates = Counter("died" if m.dies else "argued" if m.argued else "lived" for m in found)
            listed = [asdict(m) for m in found]
            record = {"seed": arguments.seed, **fates, "mutants": listed}
            arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(not (m.dies or m.argued) for m in found))


if __name__ == "__main__":
    sys.exit(main())
