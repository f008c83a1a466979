"""`fusec.compile` and `fusec.load`: programs that are called from Python.

Programs compiled before are loaded from the cache: modules that read and plan fusions are imported
lazily.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from weakref import finalize

from fusec.diagnostics import FusecError
from fusec.keywords import Options, options_of
from fusec.options import DEFAULT_TARGET, DUMP_KINDS, DUMP_STYLES
from fusec.recorded import keep_program, recorded_program, request_of

if TYPE_CHECKING:
    from fusec.call.model import Model
    from fusec.call.program import Program
    from fusec.ir.graph import Fusion


def compile(
    source: Any,
    *,
    part: str | None = None,
    build: bool = True,
    **options: Unpack[Options],
) -> Program:
    """Compile a fusion into a Program, which is called with arrays.

    source: the path of a file, its text, a FusionDefinition or a Fusion. part: the name of one of
    several fusions in a file, or a phase of a joint graph. sizes: default sizes by the names of
    dims; they are compiled now if there is a GPU or `target` names one. build: whether a call
    compiles for sizes that are not compiled yet; if False, it raises. The other options are those
    of `fusec compile --help`, `should_merge` and `segments` (docs/calls.md). Raises FusecError
    with the position of an error in the source, Unsupported for a valid source without a kernel,
    and EnvironmentProblem if no GPU or compiler can be used.
    """
    asked = options_of("compile", options)
    request = request_of(source, part, asked)
    program = None if request is None else recorded_program(request, build=build)
    if program is not None:
        return program
    from fusec.compiling import compile_source

    program = compile_source(source, asked, part=part, build=build)
    if request is not None:
        keep_program(request, program)
    return program


def dump(
    source: Any,
    kind: str = "segmented-fusion",
    *,
    style: str = "2024",
    part: str | None = None,
    **options: Unpack[Options],
) -> str:
    """Return the text that `fusec dump --KIND` prints for a fusion.

    source, part, options: as for `compile`; the target is sm_90a if none is named. Kind `groups`
    needs `should_merge` or explicit boundaries. Raises FusecError, with the valid kinds and
    styles, for an unknown one.
    """
    from fusec.commands.dump import text_of
    from fusec.compiling import fusions_in
    from fusec.driver import Compilation, choose

    for what, name, known in (("kind", kind, DUMP_KINDS), ("style", style, DUMP_STYLES)):
        if name not in known:
            raise FusecError(f"dump() has no {what} `{name}`", help="one of " + ", ".join(known))
    options.setdefault("target", DEFAULT_TARGET)
    asked = options_of("dump", options)
    programs = [p for f in fusions_in(source, asked) for p in Compilation(f, asked).parts]
    return text_of(choose("dump", {p.original.name: p for p in programs}, part), kind, style)


def load(
    folder: str | os.PathLike[str],
    *,
    build: bool = True,
    calls: Mapping[str, Callable[..., Any]] | None = None,
) -> Program | Model:
    """Return the Program of a compiled folder, or of an imported model.

    folder: written by `fusec compile` or `fusec import`. build: whether a call compiles for sizes
    that the folder does not have; if False, it raises. calls: functions for the external calls of
    a model by their names, such as `aten.conv2d.default`; each accepts ATen's arguments, with
    arrays of the caller's framework, and returns such arrays. Raises FusecError for a damaged or
    edited folder, EnvironmentProblem for one that is compiled for another GPU.
    """
    from fusec.compiling import load_folder

    return load_folder(folder, calls or {}, partial(compile, build=build), build=build)


def program_for(fusion: Fusion) -> Program:
    """Return the program of a definition's fusion, the same one while the fusion lives."""
    number = id(fusion)
    program = _programs.get(number)
    if program is None:
        from fusec.compiling import compile_unsized

        program = _programs[number] = compile_unsized(fusion)
        finalize(fusion, _programs.pop, number, None).atexit = False
    return program


_programs: dict[int, Program] = {}
"""By the identity of a fusion, whose end removes its program."""
