"""The fusions of a file, with distinct names, at the requested sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fusec.activity import activity
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Pin

if TYPE_CHECKING:
    from fusec.ir.graph import Fusion
    from fusec.ir.sharding import Part
    from fusec.options import CompileOptions


def fusions_of(path: str, options: CompileOptions) -> list[Fusion]:
    """Return the fusions of a file, with distinct names, and the sizes and schedules of options.

    One fusion for YAML, each definition of a script.
    """
    if options.buckets:
        name, sizes = next(iter(options.buckets.items()))
        raise FusecError(
            f"--set {name}={','.join(map(str, sizes))}: expected one size",
            help="`fusec compile` accepts several",
        )
    with reading(path):
        found = _fusions_of(path, options.sizes)
    return [as_asked(fusion, options) for fusion in found]


def reading(path: str) -> AbstractContextManager[object]:
    """Report that a file is being read, except for a script, which may print itself."""
    return nullcontext() if path.endswith(".py") else activity(f"read {path}")


def as_asked(fusion: Fusion, options: CompileOptions) -> Fusion:
    """Return a fusion with the schedules of the options, and its sums over ranks in chunks."""
    fusion = with_schedule(fusion, options)
    if options.segments:
        pins = (Pin(name, values) for name, values in options.segments.items())
        fusion = replace(fusion, pins=(*fusion.pins, *pins))
    if not options.sum_chunks:
        return fusion
    from fusec.shard.chunks import with_sum_chunks

    return with_sum_chunks(fusion, options.sum_chunks)


def with_schedule(fusion: Fusion, options: CompileOptions) -> Fusion:
    """Return a fusion with the schedules of the options' file, if they name one."""
    if options.schedule is None:
        return fusion
    from fusec.parse.schedules import with_schedules

    return with_schedules(fusion, options.schedule)


def _fusions_of(path: str, sizes: Mapping[str, int]) -> list[Fusion]:
    if Path(path).suffix == ".py":
        from fusec.nvfuser.script import load_script

        names = Names()
        return [with_sizes(names.unique(f), sizes) for f in load_script(path)]
    from fusec.parse import read_file

    if os.path.isdir(path):
        from fusec.models.folder import is_model_folder, read_model_folder

        if is_model_folder(path):
            found = _model_fusions(read_model_folder(path).fusions, sizes)
            return [with_planned_strides(fusion) for fusion in found]
        raise FusecError(
            f"`{path}` is a directory, not a fusion file",
            help=f"name its files: `{os.path.join(path, '*.yaml')}`; of a compiled folder "
            "`fusec run` accepts the folder, other commands its `fusion.yaml`",
        )
    return [with_planned_strides(read_file(path, dict(sizes)))]


def _model_fusions(files: Sequence[Path], sizes: Mapping[str, int]) -> list[Fusion]:
    """Return the fusions of a model, each with those of the sizes that it has dims for."""
    from fusec.parse import read_file

    if not sizes or len(files) == 1:
        return [read_file(file, dict(sizes)) for file in files]
    known = {file: {d.name for d in read_file(file).dims} for file in files}
    for name in sizes:
        if not any(name in dims for dims in known.values()):
            named = ", ".join(sorted({d for dims in known.values() for d in dims})) or "none"
            raise FusecError(f"no fusion of the model has a dim `{name}`", help=f"it has {named}")
    return [
        read_file(file, {n: size for n, size in sizes.items() if n in known[file]})
        for file in files
    ]


class Names:
    """Fusions by name: all definitions of a script are named after it, folders must differ."""

    def __init__(self) -> None:
        """Start without any."""
        self._taken: dict[str, Fusion] = {}

    def unique(self, fusion: Fusion) -> Fusion:
        """Return the fusion as `name`, `name_2`, ...; an identical one keeps its name."""
        name, number, plain = fusion.name, 1, _without_defaults(fusion)
        while name in self._taken and self._taken[name] != plain:
            number += 1
            name = f"{fusion.name}_{number}"
        self._taken.setdefault(name, plain)
        return fusion if name == fusion.name else replace(fusion, name=name)


def _without_defaults(fusion: Fusion) -> Fusion:
    """Return the fusion without anything that one execution binds."""
    dims = tuple(replace(d, default=1, multiple_of=1) for d in fusion.dims)
    inputs = tuple(replace(i, default=None) for i in fusion.inputs)
    return replace(fusion, dims=dims, inputs=inputs)


def with_sizes(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion with other default sizes; FusecError for invalid ones."""
    if not sizes:
        return fusion
    from fusec.ops.limits import check_sizes
    from fusec.run.inputs import choose_sizes

    fusion, sizes = _with_mesh_sizes(fusion, sizes)
    chosen = choose_sizes(fusion, sizes)
    sized = replace(fusion, dims=tuple(replace(d, default=chosen[d.name]) for d in fusion.dims))
    check_sizes(sized)
    return sized


def _with_mesh_sizes(fusion: Fusion, sizes: Mapping[str, int]) -> tuple[Fusion, Mapping[str, int]]:
    """Return (the fusion over a mesh with other axis sizes, the remaining sizes of its dims)."""
    axes = set[str]() if fusion.mesh is None else {n for n, _ in fusion.mesh.axes if n in sizes}
    axes -= {d.name for d in fusion.dims}
    if not axes:
        return fusion, sizes
    given = {name: sizes[name] for name in axes}
    return with_mesh(fusion, given), {n: s for n, s in sizes.items() if n not in axes}


def with_mesh(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion over a mesh with other sizes of some axes.

    FusecError where these do not divide the dims sharded along them.
    """
    from fusec.ir.dim import dim
    from fusec.ir.divided import check_shardings
    from fusec.ops.meshes import resized

    if fusion.mesh is None:
        raise FusecError(f"fusion `{fusion.name}` has no mesh")
    mesh = resized(fusion.mesh, sizes)
    parts = {name: dim(mesh.extent(name)) for name in sizes}

    def over(part: Part) -> Part:
        return replace(part, parts=parts[part.axis]) if part.axis in parts else part

    shardings = {
        name: replace(said, dims=tuple(tuple(map(over, each)) for each in said.dims))
        for name, said in fusion.shardings.items()
    }
    found = replace(fusion, mesh=mesh, shardings=shardings)
    check_shardings(found)
    return found


def variant(fusion: Fusion, sizes: Mapping[str, int]) -> Fusion:
    """Return the fusion for other sizes in the same folder, with distinct kernel names."""
    if not sizes:
        return fusion
    tail = "_".join(f"{name.replace('.', '_')}{size}" for name, size in sizes.items())
    return replace(with_sizes(fusion, sizes), name=f"{fusion.name}_{tail}")


def with_planned_strides(fusion: Fusion) -> Fusion:
    """Return the fusion with the run-time strides of random inputs as its defaults.

    Kernels specialized for strides are then built for the inputs that `fusec run` generates.
    """
    if not any(name.partition(".")[2] for name in fusion.hints):
        return fusion
    from fusec.run.inputs import choose_sizes

    chosen = choose_sizes(fusion)
    return replace(fusion, dims=tuple(replace(d, default=chosen[d.name]) for d in fusion.dims))
