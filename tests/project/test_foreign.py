"""Bytes that anybody may have written: every reader has limits, and none leaks an exception."""

from __future__ import annotations

import ast
import io
import os
import random
import re
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import EXAMPLES, SMALL, fusec, small
from exported import perceptron
from package_trees import FILES, PACKAGE, tree_of

from fusec import foreign
from fusec.diagnostics import FusecError
from fusec.models.read import imported
from fusec.options import CompileOptions
from fusec.parse import read_file
from fusec.parse.schedules import with_schedules
from fusec.run.arrays import load_arrays, save_arrays
from fusec.run.binary.cubin import kernel_stats
from fusec.run.binary.kernel_parameters import sizes_taken
from fusec.target import table
from fusec.tuned.store import FOLDER, store_of

Capture = pytest.CaptureFixture[str]

# --- no module reads by itself -------------------------------------------------------------------

READERS = {
    "open", "read_text", "read_bytes", "fdopen", "fromfile", "memmap", "genfromtxt", "loadtxt",
    "load", "loads", "safe_load", "safe_open", "load_file", "deserialize", "parse", "literal_eval",
    "unpickle", "ZipFile",
}  # fmt: skip
MODULES = {"json", "tomllib", "yaml", "pickle", "marshal", "safetensors", "zipfile", "csv", "np"}
"""Where `load`, `loads`, `parse`, `deserialize` are those of a format."""
FORMATS = {"load", "loads", "parse", "deserialize", "safe_load"}

READING = re.compile(rf"\b({'|'.join(sorted(READERS))})\(")

ALLOWED = {
    ("run/distributed/process_state.py", "read_text"): "/proc of a process",
    ("reference/memory.py", "read_text"): "/proc and /sys",
    ("run/distributed/rendezvous.py", "read_text"): "/proc",
    ("codegen/template_cache.py", "open"): "what lies beside byte code",
    ("codegen/template_cache.py", "fdopen"): "a new file that it writes",
    ("run/binary/headers.py", "read_text"): "fusec's own headers",
    ("run/transports/kernels.py", "read_text"): "fusec's own kernels",
    ("bench/streaming.py", "read_text"): "fusec's own kernels",
    ("tuned/templates.py", "read_text"): "fusec's own templates",
    ("call/helper.py", "read_bytes"): "fusec's own helper.c",
    ("explain/facts.py", "loads"): "JSON that this process has just made",
    ("pages/files.py", "read_text"): "fusec's own documentation",
    ("commands/folder/manifest.py", "loads"): "JSON that this process has just made",
    ("commands/calibrate.py", "loads"): "TOML that this process has just made",
    ("commands/terminal/several.py", "loads"): "JSON that a command of fusec has just made",
    ("commands/terminal/several.py", "fdopen"): "the output of this process",
    ("commands/folder/artifacts.py", "open"): "a new file that it writes",
    ("run/entries.py", "fdopen"): "a new file that it writes",
    ("run/arrays.py", "fdopen"): "a new file that it writes",
    ("run/trace.py", "fdopen"): "a new file that it writes",
    ("explain/page.py", "fdopen"): "a new file that it writes",
    ("commands/running/ranks.py", "open"): "the null device",
    ("commands/folder/swap.py", "open"): "a folder, for its lock",
    ("cli.py", "open"): "the null device",
}  # fmt: skip
"""What modules read that nobody else can have written, by the function."""


def reads(path: Path) -> Iterator[str]:
    """Yield the calls of a module that read a file, or decode a format."""
    text = path.read_text(encoding="utf-8")
    if not READING.search(text):
        return  # most modules: parsing takes its time
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in ("open", "literal_eval"):
            yield called.id
        elif isinstance(called, ast.Attribute) and called.attr in READERS:
            owner = ast.unparse(called.value)
            if owner == "foreign" or (called.attr in FORMATS and owner not in MODULES):
                continue
            yield ast.unparse(called)


def test_no_module_reads_files_by_itself() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), call.rpartition(".")[2]): call
        for path in FILES
        if path.name != "foreign.py"
        for call in reads(path)
    }
    assert found.keys() - ALLOWED.keys() == set(), "read through fusec.foreign"
    assert ALLOWED.keys() - found.keys() == set(), "reads nothing any more"


@pytest.mark.parametrize(
    "text",
    [
        "open(path)", "path.read_text()", "Path(p).read_bytes()", "json.loads(text)", "np.load(p)",
        "yaml.parse(text)", "tomllib.load(file)", "os.fdopen(3)", "safetensors.deserialize(data)",
    ],
)  # fmt: skip
def test_such_calls_are_found(text: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"def f(path):\n    return {text}\n")
    assert list(reads(module)) == [text.rpartition("(")[0].partition("(path)")[0]]


# --- what is no regular file, or too large -------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


SPECIAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a character device"),
    "fifo": (fifo, "is a FIFO"),
    "folder": (lambda path: path.mkdir(), "is a directory"),
    "huge": (huge, "is too long"),
    "loop": (lambda path: path.symlink_to(path), "cannot read"),
}
COMMANDS: dict[str, list[str]] = {
    "x.yaml": ["check", "{}"],
    "x.py": ["check", "{}"],
    "s.yaml": ["check", str(EXAMPLES / "softmax.yaml"), "--schedule", "{}"],
    "x.npz": ["run", str(EXAMPLES / "softmax.yaml"), "--device", "reference", "--inputs", "{}"],
    "x.safetensors": [
        "run", str(EXAMPLES / "softmax.yaml"), "--device", "reference", "--inputs", "{}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_regular_file(kind: str, name: str, tmp_path: Path, capsys: Capture) -> None:
    make, message = SPECIAL[kind]
    path = tmp_path / name
    make(path)
    began = time.monotonic()
    done = fusec(capsys, *(part.format(path) for part in COMMANDS[name]))
    done.says(2, str(path), message)
    assert time.monotonic() - began < 5


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a compiled folder."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from fusec.cli import run_main

    folder = tmp_path_factory.mktemp("compiled")
    path = small(folder, SMALL)
    assert run_main(["compile", str(path), "-o", str(folder / "out"), "--target", "sm_90a"]) == 0
    return folder / "out"


@pytest.mark.parametrize("kind", ["device", "fifo", "huge"])
@pytest.mark.parametrize("pattern", ["manifest.json", "fusion.yaml", "kernels/*.cu", "*/*.cubin"])
def test_special_files_in_a_compiled_folder(
    kind: str, pattern: str, compiled: Path, tmp_path: Path, capsys: Capture
) -> None:
    copy = tmp_path / "copy"
    copied = copy_of(compiled, copy)
    path = next(p for p in copied if p.match(pattern))
    path.unlink()
    SPECIAL[kind][0](path)
    fusec(capsys, "run", copy, "--device", "reference").says(2)
    done = fusec(capsys, "compile", small(tmp_path, SMALL), "-o", copy)  # is not kept waiting
    assert done.code in (0, 2)


def copy_of(folder: Path, target: Path) -> list[Path]:
    """Copy a folder; return the files of the copy."""
    import shutil

    shutil.copytree(folder, target)
    return sorted(p for p in target.rglob("*") if p.is_file())


# --- damaged bytes -------------------------------------------------------------------------------


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some of them changed, cut out, repeated or cut off."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(6)
        if kind < 3 and at < len(made):
            made[at] = rng.choice([made[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)])
        elif kind == 3:
            del made[at : at + rng.choice([1, 4, 64])]
        elif kind == 4:
            made[at:at] = made[at : at + rng.choice([1, 8, 32])]
        elif rng.random() < 0.2:
            del made[at:]
    return bytes(made)


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, x=np.ones((3, 4), np.float32), y=np.arange(5), z=np.float64(2.0))
    return out.getvalue()


def garbage_member() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", b"abc")
        archive.writestr("y", b"no array")
    return out.getvalue()


def safetensors(folder: Path) -> bytes:
    path = folder / "made.safetensors"
    save_arrays(path, {"x": np.ones((3, 4), np.float32), "n": np.arange(5)})
    return path.read_bytes()


def read_target(path: Path) -> None:
    table.load.cache_clear()
    try:
        table.load("sm_90a", path.parent)
    finally:
        table.load.cache_clear()


FUSION = (EXAMPLES / "attention.yaml").read_bytes()
SCHEDULE = b"s0: {scheduler: inner_persistent, threads_x: 128, vector_width: 8}\n"
RECORDING = b"""{"model": "m", "torch": "2.14", "config": {}, "graphs": [{"kind": "inference",
 "break": 0, "inputs": [["s", "scalar", [], "symbol"], ["x", "float32", ["s27", 4], "input"]],
 "nodes": [["t", "aten.sum.dim_IntList", [{"n": "x"}, [1], true], {}, ["float32", ["s27", 1]], "m"],
  ["y", "aten.slice.Tensor", [{"n": "t"}, 0, 0, 3], {}, ["float32", [3, 1]], "m.n"]],
 "outputs": ["y"]}]}"""


def import_model(path: Path) -> None:
    assert list(imported(str(path)))


def import_graph(path: Path) -> None:
    """Read a model's graph in an archive whose checksums are right."""
    archive = path.with_suffix(".pt2")
    perceptron()[0].save(archive, models__model___json=path.read_bytes())
    import_model(archive)


READ: dict[str, tuple[Callable[[Path], bytes], Callable[[Path], Any]]] = {
    "fusion.yaml": (lambda _: FUSION, read_file),
    "divided.yaml": (
        lambda _: (EXAMPLES / "parallel" / "matmul_reduce_scatter.yaml").read_bytes(),
        read_file,
    ),
    "schedule.yaml": (
        lambda _: SCHEDULE,
        lambda path: with_schedules(read_file(EXAMPLES / "softmax.yaml"), str(path)),
    ),
    "arrays.npz": (lambda _: npz(), load_arrays),
    "garbage.npz": (lambda _: garbage_member(), load_arrays),
    "arrays.safetensors": (safetensors, load_arrays),
    "sm_90a.toml": (lambda _: (PACKAGE / "target" / "sm_90a.toml").read_bytes(), read_target),
    "tuned.toml": (
        lambda _: b"".join((FOLDER / "sm_90a.toml").read_bytes().partition(b"\n\n")[:1]),
        lambda path: store_of(path).entries(),
    ),
    "model.pt2": (lambda path: perceptron()[0].save(path / "a.pt2").read_bytes(), import_model),
    "graph.txt": (lambda _: perceptron()[0].members()["models/model.json"], import_graph),
    "recording.json": (lambda _: RECORDING, import_model),
    "weights.safetensors": (safetensors, foreign.map_safetensors),
    "any.json": (
        lambda _: b'{"a": [1, 2.5, null, "b\\u00e9"]}',
        lambda p: foreign.read_json(p, ""),
    ),
}


def try_damaged(
    data: bytes, read: Callable[[bytes], Any], seconds: float, seed: object
) -> tuple[int, int]:
    """Read damaged bytes for some seconds; return how often they were taken and rejected."""
    rng, taken, rejected = random.Random(str(seed)), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        bad = damaged(data, rng)
        try:
            read(bad)
            taken += 1
        except (FusecError, ValueError) as error:
            if not isinstance(error, FusecError) and read not in MAY_RAISE:
                raise AssertionError(f"{error!r} of {bad!r}") from error
            rejected += 1
        except Exception as error:
            raise AssertionError(f"{error!r} of {bad[:2000]!r}") from error
    return taken, rejected


MAY_RAISE: set[Callable[[bytes], Any]] = set()
"""Functions on bytes that say ValueError: their callers know the file."""


def reader(path: Path, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    def from_bytes(data: bytes) -> Any:
        path.write_bytes(data)
        return read(path)

    return from_bytes


def flip(name: str, seconds: float, tmp_path: Path) -> None:
    make, read = READ[name]
    data = make(tmp_path)
    assert try_damaged(data, reader(tmp_path / name, read), seconds, name)[1] > 0


@pytest.mark.parametrize("name", READ)
def test_damaged_files_are_rejected_or_read(name: str, tmp_path: Path) -> None:
    flip(name, 0.25, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", READ)
def test_damaged_files_are_rejected_or_read_longer(name: str, tmp_path: Path) -> None:
    flip(name, 20.0, tmp_path)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20.0, marks=pytest.mark.nightly)])
