"""SASS disassembly of a cubin, for reading, by NVIDIA's tools."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from fusec.diagnostics import EnvironmentProblem

_WHEELS = {"nvdisasm": "nvidia-cuda-nvdisasm", "cuobjdump": "nvidia-cuda-cuobjdump"}


def sass(cubin: bytes) -> str:
    """Return the disassembly of `cubin`."""
    tool = find_tool("nvdisasm")
    with tempfile.TemporaryDirectory(prefix="fusec-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().replace(str(path), "the cubin")
        raise EnvironmentProblem("nvdisasm cannot read the cubin", notes=reason.splitlines())
    return done.stdout


def find_tool(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a CUDA tool: from PATH, the nvidia wheels, or a CUDA installation."""
    if found := shutil.which(name, path=environment.get("PATH")):
        return Path(found)
    for folder in (*_wheel_folders(), *_installation_folders(environment)):
        if os.access(folder / name, os.X_OK):
            return folder / name
    wheel = _WHEELS.get(name, f"nvidia-cuda-{name}")
    raise EnvironmentProblem(f"the tool {name} was not found", help=f"pip install {wheel}")


def _wheel_folders() -> Iterator[Path]:
    """Yield the bin folders of the nvidia wheels that this interpreter can import."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for location in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(location).glob("*/bin"))


def _installation_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the bin folders of CUDA installations."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environment.get(variable):
            yield Path(home) / "bin"
    yield Path("/usr/local/cuda/bin")
