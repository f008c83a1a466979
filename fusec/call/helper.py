"""The C launch helper: built once where a C compiler and Python's headers are installed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from fusec import trust
from fusec.options import environment
from fusec.run.entries import VARIABLE, cache_directory

NAME = "fusec_helper"
SOURCE = Path(__file__).with_name("helper.c")
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared")
SECONDS = 60
DRIVER = "libcuda.so.1"


@cache
def helper() -> Any:
    """Return the helper's module; None where it cannot be built, or FUSEC_HELPER is 0."""
    if environment("FUSEC_HELPER") == "0":
        return None
    try:
        folder = cache_directory()
        trust.check(folder)
        module = load(built(folder / "helper"))
        module.open_driver(DRIVER)
    except trust.Untrusted as problem:
        trust.warn_unused("the C launch helper", problem, VARIABLE)
        return None
    except (OSError, ImportError):
        return None  # calls work without it, more slowly
    return module


def built(folder: Path) -> Path:
    """Return the helper's library in a folder, built for this Python unless it exists.

    One that another user may have written is built again. OSError where the build fails; Untrusted
    where the folder is not safe to use.
    """
    trust.check(folder)
    text, suffix = SOURCE.read_bytes(), EXTENSION_SUFFIXES[0]
    digest = hashlib.sha256(text + " ".join(FLAGS).encode()).hexdigest()[:16]
    library = folder / f"{digest}{suffix}"
    if not _is_own(library):
        _build(library, suffix)
    return library


def _build(library: Path, suffix: str) -> None:
    """Compile the helper to a temporary file and rename it; OSError where that fails."""
    import subprocess
    import sysconfig
    import tempfile
    from shutil import which

    compiler = which("cc") or which("gcc") or which("clang")
    if compiler is None:
        raise OSError("no C compiler was found")
    trust.make_private(library.parent)
    handle, aside = tempfile.mkstemp(dir=library.parent, suffix=suffix)
    os.close(handle)
    try:
        include = f"-I{sysconfig.get_paths()['include']}"
        command = [compiler, *FLAGS, include, str(SOURCE), "-o", aside]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        os.chmod(aside, trust.PRIVATE)  # linkers write by the umask
        os.replace(aside, library)
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)


def _is_own(library: Path) -> bool:
    try:
        return trust.why_untrusted(os.lstat(library)) is None
    except OSError:
        return False


def load(library: Path) -> Any:
    """Return the module of a library; ImportError where it is for another Python."""
    loader = ExtensionFileLoader(NAME, str(library))
    spec = spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
