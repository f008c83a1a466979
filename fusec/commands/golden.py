"""`fusec golden`: compare a fusion's dump, CUDA source, manifest and registers with stored ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fusec import driver
from fusec.commands.folder.manifest import manifest_of
from fusec.commands.folder.records import as_data, as_text
from fusec.commands.terminal.diagnose import Report
from fusec.commands.terminal.progress import build_progress
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Diagnostic, FusecError, Span
from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.escape import visible
from fusec.foreign import CODE_BYTES, decode_json, decoding, not_a, read_bytes
from fusec.hostir.text import host_ir_text
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.parse.source import STDIN
from fusec.target import TARGETS

REGISTERS = "registers.json"
SHOWN_LINES = 60
OWN_SUFFIXES = (".txt", ".cu", ".json")


def golden(
    files: Sequence[str],
    options: CompileOptions,
    dialects: Sequence[str],
    report: Report,
    *,
    update: bool,
    build: bool = True,
) -> int:
    """Compare or write golden files; if they differ, print a diff and return 1.

    build: whether kernels are built, and their registers compared or written too.
    """
    differing, results = 0, list[dict[str, Any]]()
    report.facts["files"] = results
    options = replace(options, untuned=True)  # they must not change with the user's measurements
    if STDIN in files:
        raise FusecError(
            "golden files are stored next to a file, not for `-`", help="name the file"
        )
    for file in files:
        folder = golden_folder(Path(file))
        made = golden_files(file, *_as_kept(folder, options, dialects), build=build)
        if update:
            _write(folder, made, keep=() if build else (REGISTERS,))
            results.append(_result(file, folder, "written"))
            print(f"{visible(str(folder))}: {len(made)} files written")
            continue
        changes = _differences(file, folder, made, without=() if build else (REGISTERS,))
        report.differences += [change.diagnostic for change in changes]
        lines = [line for change in changes for line in change.lines]
        differing += bool(lines)
        results.append(_result(file, folder, "differs" if lines else "same", lines))
        found = "differs from" if lines else "as in"
        print(visible(f"{file}: {found} {folder}"))
        print("".join(f"{line}\n" for line in lines[:SHOWN_LINES]), end="")
        if len(lines) > SHOWN_LINES:
            print(f"... {len(lines) - SHOWN_LINES} more lines")
    if differing:
        print(f"{differing} of {len(files)} differ; review, then run again with --update")
    return 1 if differing else 0


def _result(file: str, folder: Path, status: str, diff: Sequence[str] = ()) -> dict[str, Any]:
    return {"file": file, "folder": str(folder), "status": status, "diff": list(diff)}


def golden_folder(file: Path) -> Path:
    """Return the folder of a file's golden files; a script's are next to those of its YAML twin."""
    name = file.stem if file.suffix in (".yaml", ".yml") else file.name
    if name in (".", ".."):  # `..yaml`, `...yaml`: would replace the parent's files
        raise FusecError(f"the name of `{file}` cannot be used for golden files", help="rename it")
    return file.parent / "golden" / name


def _as_kept(
    folder: Path, options: CompileOptions, dialects: Sequence[str]
) -> tuple[CompileOptions, Sequence[str]]:
    """Return the targets and dialects: as given, else of the existing files, else the defaults."""
    kept = _kept(folder)
    found = (re.fullmatch(r"(?:.*/)?segmented_fusion\.(\w+)\..*", name) for name in kept)
    dialects = dialects or sorted({match[1] for match in found if match}) or ("2024",)
    for name, text in kept.items():
        if Path(name).name == "manifest.json" and not options.targets_given:
            try:
                targets: tuple[str, ...] = _field(text, "targets", tuple)
            except FusecError:
                continue
            if targets and all(t in TARGETS for t in targets):
                return replace(options, targets=targets), dialects
    return options, dialects


def golden_files(
    file: str, options: CompileOptions, dialects: Sequence[str], *, build: bool = True
) -> dict[str, str]:
    """Return the golden files of a fusion file by path; several fusions have a folder each.

    For a partitioned fusion they include one rank's fusion and its host program; without a build
    there are no registers.
    """
    programs = driver.programs(file, options)
    made: dict[str, str] = {}
    for program in programs:
        with build_progress() as progress:
            package = (
                driver.compile_targets(program, progress) if build else driver.plan_targets(program)
            )
        folder = f"{program.original.name}/" if len(programs) > 1 else ""
        for built in package.programs:
            # The sources of one kernel for several targets are in the same folder.
            mark = f".{built.targets[0]}" if len(package.programs) > 1 else ""
            for dialect in dialects:
                text = segmented_fusion_text(built.segmented, style=dialect)
                made[f"{folder}segmented_fusion.{dialect}{mark}.txt"] = text
            if built.original.shardings:
                made[f"{folder}partition{mark}.txt"] = to_text(built.local)
                made[f"{folder}host_ir{mark}.txt"] = host_ir_text(built.posts, built.segmented)
            for source in built.kernel_sources:
                made[f"{folder}{source.name}{mark}.cu"] = source.text
        manifest = as_data(manifest_of(package, {}))
        registers = as_text(_take_builds(manifest))
        if build:
            made[f"{folder}{REGISTERS}"] = registers
        made[f"{folder}manifest.json"] = as_text(manifest)
    return made


def _take_builds(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return registers and spills by kernel and target, removing them from the manifest.

    The rest of the manifest does not depend on the version of the compiler or of fusec.
    """
    del manifest["fusec"], manifest["files"]
    kernels: dict[str, Any] = {}
    compilers: set[str] = set()
    for plan in manifest["plans"]:
        for kernel in plan["kernels"]:
            builds = kernel.pop("builds")
            compilers |= {b["compiler"] for b in builds.values()}
            kernels.setdefault(kernel["name"], {}).update(
                {
                    t: {k: b[k] for k in ("registers", "spill_bytes", "shared_bytes")}
                    for t, b in builds.items()
                }
            )
    return {"compiler": ", ".join(sorted(compilers)), "kernels": kernels}


