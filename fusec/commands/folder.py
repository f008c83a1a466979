"""A compiled folder read back and checked: what is missing, damaged or edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusec.commands.artifacts import digest
from fusec.commands.manifest import MANIFEST, SCHEMA_VERSION
from fusec.commands.report import Figures
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.hostir.form import from_json
from fusec.hostir.program import Alias, Buffer, EncodeTensorMap, HostProgram, IndexCheck, Launch
from fusec.ir.dim import Dim
from fusec.ir.graph import Fusion
from fusec.run.headers import headers_for
from fusec.schedule.plan import Guard, SizeArgument, TensorMapArgument
from fusec.segment.roofline import Roofline

AGAIN = "compile the fusion again"


@dataclass(frozen=True)
class FolderKernel:
    """A kernel as it lies in a folder; edited: its text, or a header of it, was changed.

    cubins: machine code by target, made from the text as it was compiled.
    """

    name: str
    path: Path
    text: str
    headers: Mapping[str, str]
    edited: bool
    cubins: Mapping[str, bytes]


@dataclass(frozen=True)
class FolderPlan:
    """The program and kernels for some targets, with what the segments and all of it must do."""

    targets: tuple[str, ...]
    program: HostProgram
    kernels: tuple[FolderKernel, ...]
    segments: Mapping[str, Figures]
    least: Roofline


@dataclass(frozen=True)
class Folder:
    """A compiled folder; edited: the files whose text differs from what was written."""

    path: Path
    fusion: Fusion
    plans: tuple[FolderPlan, ...]
    edited: tuple[str, ...]

    def plan_for(self, target: str) -> FolderPlan:
        """Return the plan made for `target`, else the one for the latest that it can run."""
        from fusec import target as targets

        wanted = targets.find(target).capability
        fitting = [
            (targets.find(t).capability, number)
            for number, plan in enumerate(self.plans)
            for t in plan.targets
            if t == target or (t[-1].isdigit() and targets.find(t).capability <= wanted)
        ]
        exact = [p for p in self.plans if target in p.targets]
        if not exact and not fitting:
            known = ", ".join(t for p in self.plans for t in p.targets)
            raise EnvironmentProblem(
                f"`{self.path}` is compiled for {known}, which {target} cannot run",
                help=f"compile the fusion with --target {target}",
            )
        return exact[0] if exact else self.plans[max(fitting)[1]]


def read_folder(folder: Path) -> Folder:
    """Return a compiled folder; FusecError says what is missing or damaged."""
    from fusec.parse import read_file

    manifest = _read_manifest(folder)
    try:
        files = {str(path): str(known) for path, known in manifest["files"].items()}
        contents = {path: _read(folder, path) for path in files}
        changed = {path for path in files if digest(contents[path]) != files[path]}
        for path in sorted(changed):
            if not path.startswith("kernels/"):
                raise FusecError(f"`{folder / path}` was changed since it was compiled", help=AGAIN)
        fusion = read_file(folder / "fusion.yaml")
        plans = tuple(_plan(folder, data, contents, changed) for data in manifest["plans"])
        known = {*fusion.hints, *(i.value.name for i in fusion.inputs)}
        for plan in plans:
            _check_symbols(plan.program, known)
        if not plans:
            raise ValueError("no plans")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _damaged(folder / MANIFEST, error) from None
    except OSError as error:
        raise FusecError(f"cannot read `{folder}`: {error.strerror}") from None
    return Folder(folder, fusion, plans, tuple(sorted(changed)))


def _damaged(path: Path, error: Exception) -> FusecError:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return FusecError(f"`{path}` is damaged: {reason}", help=AGAIN)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FusecError(
            f"`{folder}` is no compiled folder: it has no {MANIFEST}",
            help="`fusec compile FILE -o DIR` makes one",
        )
    try:
        manifest: dict[str, Any] = json.loads(_text(path, path.read_bytes()))
        version = manifest["schema_version"]
    except OSError as error:
        raise FusecError(f"cannot read `{path}`: {error.strerror}") from None
    except (KeyError, TypeError):
        raise _damaged(path, ValueError("it has no schema_version")) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    if version != SCHEMA_VERSION:
        raise FusecError(
            f"`{path}` has schema version {version}, this fusec reads {SCHEMA_VERSION}", help=AGAIN
        )
    return manifest


def _read(folder: Path, name: str) -> bytes:
    place = Path(name)
    if place.is_absolute() or ".." in place.parts:
        raise ValueError(f"it names a file outside the folder, {name}")
    try:
        return (folder / place).read_bytes()
    except FileNotFoundError:
        raise FusecError(f"`{folder / place}` is missing", help=AGAIN) from None
    except OSError as error:
        raise FusecError(f"cannot read `{folder / place}`: {error.strerror}") from None


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise FusecError(f"`{path}` is not UTF-8 text", help=AGAIN) from None


def _plan(
    folder: Path, data: Mapping[str, Any], contents: Mapping[str, bytes], changed: set[str]
) -> FolderPlan:
    kernels = [k for s in data["segments"] for k in s["kernels"]]
    program = from_json(data["program"])
    plan = FolderPlan(
        targets=tuple(str(t) for t in data["targets"]),
        program=program,
        kernels=tuple(_kernel(folder, k, contents, changed) for k in kernels),
        segments={
            str(s["name"]): Figures(str(s["scheduler"]), _least(s)) for s in data["segments"]
        },
        least=_least(data),
    )
    launched = {launch.kernel for launch in program.launches}
    if launched != {k.name for k in plan.kernels}:
        raise ValueError("the program's kernels are not the segments' kernels")
    if not plan.targets:
        raise ValueError("no targets")
    return plan


def _least(data: Mapping[str, Any]) -> Roofline:
    return Roofline(int(data["floor_bytes"]), int(data["tensor_flops"]))


def _kernel(
    folder: Path, data: Mapping[str, Any], contents: Mapping[str, bytes], changed: set[str]
) -> FolderKernel:
    source = str(data["source"])
    place = folder / source
    text = _text(place, contents[source])
    # Whatever header lies there counts, also one that the user added.
    found = sorted(p for p in place.parent.glob("*.cuh") if p.is_file())
    beside = {p.name: _text(p, p.read_bytes()) for p in found}
    headers = headers_for(text, beside)
    own = {f"{Path(source).parent.as_posix()}/{name}" for name in headers}
    edited = source in changed or bool(own & changed) or not own <= contents.keys()
    cubins = {str(t): contents[str(b["cubin"])] for t, b in data["builds"].items()}
    return FolderKernel(str(data["name"]), place, text, headers, edited, cubins)


def _check_symbols(program: HostProgram, known: set[str]) -> None:
    """Raise ValueError where a size depends on what the fusion does not have."""
    for size in _sizes(program):
        strange = {s for s in size.symbols if s not in known and "." not in s}
        if strange:
            raise ValueError(f"`{size}` depends on an unknown size")


def _sizes(program: HostProgram) -> Iterable[Dim]:
    for item in (*program.buffers, *program.guards, *program.instructions, *program.checks):
        match item:
            case Buffer():
                yield from (*item.shape, *item.strides)
            case Guard():
                yield item.value
            case Alias():
                yield item.offset
            case IndexCheck():
                yield from (item.extent, *filter(None, [item.index]))
            case EncodeTensorMap():
                yield from (*item.map.extents, *item.map.strides)
            case Launch():
                yield from item.grid
                for argument in item.arguments:
                    if isinstance(argument, SizeArgument):
                        yield argument.value
                    elif isinstance(argument, TensorMapArgument):
                        yield from (*argument.extents, *argument.strides)
            case _:
                pass
