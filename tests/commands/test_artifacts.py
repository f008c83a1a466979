"""Compiled folders: what is in them, every kind of damage, edits, and that none is half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, ROOT, SCRIPT, SMALL, Result, fusec, small

from fusec import __version__, driver
from fusec.commands.folder.artifacts import digest, write_folder
from fusec.commands.folder.reading import plans_for, read_folder
from fusec.commands.folder.records import SCHEMA_VERSION, signed
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.parse import read_file

Capture = pytest.CaptureFixture[str]
OLD = {"manifest.json": b'{"files": {}}'}
NEW = {**OLD, "cubins/a": b"a", "cubins/b": b"b"}
KERNEL = "kernels/small_pointwise.cu"
CUBIN = "cubins/small_pointwise.sm_90a.cubin"
HEADER = "kernels/types.cuh"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder compiled once; tests that change it take a copy."""
    from fusec.cli import run_main

    base = tmp_path_factory.mktemp("compiled")
    assert run_main(["compile", str(small(base)), "-o", str(base / "out")]) == 0
    return base / "out"


@pytest.fixture
def folder(compiled: Path, tmp_path: Path) -> Path:
    """Return a copy to be changed."""
    return Path(shutil.copytree(compiled, tmp_path / "out"))


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")


def files(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


# --- what is in a folder -----------------------------------------------------------------------


def test_a_folder_is_complete(compiled: Path) -> None:
    made = files(compiled)
    assert {"manifest.json", "fusion.yaml", KERNEL, CUBIN, HEADER} <= made.keys()
    listed = manifest(compiled)["files"]
    assert listed == {k: digest(v) for k, v in made.items() if k != "manifest.json"}
    included = re.findall(rb'#include "(.*)"', made[KERNEL])
    assert included
    assert {f"kernels/{name.decode()}" for name in included} <= made.keys()
    assert made[CUBIN].startswith(b"\x7fELF")
    again = read_file(compiled / "fusion.yaml")
    assert again == read_file(compiled.parent / "small.yaml")


def test_the_manifest_says_how_to_launch(compiled: Path) -> None:
    data = manifest(compiled)
    assert data["schema_version"] == SCHEMA_VERSION
    assert (data["fusec"], data["fusion"], data["targets"]) == (__version__, "small", ["sm_90a"])
    assert data["dims"] == [
        {"name": "B", "default": 8, "multiple_of": 1},
        {"name": "H", "default": 16, "multiple_of": 4},
    ]
    assert [(i["name"], i["shape"], i["default"]) for i in data["inputs"]] == [
        ("x", ["B", "H"], None),
        ("w", ["H"], None),
        ("s", None, 2.0),
    ]
    assert data["outputs"] == [{"name": "y", "dtype": "bf16", "shape": ["B", "H"], "alias": None}]
    (plan,) = data["plans"]
    (segment,) = plan["segments"]
    (kernel,), (launch,) = plan["kernels"], segment["launches"]
    assert (segment["name"], segment["scheduler"], segment["bytes"]) == ("s0", "pointwise", 576)
    assert kernel["source"] == KERNEL
    assert any("B" in str(size) for size in launch["grid"]), "the grid depends on B"
    assert [a["name"] for a in launch["arguments"] if a["is"] == "tensor"] == ["x", "w", "y"]
    build = kernel["builds"]["sm_90a"]
    assert build["cubin"] == CUBIN
    assert build["registers"] > 0 == build["spill_bytes"]
    assert plan["program"]["outputs"] == ["y"]


def test_edges(tmp_path: Path, capsys: Capture) -> None:
    path = EXAMPLES / "cross_entropy.yaml"
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0
    (plan,) = manifest(tmp_path / "out")["plans"]
    names = {s["name"] for s in plan["segments"]}
    assert plan["edges"]
    for edge in plan["edges"]:
        assert {edge["from"], edge["to"]} <= names
    made = {v for s in plan["segments"] for v in s["values"]}
    assert {edge["value"] for edge in plan["edges"]} <= made


def test_workspaces_and_several_kernels(tmp_path: Path, capsys: Capture) -> None:
    path = EXAMPLES / "seed_2146.yaml"
    assert fusec(capsys, "compile", path, "-o", tmp_path / "out").code == 0
    (plan,) = manifest(tmp_path / "out")["plans"]
    launches = [launch for s in plan["segments"] for launch in s["launches"]]
    assert [launch["kernel"] for launch in launches] == [k["name"] for k in plan["kernels"]]
    assert len(plan["segments"]) == 2 < len(launches)
    workspaces = [w for s in plan["segments"] for w in s["workspaces"]]
    assert workspaces
    assert {w["init"] for w in workspaces} <= {"none", "zeroed once", "zeroed per launch"}
    # A parameter of the CUDA source for every argument, in the same order.
    for kernel, launch in zip(plan["kernels"], launches, strict=True):
        text = (tmp_path / "out" / kernel["source"]).read_text()
        head = text[text.index(f"{kernel['name']}(") :].split("(", 1)[1].split(") {", 1)[0]
        names_in_text = [re.split(r"[\s*]+", p.strip())[-1] for p in head.split(",")]
        assert len(names_in_text) == len(launch["arguments"]), kernel["name"]


OPTIONS = {
    "strided_add": ["--without=remove_copies", "--check-bounds", "--redefine=before"],
    "softmax": ["--streams=2"],
    "cross_entropy": ["--stop-after=merge_casts"],
    "rmsnorm_residual": ["--precise"],
}
"""By example."""


def documented() -> set[str]:
    text = (ROOT / "docs" / "manifest.md").read_text()
    return set(re.findall(r"^\| `([a-z_0-9]+)` ", text, re.MULTILINE))


def keys_of(data: Any) -> Iterator[str]:
    """Yield every key, but not those that are names: of files, targets, sizes, parameters."""
    if isinstance(data, list):
        for item in data:
            yield from keys_of(item)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield key
            if key in ("files", "specialised", "parameters", "sizes", "rounded_early"):
                continue
            named = key in ("builds", "orders", "summation")
            yield from keys_of(list(value.values()) if named else value)


def test_every_key_is_documented(tmp_path: Path, capsys: Capture) -> None:
    found: set[str] = set()
    for path in EXAMPLES.rglob("golden/*/manifest.json"):  # test_golden.py keeps them true
        found |= set(keys_of(json.loads(path.read_text())))
    for name, options in OPTIONS.items():
        out = tmp_path / name
        assert fusec(capsys, "compile", EXAMPLES / f"{name}.yaml", "-o", out, *options).code == 0
        found |= set(keys_of(manifest(out)))
    known = documented()
    assert found - known == set(), "not in docs/manifest.md"
    # What these examples have no use for: of an alias, a copy, a complex scalar, a draw,
    # `schedules:`, several sizes, `--with`, `--as-written`; of loops and exchanges
    # (tests/hostir/test_host_ir.py).
    unused = {"offset", "target", "part", "generator", "overridden", "sizes"}
    unused |= {"count", "body", "stream", "axis", "ranks", "kind", "reduction", "root"}
    unused |= {"index", "place", "with", "as_written", "views", "copy_of", "kept"}
    assert known - found <= unused, "in docs/manifest.md, but not in manifests"


# --- targets -----------------------------------------------------------------------------------


def test_targets_that_agree_share_their_texts(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    done = fusec(capsys, "compile", small(tmp_path), "-o", out, "--target", "sm_80,sm_90a")
    assert done.code == 0
    assert f"{out}: 1 segment, 1 kernel for sm_80, sm_90a\n" in done.out
    made = files(out)
    assert {n for n in made if n.endswith(".cu")} == {KERNEL}
    cubins = {n for n in made if n.startswith("cubins/")}
    assert cubins == {CUBIN, CUBIN.replace("sm_90a", "sm_80")}
    assert manifest(out)["targets"] == ["sm_80", "sm_90a"]


@pytest.mark.nightly
def test_targets_that_differ_have_folders_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    path = EXAMPLES / "linear_gelu.yaml"
    options = ["--target", "sm_80,sm_90a,sm_89"]
    assert fusec(capsys, "compile", path, "-o", out, *options).code == 0
    data = manifest(out)
    assert data["targets"] == ["sm_80", "sm_90a", "sm_89"]
    assert [p["targets"] for p in data["plans"]] == [["sm_80", "sm_89"], ["sm_90a"]]
    made = files(out)
    texts = {n: made[n] for n in made if n.endswith(".cu")}
    assert sorted(n.split("/")[1] for n in texts) == ["sm_80", "sm_90a"]
    assert [b"wgmma" in texts[n] for n in sorted(texts)] == [False, True]
    folder = read_folder(out)
    plans = folder.manifest.plans
    assert plans[plans_for(folder, "sm_90a")[0]].targets == ("sm_90a",)
    for later in ("sm_89", "sm_90", "sm_100", "sm_120"):
        assert plans[plans_for(folder, later)[0]].targets == ("sm_80", "sm_89"), later
    for target in ("sm_80", "sm_120"):
        done = fusec(capsys, "run", out, "--target", target)
        assert done.code == 0
        assert f"built for {target}" in done.out


def test_a_target_that_a_folder_cannot_serve(folder: Path, capsys: Capture) -> None:
    with pytest.raises(EnvironmentProblem, match="compiled for sm_90a, which sm_80 cannot run"):
        plans_for(read_folder(folder), "sm_80")
    done = fusec(capsys, "run", folder, "--target", "sm_120")
    done.says(4, "compiled for sm_90a", "--target sm_120")


# --- running, edits ----------------------------------------------------------------------------


def test_a_folder_runs_without_the_compiler(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.build.compile_cuda", None)
    done = fusec(capsys, "run", folder)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("small: 1 kernel built for sm_90a, predicted for H200 at ")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize("name", [KERNEL, HEADER])
def test_an_edit_is_built_and_told(
    name: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, bool]] = []
    from fusec.run import build

    compile_cuda = build.compile_cuda

    def watch(source: str, **options: Any) -> Any:
        text = source + "".join(options["headers"].values())
        built.append((options["name"], "an_edit" in text))
        return compile_cuda(source, **options)

    monkeypatch.setattr(build, "compile_cuda", watch)
    append(folder / name, "\n// an_edit\n")
    done = fusec(capsys, "run", folder, "--no-cache")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"edited since it was compiled: {folder / name}\n")
    assert built == [("small_pointwise", True)]


def test_a_header_of_ones_own_is_found(folder: Path, capsys: Capture) -> None:
    (folder / "kernels" / "mine.cuh").write_text("#pragma once\nstruct Mine {};\n")
    text = (folder / KERNEL).read_text()
    (folder / KERNEL).write_text('#include "mine.cuh"\n__device__ Mine* mine;\n' + text)
    assert fusec(capsys, "run", folder).code == 0


def test_a_broken_edit_shows_the_line(folder: Path, capsys: Capture) -> None:
    text = (folder / KERNEL).read_text()
    lines = text.splitlines(keepends=True)
    number = next(n for n, t in enumerate(lines, 1) if "const int" in t or "const float" in t)
    lines[number - 1] = lines[number - 1].replace("const ", "const no_such_", 1)
    (folder / KERNEL).write_text("".join(lines))
    done = fusec(capsys, "run", folder)
    done.says(
        2,
        f"the edited `{folder / KERNEL}` does not compile",
        f"--> {folder / KERNEL}:{number}:",
        "no_such_",
        f"small_pointwise.cu({number}): error: ",
    )


def test_a_kernel_that_is_gone(folder: Path, capsys: Capture) -> None:
    text = (folder / KERNEL).read_text()
    (folder / KERNEL).write_text(text.replace("small_pointwise(", "other("))
    fusec(capsys, "run", folder).says(2, "no longer defines the kernel `small_pointwise`")


@pytest.mark.parametrize(
    ("old", "new"),
    [("small_pointwise(", "small_pointwise(int more, "), ("float s", "double s")],
)
def test_other_parameters_are_refused(old: str, new: str, folder: Path, capsys: Capture) -> None:
    text = (folder / KERNEL).read_text()
    assert old in text
    (folder / KERNEL).write_text(text.replace(old, new))
    fusec(capsys, "run", folder).says(
        2, f"`{folder / KERNEL}`: the parameters of `small_pointwise` have ", "its launch passes 8,"
    )


def test_a_fault_of_an_edited_kernel_is_no_bug(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusec.diagnostics import InternalError

    class Broken:
        def __init__(self) -> None:
            raise InternalError("the GPU reports CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    monkeypatch.setattr("fusec.run.device.Device", Broken)
    fusec(capsys, "run", folder, "--target", "sm_90a").says(70, "to reproduce")
    append(folder / KERNEL, "\n// an edit\n")
    done = fusec(capsys, "run", folder, "--target", "sm_90a")
    done.says(2, "CUDA_ERROR_ILLEGAL_ADDRESS", "edited: small_pointwise")


def test_options_without_effect_on_a_folder(folder: Path, capsys: Capture) -> None:
    for option in (["--without", "remove_dead"], ["--schedule", "s.yaml"]):
        fusec(capsys, "run", folder, *option).says(2, "no effect on a compiled folder")


# --- damage ------------------------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Return what changes the manifest, and its digest of itself with it."""

    def apply(folder: Path) -> None:
        data = manifest(folder)
        change(data)
        (folder / "manifest.json").write_text(json.dumps(signed(data)))

    return apply


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def made_folder(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return apply


def kernel_of(data: dict[str, Any]) -> dict[str, Any]:
    return data["plans"][0]["kernels"][0]


def launch_of(data: dict[str, Any]) -> dict[str, Any]:
    steps = data["plans"][0]["program"]["instructions"]
    return next(i for i in steps if i["is"] == "launch")


def edited_by_hand(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"default": 2.0', '"default": 3.0'))


def without_digest(folder: Path) -> None:
    data = {key: value for key, value in manifest(folder).items() if key != "digest"}
    (folder / "manifest.json").write_text(json.dumps(data))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (removed("manifest.json"), "is not a compiled fusion (manifest.json not found)"),
    "manifest a folder": (made_folder("manifest.json"), "manifest.json not found"),
    "manifest empty": (written("manifest.json", b""), "manifest.json` is damaged"),
    "manifest cut": (written("manifest.json", b'{"schema_version": 1, "fi'), "is damaged"),
    "manifest binary": (written("manifest.json", b"\xff\0\xfe"), "manifest.json` is damaged"),
    "manifest a list": (written("manifest.json", b"[1]"), "it has no schema_version"),
    "manifest null": (written("manifest.json", b"null"), "it has no schema_version"),
    "manifest deep": (written("manifest.json", b"[" * 100_000), "is damaged"),
    "another version": (
        changed(lambda d: d.update(schema_version=99)),
        f"has schema version 99, this fusec reads {SCHEMA_VERSION}",
    ),
    "edited by hand": (edited_by_hand, "manifest.json` was changed since it was compiled"),
    "no digest": (without_digest, "has no digest: it is damaged or from an earlier fusec"),
    "no plans": (changed(lambda d: d.update(plans=[])), "it has no plans"),
    "no targets": (changed(lambda d: d["plans"][0].update(targets=[])), "no targets"),
    "no program": (changed(lambda d: d["plans"][0].pop("program")), "plans[0] has no `program`"),
    "no files": (changed(lambda d: d.pop("files")), "it has no `files`"),
    "files a list": (changed(lambda d: d.update(files=["x"])), "is damaged"),
    "file outside": (
        changed(lambda d: d["files"].update({"../x": "0"})),
        "refers to a file outside the folder",
    ),
    "file absolute": (
        changed(lambda d: d["files"].update({"/etc/passwd": "0"})),
        "refers to a file outside the folder",
    ),
    "kernel unknown": (
        changed(lambda d: kernel_of(d).update(source="x.cu")),
        "its file list lacks `x.cu`",
    ),
    "kernel misnamed": (
        changed(lambda d: kernel_of(d).update(name="k")),
        'plans[0].kernels[0].name is "k", expected "small_pointwise"',
    ),
    "one size more": (changed(lambda d: launch_of(d)["grid"].append("Q")), "expected 3 entries"),
    "strange size": (
        changed(lambda d: launch_of(d).update(grid=["Q", 1, 1])),
        'grid[0] is "Q", expected',
    ),
    "no size": (changed(lambda d: launch_of(d).update(grid=["(", 1, 1])), "size expression"),
    "unknown step": (
        changed(lambda d: launch_of(d).update({"is": "jump"})),
        "expected one of allocate",
    ),
    "unknown buffer": (
        changed(lambda d: launch_of(d)["arguments"][0].update(name="q")),
        'arguments[0].name is "q", expected "x"',
    ),
    "no fusion": (removed("fusion.yaml"), "fusion.yaml` is missing"),
    "another fusion": (written("fusion.yaml", SMALL.encode()), "fusion.yaml` was changed since"),
    "no kernel": (removed(KERNEL), "small_pointwise.cu` is missing"),
    "kernel binary": (written(KERNEL, b"\xff\xfe\0"), "small_pointwise.cu` is not UTF-8 text"),
    "kernel a folder": (made_folder(KERNEL), "is a directory"),
    "no header": (removed(HEADER), "types.cuh` is missing"),
    "no cubin": (removed(CUBIN), "cubin` is missing"),
    "cubin cut": (written(CUBIN, b"\x7fELF"), "cubin` was changed since it was compiled"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told(damage: str, folder: Path, capsys: Capture) -> None:
    apply, message = DAMAGES[damage]
    apply(folder)
    done = fusec(capsys, "run", folder)
    done.says(2, message)
    assert "help: " in done.err or damage == "kernel a folder"


# --- writing -----------------------------------------------------------------------------------


def compile_to(capsys: Capture, folder: Path, out: Path, text: str = SMALL) -> Result:
    return fusec(capsys, "compile", small(folder, text), "-o", out)


def test_compiling_again_replaces_the_folder(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "a" / "out"
    assert compile_to(capsys, tmp_path, out).code == 0
    first = files(out)
    assert compile_to(capsys, tmp_path, out).code == 0
    assert files(out) == first, "the same bytes from run to run"
    assert compile_to(capsys, tmp_path, out, SMALL.replace("small", "other")).code == 0
    assert not any("small" in name for name in files(out))
    assert [p.name for p in out.parent.iterdir()] == ["out"], "nothing is left beside it"
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o777 & ~mask


def test_the_folder_is_named_after_the_fusion(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = fusec(capsys, "compile", path)
    assert done.out.startswith("small.fusec: 1 segment, 1 kernel for sm_90a\n")
    assert (tmp_path / "small.fusec" / KERNEL).is_file()


def test_a_folder_does_not_depend_on_how_the_path_was_typed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    path = small(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    found: list[dict[str, bytes]] = []
    for number, typed in enumerate([path, path.name, f"./{path.name}", f"b/../{path.name}"]):
        out = tmp_path / f"out{number}"
        assert fusec(capsys, "compile", typed, "-o", out, "--target", "sm_90a").code == 0
        files = (p for p in out.rglob("*") if p.is_file())
        found.append({str(p.relative_to(out)): p.read_bytes() for p in files})
    assert all(each == found[0] for each in found)
    (text,) = (data for name, data in found[0].items() if name.endswith(".cu"))
    assert f"// Source: {path.name}\n".encode() in text


def test_a_script_of_several_fusions(tmp_path: Path, capsys: Capture) -> None:
    script, out = small(tmp_path, SCRIPT, "two.py"), tmp_path / "out"
    assert fusec(capsys, "compile", script, "-o", out).code == 0
    assert sorted(p.name for p in out.iterdir()) == ["two", "two_2"]
    for name in ("two", "two_2"):
        assert fusec(capsys, "run", out / name).code == 0
    assert fusec(capsys, "compile", script, "-o", out).code == 0


def test_what_others_put_there_stays(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    compile_to(capsys, tmp_path, out)
    (out / "notes.txt").write_text("mine")
    compile_to(capsys, tmp_path, out).says(2, "holds other files: `notes.txt`")
    (out / "notes.txt").unlink()
    append(out / KERNEL, "// mine\n")
    compile_to(capsys, tmp_path, out).says(2, f"`{out / KERNEL}` was edited", "would be lost")
    assert (out / KERNEL).read_text().endswith("// mine\n")
    (out / "manifest.json").write_text("{")
    compile_to(capsys, tmp_path, out).says(2, "damaged manifest.json")
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    compile_to(capsys, tmp_path, other).says(2, "holds other files: `file`")
    compile_to(capsys, tmp_path, tmp_path / "small.yaml").says(2, "is a file")
    compile_to(capsys, tmp_path, tmp_path / "small.yaml" / "x").says(2, "cannot write")
    (tmp_path / "link").symlink_to(out)
    compile_to(capsys, tmp_path, tmp_path / "link").says(2, "is a symbolic link")
    (tmp_path / "empty").mkdir()
    assert compile_to(capsys, tmp_path, tmp_path / "empty").code == 0


def test_the_place_is_looked_at_before_the_work(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "compile_targets", None)
    compile_to(capsys, tmp_path, tmp_path / "small.yaml").says(2, "is a file")


def test_a_failed_write_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "here"
    write_folder(base / "out", OLD)
    write_bytes = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if path.name == "b":
            raise OSError(28, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(FusecError, match="No space left on device"):
        write_folder(base / "out", NEW)
    assert files(base / "out") == OLD
    assert [p.name for p in base.iterdir()] == ["out"]
    monkeypatch.undo()
    write_folder(base / "out", NEW)
    assert files(base / "out") == NEW