def _write(folder: Path, made: Mapping[str, str], keep: Collection[str] = ()) -> None:
    try:
        for name in _kept(folder).keys() - made.keys():
            if Path(name).name not in keep:
                (folder / name).unlink()
        for name, text in made.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.part")
            aside.write_text(text, encoding="utf-8")
            aside.replace(path)
    except OSError as error:
        raise FusecError(f"cannot write `{folder}`: {error.strerror}") from None


def _kept(folder: Path) -> dict[str, str]:
    found = sorted(p for p in folder.rglob("*") if p.suffix in OWN_SUFFIXES and p.is_file())
    texts = {p: read_bytes(p, "a golden file", CODE_BYTES) for p in found}
    return {
        p.relative_to(folder).as_posix(): text.decode(errors="replace") for p, text in texts.items()
    }


@dataclass(frozen=True)
class Change:
    """A golden file that differs: its first difference, and the lines of the diff."""

    message: str
    file: Path
    line: int
    lines: tuple[str, ...]

    @property
    def diagnostic(self) -> Diagnostic:
        """Return it as an error with its location."""
        help = "review, then `fusec golden --update`"
        return Diagnostic("error", self.message, Span(str(self.file), self.line, 1), help=help)


def _differences(
    file: str, folder: Path, made: Mapping[str, str], without: Collection[str] = ()
) -> list[Change]:
    kept = {name: text for name, text in _kept(folder).items() if Path(name).name not in without}
    if not kept:
        missing = f"{folder} is missing"
        line = visible(f"  {missing}; run with --update")
        return [Change(missing, Path(file), 1, (line,))]
    changes = list[Change]()
    for name in sorted(kept.keys() | made.keys()):
        if name not in kept or name not in made:
            how = "new" if name in made else "no longer made"
            place = Path(file) if name in made else folder / name
            changes.append(Change(f"{name}: {how}", place, 1, (f"  {name}: {how}",)))
        elif kept[name] != made[name]:
            if Path(name).name == REGISTERS and _other_compiler(kept[name], made[name]):
                continue
            old, new = kept[name].splitlines(), made[name].splitlines()
            lines = difflib.unified_diff(old, new, f"golden/{name}", name, lineterm="", n=2)
            pairs = enumerate(zip_longest(old, new), start=1)
            first = next((number for number, (a, b) in pairs if a != b), 1)
            at = max(1, min(first, len(old)))
            changes.append(Change(f"differs from {file}", folder / name, at, tuple(lines)))
    return changes


def _field(text: str, name: str, kind: Callable[[Any], Any]) -> Any:
    """Return a field of a golden JSON file; FusecError if it is missing."""
    data = decode_json(text, name)
    with decoding(not_a(name, "a golden file")):
        return kind(data[name])


def _other_compiler(kept: str, made: str) -> bool:
    """Return whether registers come from another compiler, so that they cannot be compared."""
    try:
        return _field(kept, "compiler", str) != _field(made, "compiler", str)
    except FusecError:
        return False
