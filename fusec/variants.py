"""Programs of one fusion for several sizes, in one package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from fusec.driver import Compilation, Package, compile_targets
from fusec.files import variant, with_sizes

if TYPE_CHECKING:
    from fusec.run.build import Progress


def variants(program: Compilation, buckets: Mapping[str, Sequence[int]]) -> list[Compilation]:
    """Return the program, and those for other sizes in `buckets` that need their own kernels.

    buckets: of a dim, those in its declaration if there are none. A size for which the same kernels
    would be planned, and launched alike, has no program.
    """
    fusion, options = program.original, program.options
    found, plain = [program], [program]  # by names of their own, and by the same
    named = {d.name: buckets.get(d.name, d.buckets) for d in fusion.dims}
    known = {name: sizes for name, sizes in named.items() if sizes}
    for chosen in product(*known.values()):
        sizes = {n: s for n, s in zip(known, chosen, strict=True) if s != fusion.hints[n]}
        other = Compilation(with_sizes(fusion, sizes), options)
        if sizes and not any(other.agrees(p) for p in plain):
            plain.append(other)
            found.append(Compilation(variant(fusion, sizes), options))
    return found


def compile_variants(programs: Sequence[Compilation], progress: Progress | None = None) -> Package:
    """Return programs of one fusion at several sizes, compiled into one package."""
    packages = [compile_targets(program, progress) for program in programs]
    artifacts = {key: a for package in packages for key, a in package.artifacts.items()}
    every = tuple(program for package in packages for program in package.programs)
    return Package(every, artifacts, packages[0].targets)
