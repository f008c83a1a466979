"""Callable programs, compiled now or loaded from a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fusec import driver
from fusec.call.chain import Chain
from fusec.call.model import Model
from fusec.call.program import Evaluate, Make, Program
from fusec.call.variants import Variant
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Unsupported
from fusec.driver import Compilation, Package, choose
from fusec.files import as_asked, fusions_of, with_planned_strides, with_sizes
from fusec.hostir.coverage import coverage
from fusec.ir.graph import Fusion
from fusec.models.folder import ModelFolder, check_calls, is_model_folder, read_model_folder
from fusec.ops.limits import check_fits, check_sizes
from fusec.options import CompileOptions
from fusec.rank import called
from fusec.run.device import Device, device_available, open_device
from fusec.run.distributed.process import own_gpu
from fusec.shard.partition import partition
from fusec.shard.place import whole_sizes


def compile_source(
    source: Any, options: CompileOptions, *, part: str | None = None, build: bool = True
) -> Program:
    """Return the program of a fusion: see `fusec.compile`."""
    fusion = choose("compile", {f.name: f for f in fusions_in(source, options)}, part)
    local, make = partition(fusion), maker(fusion, options)
    first = options.targets_given or device_available() is None
    sized = first and _is_sized(fusion)
    given = options.targets_given
    variants = [make(local.hints, _device(local, given=given))] if sized else []
    return Program(local, variants, make if build else None, evaluator(fusion))


def load_folder(
    folder: str | os.PathLike[str],
    calls: Mapping[str, Callable[..., Any]],
    compile_file: Callable[[str], Program],
    *,
    build: bool,
) -> Program | Model:
    """Return the program of a folder: see `fusec.load`; compile_file: for the files of a model."""
    from fusec.commands.folder.reading import package_of, read_folder

    if is_model_folder(folder):
        return model_of(read_model_folder(folder), calls, compile_file)
    if calls:
        raise FusecError(f"`{folder}` has no external calls: it is not an imported model")
    contents = read_folder(Path(folder))
    options = CompileOptions()
    if device_available() is None:
        options = driver.for_device(options, open_device(0).facts)
    else:
        options = replace(options, targets=contents.manifest.targets[:1])
    package = package_of(contents, options.target, options)
    make = maker(contents.fusion, package.program.options) if build else None
    fusion = contents.fusion
    return Program(partition(fusion), variants_of(package), make, evaluator(fusion))


def model_of(
    folder: ModelFolder,
    calls: Mapping[str, Callable[..., Any]],
    compile_file: Callable[[str], Program],
) -> Model:
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
    programs = [compile_file(str(path)) for path in folder.fusions]
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


def compile_unsized(fusion: Fusion) -> Program:
    """Return the program of a definition's fusion, which is compiled by the first call."""
    whole = replace(fusion, phases=())  # all inputs are passed at once
    return Program(partition(whole), [], maker(whole, CompileOptions()), evaluator(whole))


def variants_of(package: Package) -> list[Variant]:
    """Return a package's programs with their machine code, in the form that calls use."""
    cubins = {t: package.cubins(t) for t in package.targets}
    entries = {name: artifact.key for (name, _), artifact in package.artifacts.items()}
    return [
        Variant(
            p.host, cubins, coverage(p.host.guards, p.local.dims),
            evaluated=p.evaluated, entries=entries,
        )
        for p in package.programs
    ]  # fmt: skip


def maker(fusion: Fusion, options: CompileOptions) -> Make:
    """Return a function that builds the per-rank fusion for given sizes."""
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


def evaluator(fusion: Fusion) -> Evaluate:
    """Return a function that evaluates the per-rank fusion, by the reference."""
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


def _device(local: Fusion, *, given: bool) -> Device | None:
    """Return the device to compile for; None where the targets are given."""
    if given:
        return None
    return open_device(0 if local.mesh is None else own_gpu())


def _is_sized(fusion: Fusion) -> bool:
    """Return whether the user set the sizes: a definition may leave them to its inputs."""
    return not any(d.anonymous for d in fusion.dims)


def fusions_in(source: Any, options: CompileOptions) -> list[Fusion]:
    """Return the fusions of an argument of `fusec.compile`, at the sizes of the options."""
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


def fusion_of(text: str, path: str, options: CompileOptions, part: str | None) -> Fusion:
    """Return the fusion of a file with the given text, as `compile_source` reads it."""
    from fusec.parse import read_text

    whole = as_asked(with_planned_strides(read_text(text, path, dict(options.sizes))), options)
    named = {p.original.name: p.original for p in Compilation(whole, options).parts}
    return choose("compile", named, part)