def test_damaged_cubins(seconds: float, compiled: Path) -> None:
    cubin = next(compiled.rglob("*.cubin"))
    name = cubin.name.split(".")[0]

    def read(data: bytes) -> None:
        kernel_stats(data)
        sizes_taken(data, name)

    MAY_RAISE.add(read)
    taken, rejected = try_damaged(cubin.read_bytes(), read, seconds, "cubin")
    assert taken
    assert rejected


def test_a_damaged_cubin_of_a_folder_is_named(compiled: Path, tmp_path: Path) -> None:
    """With the digests made anew: what an author of a folder may write."""
    import json

    from fusec.commands.folder.artifacts import digest
    from fusec.commands.folder.reading import package_of, read_folder
    from fusec.commands.folder.records import as_text, signed

    copied = copy_of(compiled, tmp_path / "copy")
    cubin = next(p for p in copied if p.suffix == ".cubin")
    data = bytearray(cubin.read_bytes())
    # Where the section names begin: a byte that no text in UTF-8 has.
    names = struct.unpack_from("<H", data, 0x3E)[0]
    at = struct.unpack_from("<Q", data, 0x28)[0] + names * 64 + 0x18
    data[struct.unpack_from("<Q", data, at)[0] + 3] = 0xFF
    cubin.write_bytes(data)
    manifest = tmp_path / "copy" / "manifest.json"
    listed = json.loads(manifest.read_text())
    listed["files"][cubin.relative_to(tmp_path / "copy").as_posix()] = digest(bytes(data))
    manifest.write_text(as_text(signed(listed)))
    contents = read_folder(tmp_path / "copy")
    with pytest.raises(FusecError, match=f"{cubin}` is not a whole cubin"):
        package_of(contents, "sm_90a", CompileOptions())


def test_the_reason_is_short() -> None:
    with pytest.raises(foreign.Undecodable) as caught, foreign.decoding(foreign.not_a("f", "x")):
        raise RecursionError("maximum recursion depth exceeded")
    assert caught.value.reason == "it is nested too deeply"
    assert "f` is not x" in str(caught.value)
