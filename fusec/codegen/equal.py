"""Equal kernels: those that differ only in names and comments; one of them is compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from fusec.codegen.source import KernelSource


def first_equal(sources: Sequence[KernelSource]) -> list[int]:
    """Return for each kernel the index of the first one equal to it; its own if there is none.

    Equal kernels have one digest, take parameters of the same types in the same order, and are
    launched with the same block size, cluster size and dynamic shared memory; grids may differ.
    """
    found, alike = [*range(len(sources))], defaultdict[Hashable, list[int]](list)
    for place, source in enumerate(sources):
        alike[_form(source)].append(place)
    for places in alike.values():
        if len(places) == 1:
            continue  # nothing can be equal, and a digest costs a rendering
        first: dict[str, int] = {}
        for place in places:
            digest = sources[place].digest
            found[place] = first.setdefault(digest, place) if digest else place
    return found


def kernels_launched(sources: Iterable[KernelSource]) -> dict[str, str]:
    """Return for each planned kernel of a program the name of the kernel that is launched."""
    each = [*sources]
    return {s.name: each[k].name for s, k in zip(each, first_equal(each), strict=True)}


def _form(source: KernelSource) -> Hashable:
    """Return the common properties of equal kernels that are known without a digest."""
    kernel = source.kernel
    return (
        kernel.template, kernel.block, kernel.cluster, kernel.shared_bytes, len(kernel.arguments),
        source.headers,
    )  # fmt: skip
