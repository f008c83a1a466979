"""Compiled folders: written atomically, and never over files that a user edited."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePath

from fusec.commands.folder.manifest import cubin_path, kernels_at, manifest_of
from fusec.commands.folder.records import MANIFEST, as_data, as_text, signed
from fusec.commands.folder.swap import NEW, put_in_place, tidy, working_folder
from fusec.diagnostics import FusecError
from fusec.driver import Package
from fusec.foreign import (
    CODE_BYTES,
    RECORD_BYTES,
    MissingFile,
    Undecodable,
    decoding,
    not_a,
    read_bytes,
    read_json,
)
from fusec.models.folder import FUSION as MODEL_FUSION
from fusec.models.folder import RECORD, Content
from fusec.run.binary.headers import with_included
from fusec.target import own_file
from fusec.tuned import Entry
from fusec.tuned.store import merged, text_of

TRIES = 10
"""Number of attempts to read a folder that other processes replace at the same time."""

EMITTED = (".c", ".cc", ".h", ".txt")
"""Suffixes of emitted files."""


def digest(content: bytes) -> str:
    """Return the SHA-256 digest that identifies a file of a compiled fusion."""
    return sha256(content).hexdigest()


def files_of(package: Package, emit: Sequence[str] = ()) -> dict[str, bytes]:
    """Return every file of a compiled folder by its path; emit: additional ones, such as `c`."""
    from fusec.emit import emitted
    from fusec.ir.text import to_text

    files = emitted(package, emit)
    for program in package.programs:
        folder = kernels_at(program.targets, len(package.programs))
        for source in program.kernel_sources:
            files[f"{folder}/{source.name}.cu"] = source.text.encode()
            for name, text in with_included(source.headers).items():
                files[f"{folder}/{name}"] = text.encode()
    for (name, target), artifact in package.artifacts.items():
        files[cubin_path(name, target)] = artifact.cubin
    for target in package.targets:
        rates = own_file(target)
        if rates is not None:
            files[f"targets/{target}.toml"] = read_bytes(rates, "a target file", RECORD_BYTES)
        entries = _tuned_for(package, target)
        if entries:
            files[f"tuned/{target}.toml"] = text_of(merged(entries)).encode()
    files["fusion.yaml"] = to_text(package.program.original).encode()
    digests = {path: digest(content) for path, content in files.items()}
    files[MANIFEST] = as_text(signed(as_data(manifest_of(package, digests)))).encode()
    return files


def _tuned_for(package: Package, target: str) -> list[Entry]:
    """Return the measured schedules that a package's programs for a target use."""
    programs = (p for p in package.programs if target in p.targets)
    used = (s.tuned for program in programs for s in program.segmented.segments)
    return [tuned.entry for tuned in used if tuned is not None]


def check_place(folder: Path) -> None:
    """Raise FusecError if a compiled folder may not be written there; called before any work."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        kind = "symbolic link" if folder.is_symlink() else "file"
        raise FusecError(f"`{folder}` is a {kind}", help="choose another folder with -o")
    try:
        for attempt in reversed(range(TRIES)):
            try:
                _check_files(folder)
                break
            except (FileNotFoundError, MissingFile):  # another process has just replaced it
                if attempt == 0:
                    raise
    except OSError as error:
        raise FusecError(f"cannot read `{folder}`: {error.strerror}") from None
    parent = next(p for p in (folder.absolute().parent, *folder.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        reason = "permission denied" if parent.is_dir() else "it is not a directory"
        raise FusecError(f"cannot write `{folder}` into `{parent}`: {reason}")


def _check_files(folder: Path) -> None:
    """Raise FusecError if a folder contains files that fusec did not write or that were edited."""
    own = _own_files(folder)
    found = sorted(p for p in folder.rglob("*") if not p.is_dir()) if folder.is_dir() else []
    for path in found:
        name = path.relative_to(folder).as_posix()
        if own is None or name not in own:
            raise FusecError(
                f"`{folder}` holds other files: `{name}`",
                help="choose a new folder with -o, or one that fusec wrote",
            )
        is_code = name.startswith("kernels/") or PurePath(name).suffix in EMITTED
        is_code |= name == MODEL_FUSION and RECORD in own
        if (
            is_code
            and digest(read_bytes(path, "a file of a compiled fusion", CODE_BYTES)) != own[name]
        ):
            raise FusecError(
                f"`{path}` was edited since it was compiled; its edits would be lost",
                help="choose another folder with -o, or remove this one",
            )


def _own_files(folder: Path) -> Mapping[str, str] | None:
    """Return the files that a manifest or a model's record lists, None if there is neither."""
    listed = next((name for name in (MANIFEST, RECORD) if (folder / name).is_file()), None)
    if listed is None:
        return None
    try:
        data = read_json(folder / listed, "a manifest")
        with decoding(not_a(folder / listed, "a manifest")):
            return {listed: "", **{str(k): str(v) for k, v in data["files"].items()}}
    except Undecodable:
        raise FusecError(
            f"`{folder}` has a damaged {listed}: edits cannot be detected",
            help="remove the folder, or choose another one with -o",
        ) from None


def _write(path: Path, content: Content) -> None:
    """Write a new file from its bytes, or from chunks of them."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    with path.open("wb") as file:
        file.writelines(content)


def write_folder(folder: Path, files: Mapping[str, Content]) -> None:
    """Write a folder next to its destination, then swap it in; raise FusecError on failure.

    The destination is the old or the new folder at any time, even if the process is killed.
    """
    try:
        tidy(folder)
        check_place(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with working_folder(folder) as aside:
            for name, content in files.items():
                path = aside / NEW / name
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, content)
            if not put_in_place(aside, folder):
                print(
                    f"fusec: `{folder}` was not replaced atomically: its file system cannot swap "
                    "directories",
                    file=sys.stderr,
                )
    except OSError as error:
        raise FusecError(f"cannot write `{folder}`: {error.strerror or error}") from None
