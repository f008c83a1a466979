"""`fusec golden`: dump, CUDA, manifest and registers kept beside a fusion file, compared on demand."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from fusec import driver
from fusec.commands.artifacts import manifest_of
from fusec.options import CompileOptions
from fusec.segment.dump import segmented_fusion_text

_SHOWN = 60


def golden(
    files: Sequence[str], options: CompileOptions, dialects: Sequence[str], *, update: bool
) -> int:
    """Compare or write golden files; return 1 and print a diff where they differ."""
    differing = 0
    for file in files:
        folder = Path(file).parent / "golden" / Path(file).stem
        made = golden_files(file, options, dialects)
        if update:
            _write(folder, made)
            print(f"{folder}: {len(made)} files written")
            continue
        differences = list(_differences(folder, made))
        differing += bool(differences)
        print(f"{file}: {'differs' if differences else 'as in ' + str(folder)}")
        for line in differences[:_SHOWN]:
            print(line)
        if len(differences) > _SHOWN:
            print(f"... {len(differences) - _SHOWN} more lines")
    if differing:
        print(f"{differing} of {len(files)} differ; review, then run again with --update")
    return 1 if differing else 0


def golden_files(
    file: str, options: CompileOptions, dialects: Sequence[str]
) -> dict[str, str]:
    """Return the golden files of a fusion file by name."""
    fusion = driver.load(file, options.sizes)
    compiled = driver.compile_fusion(fusion, options)
    made = {
        f"segmented_fusion.{d}.txt": segmented_fusion_text(compiled.planned.segmented, style=d)
        for d in dialects
    }
    made.update({f"{s.name}.cu": s.text for s in compiled.planned.kernel_sources})
    manifest = manifest_of(compiled, options.targets)
    made["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    return made


def _write(folder: Path, made: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(p.name for p in folder.iterdir()) - made.keys():
        (folder / stale).unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def _differences(folder: Path, made: dict[str, str]) -> list[str]:
    kept = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir()} if folder.is_dir() else {}
    lines: list[str] = []
    if not kept:
        return [f"  {folder} is missing; run with --update"]
    for name in sorted(kept.keys() | made.keys()):
        if name not in kept or name not in made:
            lines.append(f"  {name}: {'new' if name in made else 'no longer made'}")
        elif kept[name] != made[name]:
            lines += difflib.unified_diff(
                kept[name].splitlines(), made[name].splitlines(), f"golden/{name}", name, lineterm="", n=2
            )
    return lines
