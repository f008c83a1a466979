"""Emitted C of two examples, kept for review: `python tests/emitted_golden.py` writes it again."""

from __future__ import annotations

from paths import ROOT, TESTS

from fusec.driver import Compilation, Package
from fusec.emit.c import files_of, view_of
from fusec.options import CompileOptions
from fusec.parse import read_file
from fusec.run.build import Artifact

FOLDER = TESTS / "emitted_golden"
NAMES = ("sequence_parallel_mlp", "stream_rows")
TARGET = "sm_90a"


def golden_files(name: str) -> dict[str, str]:
    """Return an example's emitted files without machine code, for which there is a dummy."""
    fusion = read_file(ROOT / "examples" / "parallel" / f"{name}.yaml")
    options = CompileOptions(targets=(TARGET,), targets_given=True, untuned=True)
    program = Compilation(fusion, options)
    artifacts = {
        (launch.kernel, TARGET): _artifact(launch.kernel) for launch in program.host.launches
    }
    found = files_of(view_of(Package((program,), artifacts, (TARGET,))))
    return {path: text.decode().partition("// clang-format off")[0] for path, text in found.items()}


def _artifact(kernel: str) -> Artifact:
    return Artifact(kernel, TARGET, kernel.encode(), "nvrtc 13.0", 0, 0, 0, 0, True, 0.0)


if __name__ == "__main__":
    for name in NAMES:
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        for path, text in golden_files(name).items():
            (FOLDER / name / path).write_text(text)
