"""Passes over a fusion before segmentation, each a function in a file of its name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module

from fusec.ir.graph import Fusion
from fusec.passes.approximate import approximate
from fusec.passes.cancel_slices import cancel_slices
from fusec.passes.expand_repeats import expand_repeats
from fusec.passes.fold_constants import fold_constants
from fusec.passes.hoist_reciprocals import hoist_reciprocals
from fusec.passes.merge_broadcasts import merge_broadcasts
from fusec.passes.merge_casts import merge_casts
from fusec.passes.merge_pads import merge_pads
from fusec.passes.merge_permutes import merge_permutes
from fusec.passes.merge_reshapes import merge_reshapes
from fusec.passes.overrides import carry_overrides
from fusec.passes.pipeline import Observer, Pass, run_passes
from fusec.passes.remove_copies import remove_copies
from fusec.passes.remove_dead import remove_dead
from fusec.passes.share_expressions import share_expressions
from fusec.passes.specialize_units import specialize_units
from fusec.passes.squeeze_unit_reductions import squeeze_unit_reductions
from fusec.passes.tanh_to_sigmoid import tanh_to_sigmoid
from fusec.passes.view_outputs import view_outputs

__all__ = ["APPROXIMATIONS", "NEEDED", "PIPELINE", "Observer", "Pass", "run_pipeline"]


def _pass(run: Callable[[Fusion], Fusion]) -> Pass[Fusion]:
    def with_overrides(fusion: Fusion) -> Fusion:
        return carry_overrides(fusion, run(fusion))

    return Pass(run.__name__, with_overrides)


def _rare(name: str, may_change: Callable[[Fusion], bool]) -> Pass[Fusion]:
    """Return a pass that is imported for the first fusion that it may change."""

    def run(fusion: Fusion) -> Fusion:
        if not may_change(fusion):
            return fusion
        return carry_overrides(fusion, find_pass(name)(fusion))

    return Pass(name, run)


def find_pass(name: str) -> Callable[[Fusion], Fusion]:
    """Return a pass by its name."""
    return getattr(import_module(f"{__name__}.{name}"), name)


def _has_complex(fusion: Fusion) -> bool:
    operands = (o for n in fusion.nodes for o in n.operands)
    return any(v.dtype.is_complex for v in (*fusion.values, *operands))


def _has_product(fusion: Fusion) -> bool:
    return any(n.op.product is not None for n in fusion.nodes)


def _has_scatter(fusion: Fusion) -> bool:
    return any(n.op.family == "scatter" for n in fusion.nodes)


def _selects(fusion: Fusion) -> bool:
    """Return whether a node reads some rows of a tensor."""
    accesses = [(n.op.family, n.op.access) for n in fusion.nodes]
    return any(f == "indexing" or (a is not None and a.window is not None) for f, a in accesses)


def _writes_inputs(fusion: Fusion) -> bool:
    return bool(fusion.effects.in_place)


PIPELINE: tuple[Pass[Fusion], ...] = (
    _rare("complex_as_pairs", _has_complex),  # first: no other pass supports complex numbers
    _pass(fold_constants),  # first among reals: the other rules look for literals
    _pass(remove_copies),  # a `set` hides its operand from the rules below
    _rare("multiply_outer_products", _has_product),  # before its broadcasts are merged
    _pass(specialize_units),  # before reductions of these extents are squeezed
    _rare(
        "scatters_as_selects", _has_scatter
    ),  # before the nodes that it writes are merged and shared
    _pass(squeeze_unit_reductions),  # before squeezes and casts are merged
    _rare("hoist_scales", _has_product),  # before the movements that it copies are merged
    _pass(merge_casts),
    _pass(merge_broadcasts),
    _pass(merge_permutes),
    _pass(merge_reshapes),
    _pass(view_outputs),  # after chains are short, before equal outputs become copies of one
    _pass(share_expressions),  # after chains are short: equal chains are equal nodes now
    _pass(cancel_slices),  # compares tensors by identity, so after sharing
    _pass(expand_repeats),  # the same
    _pass(merge_pads),
    _rare("hoist_selections", _selects),  # after slices of slices are one
    _pass(tanh_to_sigmoid),  # after chains are short, before operations are approximated
    _pass(hoist_reciprocals),
    _pass(approximate),
    _rare("update_slices", _writes_inputs),  # leaves joined slices without uses
    _pass(remove_dead),  # last of the rewrites: all of them leave nodes without uses
    _rare("protect_inputs", _writes_inputs),  # at the end: it looks at the remaining reads
)


NEEDED = ("complex_as_pairs", "protect_inputs")
"""The passes that some fusions need to compile: the option `as_written` keeps them."""
APPROXIMATIONS = ("hoist_scales", "tanh_to_sigmoid", "hoist_reciprocals", "approximate")
"""The passes that use cheaper arithmetic: the option `precise` disables them."""


def run_pipeline(
    fusion: Fusion,
    *,
    without: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer[Fusion] | None = None,
) -> Fusion:
    """Return the fusion after all passes except those in `without`, up to `stop_after`.

    `observer` is called after each pass with the fusions before and after (the same object if
    nothing changed) and the seconds that it took.
    """
    return run_passes(PIPELINE, fusion, without=without, stop_after=stop_after, observer=observer)
