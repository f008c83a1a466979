"""The digest of everything that determines a plan."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.plan_cache.shared import option_texts, tree_digest
from fusec.run.entries import digest_of
from fusec.target import find
from fusec.tuned import store_for


def key_of(fusion: Fusion, options: CompileOptions, compiler: str = "") -> str | None:
    """Return the key of a fusion's plan; None where it is planned each time.

    compiler: name and version, for plans that were selected because the compiler spills. Plans for
    several ranks and of several phases, and plans that depend on a user's function, are not cached.
    """
    several = fusion.phases or fusion.shardings or fusion.mesh is not None
    if several or options.should_merge is not None or (tree := tree_digest()) is None:
        return None
    try:
        text = to_text(fusion)
    except FusecError:
        return None  # it is planned, but cannot be written as a file
    return digest_of([tree, compiler, text, *_places(fusion), *_options(options)])


def _places(fusion: Fusion) -> Iterator[str]:
    """Yield what plans, and messages about them, depend on in addition to the text."""
    yield repr((fusion.source, fusion.saved, fusion.dims, fusion.pins, fusion.schedules))
    entries = (*fusion.inputs, *fusion.nodes, *fusion.outputs)
    yield repr([e.span and (e.span.place(), e.span.text) for e in entries])


def _options(options: CompileOptions) -> Iterator[str]:
    yield from option_texts(options)
    for arch in options.targets:
        yield repr(find(arch, options.rates))
        if not options.untuned:
            yield from (store.text for store in store_for(arch, options.tuned))
