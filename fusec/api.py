"""`fusec.compile` and `fusec.load`: programs that are called from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack
from weakref import finalize

from fusec import driver
from fusec.call.chain import Chain
from fusec.call.model import Model
from fusec.call.program import Evaluate, Make, Program
from fusec.call.variants import Variant
from fusec.commands.dump import text_of
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation, Package, choose
from fusec.files import as_asked, fusions_of, with_sizes
from fusec.hostir.coverage import coverage
from fusec.ir.graph import Fusion
from fusec.keywords import Options, options_of
from fusec.models.folder import ModelFolder, check_calls, is_model_folder, read_model_folder
from fusec.ops.limits import check_fits, check_sizes
from fusec.options import DEFAULT_TARGET, DUMP_KINDS, DUMP_STYLES, CompileOptions
from fusec.rank import called
from fusec.run.device import Device, device_available, open_device
from fusec.run.distributed.process import own_gpu
from fusec.shard.partition import partition
from fusec.shard.place import whole_sizes


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
    named = {f.name: f for f in _fusions(source, asked)}
    fusion = choose("compile", named, part)
    local, make = partition(fusion), _maker(fusion, asked)
    target = options.get("target")
    first = target is not None or device_available() is None
    sized = first and _is_sized(fusion)
    variants = [make(local.hints, _device(local, target))] if sized else []
    return Program(local, variants, make if build else None, _evaluate(fusion))


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
    for what, name, known in (("kind", kind, DUMP_KINDS), ("style", style, DUMP_STYLES)):
        if name not in known:
            raise FusecError(f"dump() has no {what} `{name}`", help="one of " + ", ".join(known))
    options.setdefault("target", DEFAULT_TARGET)
    asked = options_of("dump", options)
    programs = [p for f in _fusions(source, asked) for p in Compilation(f, asked).parts]
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
    from fusec.commands.folder.reading import package_of, read_folder

    if is_model_folder(folder):
        return _model(read_model_folder(folder), calls or {}, build=build)
    if calls:
        raise FusecError(f"`{folder}` has no external calls: it is not an imported model")
    contents = read_folder(Path(folder))
    options = CompileOptions()
    if device_available() is None:
        options = driver.for_device(options, open_device(0).facts)
    else:
        options = replace(options, targets=contents.manifest.targets[:1])
    package = package_of(contents, options.target, options)
    make = _maker(contents.fusion, package.program.options) if build else None
    fusion = contents.fusion
    return Program(partition(fusion), variants_of(package), make, _evaluate(fusion))


def _model(folder: ModelFolder, calls: Mapping[str, Callable[..., Any]], *, build: bool) -> Model:
    """Return a model with its weights, and with functions for its external calls."""
    needed = {call.target for call in folder.calls}
    unknown = sorted({*calls} - needed)
    if unknown:
        raise FusecError(
            f"`{folder.path}` has no external call `{unknown[0]}`",
            help=f"it has {', '.join(sorted(needed)) or 'none'}",
        )
    if not needed <= {*calls}:
        check_calls(folder)
    programs = [compile(str(path), build=build) for path in folder.fusions]
    program = programs[0]
    if needed:
        pending = iter(programs)
        steps = [
            next(pending) if isinstance(s, str) else (s, calls[s.target]) for s in folder.steps
        ]
        weights = {name: weight.type for name, weight in folder.weights.items()}
        inputs = {**folder.types, **weights}
        outputs = [name for name in folder.outputs if isinstance(name, str)]
        program = Chain(folder.name, steps, inputs, outputs)
    return Model(program, folder.load_weights(), folder.inputs, folder.outputs)


def program_for(fusion: Fusion) -> Program:
    """Return the program of a definition's fusion, the same one while the fusion lives."""
    number = id(fusion)
    program = _programs.get(number)
    if program is None:
        whole = replace(fusion, phases=())  # all inputs are given at once
        make = _maker(whole, CompileOptions())
        program = _programs[number] = Program(partition(whole), [], make, _evaluate(whole))
        finalize(fusion, _programs.pop, number, None).atexit = False
    return program


_programs: dict[int, Program] = {}
"""By the identity of a fusion, whose end removes its program."""


def variants_of(package: Package) -> list[Variant]:
    """Return a package's programs with their machine code, as calls take them."""
    cubins = {t: package.cubins(t) for t in package.targets}
    return [
        Variant(p.host, cubins, coverage(p.host.guards, p.local.dims), evaluated=p.evaluated)
        for p in package.programs
    ]


def _maker(fusion: Fusion, options: CompileOptions) -> Make:
    """Return what builds a fusion for the sizes that one rank has."""
    local = partition(fusion)

    def make(sizes: Mapping[str, int], device: Device | None) -> Variant:
        own = options if device is None else driver.for_device(options, device.facts)
        wanted = at(fusion, whole_sizes(fusion, local, sizes))
        part = partition(wanted)
        check_sizes(part)
        check_fits(part)
        if any(sizes[d.name] != d.default for d in part.dims if d.name in sizes):
            raise Unsupported(f"`{fusion.name}` is divided in another way at these sizes")
        package = driver.compile_fusion(wanted, own)
        return variants_of(package)[0]

    return make


def _evaluate(fusion: Fusion) -> Evaluate:
    """Return what evaluates a fusion for one rank, by the reference."""
    several = fusion.mesh is not None and fusion.mesh.size > 1

    def evaluate(
        local: Fusion, inputs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, Any]:
        if not several:
            return driver.reference(fusion, inputs, sizes)
        wanted = at(fusion, whole_sizes(fusion, local, sizes))
        return called(Compilation(wanted, CompileOptions()), inputs)

    return evaluate


def at(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return a fusion with other default sizes, for which it is then planned."""
    dims = tuple(replace(d, default=sizes.get(d.name, d.default)) for d in fusion.dims)
    return replace(fusion, dims=dims)


def _device(local: Fusion, target: str | None) -> Device | None:
    if target is not None:
        return None
    return open_device(0 if local.mesh is None else own_gpu())


def _is_sized(fusion: Fusion) -> bool:
    """Return whether the sizes are the user's: a definition may leave them to its inputs."""
    return not any(d.anonymous for d in fusion.dims)


def _fusions(source: Any, options: CompileOptions) -> list[Fusion]:
    from fusec.parse import read_text
    from fusec.parse.dsl import FusionDefinition

    if isinstance(source, str) and "\n" in source:
        given = read_text(source)
    elif isinstance(source, (str, os.PathLike)):
        fusions = fusions_of(str(source), options)  # pyright: ignore[reportUnknownArgumentType]
        return [p.original for f in fusions for p in Compilation(f, options).parts]
    elif isinstance(source, FusionDefinition):
        given = source.graph()
    elif isinstance(source, Fusion):
        given = source
    else:
        raise FusecError(
            f"compile() takes a path, text, a FusionDefinition or a Fusion, not "
            f"{type(source).__name__}", help='e.g. fusec.compile("examples/layernorm.yaml")',
        )  # fmt: skip
    whole = as_asked(with_sizes(given, options.sizes), options)
    return [p.original for p in Compilation(whole, options).parts]
