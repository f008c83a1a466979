"""Renders many kernels at two revisions and compares them: texts, manifests' facts and decisions.

    python tests/rendered.py [--against REVISION|FILE] [--random N] [--graphs FOLDER]

Rendered are the kernels of all examples and of the tests' corpus for each target, a covering set
of every family's schedules (tests/spaces.py), N random fusions of every theme of the fuzzer, and
the graphs of a folder. Without --against, what is rendered is printed as JSON, which
a later comparison takes as FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("sm_90a", "sm_80", "sm_120")
THEMES = ("contractions", "general")


def entries(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Iterator[Any]]]]:
    """Yield the name of each program, and what returns its kernels as JSON."""
    from spaces import CASES

    themes_of = of_tools("fuzzing", "fuzz").themes_of
    files = [
        *sorted((ROOT / "examples").rglob("*.yaml")),
        *sorted((ROOT / "tests").rglob("corpus/*.yaml")),
    ]
    if arguments.graphs:
        files += sorted(Path(arguments.graphs).rglob("*.py")) + sorted(
            Path(arguments.graphs).rglob("*.yaml")
        )
    for file in files:
        shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
        for target in TARGETS:
            yield f"{shown} {target}", lambda f=file, t=target: of_file(f, t)
    for name in CASES:
        yield f"space {name}", lambda n=name: of_space(n)
    for theme in THEMES:
        for number in range(arguments.random):
            themes = themes_of([theme])
            yield f"{theme} {number}", lambda n=number, t=themes: of_random(n, t)


def of_tools(name: str, old: str) -> Any:
    """Return a module of the tools, which are part of the package at older revisions."""
    try:
        return import_module(f"tools.{name}")
    except ModuleNotFoundError:
        return import_module(f"fusec.dev.{old}")


def of_file(file: Path, target: str) -> Iterator[Any]:
    """Yield the kernels of each program of a file."""
    from fusec import driver
    from fusec.options import CompileOptions

    for program in driver.programs(str(file), CompileOptions(targets=(target,))):
        for part in program.parts:
            yield from of_program(part)


def of_random(number: int, themes: Any) -> Iterator[Any]:
    """Yield the kernels of a random fusion."""
    from fusec import driver
    from fusec.options import CompileOptions

    draw_fusion = of_tools("draw", "draw").draw_fusion

    fusion = draw_fusion(7, number, themes)
    yield from of_program(driver.Compilation(fusion, CompileOptions(targets=("sm_90a",))))


def of_program(program: Any) -> Iterator[Any]:
    """Yield the kernels of a program in launch order."""
    for plan, sources in zip(program.plans, program.sources, strict=True):
        yield from (kernel(plan, source) for source in sources)


def of_space(name: str) -> Iterator[Any]:
    """Yield the kernels of schedules that cover a space."""
    from spaces import CASES, space_of

    from fusec.codegen.dispatch import plan_sources
    from fusec.schedule.registry import find_scheduler

    space, case = space_of(name), CASES[name]
    family: Any = find_scheduler(case.scheduler)
    problem = family.built(space.fusion)
    for record in space.covering:
        plan = family.plan(problem, record, case.gpu)
        yield from (kernel(plan, source) for source in plan_sources(plan))


def kernel(plan: Any, source: Any) -> dict[str, Any]:
    """Return what is compared of a kernel."""
    from fusec.commands.folder.manifest import parameters_of

    return {
        "parameters": parameters_of(plan),
        "arguments": [repr(a) for a in source.kernel.arguments],
        "alignments": facts(source),
        "text": source.text,
    }


def facts(source: Any) -> Any:
    """Return the alignment of each pointer."""
    found = getattr(source, "alignments", None)
    if found is None:  # of a revision that reads it off the text
        found = import_module("fusec.codegen.alignment").alignments(source.kernel, source.text)
    return dict(found)


def rendered(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the kernels of every program, or the name of the error that it ends in."""
    found: dict[str, Any] = {}
    for name, kernels in entries(arguments):
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        try:
            found[name] = list(kernels())
        except Exception as error:  # what is refused is refused at both revisions
            found[name] = type(error).__name__
    return found


def at(revision: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what another revision renders, by this script in a worktree of it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), revision], check=True)
        try:
            script = tree / "tests" / "rendered.py"
            script.write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
            own = [a for k, a in enumerate(sys.argv[1:]) if "--against" not in (a, sys.argv[k])]
            paths = os.pathsep.join((str(tree), str(script.parent)))
            command = [sys.executable, str(script), *own]
            done = subprocess.run(
                command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": paths}
            )
            return json.loads(done.stdout)
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs, a program a line, with a diff of the first kernel that does."""
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        if not (isinstance(a, list) and isinstance(b, list)) or len(a) != len(b):
            yield f"{name}: {shown(a)} -> {shown(b)}"
            continue
        first, second = next((x, y) for x, y in zip(a, b, strict=True) if x != y)
        what = [key for key in first if first[key] != second[key]]
        yield f"{name}: {', '.join(what)}"
        for key in what:
            lines = (str(each[key]).split("\n") for each in (first, second))
            yield from list(difflib.unified_diff(*lines, "old", "new", n=2, lineterm=""))[:40]


def shown(kernels: Any) -> str:
    """Return how many kernels a program has, or the error that it ends in."""
    return f"{len(kernels)} kernels" if isinstance(kernels, list) else str(kernels)


def main() -> int:
    """Compare, or print what is rendered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against")
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--graphs")
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    new = rendered(arguments)
    if arguments.against is None:
        json.dump(new, sys.stdout)
        return 0
    kept = Path(arguments.against)
    old = json.loads(kept.read_text()) if kept.is_file() else at(arguments.against, arguments)
    if arguments.only:
        old = {name: kernels for name, kernels in old.items() if name in new}
    found = list(differences(old, new))
    kernels = sum(len(k) for k in new.values() if isinstance(k, list))
    print(*found[:400], sep="\n")
    print(f"{kernels} kernels of {len(new)} programs: {'differences' if found else 'equal'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
